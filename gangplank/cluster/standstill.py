"""Why a job stands still.

Pods that keep it from starting again, of lost nodes or overlooked failures, are removed; a lost PodGroup is made again.
"""

from __future__ import annotations

import re
import sys
from datetime import datetime
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.pod_template import LOST_NODE_S
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import overlooked
from gangplank.cluster.client import FORBIDDEN, path
from gangplank.cluster.progress import waiting_reasons
from gangplank.errors import GangplankError, KubeError
from gangplank.k8s.age import age_s
from gangplank.k8s.events import when
from gangplank.k8s.nodes import is_lost
from gangplank.proof import expected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

ENDING_S = 5.0  # in which most pods that shall end have done so: their nodes are not asked for
SUMMARY = "PodGroupPending"  # of Volcano's controller: what the scheduler says of the job's PodGroup
NOT_QUEUED = ("Normal", "Unschedulable")  # type and reason, of a PodGroup that the scheduler does not let queue
# https://pkg.go.dev/strconv#Quote
ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))", re.DOTALL)
UNKNOWN = "\ufffd"  # as Unicode has it, for a number that is no character's
LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
RECENT_S = 60.0  # who cannot create a pod tries again, and says so, within that time


def reasons(kube: Kube, job: Json, pods: Sequence[Json], size: int) -> list[str]:
    """Why pods of a job do not run, one line each: they cannot start, cannot end, or cannot be created.

    `size` is that of the job: see `size_of`.
    """
    late = [pod for pod in pods if overdue_s(pod, kube.now()) > LOST_NODE_S]
    away = {node: lost(kube, node) for node in {node_of(pod) for pod in late}}
    why = waiting_reasons(pods) + [left(pod, away=away[node_of(pod)]) for pod in late]
    why += map(overlooked.reason, overlooked.pods(job, pods, kube.now()))
    if why or len(pods) >= size:
        return why
    try:
        events = kube.items("v1", "Event", job["metadata"]["namespace"])
    except KubeError as error:
        if error.outage:
            raise
        return []
    return refusals(job, events)[-1:]


def size_of(job: Json) -> int:
    """How many pods a job has once all exist; 1 if the library cannot foresee how many its controller makes."""
    try:
        return len(expected.pods(job))
    except GangplankError:
        return 1


def refusals(job: Json, events: Sequence[Json]) -> list[str]:
    """What controllers say of a job without all its pods, the newest last: for instance that a quota allows no more.

    Volcano's controller repeats the scheduler's summary of the gang beside the cause. That one counts if it is alone.
    """
    since = job["metadata"].get("creationTimestamp", "")
    own = sorted((item for item in events if refuses(item, job) and when(item) >= since), key=when)
    causes = [item for item in own if item.get("reason") != SUMMARY and seconds_between(item, own[-1]) < RECENT_S]
    name = job["metadata"]["name"]
    return [said(name, {**item, "message": words(item.get("message") or "")}) for item in causes or own]


def said(name: str, event: Json) -> str:
    """What an event says of an object; the API server leaves a reason or a message out that is empty."""
    return ": ".join(filter(None, [name, event.get("reason"), (event.get("message") or "").strip()]))


def words(message: str) -> str:
    r"""What an event says, in one line; of the refusals in the form that Go prints, which Volcano lists, the first one.

    >>> words('Error: [pod b, err: &errors.StatusError{Message:"b: \"2\" is too much", Code:422} Message:"a: no"}]')
    'a: no'
    """
    refused = re.findall(r'\bMessage:"((?:[^"\\]|\\.)*)"', message)
    return " ".join((unquoted(min(refused)) if refused else message).split())


def unquoted(text: str) -> str:
    r"""What Go has quoted; an escape that it does not write stays without its backslash.

    >>> unquoted(r"a \"b\" \x41\U00000042")
    'a "b" AB'
    """
    return ESCAPE.sub(character, text)


def character(match: re.Match[str]) -> str:
    """What an escape stands for."""
    if number := int(match[1] or match[2] or match[3] or "0", 16):
        return chr(number) if number <= sys.maxunicode and not 0xD800 <= number < 0xE000 else UNKNOWN
    return LETTERS.get(match[4], match[4]) if match[4] else "\0"


def refuses(event: Json, job: Json) -> bool:
    """Whether an event is a warning about a job, or about what is made for it; or its gang may not queue."""
    item, uid, name = event["involvedObject"], job["metadata"].get("uid"), job["metadata"]["name"]
    about = item.get("name") or ""  # the API server leaves out what is empty
    if item.get("kind") == "PodGroup":  # Volcano's scheduler does not warn of it
        return about in {name, f"{name}-{uid}"} and (event.get("type"), event.get("reason")) == NOT_QUEUED
    backend = backend_of(job)
    made = backend is not None and item.get("kind") in BACKENDS[backend].makes and item["kind"] != "Pod"
    child = made and (about == name or about.startswith(f"{name}-node-"))
    return event.get("type") == "Warning" and (item.get("uid") == uid or child)


def seconds_between(early: Json, late: Json) -> float:
    """Seconds between two events; 0 if one has no time."""
    times = [datetime.fromisoformat(text) for text in (when(early), when(late)) if text]
    return (times[1] - times[0]).total_seconds() if len(times) == 2 else 0.0


def overdue_s(pod: Json, now: datetime) -> float:
    """Seconds that a pod has been Terminating beyond its grace period; not above 0 if it is not."""
    return age_s(pod["metadata"].get("deletionTimestamp"), now)


def node_of(pod: Json) -> str:
    """The node of a pod, "" before it has one."""
    return str(pod["spec"].get("nodeName") or "")


def left(pod: Json, *, away: bool) -> str:
    """What a message says of a pod that does not end; `away` is whether its node is lost."""
    node, meta = node_of(pod), pod["metadata"]
    if away:
        fix = f"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, once {node} is off"
        return f"{meta['name']}: cannot end: its node {node} does not answer. Fix: {fix}"
    if finalizers := meta.get("finalizers"):
        fix = "check that the controller that removes them runs"
        return f"{meta['name']}: its finalizers {', '.join(finalizers)} keep it. Fix: {fix}"
    show = f"kubectl describe pod {meta['name']} -n {meta['namespace']}"
    fix = f"look there for a volume that cannot be unmounted or a process that does not end: {show}"
    return f"{meta['name']}: does not end on {node}. Fix: {fix}"


def lost(kube: Kube, node: str) -> bool:
    """Whether Kubernetes takes a node for lost; False if this account may not read it."""
    try:
        return is_lost(kube.get(f"/api/v1/nodes/{node}") or {})
    except KubeError:
        return False


def release(kube: Kube, pods: Sequence[Json], nodes: Mapping[str, str]) -> list[str]:
    """Remove the pods that do not end, so that others can take their names; what was done, one line each.

    A node that Kubernetes takes for lost does not learn that a pod shall end, so no grace period begins there. Others
    get it, and half a minute more. A rank cannot train without those on other nodes, so one that still runs there does
    no harm. If all `nodes` of the job's pods, by the pods' UID, are one node, the whole gang may still run there: then
    no pod is removed.
    """
    done: list[str] = []
    away: dict[str, bool] = {}  # node -> whether it is lost
    for pod in pods:
        meta, node, late_s = pod["metadata"], node_of(pod), overdue_s(pod, kube.now())
        ending_s = late_s + (meta.get("deletionGracePeriodSeconds") or 0)
        if not meta.get("deletionTimestamp") or ending_s < ENDING_S or set(nodes.values()) - {""} <= {node}:
            continue
        if node not in away:
            away[node] = lost(kube, node)
        if (late_s > LOST_NODE_S or away[node]) and removed(kube, pod):
            why = f"its node {node} does not answer" if away[node] else f"it does not end on {node}"
            done.append(f"{meta['name']} is removed: {why}")
    return done


def restart(kube: Kube, job: Json, pods: Sequence[Json]) -> list[str]:
    """Remove the pods of a gang that failed while its controller was down, so that it restarts; one line each."""
    return [f"{pod['metadata']['name']} is removed: it failed, and its job's controller did not restart the job"
            for pod in overlooked.pods(job, pods, kube.now()) if removed(kube, pod)]  # fmt: skip


def lost_group(kube: Kube, job: Json, pods: Sequence[Json]) -> str:
    """The PodGroup that a job's pods wait with and that does not exist; "" if it does, or may not be read.

    Only of jobs whose controller takes Commands: `regroup` repairs them, and no other.
    """
    if f"{job['apiVersion']} {job['kind']}" != QUEUE_SYSTEM.commanded:
        return ""
    name, namespace = overlooked.group(pods, kube.now()), job["metadata"]["namespace"]
    try:
        return "" if not name or kube.get(path(*QUEUE_SYSTEM.pod_group[:2], namespace, name)) else name
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return ""


def regroup(kube: Kube, job: Json, pods: Sequence[Json]) -> list[str]:
    """Have a job's controller look at it again if its PodGroup is gone, so that it makes another; what was done.

    The controller deletes the Command that it obeys. While one waits for it, no other is sent.
    """
    meta, name = job["metadata"], lost_group(kube, job, pods)
    if not name:
        return []
    kind = {key: job[key] for key in ("apiVersion", "kind")}
    target = {**kind, "name": meta["name"], "uid": meta["uid"], "controller": True}
    own = {"name": f"gangplank-sync-{meta['name']}", "namespace": meta["namespace"]}
    api_version, command = QUEUE_SYSTEM.command[:2]
    body = {"apiVersion": api_version, "kind": command, "metadata": own, "action": QUEUE_SYSTEM.sync, "target": target}
    try:
        kube.post(path(api_version, command, meta["namespace"]), body)
    except KubeError as error:
        if error.outage:
            raise
        return []  # a Command waits already, or this user may send none: the job is followed all the same
    return [f"PodGroup {name} does not exist: the job's controller is asked to make it again"]


def removed(kube: Kube, pod: Json) -> bool:
    """Remove a pod without asking its node; false if this user may not, or finalizers keep it."""
    meta = pod["metadata"]
    try:
        kube.delete_at(path("v1", "Pod", meta["namespace"], meta["name"]), meta["uid"], grace_s=0)
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return False
    return not meta.get("finalizers")
