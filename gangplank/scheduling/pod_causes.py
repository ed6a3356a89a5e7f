"""Why pods that have a node do not run, or have ended: from their own present state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from gangplank.k8s.build import containers
from gangplank.k8s.conditions import failed_init, newest_end
from gangplank.k8s.events import lasted_s, when
from gangplank.scheduling import pod_rules
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.rest import rank
from gangplank.scheduling.snapshot import has_ended
from gangplank.text import listed, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.why import Failure
    from gangplank.spec import Json

IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
CONFIG = {"CreateContainerConfigError"}
STARTING = {"", "ContainerCreating", "PodInitializing"}  # of a container of which nothing is known yet
CREATE = {"CreateContainerError", "RunContainerError", "ContainerCannotRun", "StartError"}
STANDS = {  # reasons of events, in the order of the steps that fail: code and text of the cause
    "FailedAttachVolume": ("mount", "a volume of {pod} cannot be attached to its node"),
    "FailedMount": ("mount", "a volume of {pod} cannot be mounted"),
    "FailedPrepareDynamicResources": ("device", "its node cannot prepare the devices that {pod} claims"),
    "FailedCreatePodSandBox": ("sandbox", "the node cannot make a sandbox for {pod}"),
}
BEYOND = ("Pulling", "Pulled", "Created", "Started")  # of events that come after these steps
STEPS = (*STANDS, *BEYOND)
ATTACHES = ("FailedAttachVolume", "SuccessfulAttachVolume")
VOLUME = re.compile(r'for volume "([^"]+)"')
# https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/controller/volume/attachdetach/reconciler/reconciler.go
ELSEWHERE = re.compile(r"Multi-Attach error .*?Volume is already (?:used by pod\(s\) (?P<pods>\S+(?:, \S+)*))?")
FROM = {  # sources of variables, and their kinds
    "secretKeyRef": "Secret",
    "secretRef": "Secret",
    "configMapKeyRef": "ConfigMap",
    "configMapRef": "ConfigMap",
}
# https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/volume/csi/csi_client.go, and external-attacher's words
NO_DRIVER = re.compile(
    r"driver name (\S+) not found in the list of registered CSI drivers|CSINode \S+ does not contain driver (\S+)"
)
# What a kubelet has not heard of yet, and the certificate that a new namespace gets by itself: the next try has them
# https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/kubelet/util/manager/watch_based_manager.go
SOON = re.compile(r'failed to sync \w+ cache: timed out|object "\S+"/"\S+" not registered|"kube-root-ca.crt" not found')
TRIES, TRIED_S = 3, 60.0  # from then on it is a cause too: on a busy cluster, three tries fail within seconds
SHOWN = 300  # characters of a message


def statuses(pod: Json) -> list[Json]:
    """The states of all containers of a pod."""
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def cut(text: str) -> str:
    """A message of the cluster, in one readable line."""
    return plain(" ".join(text.split()))[:SHOWN]


# https://github.com/kubernetes/kubernetes/tree/v1.35.0/pkg/scheduler/framework/plugins
BETWEEN = re.compile(r"didn't (?:match pod (?P<own>topology spread|affinity|anti-affinity)|satisfy existing pods)")
FIELDS = {"affinity": "podAffinity", "anti-affinity": "podAntiAffinity"}
ANSWERS = {"topology": {pod_rules.SPREAD}, "pod-affinity": {pod_rules.NEAR, pod_rules.OTHERS}}  # what is known with it


def between_pods(job: Demand, said: Iterable[str]) -> Cause | None:
    """A rule between pods, which is not computed here: where all else fits, it is what the scheduler says it is."""
    for message in said:
        rules = {match["own"] for match in BETWEEN.finditer(message)}
        for part in job.parts:
            if "topology spread" in rules and part.spec.get("topologySpreadConstraints"):
                text, fix = "its topology spread constraints leave too few nodes", "loosen them, or add nodes"
                return Cause("topology", text, (f"its scheduler says: {cut(message)}",), fix)
            affinity = part.spec.get("affinity") or {}
            if None in rules or any(affinity.get(field) for rule, field in FIELDS.items() if rule in rules):
                whose = "that of other pods" if None in rules else "its own"
                text = f"affinity between pods, {whose}, leaves too few nodes"
                fix = "loosen that affinity, or add nodes"
                return Cause("pod-affinity", text, (f"its scheduler says: {cut(message)}",), fix)
    return None


def lost(pods: Sequence[Json], away: Container[str]) -> Iterator[Cause]:
    """Pods on nodes that do not answer, without those that have ended there or have a successor elsewhere."""
    running = {rank(pod) for pod in pods if _phase(pod) == "Running" and pod["spec"].get("nodeName") not in away}
    there = [pod for pod in pods if pod["spec"].get("nodeName") in away and not has_ended(pod)]
    there = [pod for pod in there if not (pod["metadata"].get("deletionTimestamp") and rank(pod) in running)]
    if there:
        names = sorted({pod["spec"]["nodeName"] for pod in there})
        on_them = [pod["metadata"]["name"] for pod in there]
        taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
        fix = f"bring the node back; if it is off for good: kubectl taint node {names[0]} {taint}"
        yield Cause("node-lost", f"its node {', '.join(names)} does not answer", (f"pods: {listed(on_them)}",), fix)


def references(pod: Json) -> set[tuple[str, str]]:
    """The Secrets and ConfigMaps without which a pod's containers do not start, as kind and name."""
    return mounted(pod) | in_environment(pod)


def mounted(pod: Json) -> set[tuple[str, str]]:
    """Those that its volumes name."""
    keys: set[tuple[str, str]] = set()
    for volume in pod.get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            for kind, key in (("Secret", "secret"), ("ConfigMap", "configMap")):
                one = source.get(key) or {}
                if (name := one.get("secretName") or one.get("name")) and not one.get("optional"):
                    keys.add((kind, name))
    return keys


def in_environment(pod: Json) -> set[tuple[str, str]]:
    """Those that variables of its containers name."""
    keys: set[tuple[str, str]] = set()
    for container in containers(pod, init=True):
        values = [variable.get("valueFrom") or {} for variable in container.get("env") or ()]
        for source in [*values, *(container.get("envFrom") or ())]:
            for key, kind in FROM.items():
                one = source.get(key) or {}
                if one.get("name") and not one.get("optional"):
                    keys.add((kind, one["name"]))
    return keys


@dataclass(frozen=True)
class OfJob:
    """What is known beside the pods themselves."""

    absent: Mapping[tuple[str, str], bool | None]
    steps: Mapping[str, Json]  # what their kubelets say last, by uid, of pods that have no container
    own: Collection[str]  # the names of all pods of the job


def waiting(
    pods: Sequence[Json], events: Sequence[Json], absent: Mapping[tuple[str, str], bool | None]
) -> Iterator[Cause]:
    """Containers that cannot be created now: for the volumes of a pod, an image, what they need, or a sandbox.

    The outermost cause of all pods, whichever of them has it.
    """
    held_up = [pod for pod in pods if _is_held_up(pod)]
    by_uid: dict[str, list[Json]] = {}
    for event in events:
        by_uid.setdefault(event["involvedObject"].get("uid"), []).append(event)
    ready = (pod["metadata"]["uid"] for pod in held_up if not _has_begun(pod))
    steps = {uid: step for uid in ready if (step := _step(by_uid.get(uid, ())))}
    job = OfJob(absent, steps, {pod["metadata"]["name"] for pod in pods})
    ordered = [*held_up, *(pod for pod in pods if not _is_held_up(pod))]
    causes = (cause for kind in KINDS for pod in ordered if (cause := kind(pod, job)))
    yield from islice(causes, 1)


def _is_held_up(pod: Json) -> bool:
    """Whether a pod has a node, and no container that runs."""
    return _phase(pod) == "Pending" and bool(pod["spec"].get("nodeName"))


def _no_image(pod: Json, _: OfJob) -> Cause | None:
    one, reason, message = _waiting(pod, IMAGE)
    if not reason:
        return None
    fix = f"correct the image's name, or bring it to node {pod['spec']['nodeName']} (the lab: make lab-load)"
    evidence = (f"{pod['metadata']['name']}: {reason}: {cut(message)}",)
    return Cause("image", f"the image {one.get('image') or 'of a container'} cannot be had", evidence, fix)


def _absent(pod: Json, keys: Iterable[tuple[str, str]], job: OfJob) -> Cause | None:
    for kind, what in sorted(key for key in keys if job.absent.get(key)) if _is_held_up(pod) else ():
        fix = f"create the {kind} {what} in the job's namespace, or correct its name in the job"
        evidence = (f"pod {pod['metadata']['name']} needs it",)
        return Cause(kind.lower(), f"its {kind} {what} does not exist", evidence, fix)
    return None


def _no_container(pod: Json, _: OfJob) -> Cause | None:
    reason, message = _waiting(pod, CONFIG | CREATE)[1:]
    if not reason:
        return None
    code = "config" if reason in CONFIG else "container"
    text = f"a container of {pod['metadata']['name']} cannot be created: {cut(message)}"
    return Cause(code, text, (reason,), "correct what this line names")


def _waits(status: Json) -> str:
    return str(((status.get("state") or {}).get("waiting") or {}).get("reason") or "")


def _waiting(pod: Json, reasons: Collection[str]) -> tuple[Json, str, str]:
    """The first container that waits for one of these reasons, that reason and what it says; empty if none does."""
    for status in statuses(pod):
        if (reason := _waits(status)) in reasons:
            return status, reason, str(status["state"]["waiting"].get("message") or "")
    return {}, "", ""


def _has_begun(pod: Json) -> bool:
    """Whether a pod is beyond what only an event says of it: its volumes, its devices, its sandbox."""
    begun = any(one.get("containerID") or _waits(one) not in STARTING for one in statuses(pod))
    return begun or _has_sandbox(pod)


def _said(pod: Json, job: OfJob, codes: Collection[str]) -> Cause | None:
    """What only an event says of a pod that still has no container, if it is about one of these.

    The kubelet mounts the volumes, prepares devices and makes the sandbox, then pulls images: the newest event holds.
    """
    newest = job.steps.get(pod["metadata"]["uid"])
    code, text = STANDS.get(newest["reason"], ("", "")) if newest else ("", "")
    if newest is None or code not in codes:
        return None
    message = cut(newest.get("message") or "")
    if elsewhere := ELSEWHERE.match(message):
        return _elsewhere(pod, message, elsewhere["pods"] or "", job.own)
    if lacking := NO_DRIVER.search(newest.get("message") or ""):
        return _no_driver(pod, newest["reason"], message, lacking[1] or lacking[2])
    fix = "correct what this line names; the pod is tried again by itself"
    return Cause(code, text.format(pod=pod["metadata"]["name"]), (f"{newest['reason']}: {message}",), fix)


KINDS: tuple[Callable[[Json, OfJob], Cause | None], ...] = (  # from the outside in
    lambda pod, job: _absent(pod, mounted(pod["spec"]), job),
    lambda pod, job: _said(pod, job, ("mount",)),
    _no_image,
    lambda pod, job: _absent(pod, in_environment(pod["spec"]), job),
    _no_container,
    lambda pod, job: _said(pod, job, ("device", "sandbox")),
)


def _step(events: Iterable[Json]) -> Json | None:
    """The newest step of a pod. A volume that is not attached is said once, and is why a mount then takes too long."""
    own = sorted((one for one in events if one["reason"] in {*STEPS, *ATTACHES} and not _passes(one)), key=_order)
    attached = {tuple(VOLUME.findall(one.get("message") or "")): one for one in own if one["reason"] in ATTACHES}
    away = [one for one in attached.values() if one["reason"] == "FailedAttachVolume"]
    newest = next((one for one in reversed(own) if one["reason"] not in ATTACHES), None)
    if away and (newest is None or newest["reason"] == "FailedMount" or _order(away[-1]) > _order(newest)):
        return away[-1]
    return newest


def _passes(event: Json) -> bool:
    """Whether the next tries will probably succeed."""
    count = (event.get("series") or {}).get("count") or event.get("count") or 1
    return bool(SOON.search(event.get("message") or "")) and (count < TRIES or lasted_s(event) < TRIED_S)


def _order(event: Json) -> tuple[str, int]:
    """By time, and by step within a second."""
    return when(event), STEPS.index(event["reason"]) if event["reason"] in STEPS else 0


def _elsewhere(pod: Json, message: str, users: str, own: Collection[str]) -> Cause:
    """A volume that one node alone may have, and another has."""
    volume, name = VOLUME.findall(message)[0], pod["metadata"]["name"]
    text = f"volume {volume} of {name} is attached to another node, and only one node may have it"
    evidence = (f"FailedAttachVolume: {message}",)
    if set(users.split(", ")).intersection(own):
        fix = "use a claim that several nodes can mount (ReadWriteMany), or put all pods that mount it on one node"
        return Cause("volume-elsewhere", text, evidence, fix)
    fix = f"wait until {users + ' has ended' if users else 'it has been detached'}, or name another claim"
    return Cause("volume-elsewhere", text, evidence, fix, passing=True)


def _no_driver(pod: Json, reason: str, message: str, driver: str) -> Cause:
    """A volume whose driver does not run on the pod's node."""
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    text = f"a volume of {name} needs the CSI driver {driver}, which does not run on its node {node}"
    fix = f"have {driver} run on {node}, or use a claim of another class; the pod is tried again by itself"
    return Cause("volume-driver", text, (f"{reason}: {message}",), fix)


def _has_sandbox(pod: Json) -> bool:
    """Whether a pod's volumes are mounted and its sandbox is made."""
    status = pod.get("status") or {}
    conditions = status.get("conditions") or ()
    ready = any(one["type"] == "PodReadyToStartContainers" and one.get("status") == "True" for one in conditions)
    return ready or bool(status.get("podIP") and not pod["spec"].get("hostNetwork"))  # that of its host, it has at once


def crashed(pods: Sequence[Json], failure: Failure | None) -> Iterator[Cause]:
    """A container that ends again and again, for lack of memory or by itself."""
    for pod in pods:
        for status in statuses(pod):
            last = ((status.get("lastState") or {}).get("terminated")) or {}
            if _waits(status) == "CrashLoopBackOff" and last:
                how = failure.how if failure else f"{last.get('reason')}, exit code {last.get('exitCode')}"
                who = failure.who if failure else pod["metadata"]["name"]
                lines = failure.lines if failure else ()
                restarts = f"{pod['metadata']['name']} has started {status.get('restartCount', 0) + 1} times"
                init = [f"init container {one['name']}" for one in failed_init(pod)]
                fix = f"correct the {(init or ['script'])[0]}"
                yield Cause("crash", f"{who} ends again and again: {how}", (restarts, *lines), fix)
                return


DEADLINE = re.compile(r"active longer than specified deadline|DeadlineExceeded|beyond its deadline", re.IGNORECASE)
SHUTDOWN = re.compile(r"node shutdown|node is shutting down")  # kubelets' words (pkg/kubelet/nodeshutdown of 1.35)
KILLED = 128 + 9  # the exit code of a process that was ended by SIGKILL
ADMISSION = re.compile(r"UnexpectedAdmissionError|^OutOf|NodeAffinity|Topology")


def ended(pods: Sequence[Json], reason_of_job: str = "") -> Iterator[Cause]:
    """What ended a job from outside: eviction, a deadline, a node that refused a pod."""
    for pod in pods:
        status, name = pod.get("status") or {}, pod["metadata"]["name"]
        reason, message = str(status.get("reason") or ""), cut(str(status.get("message") or ""))
        if reason == "Evicted":
            fix = "request what the job really uses, so that its node keeps room for it"
            yield Cause("evicted", f"{name} was evicted from its node: {message}", (), fix)
            return
        if SHUTDOWN.search(message):
            fix = "submit it again; max_retries says how often a job starts again by itself"
            yield Cause("node-shutdown", f"the node of {name} was shut down", (f"{reason}: {message}",), fix)
            return
        if reason == "DeadlineExceeded":
            yield Cause("deadline", f"{name} ran longer than its deadline", (message,), "raise deadline_s in the job")
            return
        if ADMISSION.search(reason):
            yield Cause("device", f"the node refused {name}: {reason}", (message,), "correct what this line names")
            return
    if DEADLINE.search(reason_of_job):
        evidence = (f"the job says: {reason_of_job}",)
        yield Cause("deadline", "it ran longer than its deadline", evidence, "raise deadline_s in the job")


def unreplaced(pods: Iterable[Json]) -> list[Json]:
    """Pods that failed, and in whose place none runs yet."""
    phases = [(pod, _phase(pod)) for pod in pods]
    running = {rank(pod) for pod, phase in phases if phase in {"Running", "Succeeded"}}
    return [pod for pod, phase in phases if phase == "Failed" and rank(pod) not in running]


def newest(pods: Iterable[Json]) -> list[Json]:
    """The last pod of each rank: what ended the others did not end the job."""
    return list({rank(pod): pod for pod in sorted(pods, key=_created)}.values())


def _created(pod: Json) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")


def memory(pods: Iterable[Json]) -> Iterator[tuple[Cause, bool]]:
    """Containers of which the kernel killed a process for want of memory; and whether that must have ended them.

    A launcher ends with a code of its own when a rank is killed. But on cgroup v1, once its node was short of memory,
    any container that ends has this reason, whatever its exit code.
    """
    for pod in pods:
        for one in statuses(pod):
            end, runs = newest_end(one), "running" in (one.get("state") or {})
            if end.get("reason") == "OOMKilled" and end.get("exitCode") and not runs:
                limit, request = (_memory_of(pod, one["name"], kind) for kind in ("limits", "requests"))
                yield _short_of_memory(pod, limit, request), end["exitCode"] == KILLED or limit != ""


def _short_of_memory(pod: Json, limit: str, request: str) -> Cause:
    fix = "raise resources.memory in the job, or make a rank use less"
    if not limit:
        fix = "set resources.memory to what a rank uses, so that its node keeps as much for it"
        what = "has no memory limit, and was killed as its node had too little memory for all pods"
    elif request in ("", limit):
        what = f"used more than its limit of {limit} memory"
    else:
        what = f"was killed for its memory: it used more than its limit of {limit}, or its node had too little"
    return Cause("memory", f"{pod['metadata']['name']} {what}", ("OOMKilled",), fix)


def _memory_of(pod: Json, container: str, kind: str) -> str:
    """The limit or the request of a container, else that of the pod for all of them; "" for none."""
    own = [part.get("resources") or {} for part in containers(pod["spec"], init=True) if part["name"] == container]
    sizes = [size.get(kind) or {} for size in (*own, pod["spec"].get("resources") or {})]
    return next((str(size["memory"]) for size in sizes if "memory" in size), "")
