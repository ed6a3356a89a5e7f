"""When a release is as asked, and Helm need not be started."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.errors import GangplankError
from gangplank.wait import polls
from plugins.action.helm_released import as_asked, running_helm, wait_for_helm

if TYPE_CHECKING:
    from collections.abc import Iterator

CHART = {"name": "dns", "version": "1.0.0", "appVersion": "1.15"}
VALUES = {"replicas": 1, "image": {"name": "a"}}


def secret(status: str = "deployed", values: dict[str, Any] | None = VALUES, **chart: str) -> dict[str, Any]:
    release = {"chart": {"metadata": CHART | chart}} | ({"config": values} if values else {})
    data = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    return {"metadata": {"name": "sh.helm", "labels": {"status": status}}, "data": {"release": data}}


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    (tmp_path / "Chart.yaml").write_text("name: dns\nversion: 1.0.0\nappVersion: '1.15'\n")
    return tmp_path


def test_the_same_chart_with_the_same_values_is_as_asked(chart: Path) -> None:
    assert as_asked(secret(), chart, VALUES)
    assert as_asked(secret(values=None), chart, {})


@pytest.mark.parametrize(
    "other",
    [
        secret("failed"),
        secret("pending-upgrade"),
        secret(version="1.0.1"),
        secret(appVersion="1.16"),
        secret(name="other"),
        secret(values=VALUES | {"replicas": 2}),
        secret(values=None),
    ],
)
def test_anything_else_is_not(chart: Path, other: dict[str, Any]) -> None:
    assert not as_asked(other, chart, VALUES)


def test_a_chart_from_elsewhere_is_looked_at_by_helm(tmp_path: Path) -> None:
    assert not as_asked(secret(), tmp_path / "nowhere", VALUES)


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
