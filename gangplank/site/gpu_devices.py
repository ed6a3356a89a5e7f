"""Why nodes do not give out devices that they should: one cause per node, with its evidence and its fix. Pure.

Reads the state of the DaemonSet of a device plugin, or of a driver for claims, in the order in which one can fail. Its
pod is not created, not placed or not started; it does not find the hardware, or finds no healthy device. The log lines
are those of NVIDIA's plugin (cmd/nvidia-device-plugin/main.go, internal/plugin/factory.go in v0.18 and v0.19).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangplank.errors import Problem
from gangplank.k8s import quantity
from gangplank.k8s.conditions import newest_end, reason
from gangplank.k8s.nodes import KEEPS_OUT, taint_text, tolerated
from gangplank.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.spec import Json

# Tolerations that the DaemonSet controller adds (pkg/controller/daemon/util/daemonset_util.go).
OWN_TOLERATIONS: list[Json] = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
    for name in ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
]
# The last: a folder of the node that a driver in a container fills, such as the GPU operator's /run/nvidia/driver.
NO_DRIVER = re.compile(
    r"nvml init failed|failed to initialize nvml|libnvidia-ml|driver not loaded|volume \"driver-root\"", re.IGNORECASE
)
LOST = re.compile(r"[^:]*: GPU is lost")  # the end of a long chain of errors, which would be cut off
# NVIDIA's runtime brings the library into a pod. The first is what v0.19 says without it, the second what v0.18 says.
NO_LIBRARY = re.compile(r"error_library_not_found|did you configure the nvidia container toolkit", re.IGNORECASE)
DRIVER_ROOT = "driver-root"  # the chart's volume for a driver in a container: the plugin finds its library there
# A program that refuses its flags also prints its help, and the two streams of a pod are merged in any order.
TROUBLE = re.compile(r"(?im)^\S.*\b(?:error|fatal|panic|failed|could not|cannot|invalid|incorrect)\b.*")
NO_RUNTIME = re.compile(r"no runtime for |runtimeclass.* not found", re.IGNORECASE)
NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
NEVER_RAN = ("StartError", "ContainerCannotRun")  # reasons of an end, for example of NVIDIA's hook without a driver
REVISION = "controller-revision-hash"  # the label by which a DaemonSet's pods name their template
LABELS = {"gpu_device_plugin": "nvidia.com/gpu.present", "gpu_dra_driver": "gangplank.dev/gpus-by-claim"}
SHOWN = 300  # characters of a log line or an event that a finding shows


Why = tuple[str, str, str]  # cause, evidence, fix


@dataclass(frozen=True)
class Finding:
    """Why a node has no devices: the name of the cause, its evidence, and the fix."""

    node: str
    cause: str
    evidence: str
    fix: str

    def __str__(self) -> str:
        return f"{self.node}: {self.cause}: {plain(self.evidence)[:SHOWN]}. Fix: {self.fix}."


@dataclass(frozen=True)
class PluginState:
    """A device plugin as the API server has it: its DaemonSet (None: missing), pods, their logs by name, events."""

    daemonset: Json | None
    pods: Sequence[Json] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    events: Sequence[Json] = ()
    runtime_classes: Sequence[str] = ()
    revisions: Sequence[Json] = ()  # the ControllerRevisions of its namespace
    role: str = "gpu_device_plugin"  # that installs it
    listed: Sequence[str] = ()  # the role's list of nodes; if it is empty, the label alone selects them

    @property
    def template(self) -> Json:
        """The spec of the plugin's pods."""
        spec: Json = (self.daemonset or {}).get("spec", {}).get("template", {}).get("spec", {})
        return spec

    def finding(self, node: Json, why: Why) -> Finding:
        """What prevents devices on a node; the label may also select one that the list does not have."""
        name, (cause, evidence, fix) = node["metadata"]["name"], why
        unlabel = f"kubectl label node {name} {LABELS[self.role]}-"
        if self.listed and name not in self.listed:
            fix = f"{unlabel}, since {self.role}_nodes does not have this node; or {fix}"
        elif _not_ready(node):
            fix += f", or take it out of {self.role}_nodes" if self.listed else f", or {unlabel}"
        return Finding(name, cause, evidence, fix)

    def owned(self, items: Iterable[Json]) -> list[Json]:
        """Those of the objects that belong to the DaemonSet: its chart has others, such as feature discovery."""
        uid = (self.daemonset or {}).get("metadata", {}).get("uid")
        return [
            item for item in items if any(owner["uid"] == uid for owner in item["metadata"].get("ownerReferences", []))
        ]

    @property
    def newest(self) -> list[Json]:
        """The pods of the DaemonSet's template as it is now; all of its pods if no revision of it is known."""
        pods, revisions = self.owned(self.pods), self.owned(self.revisions)
        if not revisions:
            return pods
        revision = max(revisions, key=lambda item: int(item["revision"]))["metadata"]["labels"][REVISION]
        return [pod for pod in pods if pod["metadata"].get("labels", {}).get(REVISION) == revision]

    def message(self, name: str, pattern: re.Pattern[str] | None = None) -> str:
        """The message of the last event of an object that matches the pattern, if any."""
        texts = [event.get("message") or "" for event in self.events if event["involvedObject"].get("name") == name]
        return next((text.strip() for text in reversed(texts) if not pattern or pattern.search(text)), "")


def devices(node: Json, resource: str, side: str = "allocatable") -> int:
    """How many devices a node can give to pods ("allocatable"), or has in all ("capacity")."""
    return int(quantity.parse(str((node.get("status") or {}).get(side, {}).get(resource, 0))))


def rolled_out(daemonset: Json, nodes: int) -> bool:
    """Whether all pods of a DaemonSet are up to date and ready, on at least so many nodes; {} if it does not exist.

    >>> status = {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 2}
    >>> live = {"metadata": {"generation": 2}, "status": status}
    >>> rolled_out(live, 2), rolled_out(live, 3), rolled_out({"metadata": {"generation": 3}, "status": status}, 2)
    (True, False, False)
    >>> rolled_out({}, 0)
    False
    """
    status = daemonset.get("status") or {}
    if not status:
        return False
    desired = status.get("desiredNumberScheduled", 0)
    return bool(
        status.get("observedGeneration") == daemonset["metadata"]["generation"]
        and status.get("updatedNumberScheduled", 0) == status.get("numberReady", 0) == desired
        and desired >= nodes
    )


def started(pod: Json) -> bool:
    """Whether a pod's first container has started once, so that it has a log.

    >>> started({"status": {"containerStatuses": [{"state": {"waiting": {}}, "lastState": {"terminated": {}}}]}})
    True
    """
    first = ((pod.get("status") or {}).get("containerStatuses") or [])[:1]
    keys = {key for part in first for state in ("state", "lastState") for key in part.get(state) or {}}
    return bool(keys & {"running", "terminated"})


def without_devices(nodes: Iterable[Json], plugin: PluginState, resource: str) -> list[Finding]:
    """A finding for every node that has none of the resource, or that is not ready: what it shows is then old."""
    findings = []
    for node in nodes:
        if why := _not_ready(node):
            findings.append(plugin.finding(node, why))
        elif not devices(node, resource):
            name = node["metadata"]["name"]
            pod = next((pod for pod in plugin.newest if pod["spec"].get("nodeName") == name), None)
            why = (_of_pod(pod, plugin) or _idle(node, pod, plugin, resource)) if pod else _no_pod(node, plugin)
            findings.append(plugin.finding(node, why))
    return findings


def without_slices(nodes: Iterable[Json], driver: PluginState, slices: Iterable[Json]) -> list[Finding]:
    """A finding for every node that publishes no device of a driver, or only by a pod that was to be replaced.

    `slices` are the driver's ResourceSlices. Upstream's DaemonSet starts a node's new pod before it stops the old one,
    so that a node whose new pod cannot start publishes on.
    """
    published = {item["spec"].get("nodeName") for item in slices if item["spec"].get("devices")}
    findings: list[Finding] = []
    behind: list[Json] = []
    for node in nodes:
        name = node["metadata"]["name"]
        pod = next((pod for pod in driver.newest if pod["spec"].get("nodeName") == name), None)
        if why := _not_ready(node):
            pass  # its pod counts as one that runs, and its slices stay
        elif name not in published:
            why = (_of_pod(pod, driver) or _silent(pod, driver)) if pod else _no_pod(node, driver)
        elif driver.daemonset:
            why = _of_pod(pod, driver) if pod else _kept_out(node, driver)
            behind += [] if pod or why else [node]
        else:
            continue
        findings += [driver.finding(node, why)] if why else []
    return findings or [driver.finding(node, _behind(driver)) for node in behind]


REMOVE = "let its jobs end, then take it out of one role's list, or remove one of the two (tasks_from: remove)"
KEPT = "if the plugin is gone, wait five minutes until the kubelet forgets them, or restart that kubelet"
SLICES_KEPT = "if the driver is gone, wait a minute until the kubelet removes them"


def by_device_plugin(nodes: Iterable[Json]) -> list[str]:
    """A line for every node whose GPUs a device plugin gives out; what is left of one that is gone counts 0."""
    lines = []
    for node in nodes:
        capacity = (node.get("status") or {}).get("capacity") or {}
        resources = [name for name in sorted(capacity) if is_gpu(name) and devices(node, name, "capacity")]
        if resources:
            usable = any(devices(node, name, "allocatable") for name in resources)
            got = f"{devices(node, resources[0], 'capacity')} {resources[0]} of a device plugin"
            got, fix = (got, f"{REMOVE}; {KEPT}") if usable else (f"{got} that does not answer", KEPT)
            lines.append(str(Problem(node["metadata"]["name"], got, "GPUs by claim alone", fix)))
    return lines


def publishers(slices: Iterable[Json]) -> dict[str, str]:
    """The driver that publishes GPUs for claims, by node; drivers of GPUs are called gpu.<vendor>."""
    return {
        item["spec"].get("nodeName", ""): item["spec"]["driver"]
        for item in slices
        if item["spec"]["driver"].startswith("gpu.") and item["spec"].get("devices")
    }


def abandoned(slices: Iterable[Json], pods: Iterable[Json]) -> list[str]:
    """The names of a driver's ResourceSlices on nodes where none of its pods runs any more."""
    nodes = {pod["spec"].get("nodeName") for pod in pods if not pod["metadata"].get("deletionTimestamp")}
    return [item["metadata"]["name"] for item in slices if item["spec"].get("nodeName") not in nodes]


def by_claim(nodes: Iterable[Json], slices: Iterable[Json]) -> list[str]:
    """A line for every node whose GPUs a driver gives out by claim."""
    lines, drivers = [], publishers(slices)
    for name in (node["metadata"]["name"] for node in nodes):
        if name in drivers:
            got = f"devices of the driver {drivers[name]}, which gives them out by claim"
            lines.append(str(Problem(name, got, "GPUs of a device plugin alone", f"{REMOVE}; {SLICES_KEPT}")))
    return lines


def is_gpu(resource: str) -> bool:
    """Whether an extended resource is a GPU or a part of one.

    >>> [name for name in ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "cpu") if not is_gpu(name)]
    ['cpu']
    """
    domain, _, name = resource.partition("/")
    return domain == "nvidia.com" or "gpu" in name


def _not_ready(node: Json) -> Why | None:
    """What a node says that is not ready; None if it is, or says nothing of it."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    for condition in conditions:
        if condition["type"] == "Ready" and condition["status"] != "True":
            evidence = f"its condition Ready is {condition['status']}{reason(condition)}"
            return "node not ready", evidence, "repair the node"
    return None


def _no_pod(node: Json, plugin: PluginState) -> Why:
    """Why the plugin has no pod on a node."""
    if why := _kept_out(node, plugin):
        return why
    name = (plugin.daemonset or {}).get("metadata", {}).get("name", "")
    message = plugin.message(name) or "no event explains it"
    fix = "check its nodeSelector, affinity and events"
    if "violates PodSecurity" in message:
        fix = "label its namespace pod-security.kubernetes.io/enforce=privileged, or let the role create another"
    return "plugin not scheduled", f"DaemonSet {name}: {message}", fix


def _behind(driver: PluginState) -> Why:
    """Why a node still publishes by an older pod, if nothing keeps the new one away."""
    name = (driver.daemonset or {}).get("metadata", {}).get("name", "")
    evidence = f"DaemonSet {name} has not replaced its older pod there yet"
    return "plugin not scheduled", evidence, f"raise {driver.role}_timeout_s, or look at its pods on other nodes"


def _kept_out(node: Json, plugin: PluginState) -> Why | None:
    """What keeps the plugin from a node, as its DaemonSet and the node say it; None if they do not."""
    name = (plugin.daemonset or {}).get("metadata", {}).get("name", "")
    if not plugin.daemonset:
        return "no plugin", "its DaemonSet does not exist", f"run the role {plugin.role}"
    runtime = plugin.template.get("runtimeClassName")
    if runtime and runtime not in plugin.runtime_classes:
        existing = ", ".join(plugin.runtime_classes) or "none"
        return (
            "wrong runtime class",
            f"DaemonSet {name} asks for the RuntimeClass {runtime}; the cluster has {existing}",
            f"correct {plugin.role}_runtime_class, or create that RuntimeClass",
        )
    tolerations = [*plugin.template.get("tolerations", []), *OWN_TOLERATIONS]
    for taint in node["spec"].get("taints", []):
        if taint["effect"] in KEEPS_OUT and not tolerated(taint, tolerations):
            return (
                "plugin not scheduled because of a taint",
                f"the node has the taint {taint_text(taint)}, which DaemonSet {name} does not tolerate",
                f"add the taint to {plugin.role}_taints, or remove it from the node",
            )
    labels = node["metadata"].get("labels", {})
    missing = [
        f"{key}={value}" for key, value in plugin.template.get("nodeSelector", {}).items() if labels.get(key) != value
    ]
    if missing:
        fix = f"add the node to {plugin.role}_nodes, which labels it"
        return "plugin not scheduled", f"the node lacks {', '.join(missing)}, which DaemonSet {name} selects", fix
    return None


def _of_pod(pod: Json, plugin: PluginState) -> Why | None:
    """Why a plugin's pod gives out no devices; None if it runs and reports no trouble."""
    name, log = pod["metadata"]["name"], plugin.logs.get(pod["metadata"]["name"], "")
    status = pod.get("status") or {}
    containers = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    states = [container.get("state") or {} for container in containers]
    # Events stay for an hour: of a pod that has run since, they name what was wrong before.
    early = not any(map(_has_run, containers))
    if early and (message := plugin.message(name, NO_RUNTIME)):
        fix = "configure the runtime on the node (nvidia-ctk runtime configure), or correct the RuntimeClass's handler"
        return "wrong runtime class", f"pod {name}: {message}", fix
    for state in states:
        waiting = state.get("waiting") or {}
        if waiting.get("reason") in NO_IMAGE:
            evidence = f"pod {name}: {waiting['reason']}: {waiting.get('message', '')}"
            return "no image", evidence, "bring the image to the node, its registry or its mirror"
    driver = "install the driver on the node and check that nvidia-smi works there"
    if line := _line(log, NO_LIBRARY):
        volumes = [volume["name"] for volume in plugin.template.get("volumes") or ()]
        if plugin.template.get("runtimeClassName"):
            return "no driver", f"pod {name} has its runtime class and yet reports: {line}", driver
        if DRIVER_ROOT in volumes:
            return "no driver", f"pod {name} has the driver's folder and yet reports: {line}", driver
        fix = f"set {plugin.role}_runtime_class, or make the NVIDIA runtime the node's default"
        return "wrong runtime class", f"pod {name} has no runtime class and reports: {line}", fix
    if (line := _line(log, NO_DRIVER)) or (early and (message := plugin.message(name, NO_DRIVER))):
        return "no driver", f"pod {name} reports: {line or message}", driver
    if lost := LOST.search(log):
        fix = "look for Xid 79 in the node's dmesg, then reset the GPU or restart the node"
        return "GPU lost", f"pod {name} reports: {lost[0].strip()}", fix
    if status.get("phase") != "Running" or not all("running" in state for state in states[-1:]):
        ended = next((_end(part) for part in containers if _end(part)), "")
        last = [*log.strip().splitlines(), *TROUBLE.findall(log)][-1:] or [plugin.message(name) or "it has no log"]
        how = ended or status.get("phase", "not started")
        return "plugin crashed", f"pod {name}, {how}: {last[0]}", "fix what this line names"
    return None


def _idle(node: Json, pod: Json, plugin: PluginState, resource: str) -> Why:
    """Why a node has no devices although the plugin runs on it."""
    name, log = pod["metadata"]["name"], plugin.logs.get(pod["metadata"]["name"], "")
    capacity = devices(node, resource, "capacity")
    if capacity:
        evidence = f"the plugin reports {capacity} {resource}, and none of them is healthy"
        return "allocatable 0", evidence, "check the plugin's log and the driver's (Xid errors in dmesg)"
    last = log.strip().splitlines()[-1:] or ["its log is empty"]
    evidence = f"pod {name} runs and reports no {resource} to the kubelet: {last[0]}"
    return "allocatable 0", evidence, "check the plugin's log"


def _silent(pod: Json, driver: PluginState) -> Why:
    """Why a node publishes nothing although its driver runs.

    A driver built with Kubernetes 1.36 does not notice that a kubelet that starts has removed what it published within
    the minute before (https://github.com/kubernetes/kubernetes/pull/140063).
    """
    name = pod["metadata"]["name"]
    last = driver.logs.get(name, "").strip().splitlines()[-1:] or ["its log is empty"]
    evidence = f"pod {name} runs and publishes no ResourceSlice: {last[0]}"
    return "no devices", evidence, "remove this pod, so that another one publishes; else check the driver's log"


def _line(log: str, pattern: re.Pattern[str]) -> str:
    """The first line of a log that matches the pattern."""
    return next((line.strip() for line in log.splitlines() if pattern.search(line)), "")


def _has_run(container: Json) -> bool:
    """Whether a container has run once; one that the runtime could not start has ended without that."""
    ended = [(container.get(state) or {}).get("terminated") for state in ("state", "lastState")]
    ran = any(end and end.get("reason") not in NEVER_RAN for end in ended)
    return ran or "running" in (container.get("state") or {})


def _end(container: Json) -> str:
    """How a container ended, if it did: the state before its last start counts."""
    ended = newest_end(container)
    return f"{ended.get('reason', 'Error')}, exit code {ended.get('exitCode')}" if ended else ""
