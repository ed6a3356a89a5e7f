"""The commands about a job's evidence: proof judges it, report shows it; from a cluster, or from files."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, backend_of
from gangplank.cli import inputs, terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cli.jobs import locate
from gangplank.cluster.evidence import from_cluster, known
from gangplank.cluster.progress import phase
from gangplank.cluster.reader import output_of
from gangplank.errors import GangplankError, Problem, Unreadable, shown
from gangplank.proof.expected import EVIDENCE, OF_EVIDENCE, expected
from gangplank.proof.records import records_of
from gangplank.proof.verdict import prove
from gangplank.reading import files

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gangplank.proof.claims import Expected
    from gangplank.proof.records import Records
    from gangplank.proof.verdict import Verdict
    from gangplank.spec import Json

NO_EVIDENCE = "use an image that is built on the trainer's, whose Python observes scripts, and leave `observe` at true"
UID = re.compile(r"[\w-]+", re.ASCII)  # of a pod
MOST = 1 << 30  # bytes of evidence that are judged; in memory they take a few times as many
EVIDENCE_FILE = "give the folder of the job's `output`, its evidence.jsonl, or saved logs of all ranks"


def proof(args: argparse.Namespace) -> int:
    """Print every claim with its numbers; the exit status says whether all hold."""
    name, records, expectation = evidence(args)
    verdict = prove(records, expectation)
    print(verdict.text())
    return terminal.OK if verdict.passed else terminal.complain(refusal(name, records, verdict), terminal.REFUSED)


def report(args: argparse.Namespace) -> int:
    """Write the page, and event files on request, also for a training that is not proven."""
    name, records, expectation = evidence(args)
    if not records:
        return terminal.complain(refusal(name, records, prove(records, expectation)), terminal.REFUSED)
    from gangplank.proof.report.page import page

    target = Path(args.output or f"{name}-report.html")
    try:
        files.write(target, page(name, records, expectation))
        print(f"report: {target.resolve()}")
        if args.tensorboard:
            from gangplank.proof.report.tensorboard import write_events

            write_events(Path(args.tensorboard), records)
            print(f"event files: tensorboard --logdir {args.tensorboard}")
    except OSError as error:
        fix = "name a writable place with -o or --tensorboard"
        place, got = str(error.filename or target), error.strerror or str(error)
        raise Unreadable(str(Problem(place, got, "a place that can be written", fix))) from None
    return terminal.OK


def refusal(name: str, records: Records, verdict: Verdict) -> str:
    """Why a job is not proven, in a line."""
    if not records:
        return f"{name}: not proven: no evidence. Fix: {NO_EVIDENCE}"
    failed = "; ".join(f"{claim.name} ({claim.detail})" for claim in verdict.failed or verdict.unclaimed)
    return f"{name}: not proven: {failed}"


def evidence(args: argparse.Namespace) -> tuple[str, Records, Expected]:
    """A job's name, its evidence, and what the evidence must show."""
    if args.file:
        if not args.job:
            inputs.refuse_site(args)
        name, records, expectation = from_file(Path(args.file), args.job, args.site)
        return name, records, replace(expectation, **named(args))
    if args.world_size or args.pods:
        option = "--world-size" if args.world_size else "--pods"
        fix = f"leave out {option}: the cluster knows it"
        raise terminal.UsageError(str(Problem(option, "no --file", "--file DIR beside it", fix)))
    if not args.job:
        fix = f"gangplank {args.command} digits"
        raise terminal.UsageError(str(Problem("JOB", "nothing", "a job file, the name of a job, or --file", fix)))
    kube = cluster_of(args)
    job, submitted = locate(kube, args)
    # A file is what the user wants, a live job only what was submitted.
    manifest = next((item for item in reversed(submitted) if backend_of(item)), job)
    pods = kube.pods(job)
    expectation = known(expected(manifest), job, pods)
    records = from_cluster(kube.patient(terminal.note), job, pods, expectation.world_size)
    name = str(job["metadata"]["name"])
    if not records and not pods and phase(job).ended:
        raise GangplankError(gone(name, job))
    return name, records, expectation


def gone(name: str, job: Json) -> str:
    """Why a job without pods is not proven, in a line."""
    fix = "judge a training before its pods go, or keep its evidence with an `output` on a volume"
    if (output := output_of(job)) and not output.claim:
        fix = f"gangplank fetch {name} brings the output here; then gangplank proof --file {name}"
    return f"{name}: not proven: no evidence: its pods are gone, and their logs with them. Fix: {fix}"


def named(args: argparse.Namespace) -> dict[str, Any]:
    """What a user names because files cannot show it: the size of the world, and the job's pods."""
    facts: dict[str, Any] = {"world_size": args.world_size, "unsized": False} if args.world_size else {}
    if not args.pods:
        return facts
    if not stat.S_ISREG(files.mode(args.pods)):
        uids = [*filter(None, map(str.strip, args.pods.split(",")))]
        if paths := [uid for uid in uids if not UID.fullmatch(uid)]:
            fix = "check the path, or give the pods' metadata.uid with commas between them"
            raise Unreadable(str(Problem("--pods", shown(paths[0]), "a file with pods, or uids of pods", fix)))
        return {**facts, "pods": dict.fromkeys(uids, "")}
    try:
        items = json.loads(files.read(args.pods))
        items = items.get("items", [items])
        return {**facts, "pods": {pod["metadata"]["uid"]: pod["spec"].get("nodeName", "") for pod in items}}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        labels = ", ".join(f"{backend.wiring.job_name} ({backend.title})" for backend in BACKENDS.values())
        fix = f"write it with: kubectl get pods -l LABEL=JOB -o json, where LABEL is {labels}"
        raise Unreadable(str(Problem(args.pods, "something else", "a list of pods as JSON", fix))) from None


def enough(source: str) -> Iterator[str]:
    """The lines with evidence in a file, as long as memory will do."""
    size = 0
    for line in files.lines(source, EVIDENCE_FILE):  # a script may print any bytes
        size += len(line) if '"hash"' in line else 0
        if size > MOST:
            got = f"more than {MOST} bytes of evidence"
            raise Unreadable(str(Problem(source, got, "at most so many", "give the evidence of one job alone")))
        yield line


def from_file(place: Path, job: str | None, site: str | None = None) -> tuple[str, Records, Expected]:
    """Evidence from a folder that the trainer wrote, or from a file with evidence or logs."""
    folder = stat.S_ISDIR(files.mode(place))
    source = place / EVIDENCE if folder else place
    if folder and stat.S_ISFIFO(files.mode(source)):  # it may wait forever; one that the user names is the user's
        raise Unreadable(str(Problem(str(source), "a queue", "a file", EVIDENCE_FILE)))
    records = records_of(enough(str(source)))
    if job is None:
        return place.resolve().name if folder else place.stem, records, OF_EVIDENCE
    if not stat.S_ISREG(files.mode(job)):
        fix = "name the job by its file, e.g. jobs/digits.yml, or leave it out"
        raise Unreadable(str(Problem(job, "no such file", "a job file, as --file asks no cluster", fix)))
    _, jobs, other_kinds = inputs.gather([job], None, site, grants=False)
    if not jobs:
        raise Unreadable(str(inputs.jobless(job, other_kinds)))
    manifest = jobs[-1][1]
    return str(manifest["metadata"]["name"]), records, expected(manifest)
