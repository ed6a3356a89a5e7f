"""`ansible-doc` shows every action and filter, and every option as the code has it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def tasks_of(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping in the content of a file that calls an action of this collection."""
    if isinstance(value, dict):
        if any(str(key).startswith("gangplank.gangplank.") for key in value):
            yield value
        value = [*value.values()]
    if isinstance(value, list):
        yield from (task for item in value for task in tasks_of(item))


def refused(name: str, arguments: Mapping[str, Any]) -> list[str]:
    """What the action would refuse of a task's arguments, as far as it shows without their values."""
    action = importlib.import_module(f"plugins.action.{name}").ActionModule
    unknown = [f"unknown: {key}" for key in arguments.keys() - action.OPTIONS.keys()]
    required = {key for key, option in action.OPTIONS.items() if option.get("required")}
    for key, value, others in action.REQUIRED_IF:
        if arguments.get(key, action.OPTIONS[key].get("default")) == value:
            required |= {*others}
    return unknown + [f"missing: {key}" for key in sorted(required - arguments.keys())]


def test_every_task_gives_an_action_the_options_that_it_requires() -> None:
    loader = DataLoader()  # Ansible's own: it knows its tags
    calls = [
        (f"{path.relative_to(ROOT)}: {task.get('name')}", key.removeprefix("gangplank.gangplank."), value or {})
        for folder in ("roles", "playbooks", "molecule", "tests/cluster")
        for path in sorted((ROOT / folder).rglob("*.yml"))
        for task in tasks_of(loader.load_from_file(str(path)))
        for key, value in task.items()
        if str(key).startswith("gangplank.gangplank.")
    ]
    assert {name for _, name, _ in calls} == {*ACTIONS}
    assert [(task, wrong) for task, name, arguments in calls for wrong in refused(name, arguments)] == []


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
    for task in tasks:
        (arguments,) = (value or {} for key, value in task.items() if key not in ("name", "register"))
        assert f"gangplank.gangplank.{name}" in task
        assert refused(name, arguments) == []
