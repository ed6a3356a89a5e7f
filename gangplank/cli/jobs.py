"""The commands that talk to a cluster: submit, status, logs, scale, delete."""

from __future__ import annotations

import queue
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of, submitted_kinds
from gangplank.cli import inputs, terminal
from gangplank.cluster import submit as submission
from gangplank.cluster.client import Kube, rank_of
from gangplank.cluster.logs import follow
from gangplank.cluster.patience import silent
from gangplank.cluster.progress import phase
from gangplank.cluster.submit import make, title
from gangplank.errors import KubeError, SpecError
from gangplank.text import plain, table

if TYPE_CHECKING:
    import argparse

    from gangplank.spec import Json

COLOURS = (36, 33, 32, 35, 34, 31)  # of the ranks, in turn: cyan, yellow, green, magenta, blue, red


def submit(given: argparse.Namespace) -> int:
    """Submit jobs: what they need first, then the job itself, which must not be there yet."""
    submitted, known, _ = inputs.gather(given.jobs, given.backend, given.teams)
    if not known:
        return terminal.complain(f"{', '.join(given.jobs)}: no job in it", terminal.REFUSED)
    kube = Kube(given.kubeconfig, given.context)
    for item in submitted:
        item["metadata"].setdefault("namespace", given.namespace or "default")
    for _, job in known:
        if problems := submission.unfit(kube, job):
            raise SpecError(problems, f"{job['kind']} {job['metadata']['name']}")
    for dry_run in (True, False)[: 1 if given.dry_run else 2]:  # nothing is made before the server takes all of it
        for item in submitted:
            try:
                done = make(kube, item, dry_run=dry_run)
            except KubeError as error:
                if error.status == 409:
                    return terminal.complain(taken(kube, item), terminal.REFUSED)
                raise
            if dry_run == given.dry_run:
                print(f"{title(item)} {done}{' (dry run)' if dry_run else ''}")
    if not given.dry_run:
        meta = known[-1][1]["metadata"]
        print(f"next: gangplank logs {meta['name']} -n {meta['namespace']} -f")
    return terminal.OK


def taken(kube: Kube, job: Json) -> str:
    """What is said of a job whose name is taken."""
    meta = job["metadata"]
    differs = [f"\n  {line}" for line in submission.compared(job, submission.there(kube, job))]
    fix = f"look: gangplank status {meta['name']} -n {meta['namespace']}; remove it: gangplank delete ..."
    how = f", and differs from this description:{''.join(differs)}\n" if differs else "; "
    return f"{title(job)} is there already{how}{fix}"


def scale(given: argparse.Namespace) -> int:
    """Give a running job another number of workers."""
    kube = Kube(given.kubeconfig, given.context)
    job, _ = locate(kube, given)
    kube.patch(job, BACKENDS[str(backend_of(job))].scale(job, given.workers))
    print(f"{title(job)} scaled to {given.workers} workers")
    return terminal.OK


def locate(kube: Kube, given: argparse.Namespace) -> tuple[Json, list[Json]]:
    """The live job that a file or a name means, and all that would be submitted with it."""
    if Path(given.job).is_file():
        submitted, known, _ = inputs.gather([given.job], None)
        if not known:
            raise KubeError(f"{given.job}: no job in it")
        wanted = known[-1][1]
        name, namespace = (
            wanted["metadata"]["name"],
            wanted["metadata"].get("namespace") or given.namespace or "default",
        )
        kinds = [(wanted["apiVersion"], wanted["kind"])]
    else:
        submitted, name, namespace = [], given.job, given.namespace or "default"
        kinds = list(submitted_kinds())
    found = kube.find(namespace, name, kinds)
    if found is None:
        raise KubeError(f"no job {name} in namespace {namespace}; submit it, or name another with -n", 404)
    return found, submitted


def status(given: argparse.Namespace) -> int:
    """Where a job and each of its pods stand; without a job, which jobs there are."""
    kube = Kube(given.kubeconfig, given.context)
    if given.job is None:
        print(listing(kube, given.namespace or "default"))
        return terminal.OK
    job, _ = locate(kube, given)
    meta = job["metadata"]
    pods = kube.pods(meta["namespace"], meta["name"])
    print(f"{meta['name']} in {meta['namespace']} on {backend_of(job)}: {phase(job).name}")
    rows = [["POD", "RANK", "NODE", "PHASE", "RESTARTS", "WHY"]]
    for pod in pods:
        now, rank = pod.get("status", {}), rank_of(pod)
        states = now.get("containerStatuses", [])
        why = [
            state.get("state", {}).get(kind, {}).get("reason", "")
            for state in states
            for kind in ("waiting", "terminated")
        ]
        why += [item.get("message", "") for item in now.get("conditions", []) if item.get("status") == "False"][:1]
        rows.append(
            [
                pod["metadata"]["name"],
                "" if rank is None else str(rank),
                pod["spec"].get("nodeName", ""),
                now.get("phase", ""),
                str(sum(state.get("restartCount", 0) for state in states)),
                next((text for text in why if text), ""),
            ]
        )
    print(table(rows, colour=terminal.coloured(sys.stdout)) if pods else "no pods yet")
    return terminal.OK


def listing(kube: Kube, namespace: str) -> str:
    """The table of a namespace's jobs."""
    rows = summaries(kube, namespace)
    head = ("JOB", "BACK-END", "STATE", "CREATED")
    return table([head, *rows], colour=terminal.coloured(sys.stdout)) if rows else f"no jobs in {namespace}"


def summaries(kube: Kube, namespace: str) -> list[tuple[str, str, str, str]]:
    """Name, back-end, state and time of creation of each job, oldest first; not those that a controller created."""
    return [
        (job["metadata"]["name"], str(backend_of(job)), phase(job).name, job["metadata"].get("creationTimestamp", ""))
        for job in kube.listed(namespace, submitted_kinds())
        if is_job(job)
    ]


def is_job(item: Json) -> bool:
    """Whether an object is a training job that somebody submitted."""
    return BACKENDS[str(backend_of(item))].is_job(item) and not item["metadata"].get("ownerReferences")


def prefix(pod: Json, *, colour: bool) -> str:
    """What stands before each line of a pod's log."""
    rank = rank_of(pod)
    text = pod["metadata"]["name"] if rank is None else f"rank {rank}"
    return f"\x1b[{COLOURS[(rank or 0) % len(COLOURS)]}m[{text}]\x1b[0m " if colour else f"[{text}] "


def logs(given: argparse.Namespace) -> int:
    """The logs of all ranks, each line with its rank; followed, they come as they are written."""
    kube = Kube(given.kubeconfig, given.context)
    job, _ = locate(kube, given)
    meta, colour = job["metadata"], terminal.coloured(sys.stdout)
    pods = [
        pod for pod in kube.pods(meta["namespace"], meta["name"]) if given.rank is None or rank_of(pod) == given.rank
    ]
    if not pods:
        raise KubeError(
            f"{meta['name']} has no pods{'' if given.rank is None else f' of rank {given.rank}'} yet; try again"
        )
    lines: queue.Queue[str | None] = queue.Queue()

    def read(pod: Json, patient: Kube) -> None:
        start = prefix(pod, colour=colour)
        try:
            log = follow(patient, pod) if given.follow else kube.log(meta["namespace"], pod["metadata"]["name"])
            for line in log:
                lines.put(start + (plain(line) if sys.stdout.isatty() else line))
        except KubeError as error:
            lines.put(f"{start}({error})")
        finally:
            lines.put(None)

    for pod in pods:
        if given.follow:
            patient = kube.patient(terminal.note if pod is pods[0] else silent)
            threading.Thread(target=read, args=(pod, patient), daemon=True).start()
        else:
            read(pod, kube)
    open_logs = len(pods)
    while open_logs:
        line = lines.get()
        if line is None:
            open_logs -= 1
        else:
            print(line, flush=given.follow)
    return terminal.OK


def delete(given: argparse.Namespace) -> int:
    """Remove a job with its pods, its script and its Service; claims and what lies on them stay."""
    kube = Kube(given.kubeconfig, given.context)
    job, submitted = locate(kube, given)
    meta = job["metadata"]
    kinds = BACKENDS[str(backend_of(job))].beside
    beside = [item for item in submitted if (item["apiVersion"], item["kind"]) in {("v1", "ConfigMap"), *kinds}]
    beside += submission.scripts_of(job, except_for=beside)
    if not submitted:
        beside += [{"apiVersion": version, "kind": kind, "metadata": meta} for version, kind in kinds]
    for item in [job, *beside]:
        item["metadata"].setdefault("namespace", meta["namespace"])
        if kube.delete(item):
            print(f"{title(item)} removed")
    return terminal.OK
