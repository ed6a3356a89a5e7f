"""The examples in the library's docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import gangplank

MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(gangplank.__path__, "gangplank.")
    if not found.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_of_the_wiring() -> None:
    module = importlib.import_module("gangplank.backends.wiring")
    assert doctest.testmod(module).attempted >= 10
