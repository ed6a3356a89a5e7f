"""What a namespace allows its pods: LimitRanges, which also fill in requests and limits, and ResourceQuotas."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import TYPE_CHECKING, Any

from gangplank.k8s import quantity
from gangplank.k8s.build import containers
from gangplank.k8s.pod_resources import POD_LEVEL, Sum, pod_sum, usage
from gangplank.scheduling.amounts import MILLI, amounts, beyond, plus, shown
from gangplank.scheduling.cause import Cause, Removal
from gangplank.scheduling.demand import changed, copied
from gangplank.scheduling.snapshot import PRIORITIES, RUNTIMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gangplank.scheduling.amounts import Amounts
    from gangplank.scheduling.demand import Demand
    from gangplank.scheduling.snapshot import Snapshot
    from gangplank.spec import Json

SIDES = ("requests", "limits")
CLASSES = {  # kind and a pod's field that names one: its plural, and the field of a snapshot that has all
    ("PriorityClass", "priorityClassName"): (PRIORITIES, "priorities"),
    ("RuntimeClass", "runtimeClassName"): (RUNTIMES, "runtimes"),
}


def defaulted(job: Demand, state: Snapshot) -> Demand:
    """The job as the API server stores its pods: classes and LimitRanges fill in, then requests follow limits."""
    return changed(job, [filled(part.spec, state) for part in job.parts])


def filled(pod: Json, state: Snapshot) -> Json:
    """A pod's spec with the requests and limits that the API server fills in."""
    spec = ranked(sandboxed(copied(pod), state), state)
    items = [item for _, item in rows(state) if item["type"] == "Container"]
    every = [*containers(spec, init=True)]
    for container in every:
        container["resources"] = container.get("resources") or {}
        _request_limits(container["resources"])
    _request_of_whole(spec)
    for resources in (container["resources"] for container in every):
        for item in items:
            for side, field in (("limits", "default"), ("requests", "defaultRequest")):
                for name, value in (item.get(field) or {}).items():
                    resources.setdefault(side, {}).setdefault(name, value)
            _request_limits(resources)
    return spec


def _request_limits(resources: Json) -> None:
    """Make limits the requests that are missing, in place."""
    for name, value in (resources.get("limits") or {}).items():
        resources.setdefault("requests", {}).setdefault(name, value)


def _request_of_whole(spec: Json) -> None:
    """Fill in, in place, the requests of a whole pod that has limits: those of its containers, else its limits.

    LimitRanges come later: defaultPodRequests in pkg/apis/core/v1/defaults.go of kubernetes/kubernetes.
    """
    resources = spec.get("resources") or {}
    if resources.get("limits"):
        parts = {key: spec.get(key) or [] for key in ("containers", "initContainers")}
        for name, amount in pod_sum(parts, "requests").items():
            if name in POD_LEVEL:
                resources.setdefault("requests", {}).setdefault(name, str(amount))
        _request_limits(resources)


def rows(state: Snapshot) -> list[tuple[str, Json]]:
    """What the namespace's LimitRanges say, each with the name of its LimitRange."""
    return [
        (one["metadata"]["name"], item) for one in state.limits for item in (one.get("spec") or {}).get("limits") or ()
    ]


def sandboxed(pod: Json, state: Snapshot) -> Json:
    """A pod's spec with what its RuntimeClass adds: what it takes beside its containers, and to which nodes it may go.

    https://kubernetes.io/docs/concepts/containers/runtime-class/#scheduling
    """
    name = pod.get("runtimeClassName")
    for runtime in state.runtimes if name else ():
        if runtime["metadata"]["name"] == name:
            overhead, where = runtime.get("overhead") or {}, runtime.get("scheduling") or {}
            more = {
                "overhead": overhead.get("podFixed"),
                "nodeSelector": {**(pod.get("nodeSelector") or {}), **(where.get("nodeSelector") or {})},
                "tolerations": [*(pod.get("tolerations") or ()), *(where.get("tolerations") or ())],
            }
            return {**pod, **{key: value for key, value in more.items() if value}}
    return pod


def ranked(pod: Json, state: Snapshot) -> Json:
    """A pod's spec with what its PriorityClass says; one that names none has the cluster's default.

    https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/#priorityclass
    """
    name, classes = pod.get("priorityClassName"), state.priorities
    chosen = [one for one in classes if (one["metadata"]["name"] == name if name else one.get("globalDefault"))]
    if not chosen:
        return pod
    own = min(chosen, key=lambda one: int(one["value"]))  # of several defaults, the lowest counts
    policy = {"preemptionPolicy": own["preemptionPolicy"]} if own.get("preemptionPolicy") else {}
    return {**pod, "priorityClassName": own["metadata"]["name"], **policy}


def class_causes(job: Demand, state: Snapshot) -> Iterator[Cause]:
    """Classes that the job's pods name, and that do not exist: the API server refuses the pods."""
    for (kind, field), (plural, of_state) in CLASSES.items():
        existing = [one["metadata"]["name"] for one in getattr(state, of_state)]
        names = {str(part.spec.get(field) or "system-") for part in job.parts} - {*existing}
        for name in sorted(names) if plural not in state.unread else ():
            if not name.startswith("system-"):  # the cluster's own
                text = f"its {kind} {name} does not exist"
                evidence = f"the cluster has {', '.join(sorted(existing)) or 'none'}"
                fix = f"name one of the cluster's {kind}es, or ask an administrator for this one"
                yield Cause("class-missing", text, (evidence,), fix, _with_class(of_state, name))


def _with_class(of_state: str, name: str) -> Removal:
    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        more: dict[str, Any] = {of_state: (*getattr(state, of_state), {"metadata": {"name": name}, "value": 0})}
        return job, replace(state, **more)

    return removal


def limit_causes(job: Demand, state: Snapshot) -> Iterator[Cause]:
    """LimitRanges that refuse the job's pods: its controller then makes none, and only an event says so."""
    for part in job.parts:
        for container in containers(part.spec, init=True):
            name, resources = container["name"], container["resources"]
            requests, limits = amounts(resources.get("requests")), amounts(resources.get("limits"))
            if text := _refused("Container", requests, limits, state):
                yield _limit_cause(f"its container {name} {text}", name)
                return
            for resource in sorted(requests):
                if resource in limits and requests[resource] > limits[resource]:
                    ranges = rows(state)
                    origin = next((n for n, item in ranges if resource in (item.get("default") or {})), "")
                    whose = f"the default of LimitRange {origin}" if origin else "its limit"
                    text = (
                        f"its container {name} requests {shown(resource, requests[resource])}, more than "
                        f"{whose}, {shown(resource, limits[resource])}"
                    )
                    yield _limit_cause(text, name, resource)
                    return
        of_containers = {**part.spec, "overhead": None}
        requests, limits = (_amounts_of(pod_sum(of_containers, side)) for side in SIDES)
        if text := _refused("Pod", requests, limits, state):
            yield _limit_cause(f"one of its pods {text}")
            return


def _refused(kind: str, requests: Amounts, limits: Amounts, state: Snapshot) -> str:
    """What the LimitRanges' rows for a kind say against such requests and limits."""
    for name, item in rows(state):
        if item["type"] != kind:
            continue
        maximum, ratios = amounts(item.get("max")), amounts(item.get("maxLimitRequestRatio"))
        for side, own in (("limit", limits), ("request", requests)):
            for resource in beyond(own, maximum):
                allowed = shown(resource, maximum[resource], floor)
                return f"has a {side} of {shown(resource, own[resource])}, and LimitRange {name} allows {allowed}"
        for resource in (*maximum, *ratios):
            if resource not in limits:
                return f"has no limit of {resource}, which LimitRange {name} demands"
        for resource, value in amounts(item.get("min")).items():
            if (request := requests.get(resource, 0)) < value:
                return f"requests {shown(resource, request)}, and LimitRange {name} demands {shown(resource, value)}"
        for resource, value in ratios.items():
            request, limit = requests.get(resource, 0), limits[resource]
            if not request or not limit or limit * MILLI > value * request:
                times = quantity.canonical(Fraction(value, MILLI))
                has = f"requests {shown(resource, request)} with a limit of {shown(resource, limit)}"
                return f"{has}, and LimitRange {name} allows a limit of {times} times the request"
    return ""


def _limit_cause(text: str, container: str = "", resource: str = "") -> Cause:
    what = resource or "its resources"
    fix = f"set limits of {what} in the job, at least as large as its requests, that the LimitRange allows"

    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        specs = []
        for part in job.parts:
            spec = copied(part.spec)
            for one in containers(spec, init=True):
                if one["name"] == container and one.get("resources"):
                    requests = one["resources"].get("requests") or {}
                    one["resources"] = {"requests": requests, "limits": dict(requests)}
            specs.append(spec)
        return changed(job, specs), replace(state, limits=())

    return Cause("limit-range", text, fix=fix, removal=removal)


def in_scope(pod: Json, quota: Json) -> bool | None:
    """Whether a quota counts a pod; None if this cannot be computed here."""
    spec = quota["spec"]
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    for scope in scopes:
        name, operator = scope["scopeName"], scope["operator"]
        if name == "PriorityClass":
            own, values = pod.get("priorityClassName") or "", scope.get("values") or []
            holds = {"In": own in values, "NotIn": own not in values, "Exists": bool(own), "DoesNotExist": not own}
            if not holds[operator]:
                return False
        elif name in {"Terminating", "NotTerminating"}:
            if (pod.get("activeDeadlineSeconds") is not None) != (name == "Terminating"):
                return False
        elif name in {"BestEffort", "NotBestEffort"}:
            if best_effort(pod) != (name == "BestEffort"):
                return False
        else:
            return None
    return True


def best_effort(pod: Json) -> bool:
    """Whether a pod asks for neither cpu nor memory (pkg/apis/core/v1/helper/qos, ComputePodQOS).

    >>> best_effort({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]})
    True
    """
    whole = pod.get("resources") or {}
    parts = [whole] if any(whole.get(side) for side in SIDES) else [
        one.get("resources") or {} for one in containers(pod, init=True)]
    return not any(quantity.parse(str(amount)) > 0 for part in parts for side in SIDES
                   for name, amount in (part.get(side) or {}).items() if name in {"cpu", "memory"})  # fmt: skip


def quota_causes(job: Demand, state: Snapshot, held: Amounts | None = None) -> Iterator[Cause]:
    """Quotas that the job's minimum exceeds; `held` is what its own pods already count as."""
    for quota in state.quotas:
        parts = [(part, _amounts_of(usage(part.spec))) for part in job.parts if in_scope(part.spec, quota)]
        hard = amounts(quota["spec"].get("hard"))
        used = amounts((quota.get("status") or {}).get("used"))
        for name in sorted(hard):
            for part, _ in parts:
                if container := _without(part.spec, name):
                    yield _unset(job, quota, name, container)
                    return
            needed = sum(of_pod.get(name, 0) * part.minimum for part, of_pod in parts)
            own = (held or {}).get(name, 0)
            over = used.get(name, 0) - own + needed - hard[name]
            if needed and over > 0:
                yield _over(job, quota, name, (needed, used.get(name, 0) - own, hard[name]))
                return


def _without(pod: Json, name: str) -> str:
    """The first container without the amount that a quota demands of every one; "" if the pod has amounts of its own.

    https://kubernetes.io/docs/concepts/policy/resource-quotas/#requests-compared-to-limits
    """
    side, resource = _demanded(name)
    if resource not in POD_LEVEL or any((pod.get("resources") or {}).get(half) for half in SIDES):
        return ""
    every = containers(pod, init=True)
    return next((str(one["name"]) for one in every if resource not in (one["resources"].get(side) or {})), "")


def _demanded(name: str) -> tuple[str, str]:
    side, _, resource = name.rpartition(".")
    return side or "requests", resource


def _unset(job: Demand, quota: Json, name: str, container: str) -> Cause:
    quota_name, (side, resource) = quota["metadata"]["name"], _demanded(name)
    text = f"quota {quota_name} counts {name}, and its container {container} has no {side[:-1]} of {resource}"

    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        rest = tuple(one for one in state.quotas if one["metadata"]["name"] != quota_name)
        return job, replace(state, quotas=rest)

    return Cause("quota", text, (f"namespace {job.namespace}",), f"set a {side[:-1]} of {resource} in the job", removal)


def _over(job: Demand, quota: Json, name: str, counts: tuple[int, int, int]) -> Cause:
    wanted, used, hard = counts
    quota_name = quota["metadata"]["name"]
    over = used + wanted - hard
    text = (
        f"quota {quota_name} of namespace {job.namespace} has {shown(name, max(0, hard - used), floor)} left, "
        f"and the job needs {shown(name, wanted)}"
    )
    evidence = (f"{shown(name, hard)} allowed, {shown(name, used)} used by what the namespace already runs",)
    passing = wanted <= hard
    smaller = f"make the job smaller by {shown(name, wanted - hard, ceil)}"
    first = f"wait until {shown(name, over, ceil)} of the namespace is freed" if passing else smaller
    fix = f"{first}, or ask for a quota of {shown(name, used + wanted, ceil)}"

    def removal(job: Demand, state: Snapshot) -> tuple[Demand, Snapshot]:
        hard = {**quota["spec"]["hard"], name: quantity.canonical(Fraction(used + wanted, MILLI))}
        raised = {**quota, "spec": {**quota["spec"], "hard": hard}}
        quotas = (raised if one["metadata"]["name"] == quota_name else one for one in state.quotas)
        return job, replace(state, quotas=tuple(quotas))

    return Cause("quota", text, evidence, fix, removal, passing=passing)


def charged(quotas: Sequence[Json], pods: Sequence[Json], times: int, *, ended: bool = False) -> tuple[Json, ...]:
    """The quotas after pods have come (1) or gone (-1); pods that have ended still count as objects."""
    result = []
    for quota in quotas:
        change = counted([pod for pod in pods if in_scope(pod["spec"], quota)])
        used = amounts((quota.get("status") or {}).get("used"))
        for name in quota["spec"].get("hard") or {}:
            if name in change and not (ended and name.startswith("count/")):
                used[name] = max(0, used.get(name, 0) + times * change[name])
        written = {name: quantity.canonical(Fraction(value, MILLI)) for name, value in used.items()}
        result.append({**quota, "status": {**(quota.get("status") or {}), "used": written}})
    return tuple(result)


def counted(pods: list[Json]) -> Amounts:
    """What pods count as in a quota."""
    total: Amounts = {}
    for pod in pods:
        total = plus(total, _amounts_of(usage(pod["spec"])))
    return total


def _amounts_of(sums: Mapping[str, Sum]) -> Amounts:
    return {name: int(one.value * MILLI) for name, one in sums.items()}
