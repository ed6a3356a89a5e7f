"""Whether a queue lets a gang begin: its state, its place in the tree, and what it may hold.

As Volcano's plugins capacity and proportion decide (pkg/scheduler/plugins of 1.15). Other jobs appear as sums only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING

from gangplank.backends.device_claims import RESOURCE
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.scheduling.amounts import amounts, plus, requests, shown
from gangplank.scheduling.cause import Cause, Removal
from gangplank.scheduling.demand import least as least_of
from gangplank.scheduling.rooms import ready
from gangplank.scheduling.snapshot import GROUPS, NODES, PODS, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.demand import Demand
    from gangplank.spec import Json

OPEN = "Open"
ZERO_IS_NO_CAP = re.compile(rf"(cpu|memory|{RESOURCE}.*)$")


@dataclass
class Share:
    """One queue: what it may hold, what it holds, and what waits in it with a place in line."""

    queue: Json
    limit: Amounts = field(default_factory=dict)  # of the resources that any limit names
    held: Amounts = field(default_factory=dict)
    inqueue: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The queue's name."""
        return str(self.queue["metadata"]["name"])

    @property
    def spec(self) -> Json:
        """What the queue says; nothing if it has no spec."""
        return self.queue.get("spec") or {}

    @property
    def parent(self) -> str:
        """The queue above."""
        return "" if self.name == QUEUE_SYSTEM.root else str(self.spec.get("parent") or QUEUE_SYSTEM.root)

    @property
    def cap(self) -> Amounts:
        """What it may hold at most: a zero bars devices, and says nothing of CPU, memory and devices by claim."""
        own = amounts(self.spec.get("capability"))
        return {name: value for name, value in own.items() if value > 0 or not ZERO_IS_NO_CAP.match(name)}

    @property
    def deserved(self) -> Amounts:
        """What it deserves: no less than what is guaranteed to it, and no more than it may hold."""
        own = amounts(self.spec.get("deserved"))
        capped = {name: min(value, self.limit.get(name, value)) for name, value in own.items()}
        return capped | {name: max(value, capped.get(name, 0)) for name, value in self.guarantee.items()}


def shares(state: Snapshot) -> dict[str, Share]:
    """Every queue by name, with what it and the queues below it hold; without the configuration, as in a tree."""
    by_name = {item["metadata"]["name"]: Share(item) for item in state.queues}
    hierarchy = state.settings is None or state.settings.hierarchy
    for share in by_name.values():
        share.guarantee = amounts((share.spec.get("guarantee") or {}).get("resource"))
    for name, held, waiting in held_by_queue(state):
        for above in ancestors(by_name, name) if hierarchy else [by_name[name]] if name in by_name else []:
            above.held = plus(above.held, held)
            above.inqueue = plus(above.inqueue, waiting)
    total: Amounts = {}
    top = by_name.get(QUEUE_SYSTEM.root)
    if hierarchy:  # a tree has no limit but its caps: its root takes more than the cluster has
        total = amounts(top.spec.get("capability")) if top else {}
    else:
        for room in state.rooms:
            total = plus(total, room.total)
    if top is not None:
        top.limit = total
    below: dict[str, list[Share]] = {}
    for share in by_name.values():
        if above_it := share.parent:
            below.setdefault(above_it if hierarchy else QUEUE_SYSTEM.root, []).append(share)
    _limit(below, QUEUE_SYSTEM.root, total)
    return by_name


def _limit(children: dict[str, list[Share]], parent: str, above: Amounts) -> None:
    """Give each queue below one what its guarantees and its own cap leave of the limit above it."""
    below = children.pop(parent, [])
    reserved: Amounts = {}
    for one in below:
        reserved = plus(reserved, one.guarantee)
    for one in below:
        cap = one.cap
        rest = {name: value - reserved.get(name, 0) + one.guarantee.get(name, 0) for name, value in above.items()}
        one.limit = {name: min(value, cap.get(name, value)) for name, value in rest.items()}
        one.limit |= {name: value for name, value in cap.items() if name not in rest}
        _limit(children, one.name, one.limit)


def ancestors(by_name: dict[str, Share], name: str) -> list[Share]:
    """A queue and those above it, lowest first."""
    chain: list[Share] = []
    while name in by_name and by_name[name] not in chain:
        chain.append(by_name[name])
        name = by_name[name].parent
    return chain


def held_by_queue(state: Snapshot) -> Iterator[tuple[str, Amounts, Amounts]]:
    """By gang: its queue, what its pods hold, and what it may still claim because it is in line.

    Without the right to read other namespaces, the sums that the queue system notes in the queues.
    """
    if PODS in state.unread or GROUPS in state.unread:
        inner = {(queue.get("spec") or {}).get("parent") for queue in state.queues}  # their sums have those below them
        for queue in state.queues:
            name, above = queue["metadata"]["name"], (queue.get("spec") or {}).get("parent")
            if name not in inner and (above or name == QUEUE_SYSTEM.default):
                yield name, amounts((queue.get("status") or {}).get("allocated")), {}
        return
    for group in state.groups:
        meta, spec, status = group["metadata"], group.get("spec") or {}, group.get("status") or {}
        held = state.pods.by_group.get((meta["namespace"], meta["name"]), {})
        claim = least_of(spec) or {}
        waiting: Amounts = {}
        if status.get("phase") == "Inqueue":
            waiting = {name: max(0, value - held.get(name, 0)) for name, value in claim.items()}
        yield _queue_of(group), held, waiting


def queue_causes(job: Demand, state: Snapshot) -> Iterator[Cause]:
    """What is wrong with the job's queue, the most outward first."""
    if not job.queue or "queues" in state.unread:
        return
    by_name = shares(state)
    if job.queue not in by_name:
        leaves = _leaves(by_name)
        known = f"the cluster has {', '.join(sorted(leaves))}" if leaves else "the cluster has no queue"
        fix = "name one of the cluster's queues, or ask an administrator for this one"
        yield Cause("queue-missing", f"its queue {job.queue} does not exist", (known,), fix, _with_queue(job.queue))
        return
    own = by_name[job.queue]
    phase = (own.queue.get("status") or {}).get("state") or "without a state"
    if phase != OPEN:
        fix = f"open it: vcctl queue operate -n {job.queue} -a open"
        yield Cause("queue-closed", f"its queue {job.queue} is {phase}", (), fix, _opened(job.queue))
    children = sorted(one.name for one in by_name.values() if one.parent == job.queue)
    if children or job.queue == QUEUE_SYSTEM.root:
        text = f"its queue {job.queue} has queues below it, and only queues without any take jobs"
        yield Cause("queue-inner", text, (), f"name one of {', '.join(children)}", _with_queue(job.queue, leaf=True))
        return
    yield from _over(job, by_name, own)
    yield from _behind(job, state)


def _behind(job: Demand, state: Snapshot) -> Iterator[Cause]:
    """What is wrong if the scheduler does not put a gang in line, behind others that it has put there.

    The pods of a Volcano Job do not exist before, and no condition says so (pkg/scheduler/plugins/overcommit of 1.15).
    """
    times = state.settings.line if state.settings else None
    if times is None or job.in_line or not job.gang or NODES in state.unread:
        return
    ahead: Amounts = {}
    for group in state.groups:
        if (group.get("status") or {}).get("phase") == "Inqueue":
            ahead = plus(ahead, least_of(group.get("spec") or {}) or {})
    rooms = [room for room in state.rooms if ready(room.node)]
    wanted = job.least if job.least is not None else job.asked
    for name, value in sorted(wanted.items()):
        total = sum(room.total.get(name, 0) for room in rooms)
        most = int(total * times) - sum(room.total.get(name, 0) - room.free.get(name, 0) for room in rooms)
        waiting = ahead.get(name, 0)
        if name != "pods" and value <= most < waiting + value:
            evidence = (
                f"{shown(name, most, floor)} is left of {float(times):g} times the cluster's {shown(name, total)}",
                f"gangs that are ahead in line ask for {shown(name, waiting)}, and the job needs {shown(name, value)}",
            )
            text, fix = "its scheduler lets no more jobs wait in line", "wait until one that is ahead starts or ends"
            yield Cause("queue-line", text, evidence, fix, _in_line, passing=True)
            return


def _in_line(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
    return replace(job, in_line=True), state


def weighed(job: Demand, state: Snapshot) -> Iterator[str]:
    """What the plugin proportion may leave a queue for its weight, if more is asked for than the cluster has.

    A queue deserves at least its weight's part of the cluster, and gets no more than it deserves.
    """
    if not job.queue or state.settings is None or "proportion" not in state.settings.plugins or PODS in state.unread:
        return
    queues = {(one["metadata"]["namespace"], one["metadata"]["name"]): _queue_of(one) for one in state.groups}
    asked, held = dict(job.asked), dict[str, int]()
    for pod in state.pods.items:
        meta, needs = pod["metadata"], requests(pod["spec"])
        queue = queues.get((meta["namespace"], (meta.get("annotations") or {}).get(QUEUE_SYSTEM.group, "")))
        asked = plus(asked, needs) if queue else asked
        held = plus(held, needs) if queue == job.queue and pod["spec"].get("nodeName") else held
    used = {*queues.values(), job.queue}
    weights = {one["metadata"]["name"]: (one.get("spec") or {}).get("weight") or 1 for one in state.queues}
    part = Fraction(weights.get(job.queue, 1), sum(weights.get(name, 1) for name in used))
    for name, value in sorted(job.asked.items()):
        total = sum(room.total.get(name, 0) for room in state.rooms if ready(room.node))
        if name != "pods" and asked[name] > total and held.get(name, 0) + value > total * part:
            yield f"what the weight of its queue {job.queue} leaves it: more {name} is asked for than the cluster has"
            return


def _queue_of(group: Json) -> str:
    return str((group.get("spec") or {}).get("queue") or QUEUE_SYSTEM.default)


def _over(job: Demand, by_name: dict[str, Share], own: Share) -> Iterator[Cause]:
    wanted = job.least if job.least is not None else job.asked
    for share in ancestors(by_name, own.name):
        if share.name == QUEUE_SYSTEM.root:
            continue
        taken = plus(share.held, share.inqueue)
        for name, value in sorted(wanted.items()):
            limit = share.limit.get(name)
            if limit is None or name == "pods" or taken.get(name, 0) + value <= limit:
                continue
            above = by_name[share.parent].limit.get(name) if share.parent in by_name else None
            if above is not None and limit >= above:  # the queue above binds, or the cluster, whose nodes say more
                continue
            yield _over_cause(share, name, (value, taken.get(name, 0), limit))
            break


def _over_cause(share: Share, name: str, counts: tuple[int, int, int]) -> Cause:
    wanted, taken, limit = counts
    cap = share.cap.get(name)
    text = (
        f"its queue {share.name} has {shown(name, max(0, limit - taken), floor)} left of {shown(name, max(limit, 0))} "
        f"that it may hold, and the job needs {shown(name, wanted)}"
    )
    waiting = share.inqueue.get(name, 0)
    evidence = [f"jobs of the queue hold {shown(name, share.held.get(name, 0))}"]
    if waiting:
        evidence.append(f"{shown(name, waiting)} is reserved for jobs of the queue that are ahead in line")
    reserved = cap is None or limit < cap  # by guarantees of other queues
    if reserved:
        evidence.append("the limit is what the guarantees of other queues leave of the cluster")
    passing = wanted <= limit
    over = shown(name, taken + wanted - limit, ceil)
    if passing:
        fix = f"wait until {over} of this queue is freed, or ask for a cap of {shown(name, taken + wanted, ceil)}"
    else:
        smaller = f"make the job smaller by {shown(name, wanted - limit, ceil)}"
        fix = f"{smaller}, or ask for a cap of {shown(name, taken + wanted, ceil)}"

    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        queues = tuple(
            _loosened(queue, name, cap=queue["metadata"]["name"] == share.name, guarantee=reserved)
            for queue in state.queues
        )
        return job, replace(state, queues=queues)

    return Cause("queue-over", text, tuple(evidence), fix, removal, passing=passing)


def _loosened(queue: Json, name: str, *, cap: bool, guarantee: bool) -> Json:
    """A queue without a cap, or without a guarantee, of one resource."""
    spec = dict(queue.get("spec") or {})
    if cap:
        spec["capability"] = {key: value for key, value in (spec.get("capability") or {}).items() if key != name}
    if guarantee:
        reserved = (spec.get("guarantee") or {}).get("resource") or {}
        spec["guarantee"] = {"resource": {key: value for key, value in reserved.items() if key != name}}
    return {**queue, "spec": spec}


def _leaves(by_name: dict[str, Share]) -> set[str]:
    parents = {one.parent for one in by_name.values()}
    return {name for name in by_name if name not in parents and name != QUEUE_SYSTEM.root}


def _with_queue(name: str, *, leaf: bool = False) -> Removal:
    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        chosen = f"{name}-leaf" if leaf else name
        queue: Json = {"metadata": {"name": chosen}, "spec": {}, "status": {"state": OPEN}}
        return replace(job, queue=chosen), replace(state, queues=(*state.queues, queue))

    return removal


def _opened(name: str) -> Removal:
    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        queues = [
            {**queue, "status": {**(queue.get("status") or {}), "state": OPEN}}
            if queue["metadata"]["name"] == name
            else queue
            for queue in state.queues
        ]
        return job, replace(state, queues=tuple(queues))

    return removal


def reclaimable(job: Demand, state: Snapshot) -> Amounts:
    """What other queues hold beyond what they deserve, if this queue deserves what the job asks; sums, by resource.

    Only the plugin capacity says beforehand what a queue deserves; another one may let every queue give back all.
    """
    settings = state.settings
    if settings is None or not {"reclaim", "gangreclaim"} & set(settings.actions):
        return {}
    if not job.queue or PODS in state.unread:
        return {}
    by_name = shares(state)
    own = by_name.get(job.queue)
    if own is None:
        return {}
    wanted = {name: value for name, value in job.asked.items() if name != "pods"}
    fixed = "capacity" in settings.plugins
    claimants = [own, *ancestors(by_name, own.name)[1 : settings.levels + 1]]
    after = [(plus(one.held, wanted), one.deserved) for one in claimants]
    if fixed and not any(held[name] <= deserved.get(name, 0) for held, deserved in after for name in wanted):
        return {}
    parents = {one.parent for one in by_name.values()}
    total: Amounts = {}
    for one in by_name.values():
        reclaims = one.spec.get("reclaimable") is not False
        if one.name != own.name and one.name not in parents and reclaims:
            deserved = one.deserved if fixed else {}
            surplus = {name: max(0, value - deserved.get(name, 0)) for name, value in one.held.items()}
            total = plus(total, surplus)
    return {name: value for name, value in total.items() if value}
