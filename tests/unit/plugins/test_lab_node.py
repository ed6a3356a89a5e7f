"""A node whose mounts are complete is not made again: that would end its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.host import mounts
from plugins.action.lab_node import bind_of

if TYPE_CHECKING:
    from pathlib import Path

OWN = ("/run", "/mnt", "/var/lib", "/tmp", "/etc", "/dev", "/proc", "/sys")


@pytest.mark.parametrize(("target", "point"), [
    ("/mnt/data", "/mnt/data"), ("/mnt/data/", "/mnt/data"), ("/mnt//data", "/mnt/data"),
    ("/mnt/my data", r"/mnt/my\040data"),
])  # fmt: skip
def test_a_folder_is_seen_at_its_target_however_that_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, point: str
) -> None:
    lines = ["30 1 0:1 / / ro shared:7 - ext4 /dev/vda rw"]
    lines += [f"31 30 0:2 / {own} rw - tmpfs gangplank rw" for own in OWN]
    lines.append(f"32 30 0:1 /data {point} ro - ext4 /dev/vda rw")
    monkeypatch.setattr(mounts, "is_namespace", lambda _: True)
    monkeypatch.setattr(mounts, "run", lambda _: "\n".join(lines))
    bind = bind_of({"source": str(tmp_path), "target": target, "writable": False})
    assert mounts.are_complete("node-0", [bind])
    lines.pop()
    assert not mounts.are_complete("node-0", [bind])
