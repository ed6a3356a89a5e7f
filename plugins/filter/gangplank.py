"""Filters over Gangplank's library: a training job as manifests, commented or as a plain dict."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # used by cloning it: nothing is installed

from gangplank.backends import BACKENDS, wiring
from gangplank.errors import SpecError
from gangplank.jobs.annotated import explained
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangplank.spec import JobSpec

    Given = Mapping[str, Any] | None

ROOT = Path(__file__).resolve().parents[2]


def parsed(job: object, source: str, gpus: Given) -> JobSpec:
    """The job on a site with such GPUs (see gangplank.jobs.site_gpus.Gpus), or an AnsibleFilterError."""
    try:
        return on_site(parse_job(job, source, carried(job)), Gpus(**gpus or {}), source)
    except SpecError as error:
        raise AnsibleFilterError(str(error)) from None


def carried(job: object) -> dict[str, str]:
    """The text of the script that a job names by a relative path: of the current folder, else of this checkout."""
    from gangplank.cli.inputs import read_scripts

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


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "gangplank_manifests": manifests,
            "gangplank_explained": commented,
            "gangplank_job": described,
        }
