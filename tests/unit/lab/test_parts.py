"""`python -m lab.build` with names that do not exist: one message each, before anything is built."""

from __future__ import annotations

import pytest

from lab.build.parts import main, with_shared_trees
from lab.build.versions import load_pins


@pytest.mark.parametrize("words", [
    ["store"], ["bin"], ["bin."], ["bin.bogus"], ["charts.bogus"], ["roots.bogus"], ["a.b"], ["images.trainer"], [""],
    ["versions.etcd"], ["bin.trainer"], ["bin.etcd.more"], ["bin.etcd", "bin.helm"], [],
])  # fmt: skip
def test_a_place_that_does_not_exist_is_one_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--show", *words]) == 1
    got = " ".join(words) or "nothing"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error: --show: got {got}, expected one place to show. Fix: choose from bin.")
    assert said.err.count("\n") == 1
    assert ", roots.node, " in said.err


@pytest.mark.parametrize("words", [["bogus"], ["--relock", "bogus"], ["etcd", "bogus"], ["--bogus"]])
def test_a_part_that_does_not_exist_is_one_message(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert capsys.readouterr().err.startswith(f"error: lab_parts_wanted: got {words[-1]}, expected names of parts. Fix")


def test_an_edit_of_the_trainer_relocks_every_image_that_carries_it() -> None:
    pins = load_pins()
    assert with_shared_trees(pins, ["trainer"]) == ["trainer", "torchvision"]
    assert with_shared_trees(pins, ["etcd", "helm"]) == ["etcd", "helm"]
