"""When a release is as asked, and Helm need not be started."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from plugins.action.helm_released import as_asked

if TYPE_CHECKING:
    from pathlib import Path

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
