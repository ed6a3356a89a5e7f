"""The commands that make namespaces, mounts and links end in time, or say which one did not."""

from __future__ import annotations

import pytest

from lab.errors import LabError
from lab.host import namespaces


def test_a_command_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "LIMIT_S", 0.1)
    with pytest.raises(LabError, match=r"^sleep 60: got no end, expected its end within 0 s\. Fix: see whether a disk"):
        namespaces.run(["sleep", "60"])
