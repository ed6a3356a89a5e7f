"""What each job becomes, kept as files that a person reviews; rewrite on purpose with GANGPLANK_GOLDEN=write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.parse import parse_job

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CASES = sorted(path.parent.name for path in HERE.glob("*/case.yml"))


class Plain(yaml.SafeDumper):
    """Writes equal parts in full instead of by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  the signature is PyYAML's
        return True


@pytest.mark.parametrize("name", CASES)
def test_manifests_are_as_reviewed(name: str) -> None:
    case = yaml.safe_load((HERE / name / "case.yml").read_text())
    job = yaml.safe_load((ROOT / case["job"]).read_text())
    job["training_job"].update(case.get("change") or {})
    script = job["training_job"].get("script", "")
    scripts = {} if script.startswith("/") or not script else {script: case["script"]}
    spec = parse_job(job, case["job"], scripts)
    made = yaml.dump_all(BACKENDS[spec.backend].manifests(spec), Dumper=Plain, sort_keys=False, width=120)
    file = HERE / name / "manifests.yml"
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        file.write_text(made)
    assert made == file.read_text()
