"""The requirements are true of their sources, of each Python, of the bundled collection, the trainer and its image."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"numpy": "python3-numpy", "safetensors": "python3-safetensors",
            "scikit-learn": "python3-sklearn", "torch": "python3-torch"}  # fmt: skip  # names of Debian's
MODULES = {"sklearn": "scikit-learn"}  # of modules that are not called as their package
OPTIONAL = {"s3fs", "gcsfs", "fsspec", "tensorboard"}  # only where a job's output is a bucket
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LOCKS = ("requirements.txt", "requirements-site.txt")


def requirements() -> dict[str, Requirement]:
    lines = (ROOT / "requirements-trainer.txt").read_text().splitlines()
    parsed = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {item.name: item for item in parsed}


def applying(lines: list[str], python: str) -> list[Requirement]:
    """Those of the requirements that are for this version of Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    parsed = [Requirement(line.partition(" #")[0]) for line in lines]
    return [item for item in parsed if item.marker is None or item.marker.evaluate(environment)]


def asked(lock: str, python: str) -> list[Requirement]:
    """What the sources of a lock file ask for; its second line has the command that names them."""
    _, command, *_ = (ROOT / lock).read_text().splitlines()
    lines: list[str] = []
    for name in command.split():
        if name.endswith(".in"):
            source = (ROOT / name).read_text().splitlines()
            lines += [line for line in source if line and not line.startswith("#")]
        elif name == "pyproject.toml":
            project = tomllib.loads((ROOT / name).read_text())["project"]
            lines += sum(project["optional-dependencies"].values(), project["dependencies"])
    return applying(lines, python)


def locked(lock: str, python: str) -> list[tuple[str, str]]:
    """Name and version of each package that pip installs from a lock file with this version of Python."""
    lines = re.findall(r"^(\S+==.*?) \\$", (ROOT / lock).read_text(), re.MULTILINE)
    return [(item.name, str(item.specifier).removeprefix("==")) for item in applying(lines, python)]


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


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
def test_each_python_has_one_version_of_every_package_and_it_is_one_that_is_asked_for(python: str, lock: str) -> None:
    pins = locked(lock, python)
    versions = dict(pins)
    assert len(versions) == len(pins)
    requested = asked(lock, python)
    assert len(requested) > 5
    for item in requested:
        assert item.specifier.contains(versions[canonicalize_name(item.name)]), item


def test_the_table_of_versions_has_the_ansible_core_of_each_python() -> None:
    own = r"^\| ([\d.]+), that of `requirements.txt` \| ([\d., ]+) \|"
    rows = re.findall(own, (ROOT / "docs/testing.md").read_text(), re.MULTILINE)
    table = {python: version for version, pythons in rows for python in pythons.split(", ")}
    versions = {python: dict(locked("requirements.txt", python))["ansible-core"] for python in PYTHONS}
    assert table.items() <= versions.items()
    assert set(table.values()) == set(versions.values())


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


@pytest.mark.slow
@pytest.mark.parametrize(("version", "taken"), [("5.4.0", False), ("5.4.1", True), ("6.99.0", True), ("7.0.0", False)])
def test_ansible_galaxy_reads_the_range_and_takes_what_is_in_it(tmp_path: Path, version: str, taken: bool) -> None:
    """Offline, so that it can only take or refuse the collection that is installed already."""
    place = tmp_path / "ansible_collections/kubernetes/core"
    place.mkdir(parents=True)
    about = {"namespace": "kubernetes", "name": "core", "version": version, "dependencies": {}}
    (place / "MANIFEST.json").write_text(json.dumps({"collection_info": about, "format": 1}))
    words = ["collection", "install", "--offline", "-r", str(ROOT / "requirements.yml"), "-p", str(tmp_path)]
    env = os.environ | {"ANSIBLE_HOME": str(tmp_path / "home"), "NO_COLOR": "1", "COLUMNS": "400"}
    program = Path(sys.executable).with_name("ansible-galaxy")
    done = subprocess.run([program, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is taken, done.stderr
    assert ("already installed" if taken else "Could not satisfy") in done.stdout + done.stderr


def test_the_trainer_imports_what_its_requirements_name_and_nothing_else() -> None:
    assert imported() - OPTIONAL == requirements().keys()


@pytest.mark.parametrize("name", PACKAGES)
def test_the_image_has_what_the_requirements_ask_for(name: str) -> None:
    lock = json.loads((ROOT / "lab/lock.json").read_text())["roots"]["trainer"]["packages"]
    version = re.sub(r"^\d+:|[+-].*$", "", lock[PACKAGES[name]][0])
    assert version in requirements()[name].specifier
