"""lab/images/cuda/Dockerfile, which nothing here can build, is true of the trainer image."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "lab/images/cuda/Dockerfile"
CPU_ONLY = {"USE_LIBUV=0"}  # Debian's torch has no libuv; PyPI's has it


def instructions() -> list[tuple[str, str]]:
    """Each instruction with its words."""
    lines = [line for line in RECIPE.read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.match("[A-Z]+ ", line) for line in lines), "a line that is not an instruction"
    return [(name, words) for line in lines for name, _, words in [line.partition(" ")]]


def the(name: str) -> str:
    """The words of the one instruction of a name."""
    (words,) = (words for key, words in instructions() if key == name)
    return words


def test_user_entry_point_and_environment_are_those_of_the_trainer_image() -> None:
    versions = yaml.safe_load((ROOT / "lab/versions.yml").read_text())
    (image,) = versions["parts"]["trainer"]["images"]
    assert json.loads(the("ENTRYPOINT")) == image["entrypoint"]
    assert the("USER") == image["user"]
    assert {*the("ENV").split()} == {*image["environment"]} - CPU_ONLY
    assert ("COPY", "trainer /opt/gangplank/trainer") in instructions()
    assert image["trees"]["/opt/gangplank/trainer"] == "trainer"


def test_it_copies_files_of_a_checkout_to_where_its_python_looks() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    base = the("FROM")
    version = re.fullmatch(r"docker\.io/library/python:(\d+\.\d+)-slim-[a-z]+", base)
    assert version, base  # neither a floating tag nor another Python than the paths below
    for words in (words.split() for name, words in instructions() if name == "COPY"):
        assert all(any(f"{path}/".startswith(f"{source}/") for path in tracked) for source in words[:-1]), words
        if "site-packages" in words[-1]:
            assert words[-1] == f"/usr/local/lib/python{version[1]}/site-packages/"
            assert {Path(source).name for source in words[:-1]} == {
                path.name for path in (ROOT / "trainer/image").glob("gangplank_observe.*")
            }


def test_it_installs_what_the_trainer_image_has() -> None:
    versions = yaml.safe_load((ROOT / "lab/versions.yml").read_text())
    debian = {name.removeprefix("python3-") for name in versions["roots"]["trainer"]["packages"] if "python3-" in name}
    lines = (ROOT / "requirements-trainer.txt").read_text().splitlines()
    listed = {re.split("[<>=]", line)[0] for line in lines if line and not line.startswith("#")}
    more = the("RUN").partition("requirements-trainer.txt ")[2].split()
    names = {name.replace("scikit-learn", "sklearn") for name in {*listed, *more}}
    assert names == debian
