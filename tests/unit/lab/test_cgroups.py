"""Cgroups that a runtime removes while the lab looks at them. tests/lab/test_cgroups.py has the kernel's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lab.host import cgroups


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's cgroup in a hierarchy of v2, with a pod's that vanishes just before it is read."""
    scan = os.scandir

    def late(path: Any = ".") -> Any:
        if Path(path).name == "pod-gone":
            Path(path).rmdir()
        return scan(path)

    (tmp_path / "cgroup.controllers").touch()
    for name in ("pod", "pod-gone", "pod/container"):
        (tmp_path / "gangplank/node-0" / name).mkdir(parents=True)
    monkeypatch.setattr(cgroups, "CGROUPS", tmp_path)
    monkeypatch.setattr(os, "scandir", late)
    return tmp_path / "gangplank"


def test_a_cgroup_that_vanishes_hides_no_process(top: Path) -> None:
    (top / "node-0/pod/container/cgroup.procs").write_text("41\n42\n")
    assert cgroups.members() == {41, 42}


def test_a_cgroup_that_vanishes_does_not_end_a_removal(top: Path) -> None:
    cgroups.remove_cgroup("node-0")
    assert [path.name for path in top.iterdir()] == []
