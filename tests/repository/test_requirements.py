"""requirements.yml and requirements-trainer.txt are true of the bundled collection, the trainer and its image."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"numpy": "python3-numpy", "safetensors": "python3-safetensors",
            "scikit-learn": "python3-sklearn", "torch": "python3-torch"}  # fmt: skip  # names of Debian's
MODULES = {"sklearn": "scikit-learn"}  # of modules that are not called as their package
OPTIONAL = {"s3fs", "gcsfs", "fsspec", "tensorboard"}  # only where a job's output is a bucket


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "requirements-trainer.txt").read_text().splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {item.name: item for item in parsed}


def imported() -> set[str]:
    """What the trainer imports or looks up, its own modules and Python's left out."""
    names: set[str] = set()
    for path in (ROOT / "trainer").glob("*.py"):
        names |= set(re.findall(r"find_spec\(\"(\w+)\"\)", path.read_text()))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    own = {path.stem for path in (ROOT / "trainer").rglob("*.py")}
    return {MODULES.get(name, name) for name in names - own - sys.stdlib_module_names}


def test_the_range_of_the_collection_has_the_one_that_is_bundled() -> None:
    (collection,) = yaml.safe_load((ROOT / "requirements.yml").read_text())["collections"]
    spec = importlib.util.find_spec("ansible_collections")
    assert spec is not None
    name = collection["name"].replace(".", "/")
    manifests = [Path(folder, name, "MANIFEST.json") for folder in spec.submodule_search_locations or []]
    (manifest,) = [json.loads(path.read_text()) for path in manifests if path.exists()]
    dependencies = yaml.safe_load((ROOT / "galaxy.yml").read_text())["dependencies"]
    assert dependencies == {collection["name"]: collection["version"]}
    allowed = SpecifierSet(collection["version"])
    assert manifest["collection_info"]["version"] in allowed
    assert "99.0" not in allowed


def test_the_trainer_imports_what_its_requirements_name_and_nothing_else() -> None:
    assert imported() - OPTIONAL == requirements().keys()


@pytest.mark.parametrize("name", PACKAGES)
def test_the_image_has_what_the_requirements_ask_for(name: str) -> None:
    lock = json.loads((ROOT / "lab/lock.json").read_text())["roots"]["trainer"]["packages"]
    version = re.sub(r"^\d+:|[+-].*$", "", lock[PACKAGES[name]][0])
    assert version in requirements()[name].specifier
