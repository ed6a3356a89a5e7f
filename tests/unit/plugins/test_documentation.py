"""`ansible-doc` shows every action and filter, and every option as the code has it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ACTIONS = sorted(path.stem for path in ROOT.glob("plugins/action/*.py"))
KEYS = ("type", "elements", "required", "choices", "default")


def filters() -> list[str]:
    modules = (importlib.import_module(f"plugins.filter.{path.stem}") for path in ROOT.glob("plugins/filter/*.py"))
    return sorted(name for module in modules for name in module.FilterModule().filters())


def options(spec: dict[str, Any], inner: str) -> dict[str, Any]:
    """The facts of options, and of the options in them, which are below the key `inner`."""
    return {
        name: {"type": "str", "required": False}
        | {key: option[key] for key in KEYS if key in option}
        | {"inner": options(option.get(inner, {}), inner)}
        for name, option in spec.items()
    }


def shown(*words: str) -> dict[str, Any]:
    command = [str(Path(sys.executable).with_name("ansible-doc")), "--json", *words]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
    pages: dict[str, Any] = json.loads(done.stdout)
    return pages


def test_every_action_and_filter_has_documentation_and_nothing_else_has() -> None:
    assert sorted(path.stem for path in ROOT.glob("plugins/modules/*.py")) == ACTIONS
    assert sorted(path.stem for path in ROOT.glob("plugins/filter/*.yml")) == filters()


@pytest.mark.parametrize("name", ACTIONS)
def test_the_documented_options_are_those_of_the_action(name: str) -> None:
    documentation = yaml.safe_load(importlib.import_module(f"plugins.modules.{name}").DOCUMENTATION)
    assert documentation["module"] == name
    action = importlib.import_module(f"plugins.action.{name}").ActionModule
    documented = documentation.get("options", {})
    for fragment in documentation.get("extends_documentation_fragment", []):
        module = importlib.import_module(f"plugins.doc_fragments.{fragment.removeprefix('gangplank.gangplank.')}")
        documented |= yaml.safe_load(module.ModuleDocFragment.DOCUMENTATION)["options"]
    assert options(documented, "suboptions") == options(action.OPTIONS, "options")


@pytest.mark.slow
def test_ansible_doc_shows_each_page() -> None:
    pages = shown("-t", "module", "-M", "plugins/modules", *ACTIONS)
    assert sorted(pages) == ACTIONS
    for name, page in pages.items():  # those of fragments too
        action = importlib.import_module(f"plugins.action.{name}").ActionModule
        assert sorted(page["doc"].get("options", {})) == sorted(action.OPTIONS)
    names = [f"gangplank.gangplank.{name}" for name in filters()]
    assert sorted(shown("-t", "filter", *names)) == names


@pytest.mark.parametrize("name", [name for name in ACTIONS if not name.startswith("lab_")])  # no part of the collection
def test_the_examples_are_tasks_that_the_action_takes(name: str) -> None:
    tasks = yaml.safe_load(importlib.import_module(f"plugins.modules.{name}").EXAMPLES)
    spec = importlib.import_module(f"plugins.action.{name}").ActionModule.OPTIONS
    for task in tasks:
        (arguments,) = (value or {} for key, value in task.items() if key not in ("name", "register"))
        assert f"gangplank.gangplank.{name}" in task
        assert arguments.keys() <= spec.keys()
        assert {key for key, option in spec.items() if option.get("required")} <= arguments.keys()
