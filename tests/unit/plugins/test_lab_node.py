"""A node whose mounts are complete is not made again: that would end its pods."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from lab.host import mounts, node
from plugins.action.lab_node import ActionModule, bind_of

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


def test_d1_a_node_that_leaves_and_is_killed_half_way_leaves_no_half_of_its_images(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder, action = tmp_path / "nodes/node-2", object.__new__(ActionModule)
    (folder / "containerd").mkdir(parents=True)
    (folder / "containerd/images.json").write_text("{}")
    monkeypatch.setattr(ActionModule, "dry", False, raising=False)
    monkeypatch.setattr(node, "remove_node", lambda _: False)
    arguments = {"state": "absent", "name": "node-2", "folder": str(folder), "keep": False}
    assert action.act(arguments | {"keep": True}) == {"changed": False}
    assert (folder / "containerd/images.json").exists(), "the disk of a node that is switched off"

    def killed(path: Path, **_: Any) -> None:
        if path.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            action.act(arguments)
    assert not folder.exists()
    assert action.act(arguments) == {"changed": False}
    assert list(folder.parent.iterdir()) == [], "the next run removes the rest"
