"""The conditions that controllers note in an object's status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gangplank.spec import Json


def true_conditions(item: Json) -> list[str]:
    """The types of the conditions that hold; none while the status is about an older version of the object.

    >>> conditions = [{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "False"}]
    >>> true_conditions({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": conditions}})
    ['Available']
    >>> true_conditions({"metadata": {"generation": 3}, "status": {"observedGeneration": 2, "conditions": conditions}})
    []
    """
    status = item.get("status") or {}
    generation = item["metadata"].get("generation", 0)
    if status.get("observedGeneration", generation) < generation:
        return []
    return [one["type"] for one in status.get("conditions") or [] if one.get("status") == "True"]


def has_condition(item: Json, kind: str) -> bool:
    """Whether a condition is True, whatever version of the object it is about.

    >>> node = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    >>> has_condition(node, "Ready"), has_condition(node, "DiskPressure"), has_condition({}, "Ready")
    (True, False, False)
    """
    conditions = (item.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions)


def unmet(item: Json, types: Collection[str]) -> str:
    """What the object reports instead of one of these conditions; empty if one of them holds.

    >>> pod = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NotYet"}]}}
    >>> unmet(pod, ["Ready"]), unmet({"metadata": {}}, ["Ready"])
    ('Ready is False (NotYet)', 'no condition')
    """
    if set(true_conditions(item)) & set(types):
        return ""
    conditions = (item.get("status") or {}).get("conditions") or []
    reports = [f"{one['type']} is {one['status']}{reason(one)}" for one in conditions]
    return ", ".join(reports) or "no condition"


def failed_init(pod: Mapping[str, Any]) -> list[Json]:
    """The status of the init container that has failed, for which the pod's other containers wait; none otherwise.

    >>> spec = {"initContainers": [{"name": "fetch"}], "containers": [{"name": "main"}]}
    >>> ends = [{"name": "fetch", "state": {"terminated": {"exitCode": code}}} for code in (7, 0)]
    >>> [len(failed_init({"spec": spec, "status": {"initContainerStatuses": [end]}})) for end in ends]
    [1, 0]
    """
    parts = (pod.get("spec") or {}).get("initContainers") or ()
    sidecars = {one["name"] for one in parts if one.get("restartPolicy") == "Always"}  # no other waits for their end
    for one in (pod.get("status") or {}).get("initContainerStatuses") or ():
        if one["name"] not in sidecars and newest_end(one).get("exitCode"):
            return [one]
    return []


def newest_end(status: Mapping[str, Any]) -> Json:
    """How a container has ended, or did before it started again; empty if it never has.

    >>> newest_end({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 7}}}), newest_end({})
    ({'exitCode': 7}, {})
    """
    ends = [(status.get(key) or {}).get("terminated") for key in ("state", "lastState")]
    return next(filter(None, ends), {})


def end_reason(end: Mapping[str, Any]) -> str:
    """Why a container ended: on cgroup v1, kubelets say OOMKilled of one that ended well on a node short of memory.

    >>> end_reason({"reason": "OOMKilled", "exitCode": 0}), end_reason({"reason": "OOMKilled", "exitCode": 1})
    ('Completed', 'OOMKilled')
    """
    return "Completed" if end.get("exitCode") == 0 else str(end.get("reason") or "")


def reason(condition: Json) -> str:
    """A condition's reason and message in brackets.

    >>> reason({"reason": "NoPods", "message": "none is up"}), reason({})
    (' (NoPods: none is up)', '')
    """
    texts = [condition[key] for key in ("reason", "message") if condition.get(key)]
    return f" ({': '.join(texts)})" if texts else ""
