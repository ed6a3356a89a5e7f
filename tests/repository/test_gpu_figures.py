"""docs/lab.md says of real GPUs what bench/results/gpu-*.json, written by make gpu-check, hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.gpu_check import Figure, table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "bench/results").glob("gpu-*.json")), ids=lambda path: path.stem)
def test_the_page_shows_the_recorded_run(path: Path) -> None:
    result = json.loads(path.read_text())
    machine, page = result["machine"], (ROOT / "docs/lab.md").read_text()
    assert all(check["passed"] for check in result["checks"])
    gloo = [check["name"] for check in result["checks"] if check["name"].startswith("gloo, two ranks on one GPU (2), ")]
    assert [name.rpartition(" ")[2] for name in gloo] == [figure["precision"] for figure in result["figures"]]
    (gpu,) = machine["gpus"]
    shown = [gpu["name"], result["date"], machine["driver"], machine["torch"], machine["nccl"]]
    assert [fact for fact in shown if fact not in page] == []
    assert table([Figure(**row) for row in result["figures"]]) in page
