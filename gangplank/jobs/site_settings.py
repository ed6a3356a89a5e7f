"""What a site's inventory decides about every job: its GPU nodes, and the Secrets that pull its images. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gangplank.errors import SpecError
from gangplank.jobs import site_gpus
from gangplank.jobs.parse import read_secrets
from gangplank.jobs.site_gpus import Gpus, read_gpus
from gangplank.reading.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.reading.fields import Problems
    from gangplank.spec import JobSpec

PULL_SECRETS = "training_job_pull_secrets"
VARIABLES = (*site_gpus.VARIABLES, PULL_SECRETS)


@dataclass(frozen=True)
class Settings:
    """Inputs of the role training_job that change a job."""

    gpus: Gpus
    pull_secrets: tuple[str, ...] = ()


def read_settings(variables: Mapping[str, Any], source: str) -> Settings:
    """The settings in variables of the role training_job; SpecError with all that is wrong with them."""
    problems: Problems = []
    gpus = Gpus()
    try:
        gpus = read_gpus(variables, source)
    except SpecError as error:
        problems += error.problems
    secrets = read_secrets(Fields(variables, "", problems), PULL_SECRETS)
    if problems:
        raise SpecError(problems, source)
    return Settings(gpus, secrets)


def on_site(spec: JobSpec, settings: Settings, source: str = "job") -> JobSpec:
    """The job as this site runs it; what the job or its team says itself stays."""
    spec = site_gpus.on_site(spec, settings.gpus, source)
    return spec if spec.pull_secrets else replace(spec, pull_secrets=settings.pull_secrets)
