"""Read a job with its team's defaults and on the site's GPUs, and expand it into what is submitted."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.teams import inventory_of

from gangplank.backends import BACKENDS, wiring
from gangplank.cli.inputs import from_team, granted, read_scripts
from gangplank.errors import Problem, SpecError
from gangplank.jobs.annotated import explained
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import ALLOCATIONS, Gpus
from gangplank.jobs.site_settings import PULL_SECRETS, Settings, on_site, read_settings
from gangplank.reading.strict_yaml import documents
from gangplank.teams.load import teams_of

if TYPE_CHECKING:
    from gangplank.spec import JobSpec

JOB = re.compile(r"^training_job\s*:", re.MULTILINE)  # the line that begins a job
TAG = "a constructor for the tag"  # in what is wrong with a file that has one
ROOT = Path(__file__).resolve().parents[2]  # a job names its script from the current folder, or from this checkout


class ActionModule(LibraryAction):
    """An action, not a filter: Ansible adds its own words about templates to a filter's refusal."""

    OPTIONS: ClassVar = {
        "job": {"type": "raw", "required": True},
        "teams": {"type": "str", "default": ""},
        "gpu_taints": {"type": "list", "elements": "dict", "default": []},
        "simulated_gpus": {"type": "bool", "default": False},
        "gpu_allocation": {"type": "str", "choices": list(ALLOCATIONS), "default": Gpus.allocation},
        "gpu_device_class": {"type": "str", "default": Gpus.device_class},
        "pull_secrets": {"type": "list", "elements": "str", "default": []},
        "explain": {"type": "bool", "default": False},
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        source, text = job_file()
        gpus = Gpus(args["gpu_taints"], args["simulated_gpus"], args["gpu_allocation"], args["gpu_device_class"])
        secrets = read_settings({PULL_SECRETS: args["pull_secrets"]}, "the inventory").pull_secrets
        teams = teams_of(inventory_of(self.variables, args["teams"]))[1] if args["teams"] else None
        job = args["job"] if teams is None else from_team(args["job"], teams, source)
        spec = on_site(parsed(job, source, traps(text, source)), Settings(gpus, secrets), source)
        if teams is not None:
            granted(spec, teams, source)
        return {
            "changed": False,
            "job": described(spec),
            "manifests": BACKENDS[spec.backend].manifests(spec),
            "explained": explained(spec) if args["explain"] else {},
        }


def traps(text: str, source: str) -> list[Problem]:
    """The words of a job's file that Ansible reads otherwise than Helm or this library, which refuse them too."""
    try:
        documents(job_alone(text), source, strict=True)
    except SpecError as error:
        return [problem for problem in error.problems if TAG not in problem.got]  # Ansible's own, such as !vault
    return []


def job_alone(text: str) -> str:
    r"""The lines of a file of variables that are the job's, with the numbers that they have in the file.

    >>> job_alone("site_a: yes\ntraining_job:\n  name: a\nsite_b: no")
    '\ntraining_job:\n  name: a\n'
    """
    lines, inside = [], False
    for line in text.splitlines():
        if line[:1] not in ("", " ", "\t", "#", "-"):  # a key of the file's own
            inside = bool(JOB.match(line))
        lines.append(line if inside else "")
    return "\n".join(lines)


def parsed(job: Any, source: str, problems: list[Problem]) -> JobSpec:
    """The job, unless something is wrong with it or with its file: all of that at once."""
    try:
        spec = parse_job(job, source, read_scripts(job, ROOT))
    except SpecError as error:
        raise SpecError([*problems, *error.problems], source) from None
    if problems:
        raise SpecError(problems, source)
    return spec


def job_file() -> tuple[str, str]:
    """The name of the job in messages, the file of -e @FILE that holds it, else the variable; and that file's text."""
    for words in reversed(context.CLIARGS.get("extra_vars") or ()):
        # Where Ansible has read it: a shell leaves the ~ of `@~/mine.yml` as it is.
        file = Path(DataLoader().path_dwim(words[1:])) if words.startswith("@") else None
        text = file.read_text(errors="replace") if file else ""
        if JOB.search(text):
            return str(words[1:]), "" if text.startswith("$ANSIBLE_VAULT;") else text
    return "training_job", ""


def described(spec: JobSpec) -> dict[str, Any]:
    """The job with all defaults, its size and its pods in the order of their ranks."""
    replicas = wiring.replicas(spec)
    return {
        **asdict(spec),
        "replicas": spec.replicas,
        "world_size": spec.world_size,
        "pods": [replica.pod for replica in replicas],
        "ranks": [asdict(replica) for replica in replicas],
        "master_addr": wiring.master_addr(spec),
    }
