"""The commands that talk to a cluster: submit, status, logs, scale, delete."""

from __future__ import annotations

import math
import sys
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of, is_submitted_job, job_resources, submitted_kinds
from gangplank.cli import inputs, overview, terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cluster import code, operators, reader, standstill
from gangplank.cluster import submit as submission
from gangplank.cluster.attempts import attempts, gone
from gangplank.cluster.ends import first_failure
from gangplank.cluster.gaps import Gaps, Numbers
from gangplank.cluster.lease import PATIENCE_S, Lock
from gangplank.cluster.leftovers import left, scripts_left
from gangplank.cluster.logs import GONE, follow
from gangplank.cluster.members import rank_of
from gangplank.cluster.progress import phase
from gangplank.cluster.submit import title
from gangplank.errors import GangplankError, KubeError, Problem, SpecError
from gangplank.k8s.conditions import end_reason, failed_init
from gangplank.k8s.plan import Plan
from gangplank.proof import log_lines
from gangplank.text import counted, plain, table
from gangplank.wait import polls

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

POLL_S = 0.5  # between two looks at a job that is followed
NO_MORE = "unable to retrieve container logs for "  # what the kubelet answers once a container is removed, with 200
COLOURS = (36, 33, 32, 35, 34, 31)  # of the ranks, in turn: cyan, yellow, green, magenta, blue, red


def wait_for_runs(kube: Kube) -> None:
    """Wait while a playbook changes the cluster: what it is just installing or removing cannot be judged.

    It does not wait for train.yml: of two jobs of one name, the API server refuses the second.
    """
    lock = Lock(kube)

    def say(line: str) -> None:
        terminal.note(line)
        lock.kube = kube.patient(terminal.note)  # it has answered, so an outage is waited out

    lock.wait({}, say, PATIENCE_S)


def examine(kube: Kube, job: Json, origin: str) -> None:
    """Refuse a job that the cluster cannot run, and say what its user has to know; `origin` is where it is from."""
    if problems := submission.unfit(kube, job):
        raise SpecError(problems, origin)
    for problem in operators.absent(kube, job):
        terminal.note(str(problem))
    if without := submission.gangless(kube, job):
        terminal.note(without)


def submit(args: argparse.Namespace) -> int:
    """Submit jobs that do not exist yet, with the objects that they need."""
    cluster = cache(partial(cluster_of, args, changes=not args.dry_run))  # a mistake in a job file needs none

    def namespace() -> str:
        return cluster().namespace_of(args.namespace)

    submitted, jobs, other_kinds = inputs.gather(args.jobs, args.backend, args.site, namespace, named=args.namespace)
    if not jobs:
        return terminal.complain(str(inputs.jobless(", ".join(args.jobs), other_kinds)), terminal.REFUSED)
    inputs.check_forms(jobs, ", ".join(args.jobs))
    kube = cluster()
    for item in submitted:
        item["metadata"]["namespace"] = item["metadata"].get("namespace") or namespace()
    if not args.dry_run:
        wait_for_runs(kube)
    for _, job in jobs:
        examine(kube, job, f"{job['kind']} {job['metadata']['name']}")
    submission.carry_out(kube, Plan(write=tuple(submitted)), dry_run=args.dry_run, report=print)
    meta = jobs[-1][1]["metadata"]
    if args.wait and not args.dry_run:
        return wait(kube, jobs[-1][1])
    if not args.dry_run:
        print(f"next: gangplank logs {meta['name']} -n {meta['namespace']} -f")
    return terminal.OK


def wait(kube: Kube, job: Json) -> int:
    """Follow a job to its end, and explain it if it waits or fails."""
    from gangplank.cluster.follow import JobWatch  # not for completion, which has to be quick
    from gangplank.cluster.follow import follow as follow_job

    watch = JobWatch(job, kube)
    end = follow_job(watch, partial(print, flush=True), math.inf)  # a pipe's reader follows it, too
    if end is None or end.failed:
        how = f"{end.name}: {end.reason}".removesuffix(": ") if end else ""
        return terminal.complain(f"job {watch.name}: {how}\n{watch.trouble()}".rstrip(), terminal.REFUSED)
    return terminal.OK


def scale(args: argparse.Namespace) -> int:
    """Give a running job another number of workers."""
    kube = cluster_of(args, changes=True)
    job, _ = locate(kube, args)
    refuse_two(kube, args, job)
    kube.patch(job, BACKENDS[str(backend_of(job))].scale(job, args.workers))
    print(f"{title(job)} scaled to {counted(args.workers, 'worker')}")
    return terminal.OK


def locate(kube: Kube, args: argparse.Namespace) -> tuple[Json, list[Json]]:
    """The live job that a file or a name means; for a file, also everything that would be submitted from it."""
    name, namespace, kinds, submitted = meant(kube, args)
    live = kube.find(namespace, name, kinds)
    if live is None:
        raise inputs.nothing(name, namespace, "submit it")
    return live, submitted


def meant(kube: Kube, args: argparse.Namespace) -> tuple[str, str, list[tuple[str, str]], list[Json]]:
    """The job that a file or a name means: name, namespace, kinds, and all that would be submitted from a file."""
    if inputs.is_path(args.job):
        submitted, jobs, other_kinds = inputs.gather([args.job], None, args.site, named=args.namespace, grants=False)
        if not jobs:
            raise KubeError(str(inputs.jobless(args.job, other_kinds)))
        job = jobs[-1][1]
        kinds = [(job["apiVersion"], job["kind"])]
        name, namespace = job["metadata"]["name"], job["metadata"].get("namespace")
    else:
        inputs.refuse_site(args)
        submitted, kinds = [], list(submitted_kinds())
        name, namespace = args.job, None
    return name, namespace or kube.namespace_of(args.namespace), kinds, submitted


def refuse_two(kube: Kube, args: argparse.Namespace, job: Json) -> None:
    """Refuse to change a job by a name that a job of another kind has too."""
    if inputs.is_path(args.job):
        return
    others, meta = dict(zip(submitted_kinds(), job_resources(), strict=True)), job["metadata"]
    own = others.pop((job["apiVersion"], job["kind"]))
    try:
        other = kube.find(meta["namespace"], meta["name"], [*others])
    except KubeError as error:
        if error.outage:
            raise
        return  # of a kind that this user may not read
    if other and is_submitted_job(other):
        got = f"{own} and {others[other['apiVersion'], other['kind']]} of this name in namespace {meta['namespace']}"
        kubectl = f", or kubectl delete {own}/{meta['name']} -n {meta['namespace']}"
        fix = f"name its file{kubectl if args.command == 'delete' else ''}"
        raise GangplankError(str(Problem(f"job {meta['name']}", got, "a name that one job has", fix)))


def refuse_others(job: Json, submitted: Iterable[Json]) -> None:
    """Refuse to remove a job that no user submitted as a training, unless a file has that very kind of job."""
    named = (item for item in submitted if title_of(item) == title_of(job))
    if not is_submitted_job(job) and all(map(is_submitted_job, named)):
        meta = job["metadata"]
        own = dict(zip(submitted_kinds(), job_resources(), strict=True))[job["apiVersion"], job["kind"]]
        fix = f"kubectl delete {own}/{meta['name']} -n {meta['namespace']}, if that is what you mean"
        raise GangplankError(str(Problem(title(job), submission.what_else(job), "a training", fix)))


def title_of(item: Json) -> tuple[str, str]:
    """Kind and name of an object."""
    return item["kind"], item["metadata"]["name"]


def status(args: argparse.Namespace) -> int:
    """Where a job and each of its pods stand; without a job, the site."""
    if args.job is not None and (args.watch or args.output or args.html):
        option = "--watch" if args.watch else "--output" if args.output else "--html"
        fix = f"leave out {option}, or the job"
        raise terminal.UsageError(str(Problem(option, f"it with job {args.job}", "it without a job", fix)))
    if args.job is None:
        inputs.refuse_site(args)
        return overview.site(cluster_of(args), args)
    kube = cluster_of(args)
    job, _ = locate(kube, args)
    meta = job["metadata"]
    pods = kube.pods(job)
    print(f"{meta['name']} in {meta['namespace']} on {backend_of(job)}: {plain(phase(job).name)}")
    rows = [("POD", "RANK", "NODE", "PHASE", "RESTARTS", "WHY"), *map(pod_status, pods)]
    print(table(rows, colour=terminal.coloured(sys.stdout)) if pods else "no pods yet")
    reasons = [] if phase(job).ended else standstill.reasons(kube, job, pods, standstill.size_of(job))
    for reason in reasons:
        print(plain(reason))
    if reasons:
        print(f"next: gangplank why {meta['name']} -n {meta['namespace']}")
    return terminal.OK


def pod_status(pod: Json) -> tuple[str, ...]:
    """The row of a pod in the table of its job."""
    state, rank = pod.get("status", {}), rank_of(pod)
    containers = state.get("containerStatuses", [])
    reasons = [
        now.get("waiting", {}).get("reason", "") or end_reason(now.get("terminated", {}))
        for now in (container.get("state", {}) for container in containers)
    ]
    reasons += [item.get("message", "") for item in state.get("conditions", []) if item.get("status") == "False"][:1]
    return (
        pod["metadata"]["name"],
        "" if rank is None else str(rank),
        pod["spec"].get("nodeName", ""),
        state.get("phase", ""),
        str(sum(container.get("restartCount", 0) for container in containers)),
        next((reason for reason in reasons if reason), ""),
    )


def summaries(kube: Kube, namespace: str) -> list[tuple[str, str, str, str]]:
    """Name, back-end, state and time of creation of each job, oldest first; not those that a controller created."""
    return [
        (job["metadata"]["name"], str(backend_of(job)), phase(job).name, job["metadata"].get("creationTimestamp", ""))
        for job in kube.listed(namespace, submitted_kinds())
        if is_submitted_job(job)
    ]


def prefix(pod: Json, *, colour: bool, attempt: int = 0) -> str:
    """The beginning of each line of a pod's log."""
    rank = rank_of(pod)
    text = pod["metadata"]["name"] if rank is None else f"rank {rank}"
    text += f", attempt {attempt}" if attempt else ""
    return f"\x1b[{COLOURS[(rank or 0) % len(COLOURS)]}m[{text}]\x1b[0m " if colour else f"[{text}] "


def logs(args: argparse.Namespace) -> int:
    """The logs of all ranks, each line with its rank; with --follow, lines are printed as they are written."""
    kube = cluster_of(args)
    job, _ = locate(kube, args)
    meta, colour = job["metadata"], terminal.coloured(sys.stdout)
    if args.follow and (args.rank is None or args.rank < standstill.size_of(job)):
        return follow_ranks(kube, job, args.rank)
    pods = [pod for pod in kube.pods(job) if args.rank is None or rank_of(pod) == args.rank]
    if not pods:
        got = "no pod" if args.rank is None else f"no pod of rank {args.rank}"
        fix = f"try again once `gangplank status {meta['name']} -n {meta['namespace']}` shows it"
        raise KubeError(str(Problem(f"job {meta['name']}", got, "a pod that writes a log", fix)))
    note_init(pods)
    if args.previous:
        return all_attempts(kube, job, pods)

    gaps, numbers = Gaps(meta["name"], meta["namespace"]), {pod["metadata"]["name"]: Numbers() for pod in pods}
    unread: dict[str, KubeError] = {}

    def show(lines: Iterable[tuple[Json, str]]) -> None:
        for pod, line in lines:
            print(prefix(pod, colour=colour) + plain(line))
            if fields := log_lines.read(line):
                gaps.take(numbers[pod["metadata"]["name"]], pod["metadata"]["name"], fields)
        for text in gaps.texts():
            terminal.note(text)

    show(chain.from_iterable(read(kube, pod, unread) for pod in pods))
    return terminal.CLUSTER if len(unread) == len(pods) else terminal.OK


def follow_ranks(kube: Kube, job: Json, rank: int | None) -> int:
    """Print the lines of all ranks, or of one, as they are written until the job has ended; pods may come and go."""
    from gangplank.cluster.follow import JobWatch  # not for completion, which has to be quick

    watch, colour, noted = JobWatch(job, kube.patient(terminal.note)), terminal.coloured(sys.stdout), set[str]()
    for _ in polls(math.inf, POLL_S):
        end = watch.poll()
        fresh = [pod for pod in watch.pods if pod["metadata"]["uid"] not in noted and rank in (None, rank_of(pod))]
        noted |= {pod["metadata"]["uid"] for pod in fresh if failed_init(pod)}
        note_init(fresh)
        for pod, line in watch.finish() if end.ended else watch.lines():
            if rank in (None, rank_of(pod)):
                print(prefix(pod, colour=colour) + plain(line), flush=True)  # a pipe's reader may be a terminal too
        for text in watch.losses():
            terminal.note(text)
        if end.ended:
            terminal.note(f"{watch.name}: {watch.end(end).name}")
            break
    mine = [log for log in watch.logs.values() if rank in (None, rank_of(log.pod))]
    return terminal.CLUSTER if mine and all(log.unread for log in mine) else terminal.OK


def read(kube: Kube, pod: Json, unread: dict[str, KubeError]) -> Iterator[tuple[Json, str]]:
    """The lines of a pod's log so far; why it cannot be read, if it exists, is noted too."""
    try:
        for line in follow(kube, pod, on=False):
            yield pod, line
    except KubeError as error:
        if error.status not in GONE:
            unread[pod["metadata"]["name"]] = error
        yield pod, f"({error})"


def note_init(pods: Iterable[Json]) -> None:
    """Say on standard error of which pods the log is that of an init container, which failed."""
    for pod in filter(failed_init, pods):
        if end := first_failure([pod]):
            terminal.note(f"{end.pod}: {end.how}; this is the log of that container")


def all_attempts(kube: Kube, job: Json, pods: list[Json]) -> int:
    """Print the log of each attempt that the cluster has, and on standard error which it has no more."""
    shown: dict[int | None, list[int]] = {}
    for run in attempts(job, pods):
        start = prefix(run.pod, colour=terminal.coloured(sys.stdout), attempt=run.number)
        numbers = shown.setdefault(rank_of(run.pod), [])
        try:
            lines = kube.log(run.pod, previous=run.before)
        except KubeError as error:
            if not (run.before and error.status in GONE):
                print(f"{start}({error})")
                numbers.append(run.number)
            continue
        if run.before and len(lines) == 1 and lines[0].startswith(NO_MORE):
            continue
        numbers.append(run.number)
        for line in lines:
            print(start + plain(line))
    if missing := gone(shown):
        terminal.note(f"removed by the cluster, with their pods or containers: {missing}")
    return terminal.OK


def remove(kube: Kube, items: Iterable[Json]) -> list[Json]:
    """Remove some objects and say so: those that existed."""
    removed = [item for item in items if kube.delete(item)]
    for item in removed:
        print(f"{title(item)} removed")
    return removed


def delete(args: argparse.Namespace) -> int:
    """Remove a job with its pods, its script and its Service, or what is left of it; volume claims and data stay."""
    kube = cluster_of(args, changes=True)
    name, namespace, kinds, submitted = meant(kube, args)
    job = kube.find(namespace, name, kinds)
    if job is None:
        if remove(kube, left(kube, namespace, name)):
            return terminal.OK
        raise inputs.nothing(name, namespace, "submit it")
    refuse_two(kube, args, job)
    refuse_others(job, submitted)
    meta, backend = job["metadata"], BACKENDS[str(backend_of(job))]
    beside = submission.belonging(job, submitted)
    beside += submission.scripts_of(job, except_for=beside)
    if not submitted:
        beside += submission.made_for(kube, job, backend.beside)
    removed = [job] if kube.delete(job, backend.propagation) else []
    for item in beside:
        item["metadata"].setdefault("namespace", meta["namespace"])
        if kube.delete(item):
            removed.append(item)
    submission.wait_until_gone(kube, job, terminal.note)
    for item in removed:
        print(f"{title(item)} removed")
    remove(kube, scripts_left(kube, meta["namespace"], meta["name"]))
    reader.remove_ended(kube, job, also_running=True)
    for name in code.remove_unused(kube, meta["namespace"], job):
        print(f"ConfigMap {meta['namespace']}/{name} removed")
    return terminal.OK
