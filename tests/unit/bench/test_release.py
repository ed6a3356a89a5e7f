"""Volcano's release on the lab, as the parts with gangs find it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.gangs import release
from bench.part import BenchError, Setting

if TYPE_CHECKING:
    from pathlib import Path


def test_values_that_an_interrupted_run_has_left_are_not_measured_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts.json").write_text(json.dumps({"bin": {"helm": "/helm"}, "charts": {"volcano": "/volcano"}}))
    monkeypatch.setattr(release, "STATE", tmp_path)
    upstream = {"basic": {}, "custom": {"ignored_provisioners": "x"}}
    ours = {"basic": {}, "custom": {"ignored_provisioners": "x", "controller_kube_api_qps": 500}}
    kube: Any = None
    for values in (ours, upstream):
        monkeypatch.setattr(release, "run", lambda *_, values=values: json.dumps(values))
        if values is ours:
            assert release.Volcano(kube, Setting(tmp_path)).upstream == upstream
        else:
            with pytest.raises(BenchError, match=r"got upstream's values.*Fix: run playbooks/site\.yml"):
                release.Volcano(kube, Setting(tmp_path))
