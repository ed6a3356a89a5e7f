"""Filters over Gangplank's library: a training job as manifests or as a plain dict, and what its evidence says."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # used by cloning it: nothing is installed

from gangplank import asked, queues, wiring
from gangplank.backends import BACKENDS
from gangplank.errors import SpecError
from gangplank.explained import explained
from gangplank.live import differences
from gangplank.parse import parse_job
from gangplank.proof import prove, read_records
from gangplank.site import Gpus, on_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangplank.spec import JobSpec

    Given = Mapping[str, Any] | None

ROOT = Path(__file__).resolve().parents[2]


def parsed(job: object, source: str, gpus: Given) -> JobSpec:
    """The job on a site with such GPUs (see gangplank.site.Gpus), or Ansible's own error with the library's message."""
    try:
        return on_site(parse_job(job, source, carried(job)), Gpus(**gpus or {}), source)
    except SpecError as error:
        raise AnsibleFilterError(str(error)) from None


def carried(job: object) -> dict[str, str]:
    """The text of the script that a job names by a relative path: of the current folder, else of this checkout."""
    from gangplank.jobfiles import read_scripts

    return read_scripts(job, ROOT)


def manifests(job: Mapping[str, Any], source: str = "training_job", gpus: Given = None) -> list[dict[str, Any]]:
    """What is submitted for a job."""
    spec = parsed(job, source, gpus)
    return BACKENDS[spec.backend].manifests(spec)


def commented(job: Mapping[str, Any], source: str = "training_job", gpus: Given = None) -> dict[str, Any]:
    """The same as blocks of lines, with those that controllers will add, by whom and why."""
    return explained(parsed(job, source, gpus))


def described(job: Mapping[str, Any], source: str = "training_job", gpus: Given = None) -> dict[str, Any]:
    """The job with all defaults, its size and its pods in the order of their ranks."""
    spec = parsed(job, source, gpus)
    replicas = wiring.replicas(spec)
    return {
        **asdict(spec),
        "replicas": spec.replicas,
        "world_size": spec.world_size,
        "pods": [replica.pod for replica in replicas],
        "ranks": [asdict(replica) for replica in replicas],
        "master_addr": wiring.master_addr(spec),
    }


def proof(evidence: str, manifest: Mapping[str, Any], job_uid: str = "") -> dict[str, Any]:
    """The verdict over the evidence (JSON lines) of the job that a manifest submits."""
    expected = replace(asked.expected(dict(manifest)), job_uid=job_uid or None)
    verdict = prove(read_records(evidence), expected)
    return {"passed": verdict.passed, "lines": verdict.text().splitlines()}


def page(evidence: str, manifest: Mapping[str, Any], job_uid: str = "") -> str:
    """The report about a job, as one HTML page."""
    from gangplank import report

    expected = replace(asked.expected(dict(manifest)), job_uid=job_uid or None)
    return report.page(manifest["metadata"]["name"], read_records(evidence), expected)


def reader(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """A pod that prints the evidence which a job's rank 0 left on a claim; None where it leaves none."""
    return asked.reader(dict(manifest))


def differs(wanted: Mapping[str, Any], live: Mapping[str, Any]) -> list[str]:
    """Where a live object is not as described, a line each."""
    return list(differences(wanted, live))


def refused_by_queue(manifest: Mapping[str, Any], known: list[dict[str, Any]]) -> list[str]:
    """Why the queue of a job takes none, a line each, given the queues of the cluster."""
    return [str(problem) for problem in queues.problems(dict(manifest), known)]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "gangplank_manifests": manifests,
            "gangplank_explained": commented,
            "gangplank_job": described,
            "gangplank_proof": proof,
            "gangplank_report": page,
            "gangplank_reader": reader,
            "gangplank_differences": differs,
            "gangplank_queue_problems": refused_by_queue,
        }
