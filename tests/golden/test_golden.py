"""What each job becomes, kept as files to review; rewrite on purpose with GANGPLANK_GOLDEN=write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.base import Site
from gangplank.jobs.parse import parse_job

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CASES = sorted(path.parent.name for path in HERE.glob("*/case.yml"))


class Plain(yaml.SafeDumper):
    """Writes equal parts in full instead of by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  the signature is PyYAML's
        return True


def compare(file: Path, items: list[dict[str, Any]]) -> None:
    text = yaml.dump_all(items, Dumper=Plain, sort_keys=False, width=120)
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("name", CASES)
def test_manifests_and_objects_are_as_reviewed(name: str) -> None:
    case = yaml.safe_load((HERE / name / "case.yml").read_text())
    job = yaml.safe_load((ROOT / case["job"]).read_text())
    job["training_job"].update(case.get("change") or {})
    script = job["training_job"]["script"]
    scripts = {} if script.startswith("/") else {script: case["script"]}
    spec = parse_job(job, case["job"], scripts)
    manifests = BACKENDS[spec.backend].manifests(spec)
    compare(HERE / name / "manifests.yml", manifests)
    compare(HERE / name / "objects.yml", BACKENDS[spec.backend].objects(manifests[-1], Site()))


def test_every_shipped_job_is_among_the_cases() -> None:
    covered = {yaml.safe_load((HERE / name / "case.yml").read_text())["job"] for name in CASES}
    assert covered == {f"jobs/{path.name}" for path in (ROOT / "jobs").glob("*.yml")}
