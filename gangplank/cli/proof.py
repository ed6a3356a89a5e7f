"""The commands about a job's evidence: proof judges it, report shows it; from a cluster, or from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cli import inputs, terminal
from gangplank.cli.jobs import locate
from gangplank.cluster import evidence as cluster_evidence
from gangplank.cluster.client import Kube
from gangplank.errors import Unreadable
from gangplank.proof import expected as asked
from gangplank.proof.verdict import prove, read_records
from gangplank.reading import files

if TYPE_CHECKING:
    import argparse

    from gangplank.proof.claims import Expected
    from gangplank.proof.records import Records
    from gangplank.proof.verdict import Verdict

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
        raise Unreadable(
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
    if not given.job and not given.file:
        raise terminal.UsageError(f"{given.command}: no job given; try: gangplank {given.command} digits")
    if given.file:
        return from_file(Path(given.file), given.job)
    kube = Kube(given.kubeconfig, given.context)
    job, submitted = locate(kube, given)
    manifest = submitted[-1] if submitted else job  # a file says what was meant, a live job only what was submitted
    expected = replace(asked.expected(manifest), job_uid=asked.job_uid(job))
    records = cluster_evidence.from_cluster(kube.patient(terminal.note), job, expected.world_size)
    return str(job["metadata"]["name"]), records, expected


def from_file(place: Path, job: str | None) -> tuple[str, Records, Expected]:
    """Evidence from a folder of the trainer's, or from a file with it or with logs."""
    source = place / asked.EVIDENCE if place.is_dir() else place
    records = read_records(files.read(str(source), errors="replace"))  # a script may print any bytes
    if job is None:
        name = place.resolve().name if place.is_dir() else place.stem
        return name, records, asked.claimed(records)
    if not Path(job).is_file():
        raise Unreadable(f"{job}: no such file; with --file, a job is named by its job file")
    _, known, _ = inputs.gather([job], None)
    if not known:
        raise Unreadable(f"{job}: no job in it")
    manifest = known[-1][1]
    return str(manifest["metadata"]["name"]), records, asked.expected(manifest)
