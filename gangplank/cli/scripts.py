"""The command run: from a script to a finished job without a job file, and the exit status of its training."""

from __future__ import annotations

import math
import os
import re
import secrets
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, DEFAULT
from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cli.inputs import from_team, granted, read_scripts, site_settings, site_teams
from gangplank.cli.jobs import examine, prefix, wait_for_runs
from gangplank.cli.parser import IMAGE
from gangplank.cli.proof import NO_EVIDENCE
from gangplank.cluster import submit as submission
from gangplank.cluster.evidence import known
from gangplank.cluster.follow import JobWatch
from gangplank.cluster.pace import is_pace
from gangplank.cluster.stuck import Stuck
from gangplank.errors import KubeError, Problem, Unreadable
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_settings import on_site
from gangplank.k8s.build import literal
from gangplank.k8s.plan import Plan
from gangplank.proof import log_lines
from gangplank.proof.expected import expected, world_size_of
from gangplank.proof.verdict import ALONE, prove
from gangplank.reading import files
from gangplank.spec import Resources
from gangplank.text import plain
from gangplank.wait import polls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from gangplank.cluster.progress import Phase
    from gangplank.spec import JobSpec, Json
    from gangplank.teams.spec import TeamSpec

POLL_S = 0.5
TOGETHER = "call torch.distributed.init_process_group, and exchange gradients, e.g. by DistributedDataParallel"
FAILED = 1  # of a training whose containers gave no exit code
ENTRIES = ("__main__.py", "train.py")  # of a folder
# Defaults of a team that a script gets as flags: one of yours may not know them, so the job says that it has none
FLAGS = {"hyperparameters": None, "output": ""}
NAME = 40  # characters of a script's name that a job takes over


def run(args: argparse.Namespace) -> int:
    """Submit a script, print what its ranks print until they have ended, and say where the result is."""
    teams = site_teams(args.site) if args.team and args.site else None
    job = description(args, teams)
    spec = described = parse(args.script, job)
    if args.site:
        spec = on_site(described, site_settings(args.site), args.script)
        granted(spec, teams or (), args.script)
    site = args.site if spec != described else None  # what it adds is not in the description
    kube = cluster_of(args, changes=True)
    if not args.team:
        spec = replace(spec, namespace=job["training_job"].setdefault("namespace", kube.namespace))
    if args.save:
        save(Path(args.save), job, site)
    manifests = BACKENDS[spec.backend].manifests(spec)
    wait_for_runs(kube)
    examine(kube, manifests[-1], args.script)
    submission.carry_out(kube, Plan(write=tuple(manifests)), dry_run=False, report=terminal.note)
    watch = JobWatch(manifests[-1], kube)
    try:
        phase = follow(watch)
    except (KeyboardInterrupt, BrokenPipeError, KubeError):
        terminal.note(f"{spec.name} runs on: gangplank logs {spec.name} -n {spec.namespace} -f")
        raise
    return ended(watch, phase, spec)


def description(args: argparse.Namespace, teams: Sequence[TeamSpec] | None = None) -> dict[str, Any]:
    """The job file of a command line; what that does not name is as the job's team in the inventory has it."""
    title = Path(args.script).stem
    if Path(args.script).is_dir():
        title = Path(args.script).resolve().name
        args.code, args.script = args.code or args.script, entry(args.script)
    if not Path(args.script).is_file():
        fix = "name a Python file; a script of the image needs a job file, as jobs/digits.yml"
        raise Unreadable(str(Problem(args.script, "no such file", "a script of yours", fix)))
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:NAME].strip("-")
    name = args.name or f"{stem if stem[:1].isalpha() else f'run-{stem}'.strip('-')}-{secrets.token_hex(3)}"
    chosen = {"image": args.image, "team": args.team, "queue": args.queue, "backend": args.backend,
              "namespace": args.namespace, "workers": args.workers, "processes_per_node": args.processes_per_node,
              "output": args.output, "max_retries": args.max_retries}
    job: dict[str, Any] = {"name": name, "script": os.path.relpath(args.script)}
    if args.code:
        if not Path(args.script).resolve().is_relative_to(Path(args.code).resolve()):
            problem = Problem(args.script, f"a file outside {args.code}", "one in it", "name another --code")
            raise Unreadable(str(problem))
        job |= {"code": os.path.relpath(args.code), "script": os.path.relpath(args.script, args.code)}
    if args.requirements:
        job["requirements"] = file_of(args.code, args.requirements)
    job |= {field: value for field, value in chosen.items() if value is not None}
    if args.volume:
        job["volumes"] = [mounted(text) for text in args.volume]
    if args.env:
        job["env"] = {name: literal(value) for name, value in map(variable, args.env)}
    if args.secret:
        job["secrets"] = args.secret
    if args.arguments:
        job["args"] = [*map(literal, args.arguments)]
    job = with_defaults(job, teams, args.script)
    if (args.output or "").startswith("/") and not job.get("volumes"):
        fix = "name a claim: --volume CLAIM:/PLACE"
        where = "a folder below a --volume, s3://bucket/path or gs://bucket/path (elsewhere it is lost with the pod)"
        raise Unreadable(str(Problem("--output", args.output, where, fix)))
    return {"training_job": job}


def with_defaults(job: dict[str, Any], teams: Sequence[TeamSpec] | None, script: str) -> dict[str, Any]:
    """The job with the defaults of its team in the inventory, if there is one, then with those of `run`."""
    if teams is not None:
        own = from_team(job, teams, script)
        job = own | {field: none for field, none in FLAGS.items() if field in own and field not in job}
    elif "team" in job:  # its namespace limits a container that sets no limits to less than these requests
        amounts = {"cpu": Resources.cpu.request, "memory": Resources.memory.request}
        job = job | {"resources": {key: {"request": amount, "limit": amount} for key, amount in amounts.items()}}
    job.setdefault("image", IMAGE)
    if "max_retries" not in BACKENDS[job.get("backend", DEFAULT)].refuses:
        job.setdefault("max_retries", 0)
    return job


def variable(text: str) -> tuple[str, str]:
    """The name and the value of `--env NAME=VALUE`.

    >>> variable("PLACE=a=b")
    ('PLACE', 'a=b')
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise Unreadable(str(Problem("--env", text, "NAME=VALUE", f"--env {text}=VALUE")))
    return name, value


def mounted(text: str) -> dict[str, str]:
    """A volume of a job file, from a word; what is wrong with it, the job's parser says.

    >>> mounted("data:/data:master")
    {'claim': 'data', 'mount': '/data', 'on': 'master'}
    """
    claim, _, rest = text.partition(":")
    mount, _, how = rest.partition(":")
    choice = {"on" if how == "master" else "access": how} if how else {}
    return {"claim": claim, "mount": mount, **choice}


def file_of(folder: str | None, name: str) -> str:
    """A file of a folder as a job names it, whether it is given by its path from there or from here."""
    if folder and Path(name).is_file() and Path(name).resolve().is_relative_to(Path(folder).resolve()):
        return os.path.relpath(name, folder)
    return os.path.normpath(name)


def entry(folder: str) -> str:
    """The script of a folder: as Python has it, or the name that a training usually has."""
    scripts = [str(Path(folder) / name) for name in ENTRIES if (Path(folder) / name).is_file()]
    if len(scripts) != 1:
        got = f"a folder with {' and '.join(ENTRIES)}" if scripts else f"a folder without {' or '.join(ENTRIES)}"
        fix = "name its script: gangplank run FOLDER/SCRIPT.py --code FOLDER"
        raise Unreadable(str(Problem(folder, got, "one of them", fix)))
    return scripts[0]


def parse(script: str, job: dict[str, Any]) -> JobSpec:
    """The job, checked as a job file is."""
    return parse_job(job, script, read_scripts(job))


def save(target: Path, job: dict[str, Any], site: str | None = None) -> None:
    """Keep the description, to run it again or to change it; its first line is the command that submits it."""
    from gangplank.k8s.dump import as_yaml

    command = shlex.join(["gangplank", "submit", str(target), *(["--site", site] if site else [])])
    try:
        files.write(target, f"# {command}\n{as_yaml([job])}")
    except OSError as error:
        problem = Problem(str(target), error.strerror or str(error), "a place that can be written", "name another file")
        raise Unreadable(str(problem)) from None
    terminal.note(f"saved: {target}")


def follow(watch: JobWatch) -> Phase:
    """Print the ranks' lines as they are written, until the job has ended."""
    watch.kube = watch.kube.patient(terminal.note)
    stuck: Stuck | None = None
    start = time.monotonic()
    for _ in polls(math.inf, POLL_S):
        phase = watch.poll()
        stuck = stuck or Stuck(world_size_of(watch.job))  # nobody knows the job before the first poll
        show(watch.finish() if phase.ended else watch.lines(), stuck)
        phase = watch.end(phase)
        now = time.monotonic()
        repairs = [] if phase.ended else watch.restart(now - start)
        for message in [*repairs, *watch.losses(), stuck.message(now)]:
            if message:
                terminal.note(message)
        if phase.ended:
            return phase
    raise AssertionError("polls without a limit ends")


def show(lines: Iterator[tuple[Json, str]], stuck: Stuck) -> None:
    """Print the lines of pods, which may be gone by now, without the evidence and without where ranks stand still."""
    for pod, line in lines:
        if not stuck.take(line, time.monotonic()) and log_lines.read(line) is None and not is_pace(line):
            print(prefix(pod, colour=terminal.coloured(sys.stdout)) + plain(line), flush=True)


def ended(watch: JobWatch, phase: Phase, spec: JobSpec) -> int:
    """Say how the training ended and where its result is; its exit status."""
    where = f"{spec.name} -n {spec.namespace}"
    if not phase.succeeded:
        terminal.note(f"{spec.name}: {phase.name} {phase.reason}".rstrip())
        if trouble := watch.trouble():
            terminal.note(trouble)
        return exit_code(watch)
    terminal.note(f"{spec.name}: {phase.name}")
    if watch.records:
        verdict = prove(watch.records, replace(known(expected(watch.job), watch.job, watch.pods), pods=watch.nodes))
        for claim in verdict.failed or verdict.unclaimed:
            terminal.note(claim.text() + (f". Fix: {TOGETHER}" if claim.name == ALONE else ""))
        terminal.note(verdict.text().splitlines()[-1] + f" (gangplank proof {where} shows each)")
    else:
        terminal.note(f"NOT OBSERVED: no rank wrote evidence. Fix: {NO_EVIDENCE}")
    if spec.output:
        kept = f"in {spec.output}: gangplank fetch {where}"
    else:
        kept = "only in the logs, as the job has no --output"
    terminal.note(f"result: {kept}; gangplank logs {where}; gangplank delete {where} removes the job")
    return terminal.OK


def exit_code(watch: JobWatch) -> int:
    """The exit status of the process that failed first."""
    failed = watch.failed_first()
    return failed.status if failed else FAILED
