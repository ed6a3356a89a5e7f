"""The commands about a job's evidence: proof judges it, report shows it; from a cluster, or from files."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cli import inputs, terminal
from gangplank.cli.jobs import locate
from gangplank.cluster.client import Kube, KubeError, path
from gangplank.cluster.progress import phase
from gangplank.proof import expected as asked
from gangplank.proof.claims import Expected
from gangplank.proof.records import complete, select
from gangplank.proof.verdict import prove, read_records
from gangplank.reading import files

if TYPE_CHECKING:
    import argparse

    from gangplank.proof.verdict import Verdict
    from gangplank.spec import Json

READER_S = 120  # seconds that the reading pod may take: its image is on the node already
POLL_S = 0.2
NO_LOG = {400, 404}  # a pod without a log: not started yet, or gone
Records = list[dict[str, object]]


def proof(given: argparse.Namespace) -> int:
    """Print every claim with its numbers; the exit status says whether all hold."""
    name, records, expected = evidence(given)
    verdict = prove(records, expected)
    print(verdict.text())
    return terminal.OK if verdict.passed else terminal.complain(refusal(name, records, verdict), terminal.REFUSED)


def report(given: argparse.Namespace) -> int:
    """Write the page, and event files if asked; a training that is not proven is shown all the same."""
    name, records, expected = evidence(given)
    if not records:
        return terminal.complain(refusal(name, records, prove(records, expected)), terminal.REFUSED)
    from gangplank.proof.report.page import page

    target = Path(given.output or f"{name}-report.html")
    try:
        target.write_text(page(name, records, expected), encoding="utf-8")
        print(f"report: {target.resolve()}")
        if given.tensorboard:
            from gangplank.proof.report.tensorboard import write_events

            write_events(Path(given.tensorboard), records)
            print(f"event files: tensorboard --logdir {given.tensorboard}")
    except OSError as error:
        raise files.Unreadable(
            f"{error.filename or target}: {error.strerror}; name a place that can be written with -o or --tensorboard"
        ) from None
    return terminal.OK


def refusal(name: str, records: Records, verdict: Verdict) -> str:
    """Why a job is not proven, in a line."""
    if not records:
        return f"{name}: not proven: no evidence (does its script write any? trainer/evidence.py says how)"
    failed = "; ".join(f"{claim.name} ({claim.detail})" for claim in verdict.failed)
    return f"{name}: not proven: {failed}"


def evidence(given: argparse.Namespace) -> tuple[str, Records, Expected]:
    """A name, the evidence, and what is expected of it."""
    if given.file:
        return from_file(Path(given.file), given.job)
    kube = Kube(given.kubeconfig, given.context)
    job, submitted = locate(kube, given)
    manifest = submitted[-1] if submitted else job  # a file says what was meant, a live job only what was submitted
    expected = replace(asked.expected(manifest), job_uid=asked.job_uid(job))
    return str(job["metadata"]["name"]), from_cluster(kube.patient(terminal.note), job, expected), expected


def from_file(place: Path, job: str | None) -> tuple[str, Records, Expected]:
    """Evidence from a folder of the trainer's, or from a file with it or with logs."""
    source = place / asked.EVIDENCE if place.is_dir() else place
    records = read_records(files.read(str(source), errors="replace"))  # a script may print any bytes
    if job is None:
        name = place.resolve().name if place.is_dir() else place.stem
        return name, records, claimed(records)
    if not Path(job).is_file():
        raise files.Unreadable(f"{job}: no such file; with --file, a job is named by its job file")
    _, known, _ = inputs.gather([job], None)
    if not known:
        raise files.Unreadable(f"{job}: no job in it")
    manifest = known[-1][1]
    return str(manifest["metadata"]["name"]), records, asked.expected(manifest)


def claimed(records: Records) -> Expected:
    """What evidence says of itself, for evidence that comes without its job: as many ranks as the last start had."""
    run = select(records)
    begins = [run.last_begin(rank) for rank in run.chains]
    sizes = [asked.integer(str(begin.get("world_size"))) or 1 for begin in begins]
    pods = {str(begin.get("pod_uid") or begin.get("pod")) for begin in begins}
    size = max(sizes, default=1)
    return Expected(size, processes_per_pod=max(1, size // max(1, len(pods))))


def from_cluster(kube: Kube, job: Json, expected: Expected) -> Records:
    """From the logs of the pods where all ranks' are there, else from what rank 0 left on the job's claim."""
    meta = job["metadata"]
    pods = kube.pods(meta["namespace"], meta["name"])
    text = "\n".join(log_so_far(kube, meta["namespace"], pod["metadata"]["name"]) for pod in pods)
    return gathered(kube, job, read_records(text), expected.world_size)


def gathered(kube: Kube, job: Json, logged: Records, world_size: int) -> Records:
    """The evidence of a live job whose pods `logged` some: that if it is of all ranks, else what lies on its claim."""
    if complete(select(logged), world_size):
        return logged
    reader = asked.reader(job, f"-{uuid.uuid4().hex[:6]}")
    if reader is None or not phase(job).ended:
        return logged
    return printed(kube, reader, world_size) or logged


def printed(kube: Kube, pod: Json, world_size: int) -> Records:
    """The evidence that a pod of ours has printed when it is of all ranks, or at its end; the pod is removed again.

    Its words can be read a second or two before the cluster says that it has ended.
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    deadline = time.monotonic() + READER_S
    kube.create(pod, unique=True)
    try:
        while True:
            now = kube.call("GET", path("v1", "Pod", namespace, name)).get("status", {})
            records = read_records(log_so_far(kube, namespace, name))
            if now.get("phase") in {"Succeeded", "Failed"} or complete(select(records), world_size):
                return records
            if time.monotonic() > deadline:
                raise KubeError(
                    f"pod {namespace}/{name}, which reads the claim, was {now.get('phase')} for {READER_S} s: "
                    f"{why(now)}; free a place on the claim's node and try again"
                )
            time.sleep(POLL_S)
    finally:
        kube.delete(pod, unique=True)


def log_so_far(kube: Kube, namespace: str, pod: str) -> str:
    """The log of a pod that may have none yet."""
    try:
        return "\n".join(kube.log(namespace, pod))
    except KubeError as error:
        if error.status not in NO_LOG:
            raise
        return ""


def why(status: Json) -> str:
    """What a pod's status says of its not running."""
    told = [item.get("message", "") for item in status.get("conditions", []) if item.get("status") == "False"]
    return next((text for text in told if text), "no reason given")
