"""The lab's own CSI driver passes upstream's csi-sanity: the calls, their order and their errors, on this machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.build.cache import cache_home
from lab.build.go_toolchain import find_go, go_environment
from lab.build.parts import build
from lab.build.versions import MODULES, load_pins

# The root of the driver's image, in a mount namespace of its own, with this machine's devices.
SCRIPT = """
for folder in dev proc sys; do mount --rbind /$folder "$ROOT/$folder"; done
mount --bind "$WORK" "$ROOT/tmp"
chroot "$ROOT" /tmp/loop-csi --folder=/tmp/store --node=here --socket=/tmp/csi.sock > "$WORK/log" 2>&1 &
driver=$!
until [ -S "$WORK/csi.sock" ]; do kill -0 $driver; done
chroot "$ROOT" /tmp/csi-sanity --csi.endpoint=/tmp/csi.sock --csi.mountdir=/tmp/mount --csi.stagingdir=/tmp/stage \
  --csi.testvolumesize=314572800 --csi.testvolumeexpandsize=629145600 --ginkgo.no-color || status=$?
kill $driver
exit ${status:-0}
"""
PASSED = 51  # of its specs; the others are about calls that the driver does not offer, and says so


def test_the_drivers_own_tests_pass() -> None:
    build(["loop-csi"], print)  # which fetches Go and its modules
    pins = load_pins()
    go = find_go(pins, cache_home(), print)
    done = subprocess.run([str(go), "test", "./..."], cwd=MODULES / "loop-csi", env=go_environment(go),
                          capture_output=True, text=True, check=False, timeout=1800)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_driver_passes_csi_sanity_and_leaves_nothing(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("loop devices and mounts need root: sudo make test-full")
    result = build(["loop-csi", "csi-sanity"], print, roots=("filesystems",))
    for name in ("loop-csi", "csi-sanity"):
        shutil.copy(Path(result["bin"][name]) / name, tmp_path)
    root = result["roots"]["filesystems"]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ROOT": root, "WORK": str(tmp_path)}
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1800)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{said}\n{(tmp_path / 'log').read_text()}"
    assert re.search(rf"SUCCESS! -- {PASSED} Passed \| 0 Failed", said), said
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []
    loops = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) not in loops
