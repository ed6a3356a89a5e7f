"""Fixtures of the trainer's tests; `harness.py` explains how they run it."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sweeps import FULL
from tests.trainer.harness import Root

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """The root file system, one for all tests."""
    path = os.environ.get("GANGPLANK_TRAINER_ROOT")
    if not path:
        pytest.fail("GANGPLANK_TRAINER_ROOT is not set: point it at the unpacked root file system of the trainer image")
    if not (Path(path) / "usr/bin/torchrun").exists():
        pytest.fail(f"GANGPLANK_TRAINER_ROOT={path}: no usr/bin/torchrun in it; is it the trainer image's root?")
    work = tmp_path_factory.mktemp("trainer-root")
    opened = Root(Path(path), work)
    try:
        yield opened
    finally:
        opened.close()
        shutil.rmtree(work, ignore_errors=True)


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers that are the same in every run of one test."""
    return random.Random(request.node.name)  # for choosing cases


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether `make test-full` runs, with its larger counts."""
    return FULL
