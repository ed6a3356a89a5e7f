"""The examples of the filters are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

FILTERS = sorted(path.stem for path in Path(__file__).resolve().parents[3].glob("plugins/filter/*.py"))


@pytest.mark.parametrize("name", FILTERS)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"plugins.filter.{name}")).failed == 0


def test_there_are_examples_of_what_a_release_leaves() -> None:
    module = importlib.import_module("plugins.filter.helm_release")
    assert doctest.testmod(module).attempted >= 6


def test_only_the_kinds_and_names_of_a_release_are_its_own() -> None:
    remaining = importlib.import_module("plugins.filter.helm_release").remaining_objects
    crds = [{"spec": {"names": {"kind": kind}}} for kind in ("Queue", "NodeShard")]
    objects = [
        [{"metadata": {"name": name}} for name in ("default", "defaults", "root")],
        [{"metadata": {"name": "a", "namespace": "x"}}],
    ]
    own = ["Queue/default", "Queue/root", "NodeShard/*"]
    assert remaining(objects, crds, own) == ["Queue/defaults"]
    assert remaining(objects, crds, ["Node/*"]) == ["Queue/default", "Queue/defaults", "Queue/root", "NodeShard/x/a"]
    assert remaining([], [], own) == []
