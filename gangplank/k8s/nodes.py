"""Taints of nodes: which keep a pod out, and what to change so that a node has some, or labels, or no longer has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplank.spec import Json

UNREACHABLE = "node.kubernetes.io/unreachable"  # the taint of a node that Kubernetes takes for lost
AWAY = ("node.kubernetes.io/not-ready", UNREACHABLE)  # those of a node that runs no pods now
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")  # of a taint
KEEPS_OUT = ("NoSchedule", "NoExecute")


def tolerated(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of the tolerations lets a pod onto a node with this taint (core/v1, ToleratesTaint).

    >>> taint = {"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}
    >>> tolerated(taint, [{"key": "flyte/gpu", "operator": "Exists"}]), tolerated(taint, [{"key": "flyte/gpu"}])
    (True, False)
    """
    return any(
        item.get("effect") in (None, "", taint["effect"])
        and (item.get("key") or taint["key"]) == taint["key"]
        and (item.get("operator") == "Exists" or (item.get("value") or "") == (taint.get("value") or ""))
        for item in tolerations
    )


def taint_text(taint: Mapping[str, Any]) -> str:
    """A taint as kubectl writes and takes it.

    >>> taint_text({"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"})
    'flyte/gpu=dedicated:NoSchedule'
    """
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def node_patch(node: Json, labels: Mapping[str, str], taints: Sequence[Json], *, present: bool) -> Json:
    """A JSON merge patch; empty if the node is as it should be. All other labels and taints stay.

    A node has one taint per key and effect, and a patch replaces the list of taints as a whole. So it holds for the
    version of the node that was read, and the API server refuses it for any other.

    >>> node = {"metadata": {"labels": {"a": "1"}, "resourceVersion": "7"}}
    >>> node_patch(node, {"a": "1", "b": "2"}, [], present=True)
    {'metadata': {'resourceVersion': '7', 'labels': {'b': '2'}}}
    >>> node_patch(node, {"a": "1", "b": "2"}, [], present=False)
    {'metadata': {'resourceVersion': '7', 'labels': {'a': None}}}
    """
    meta = node["metadata"]
    old_labels, old_taints = meta.get("labels") or {}, list((node.get("spec") or {}).get("taints") or [])
    label_changes: dict[str, str | None]
    if present:
        label_changes = {key: value for key, value in labels.items() if old_labels.get(key) != value}
    else:
        label_changes = {key: None for key in labels if key in old_labels}
    new_taints = with_taints(old_taints, taints) if present else without_taints(old_taints, taints)
    if not label_changes and new_taints == old_taints:
        return {}
    patch: Json = {"metadata": {"resourceVersion": meta["resourceVersion"]}}
    if label_changes:
        patch["metadata"]["labels"] = label_changes
    if new_taints != old_taints:
        patch["spec"] = {"taints": new_taints}
    return patch


def with_taints(old: Sequence[Json], taints: Sequence[Json]) -> list[Json]:
    """The old taints with these: one of the same key and effect gets the new value.

    >>> with_taints([{"key": "a", "effect": "NoSchedule"}], [{"key": "a", "value": "x", "effect": "NoSchedule"}])
    [{'key': 'a', 'value': 'x', 'effect': 'NoSchedule'}]
    """
    if all(any(is_same(taint, other) for other in old) for taint in taints):
        return list(old)
    return [*without_taints(old, taints), *taints]


def without_taints(old: Sequence[Json], taints: Sequence[Json]) -> list[Json]:
    """The old taints without those of the same key and effect.

    >>> without_taints([{"key": "a", "effect": "NoSchedule"}], [{"key": "a", "effect": "NoExecute"}])
    [{'key': 'a', 'effect': 'NoSchedule'}]
    """
    gone = {(taint["key"], taint["effect"]) for taint in taints}
    return [taint for taint in old if (taint["key"], taint["effect"]) not in gone]


def is_same(taint: Json, other: Json) -> bool:
    """Whether two taints are equal; the time that the API server adds to one does not count.

    >>> is_same({"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01"})
    True
    """
    return all((taint.get(key) or "") == (other.get(key) or "") for key in ("key", "value", "effect"))
