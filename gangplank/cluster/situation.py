"""Reads what decides whether a job starts, and what became of it. What may not be read is noted, never guessed."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.base import RANDOM, UID, Site
from gangplank.backends.device_claims import is_template
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import failure, logs, pace, ranks
from gangplank.cluster.client import FORBIDDEN, MOST_BYTES, path
from gangplank.cluster.deployed import DEPLOYMENTS
from gangplank.cluster.ends import End, ends, latest, run_of
from gangplank.cluster.failure import LastWords
from gangplank.cluster.logs import restarts
from gangplank.cluster.progress import Phase, phase
from gangplank.cluster.retries import used_up
from gangplank.cluster.site import PRIORITIES, priorities_of, site_of
from gangplank.cluster.snapshot import DEVICES, items, snapshot, with_drivers, with_runtimes
from gangplank.cluster.standstill import lost_group
from gangplank.errors import GangplankError, KubeError
from gangplank.k8s.age import age_s
from gangplank.proof.expected import world_size_of
from gangplank.scheduling import claimed_devices, namespace_rules
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import Demand, demand
from gangplank.scheduling.pod_causes import cut, references
from gangplank.scheduling.rest import present
from gangplank.scheduling.why import HELD, Failure, Situation, diagnose, unplaced
from gangplank.site.components import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Mapping, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

NOT_FOUND = 404
TEMPLATES = "resourceclaimtemplates"
NAMESPACES = {component.namespace for component in COMPONENTS.values()}
REFUSED = re.compile(r"^FailedCreate")  # reasons of events about pods that were not created
WEBHOOK = re.compile(r"failed calling webhook")
KUEUE = "kueue.x-k8s.io/queue-name"  # label of a job that Kueue suspends until this queue admits it
RIGHTS = re.compile(r'User "[^"]*" cannot ')
NAME = "gangplank-why-"  # of pods that are never created
PROBE = re.compile(rf'pods "{NAME}[^"]*" is forbidden: ')
LINES = 200  # of each log, from its end
MORE_LINES = 1000  # of a rank that may print a lot between two lines about its steps
NO_LOG = "unable to retrieve container logs for "  # what the kubelet answers instead of one
LEFT_OUT = {"type": "", "reason": "", "message": ""}  # of an event
NO_NAMESPACE = re.compile(r'namespaces "([^"]+)" not found')
MOST_LOGS = 64  # that are read of a job
SILENT_S = 40.0  # after which no further log is asked for: each that is silent may take half a minute
LOGS_S = 10.0  # for all of them together: if a node does not answer, the API server's answer is one that may change


def asked(
    kube: Kube, job: Json, others: Sequence[Json] = (), site: Site | None = None
) -> tuple[Demand | None, list[Json]]:
    """What a job asks of its scheduler, and all objects that its controllers make; `site` if it has been read."""
    name, meta = backend_of(job), job["metadata"]
    if not name:
        return None, []
    backend = BACKENDS[name]
    site = replace(site or readable_site(kube, tuple(others)), uid=meta.get("uid") or UID, at_once=True)
    try:
        objects = backend.objects(job, site)
    except GangplankError:
        return None, []
    if kube.get(f"/apis/{QUEUE_SYSTEM.queue.group}") is None:  # no gang without the scheduler that knows them
        objects = [item for item in objects if item["kind"] != QUEUE_SYSTEM.pod_group.kind]
    queue = backend.queue(job).name
    return demand(meta["name"], meta.get("namespace") or "default", objects, queue), objects


def foreseen(
    kube: Kube, job: Json, state: Snapshot, others: Sequence[Json] = (), site: Site | None = None
) -> tuple[Demand | None, list[Json]]:
    """What a job asks, its devices by claim as amounts where they can be counted, and what its controllers make."""
    wanted, objects = asked(kube, job, others, site)
    if wanted and any(part.spec.get("resourceClaims") for part in wanted.parts):
        templates = items(kube, f"{DEVICES}/namespaces/{wanted.namespace}/{TEMPLATES}") or []
        wanted = claimed_devices.asking(wanted, [*templates, *filter(is_template, others)], state.nodes)
    return wanted, objects


def readable_site(kube: Kube, others: tuple[Json, ...]) -> Site:
    """The settings of the cluster's controllers; without the right to read them the usual ones, with its priorities."""
    try:
        return site_of(kube, others)
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return Site(priorities=priorities_of(items(kube, PRIORITIES) or ()), others=others)


def situation(
    kube: Kube, job: Json, *, live: bool, others: Sequence[Json] = (), seen: Failure | None = None
) -> Situation:
    """All that is known about one job; a watch has seen what failed first, also if its pod is gone."""
    meta = job["metadata"]
    name, namespace = meta["name"], meta.get("namespace") or "default"
    state = snapshot(kube, namespace)
    wanted, objects = foreseen(kube, job, state, others)
    state = with_runtimes(kube, state, [wanted])
    state = with_drivers(kube, state, [(wanted, state)] if wanted else [])
    if not live:
        refusals = tuple(cause for cause in [refused(kube, job)] if cause)
        return Situation(name, wanted, state, live=False, phase="not submitted", refusals=refusals)
    pods, unread = own_pods(kube, job)
    uids = {pod["metadata"]["uid"] for pod in pods} | {meta["uid"]}
    group = own_group(state, job, pods)
    uids |= {group["metadata"]["uid"]} if group else set()
    makers = {(item["kind"], item["metadata"]["name"]) for item in objects if item["kind"] in {"Job", "JobSet"}}
    events = about(state.events, uids, makers)
    now, status = ending(job), job.get("status") or {}
    answering = [pod for pod in pods if pod["spec"].get("nodeName") not in state.away]  # of others there is no log
    stopped = any(not logs.runs(pod, container["name"]) for pod in pods for container in pod["spec"]["containers"])
    runs = [*ends(pods)]
    failed = {end.run for end in latest(runs)} if now.failed else set()  # of others, the present runs count alone
    words = last_words(kube, answering, failed) if now.failed or (stopped and runs) else {}
    alive = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}]
    current = pods if now.ended else present(pods, wanted)
    due = wanted.size if wanted else 0
    missing = [item for item in objects if item["kind"] == "Pod"] if len(current) < due else []
    known = Situation(
        name,
        wanted,
        state.without(uids - {meta["uid"]}, group["metadata"]["uid"] if group else ""),
        phase=now.name,
        reason=cut(now.reason),
        ended="succeeded" if now.succeeded else "failed" if now.failed else "",
        suspended=suspension(job, now.name),
        answered=bool(status.get("state") or status.get("conditions") or set(status) - {"state", "conditions"}),
        age_s=age_s(meta.get("creationTimestamp"), kube.now()),
        pods=tuple(current),
        placed=tuple(pod for pod, _ in state.pods.taken if pod["metadata"]["uid"] in uids),
        group=group,
        lost_group="" if group else lost_group(kube, job, pods),
        held=namespace_rules.counted(alive),
        refusals=refusals_of(kube, missing[:1], events) if missing and not now.ended else (),
        absent=absent(kube, namespace, pods),
        events=events,
        failure=seen or first(runs, words),
        retries=used_up(job, pods) if now.failed else "",
        ranks=ranks.meeting(words.values()),
        unread=unread,
        unavailable=unavailable(kube),
        controller=f"the controller of {job['kind']}s",
    )
    if words or known.ended or unplaced(known) or answering != pods:
        return known
    still, unread = standstill(kube, pods, world_size_of(job) if wanted else len(pods))
    return replace(known, ranks=still, unread=unread)


def own_pods(kube: Kube, job: Json) -> tuple[list[Json], tuple[str, ...]]:
    """A job's pods, or that they may not be read."""
    try:
        return kube.pods(job), ()
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return [], (f"what its pods do: you may not list pods in namespace {job['metadata']['namespace']}",)


def about(events: Iterable[Json], uids: Container[str], makers: Container[tuple[str, str]]) -> tuple[Json, ...]:
    """The events of some objects, with the fields that the API server leaves out where they are empty."""
    named = ((event["involvedObject"], event) for event in events)
    return tuple({**LEFT_OUT, **event} for item, event in named
                 if item.get("uid") in uids or (item.get("kind"), item.get("name")) in makers)


def ending(job: Json) -> Phase:
    """The phase of a job; one whose pods are being removed because it failed has failed."""
    conditions = (job.get("status") or {}).get("conditions") or []
    failing = [one for one in conditions if one.get("type") == "FailureTarget" and one.get("status") == "True"]
    target = next(iter(failing), None)  # conditions of Volcano Jobs have no type
    return Phase("Failed", str(target.get("message") or target.get("reason") or "")) if target else phase(job)


def suspension(job: Json, name: str) -> str:
    """How a job was suspended, "" if it was not."""
    spec = job.get("spec") or {}
    if spec.get("suspend") or (spec.get("runPolicy") or {}).get("suspend"):
        queue = (job["metadata"].get("labels") or {}).get(KUEUE)
        return f"{HELD} {queue} admits it" if queue else "it is suspended (spec.suspend is true)"
    return f"it was aborted by a command, and is {name}" if name in {"Aborting", "Aborted"} else ""


def own_group(state: Snapshot, job: Json, pods: Sequence[Json]) -> Json | None:
    """The job's gang: its pods name it, or the job owns it."""
    names = {(pod["metadata"].get("annotations") or {}).get(QUEUE_SYSTEM.group) for pod in pods}
    for item in state.groups:
        meta = item["metadata"]
        owners = {owner["uid"] for owner in meta.get("ownerReferences") or ()}
        here = meta["namespace"] == job["metadata"]["namespace"]
        if here and (meta["name"] in names or job["metadata"]["uid"] in owners):
            return item
    return None


def refused(kube: Kube, job: Json) -> Cause | None:
    """Why the API server would not take a job, by its own dry run."""
    where = path(job["apiVersion"], job["kind"], job["metadata"].get("namespace") or "default")
    return _dry_run(kube, where, job, "the job")


def _dry_run(kube: Kube, where: str, item: Json, what: str) -> Cause | None:
    """The cause in the API server's answer to a dry run; None if it accepts, or if it may not be asked."""
    try:
        kube.call("POST", where, item, {"dryRun": "All"})
    except KubeError as error:
        text = PROBE.sub("", cut(str(error).removeprefix("the cluster says: ")))
        unanswered = error.outage and not WEBHOOK.search(text)
        if RIGHTS.search(text) or unanswered or "already exists" in text:
            return None
        if WEBHOOK.search(text):
            return Cause("webhook", "a webhook does not answer", (text,), "check that the webhook's pods run")
        if error.status == NOT_FOUND and (namespace := NO_NAMESPACE.search(text)):
            fix = "name another with -n, or create it"
            return Cause("refused", f"the API server refuses {what}: there is no namespace {namespace[1]}", (), fix)
        if error.status == NOT_FOUND:
            text = f"the cluster does not know {item['kind']}s of {item['apiVersion']}: {text}"
        return Cause("refused", f"the API server refuses {what}: {text}", (), "correct what this line names")
    return None


def refusals_of(kube: Kube, pods: Sequence[Json], events: Sequence[Json]) -> tuple[Cause, ...]:
    """Why pods were not created: an event says that some were refused, and a dry run that they still are."""
    if not any(event.get("type") == "Warning" and REFUSED.search(event.get("reason") or "") for event in events):
        return ()
    causes = []
    for pod in pods:
        meta = pod["metadata"]
        fresh = {key: meta[key] for key in ("labels", "annotations", "namespace") if key in meta}
        one = decided({**pod, "metadata": {**fresh, "generateName": NAME}})
        causes.append(_dry_run(kube, path("v1", "Pod", meta["namespace"]), one, "its pods"))
    return tuple(cause for cause in causes if cause)


def decided(value: Any) -> Any:
    """A copy of JSON with something valid where a controller chooses by chance."""
    if isinstance(value, dict):
        return {key: decided(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decided(item) for item in value]
    return value.replace(RANDOM, "0").replace(UID, "0") if isinstance(value, str) else value


def absent(kube: Kube, namespace: str, pods: Sequence[Json]) -> Mapping[tuple[str, str], bool | None]:
    """Which Secrets and ConfigMaps of pods that do not run yet do not exist; None for one that may not be read."""
    pending = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Pending"]
    wanted = {key for pod in pending for key in references(pod["spec"])}
    result: dict[tuple[str, str], bool | None] = {}
    for kind, name in sorted(wanted):
        plural = {"Secret": "secrets", "ConfigMap": "configmaps"}[kind]
        try:
            result[kind, name] = kube.get(f"/api/v1/namespaces/{namespace}/{plural}/{name}") is None
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            result[kind, name] = None
    return result


def last_words(kube: Kube, pods: Sequence[Json], failed: Collection[str]) -> dict[str, LastWords]:
    """The ends of the logs of pods, by run: of the present one of each, and of the one before if it is in `failed`."""
    words, kube, end = dict[str, LastWords](), kube.patient(limit_s=LOGS_S), time.monotonic() + SILENT_S
    for pod in pods[:MOST_LOGS]:
        if time.monotonic() > end:
            break
        container, count = str(logs.status_of(pod, "").get("name")), restarts(pod, "")
        for number, previous in ((count, False), (count - 1, True)):
            name = run_of(pod, container, number)
            if previous and name not in failed:
                continue
            words[name] = log = LastWords(pod["metadata"]["name"])
            with contextlib.suppress(KubeError):
                for line in kube.log(pod, last=LINES, previous=previous, most=MOST_BYTES):
                    if not line.startswith(NO_LOG):
                        log.take(line)
    return words


def first(runs: Sequence[End], words: Mapping[str, LastWords]) -> Failure | None:
    """Who failed first in the last attempt, from the ends of the containers and of the logs, by run."""
    last = latest(runs)
    past = {end.run for end in runs} - {end.run for end in last}
    own, reported = min(last, default=None), failure.first(log for run, log in words.items() if run not in past)
    log = said_by(own, words) if own else None
    if reported and (own is None or (log and log.time)):
        return of_process(reported)
    return of_container(own, log.lines if log else ()) if own else None


def said_by(end: End, words: Mapping[str, LastWords]) -> LastWords | None:
    """The last words of a run; for a container whose log is not read, those of its pod's main one."""
    uid, container, _ = end.run.split("/")
    others = [log for run, log in words.items() if run.split("/")[0] == uid and run.split("/")[1] != container]
    return words.get(end.run) or next(iter(others), None)


def of_process(log: LastWords) -> Failure:
    """The failure of a process that torchrun has reported."""
    return Failure(log.who, log.how, tuple(log.lines), log.status)


def of_container(end: End, lines: Iterable[str]) -> Failure:
    """The failure of a container, from its end and its last lines."""
    return Failure(end.pod, end.how, tuple(lines), int(end.how.rpartition(" ")[2]))


def standstill(
    kube: Kube, pods: Sequence[Json], world_size: int | None
) -> tuple[Cause | None, tuple[str, ...]]:
    """Where the ranks of a job that runs stand still, else which is behind, and what could not be read of it."""
    logs, kube, end = {}, kube.patient(limit_s=LOGS_S), time.monotonic() + SILENT_S
    unread: tuple[str, ...] = ()
    for pod in pods[:MOST_LOGS]:
        if time.monotonic() > end:
            unread = (f"where all ranks stand: logs took longer than {SILENT_S:.0f} s",)
            break
        try:
            logs[pod["metadata"]["name"]] = kube.log(pod, last=MORE_LINES, most=MOST_BYTES)
        except KubeError as error:
            if error.status == FORBIDDEN:
                return None, ("whether its ranks stand still, or one is behind: you may not read their logs",)
    return ranks.idle(logs, world_size) or pace.behind(logs, world_size), unread


def unavailable(kube: Kube) -> tuple[str, ...]:
    """The components of queue system and operators that have no ready pod; none without the right to read them."""
    deployments = items(kube, DEPLOYMENTS)
    return tuple(
        f"deployment {item['metadata']['namespace']}/{item['metadata']['name']} has no ready pod"
        for item in deployments or ()
        if item["metadata"]["namespace"] in NAMESPACES and not (item.get("status") or {}).get("readyReplicas")
    )


def explanation(kube: Kube, job: Json, seen: Failure | None = None) -> str:
    """What `gangplank why` says of a submitted job; "" if it is healthy, or if nobody can say."""
    try:
        diagnosis = diagnose(situation(kube, job, live=True, seen=seen))
    except GangplankError:  # the API server is away, or a controller's settings cannot be read: the job continues
        return ""
    return diagnosis.text() if diagnosis.cause or diagnosis.missing else ""
