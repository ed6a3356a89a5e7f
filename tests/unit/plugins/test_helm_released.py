"""A Helm that works on the release is waited for."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.errors import GangplankError
from gangplank.wait import polls
from plugins.action.helm_released import running_helm, wait_for_helm

if TYPE_CHECKING:
    from collections.abc import Iterator

@pytest.fixture
def helm(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a Helm at work on the release volcano."""
    (tmp_path / "helm").symlink_to("/bin/sh")
    words = ["-c", "read line", "upgrade", "-i", "volcano", "--namespace=volcano-system", "chart"]
    with subprocess.Popen([str(tmp_path / "helm"), *words], stdin=subprocess.PIPE) as process:
        arguments = Path(f"/proc/{process.pid}/cmdline")
        for _ in polls(10, 0.01):  # the kernel shows them a moment after Popen returns
            if arguments.read_bytes():
                break
        yield process
        process.kill()


def test_d6_the_revision_of_a_living_helm_is_waited_for(helm: subprocess.Popen[bytes]) -> None:
    assert running_helm("volcano", "other") == ""
    assert running_helm("other", "volcano-system") == ""
    name = f"process {helm.pid} ("
    assert running_helm("volcano", "volcano-system").startswith(name)
    with pytest.raises(GangplankError) as refusal:
        wait_for_helm("volcano", "volcano-system", 0.1)
    assert str(refusal.value).startswith(f"release volcano-system/volcano: got {name}")
    assert "expected its end within 0 s. Fix: wait for it or end it, then run it again" in str(refusal.value)
    threading.Timer(0.7, helm.kill).start()
    wait_for_helm("volcano", "volcano-system", 20)
