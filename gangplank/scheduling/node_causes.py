"""Why the pods of a job have no place: one rule or one resource, proven by asking again without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import TYPE_CHECKING

from gangplank.k8s.build import containers
from gangplank.k8s.nodes import taint_text
from gangplank.scheduling import drivers, volume_rules
from gangplank.scheduling.amounts import listed, plus, shown
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import changed, copied
from gangplank.scheduling.namespace_rules import defaulted
from gangplank.scheduling.placement import Placement, place
from gangplank.scheduling.rooms import Bar, bars, ready, selected
from gangplank.scheduling.snapshot import Pods, Room, Snapshot
from gangplank.text import counted
from gangplank.text import listed as listed_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.cause import Removal
    from gangplank.scheduling.demand import Demand
    from gangplank.spec import Json

RULES = (
    "not-ready", "cordoned", "taint", "selector", "affinity", "volume-node", "volume-topology", "volume-driver",
    "attach-limit", "host-port",
)  # fmt: skip
MOST_TRIED = 24  # distinct rules that are tried one by one; a cluster has few
PLENTY = 10**18


def barred_from(job: Demand, state: Snapshot) -> list[list[list[Bar]]]:
    """What keeps each part of a job from each node."""
    pinned, allowed = volume_rules.pinned(job, state), volume_rules.allowed(job, state)
    rows = [[bars(part.spec, room, pinned, allowed) for room in state.rooms] for part in job.parts]
    return drivers.barred(job, state, rows)


def attach_limits(job: Demand, state: Snapshot) -> bool:
    """Whether a node takes no pod of a job since it may have no more volumes."""
    return any(bar.rule == "attach-limit" for row in barred_from(job, state) for kept in row for bar in kept)


def idle(state: Snapshot) -> Snapshot:
    """The cluster without what others run on it."""
    return replace(state, pods=Pods(tuple(pod for pod in state.pods.items if pod["metadata"]["uid"] in state.own)))


@dataclass(frozen=True)
class Question:
    """A job, the nodes, what keeps each part from each node, and the best placement on them."""

    job: Demand
    rooms: Sequence[Room]
    barred: Sequence[Sequence[list[Bar]]]
    placement: Placement

    @property
    def usable(self) -> list[Room]:
        """The nodes that some part may use."""
        return [room for index, room in enumerate(self.rooms) if any(not row[index] for row in self.barred)]

    def fits(self, rooms: Sequence[Room], barred: Sequence[Sequence[list[Bar]]]) -> bool:
        """Whether all pods would have a place on these nodes with these rules."""
        return not place(self.job, rooms, barred).short

    def barring(self) -> list[Bar]:
        """The rules that keep pods from nodes, in the fixed order, those of most nodes first."""
        counts = Counter(bar for row in self.barred for kept in row for bar in kept)
        return sorted(counts, key=lambda bar: (RULES.index(bar.rule), -counts[bar], bar.what))[:MOST_TRIED]


def node_causes(state: Snapshot, question: Question, *, explain: bool = True) -> list[Cause]:
    """Why so many pods have no place: the first change after which all have one, in a fixed order.

    If the same nodes would do once they are free, the job waits for others, and no rule is to blame.
    """
    all_rooms, barred = question.rooms, question.barred
    if not explain:
        return [Cause("short", "some of its pods have no place")]
    kept = idle(state).pods
    empty = [
        replace(room, free=plus(room.total, kept.used.get(room.name, {}), -1), ports=kept.ports_of(room.name))
        for room in all_rooms
    ]
    without_ports = filtered(barred, lambda bar: bar.rule != "host-port")
    if question.fits(empty, without_ports):
        ports = sorted({bar.what for row in barred for kept in row for bar in kept if bar.rule == "host-port"})
        if ports and question.fits(all_rooms, without_ports):
            return [_port_cause(ports)]
        return [_short(question, empty)]
    for here in (all_rooms, empty):  # a rule may be what keeps it out for good, although it would then wait
        for bar in question.barring():
            if question.fits(here, filtered(barred, bar.__ne__)):
                waits = here is empty
                lost = _volume_lost(bar, state, question, waits=waits)
                return [lost or _cause(bar, state, question, waits=waits)]
    together = question.barring()
    if together and question.fits(empty, filtered(barred, lambda _: False)):
        return [_cause(bar, state, question, waits=False, alone=False) for bar in together]
    return [_too_large(replace(question, rooms=empty))]


def filtered(barred: Sequence[Sequence[list[Bar]]], keeps: Callable[[Bar], bool]) -> list[list[list[Bar]]]:
    """What keeps pods from nodes, as far as it is kept."""
    return [[[bar for bar in kept if keeps(bar)] for kept in row] for row in barred]


def _short(question: Question, empty: Sequence[Room]) -> Cause:
    """The job would fit if others had ended: which resource they hold."""
    job, missing = question.job, question.placement.short
    scarce, wanted = _scarce(question)
    usable = question.usable
    free = sum(max(0, room.free.get(scarce, 0)) for room in usable)
    names = {room.name for room in usable}
    held = sum(room.free.get(scarce, 0) for room in empty if room.name in names)
    held -= sum(room.free.get(scarce, 0) for room in usable)
    have = "has" if missing == 1 else "have"
    text = (
        f"{missing} of its {job.placed + job.minimum} pods {have} no place: the nodes that it may use have too little "
        f"{scarce} free"
    )
    sizes = f"{shown(scarce, free, floor)} free, the job needs {shown(scarce, job.asked.get(scarce, 0))}"
    evidence = (
        f"{len(usable)} of {len(question.rooms)} nodes may be used; they have {sizes}",
        f"other pods hold {shown(scarce, held)}",
    )
    fix = f"wait until {shown(scarce, wanted, ceil)} more is free on these nodes, or make the job smaller"
    return Cause("short", text, evidence, fix, lambda job, state: (job, idle(state)), passing=True)


def _scarce(question: Question) -> tuple[str, int]:
    """The resource of which alone more would do, and how much of it the pods without a place need; or the scarcest."""
    missing = question.placement.missing
    number = next(number for number, count in enumerate(missing) if count)
    requests = question.job.parts[number].requests
    names = sorted(requests, key=lambda name: ("/" not in name, name == "pods", name))
    for name in names:
        enough = [replace(room, free={**room.free, name: PLENTY}) for room in question.rooms]
        if question.fits(enough, question.barred):
            return name, missing[number] * requests[name]
    left = {name: sum(room.free.get(name, 0) // requests[name] for room in question.usable) for name in names}
    scarce = min(names, key=lambda name: left[name])
    return scarce, missing[number] * requests[scarce]


# Rule: text, fix, code of the cause
PROBLEMS: Mapping[str, tuple[str, str, str]] = {
    "not-ready": (
        "{count} of the nodes that it needs {are} not Ready",
        "bring the node back: its kubelet does not answer",
        "node-not-ready",
    ),
    "cordoned": ("{count} of the nodes that it needs {are} cordoned", "kubectl uncordon NODE", "node-cordoned"),
    "taint": (
        "no pod of it tolerates the taint {what} of {count} {nodes}",
        "add a toleration of {what} to the job",
        "taint",
    ),
    "selector": (
        "too few nodes have the label {what} that it selects",
        "label a node {what}, or select another",
        "selector",
    ),
    "affinity": (
        "its required node affinity leaves too few nodes",
        "loosen the job's node affinity, or label a node",
        "affinity",
    ),
    "volume-node": (
        "its volume claim {what} is on a node where it does not fit",
        "make room on that node, or use a claim that all nodes can mount",
        "volume-node",
    ),
    "volume-topology": (
        "the class of its volume claim {what} makes no volumes for {count} of the nodes that it needs",
        "give nodes the labels that the class's allowedTopologies name, or use a claim of another class",
        "volume-topology",
    ),
    "attach-limit": (
        "{count} of the nodes that it needs {are} at the limit of volumes of the CSI driver {what}",
        "wait until pods there have ended that mount such volumes, or use a claim of another class",
        "attach-limit",
    ),
    "host-port": (
        "its host port {what} is taken on the nodes that it needs",
        "choose another port",
        "host-port",
    ),
}


# Begin the keys of taints by which Kubernetes says what is wrong with a node: of some, a kubelet refuses all pods,
# also those that tolerate the taint (pkg/kubelet/eviction/eviction_manager.go)
TROUBLE = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
RECOVER = "correct what is wrong with the nodes: kubectl describe node NODE says it"


def _cause(bar: Bar, state: Snapshot, question: Question, *, waits: bool, alone: bool = True) -> Cause:
    """A rule without which the job would have a place."""
    if bar.rule == "volume-driver":
        return _no_driver(bar, state, question, waits=waits)
    if bar.rule == "attach-limit":
        return _at_limit(bar, state, question, waits=waits, alone=alone)
    return _rule_cause(bar, question, waits=waits, alone=alone)


def _rule_cause(bar: Bar, question: Question, *, waits: bool, alone: bool = True) -> Cause:
    """The cause with the rule's own words."""
    text, fix, code = PROBLEMS[bar.rule]
    fix = RECOVER if bar.rule == "taint" and bar.what.startswith(TROUBLE) else fix
    count = max(sum(bar in kept for kept in row) for row in question.barred)
    total = len(question.rooms)
    are, nodes = ("is", "node") if count == 1 else ("are", "nodes")
    text = text.format(what=bar.what, count=count, are=are, nodes=nodes)
    evidence = [f"{len(question.usable)} of {total} nodes may be used; this rule keeps its pods from {count}"]
    if waits:
        evidence.append("without it, the job would still wait for other jobs to end")
    if not alone:
        evidence.append("it is one of several rules that keep the job out together")
    return Cause(code, text, tuple(evidence), fix.format(what=bar.what), _removal(bar, waits=waits))


def _at_limit(bar: Bar, state: Snapshot, question: Question, *, waits: bool, alone: bool) -> Cause:
    """What is wrong if nodes may have no more volumes of a driver, or never as many as a pod mounts."""
    cause, empty = _rule_cause(bar, question, waits=waits, alone=alone), idle(state)
    passing = not place(question.job, empty.rooms, barred_from(question.job, empty)).short
    fix = cause.fix if passing else f"mount fewer volumes of {bar.what} in each pod, or use a claim of another class"
    return replace(cause, fix=fix, passing=passing)


def _volume_lost(bar: Bar, state: Snapshot, question: Question, *, waits: bool) -> Cause | None:
    """What is wrong if no pod can reach a volume, since the nodes that it is on do not answer or do not exist."""
    if bar.rule not in {"not-ready", "volume-node"}:
        return None
    for claim, selector in volume_rules.pinned(question.job, state).items():
        rooms = [room for room in question.rooms if selected(selector, room.node)]
        homes = volume_rules.homes(selector)
        where = listed_names([room.name for room in rooms] or homes or ["a node of its own"])
        if rooms and bar.rule == "not-ready" and not any(ready(room.node) for room in rooms):
            silent = "that does" if len(rooms) == 1 else "they do"
            text = f"its volume claim {claim} is on {where} alone, and {silent} not answer"
        elif not rooms and bar == Bar("volume-node", claim):
            text = f"its volume claim {claim} is on {where} alone, and the cluster has no such node"
        else:
            continue
        if homes or not rooms:
            evidence = f"the files on that claim are on no other node: persistentvolume {_volume(claim, state)}"
            fix = f"bring {where} back; if it is off for good, its files are lost: submit the job with another claim"
        else:  # a disk of their zone, for example
            evidence = f"no other node can mount that claim: persistentvolume {_volume(claim, state)}"
            fix = f"bring {'it' if len(rooms) == 1 else 'one of them'} back, or add a node with the same labels"
        return Cause("volume-node-lost", text, (evidence,), fix, _removal(bar, waits=waits))
    return None


def _no_driver(bar: Bar, state: Snapshot, question: Question, *, waits: bool) -> Cause:
    """What is wrong if the driver of a volume does not run on the nodes."""
    driver = bar.what
    claim = drivers.needed(question.job, state)[driver][0]
    having = [name for name, own in state.drivers_of.items() if driver in own]
    where = f"on only {len(having)} of {len(state.nodes)} nodes" if having else "on no node"
    text = f"its volume claim {claim} needs the CSI driver {driver}, which runs {where}"
    fix = f"have {driver} run on the nodes (kubectl get csinodes lists where it does), or use a claim of another class"
    if drivers.is_csi(driver, state):
        says = "without it, no kubelet can mount the volume"
    else:
        text = f"its volume claim {claim} is of the provisioner {driver}, of which its scheduler finds place {where}"
        says = f"the cluster has no CSIDriver {driver}: its scheduler counts volumes of every provisioner"
        fix = f"if it is not CSI's, name it in volcano_ignored_provisioners and run playbooks/site.yml; else {fix}"
    evidence = [f"{len(question.usable)} of {len(question.rooms)} nodes may be used; {says}"]
    evidence += ["with it, the job would still wait for other jobs to end"] if waits else []
    return Cause("volume-driver", text, tuple(evidence), fix, _removal(bar, waits=waits))


def _volume(claim: str, state: Snapshot) -> str:
    """The volume behind a claim."""
    return next(str(item["spec"]["volumeName"]) for item in state.claims if item["metadata"]["name"] == claim)


def _port_cause(ports: Sequence[str]) -> Cause:
    what = ", ".join(ports)
    text, fix, code = PROBLEMS["host-port"]
    removal = _removal(Bar("host-port"), waits=False)
    return Cause(code, text.format(what=what), ("another pod has taken it",), fix, removal)


def _removal(bar: Bar, *, waits: bool) -> Removal:
    """The change to job or state after which a rule keeps no pod from a node."""

    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        state = idle(state) if waits else state
        if bar.rule in NODE_CHANGES:
            nodes = tuple(NODE_CHANGES[bar.rule](node, bar.what) for node in state.nodes)
            return job, replace(state, nodes=nodes)
        if bar.rule in {"volume-driver", "attach-limit"}:
            return job, drivers.everywhere(state, [bar.what])
        if bar.rule in {"volume-node", "volume-topology"}:
            claims = tuple(
                {**claim, "spec": {**claim["spec"], "volumeName": ""}, "status": {"phase": "Bound"}}
                if claim["metadata"]["name"] == bar.what
                else claim
                for claim in state.claims
            )
            return job, replace(state, claims=claims)
        return changed(job, [_loosened(part.spec, bar) for part in job.parts]), state

    return removal


def _loosened(pod: Json, bar: Bar) -> Json:
    spec = copied(pod)
    if bar.rule == "selector":
        key = bar.what.partition("=")[0]
        own = spec.get("nodeSelector") or {}  # without what its RuntimeClass selects
        spec["nodeSelector"] = {name: value for name, value in own.items() if name != key}
    elif bar.rule == "affinity":
        spec["affinity"] = {name: value for name, value in spec["affinity"].items() if name != "nodeAffinity"}
    elif bar.rule == "host-port":
        for container in containers(spec, init=True):
            container["ports"] = []
    return spec


def _untainted(node: Json, what: str) -> Json:
    taints = [taint for taint in node["spec"].get("taints") or () if taint_text(taint) != what]
    return {**node, "spec": {**node["spec"], "taints": taints}}


def _uncordoned(node: Json, _: str) -> Json:
    return {**node, "spec": {**node["spec"], "unschedulable": False}}


def _answering(node: Json, _: str) -> Json:
    return {**node, "status": {**node["status"], "conditions": [{"type": "Ready", "status": "True"}]}}


NODE_CHANGES: Mapping[str, Callable[[Json, str], Json]] = {
    "taint": _untainted,
    "cordoned": _uncordoned,
    "not-ready": _answering,
}


def _too_large(question: Question) -> Cause:
    """The cluster, or each node of it, is too small even when nothing else runs."""
    job, usable = question.job, question.usable or list(question.rooms)
    if not any(room.total for room in usable):
        evidence = (f"{counted(len(usable), 'node')} may be used",)
        return Cause("cluster-too-small", "no node offers anything", evidence, "add a node, or wait for one", _larger)
    for part in job.parts:
        for name, value in sorted(part.requests.items(), key=lambda item: "/" not in item[0]):
            largest = max((room.total.get(name, 0) for room in usable), default=0)
            if value <= largest:
                continue
            asks = f"a pod asks for {shown(name, value)}"
            if not largest and "/" in name:
                fix = f"install the device plugin that offers {name}, or ask for none"
                return Cause("no-device", f"no node that it may use has {name}", (asks,), fix, _larger)
            text = f"no node is large enough: {asks}, the largest has {shown(name, largest, floor)}"
            fix = f"ask for at most {shown(name, largest, floor)} a pod, or add a larger node"
            return Cause("pod-too-large", text, (f"{counted(len(usable), 'node')} may be used",), fix, _larger)
    total: Amounts = {}
    for room in usable:
        total = plus(total, room.total)
    asked = {name: value for name, value in job.asked.items() if value > total.get(name, 0)}
    what = f"; it asks for {listed(asked)} of {listed({name: total.get(name, 0) for name in asked})}" if asked else ""
    whole = "the rest of its pods, where the others are" if job.placed else f"all its {job.minimum} pods at once"
    text = f"the cluster is too small for {whole}, even when nothing else runs"
    placed = job.placed + job.minimum - place(job, question.rooms, question.barred).short
    evidence = (f"{counted(len(usable), 'node')} may be used, with room for {counted(placed, 'pod')}{what}",)
    smaller = f"make the job smaller, {counted(placed, 'pod')} at most" if placed else "make the job smaller"
    return Cause("cluster-too-small", text, evidence, f"{smaller}, or add nodes", _larger)


def _larger(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
    """One more node for each pod, which has all that the pod asks for."""
    nodes = list(state.nodes)
    for number, part in enumerate(defaulted(job, state).parts):  # a limit alone is a request, too
        room = {name: f"{value}m" for name, value in part.requests.items()}
        labels = dict(part.spec.get("nodeSelector") or {})
        for index in range(part.minimum):
            meta = {"name": f"more-{number}-{index}", "labels": labels}
            status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
            nodes.append({"metadata": meta, "spec": {}, "status": status})
    state = replace(state, nodes=tuple(nodes))
    return job, drivers.everywhere(state, drivers.needed(job, state))
