"""Volcano's release on the lab, as the parts with gangs find it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from bench.gangs import release
from bench.part import BenchError, Setting
from bench.parts.tuning import variants
from bench.tuned import volcano

if TYPE_CHECKING:
    from pathlib import Path


def test_values_that_an_interrupted_run_has_left_are_not_measured_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parts.json").write_text(json.dumps({"bin": {"helm": "/helm"}, "charts": {"volcano": "/volcano"}}))
    monkeypatch.setattr(release, "STATE", tmp_path)
    ours = {"basic": {}, "custom": volcano() | {"ignored_provisioners": "x", "scheduler_config_override": ""}}
    kube: Any = None
    monkeypatch.setattr(release, "run", lambda *_: json.dumps(ours))
    one = release.Volcano(kube, Setting(tmp_path))
    upstream = {"basic": {}, "custom": {"ignored_provisioners": "x"}}
    assert one.upstream == upstream
    for values in (upstream, *variants(ours).values()):
        monkeypatch.setattr(release, "run", lambda *_, values=values: json.dumps(values))
        if values == ours:
            assert release.Volcano(kube, Setting(tmp_path)).own == ours
        else:
            with pytest.raises(BenchError, match=r"got other values \(.*Fix: run playbooks/site\.yml"):
                release.Volcano(kube, Setting(tmp_path))
