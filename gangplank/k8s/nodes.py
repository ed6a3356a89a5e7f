"""Taints of nodes: which keep a pod out, and what to change so that a node has some, or labels, or no longer has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gangplank.spec import Json

UNREACHABLE = "node.kubernetes.io/unreachable"  # the taint of a node that Kubernetes takes for lost
AWAY = ("node.kubernetes.io/not-ready", UNREACHABLE)  # those of a node that runs no pods now
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")  # of a taint
KEEPS_OUT = ("NoSchedule", "NoExecute")
# Prefixes of the keys by which Kubernetes and administrators keep pods off a node, against its kubelet too.
RESERVED = ("node-role.kubernetes.io/", "node.kubernetes.io/", "node-restriction.kubernetes.io/")


def is_lost(node: Json) -> bool:
    """Whether Kubernetes takes a node for lost, by its taint."""
    return any(taint["key"] == UNREACHABLE for taint in (node.get("spec") or {}).get("taints") or ())


def answers(node: Json) -> bool:
    """Whether a node's kubelet reports to Kubernetes, Ready or not: pods of one that does may well run.

    >>> nodes = [{"status": {"conditions": [{"type": "Ready", "status": one}]}} for one in ("True", "False", "Unknown")]
    >>> [answers(node) for node in [*nodes, {}]]
    [True, True, False, False]
    """
    conditions = (node.get("status") or {}).get("conditions") or ()
    states = [one.get("status") for one in conditions if one["type"] == "Ready"]
    return not is_lost(node) and any(state in {"True", "False"} for state in states)


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


def node_patch(
    node: Json,
    labels: Mapping[str, str],
    taints: Sequence[Json],
    *,
    present: bool,
    note: str = "",
    own_keys: Collection[str] = (),
) -> Json:
    """A JSON merge patch; empty if the node is as it should be. All other labels and taints stay.

    With `note`, an annotation of the node keeps what the patch sets, and what an earlier one has set goes if it is no
    longer asked for. What the node had before, and what has another value by now, belongs to others and stays, with
    `present=False` too. Without a note, that removes the labels and taints that it names, whatever their values.

    The node's kubelet may write the annotation too. So a noted label goes only if `own_keys` has its key, and a noted
    taint of a RESERVED key only if `own_keys` has that.

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
    own_labels, own_taints = noted(node, note)
    leaving_labels = {key for key, value in own_labels.items() if key in own_keys and old_labels.get(key) == value}
    leaving_taints = [
        taint
        for taint in own_taints
        if has_taint(old_taints, taint) and (taint["key"] in own_keys or not taint["key"].startswith(RESERVED))
    ]
    if not present:
        if not note:
            leaving_labels |= labels.keys() & old_labels.keys()
            leaving_taints += taints
        labels, taints = {}, []
    label_changes: dict[str, str | None] = dict.fromkeys(sorted(leaving_labels - labels.keys()))
    label_changes |= {key: value for key, value in labels.items() if old_labels.get(key) != value}
    new_taints = with_taints(without_taints(old_taints, without_taints(leaving_taints, taints)), taints)
    changes: Json = {"labels": label_changes} if label_changes else {}
    if note:
        text = note_text(
            {key: value for key, value in labels.items() if value in (own_labels.get(key), label_changes.get(key))},
            [taint for taint in taints if has_taint(own_taints, taint) or not has_taint(old_taints, taint)],
        )
        changes |= {"annotations": {note: text}} if text != (meta.get("annotations") or {}).get(note) else {}
    spec = {"spec": {"taints": new_taints}} if new_taints != old_taints else {}
    return {"metadata": {"resourceVersion": meta["resourceVersion"], **changes}, **spec} if changes or spec else {}


def note_text(labels: Mapping[str, str], taints: Iterable[Json]) -> str | None:
    """An annotation that keeps these labels and taints, whatever their order; None if there are none."""
    texts = sorted({taint_text(taint) for taint in taints})
    return json.dumps({"labels": labels, "taints": texts}, sort_keys=True) if labels or texts else None


def noted(node: Json, note: str) -> tuple[dict[str, str], list[Json]]:
    """The labels and taints that an annotation of a node keeps; none if it is not one of `note_text`.

    >>> taints = [{"key": "b", "value": "x", "effect": "NoSchedule"}, {"key": "c", "value": "", "effect": "NoExecute"}]
    >>> noted({"metadata": {"annotations": {"n": note_text({"a": "1"}, taints)}}}, "n") == ({"a": "1"}, taints)
    True
    >>> noted({"metadata": {"annotations": {"n": "[]"}}}, "n"), noted({"metadata": {}}, "n")
    (({}, []), ({}, []))
    """
    try:
        kept = json.loads((node["metadata"].get("annotations") or {})[note])
        labels = {key: str(value) for key, value in kept["labels"].items()}
        parts = [text.rpartition(":") for text in kept["taints"]]
    except (ValueError, TypeError, AttributeError, KeyError):
        return {}, []
    pairs = [(rest.partition("="), effect) for rest, _, effect in parts]
    return labels, [{"key": key, "value": value, "effect": effect} for (key, _, value), effect in pairs]


def has_taint(taints: Iterable[Json], taint: Json) -> bool:
    """Whether a taint is among these, with its value."""
    return any(is_same(taint, other) for other in taints)


def with_taints(old: Sequence[Json], taints: Sequence[Json]) -> list[Json]:
    """The old taints with these: one of the same key and effect gets the new value.

    >>> with_taints([{"key": "a", "effect": "NoSchedule"}], [{"key": "a", "value": "x", "effect": "NoSchedule"}])
    [{'key': 'a', 'value': 'x', 'effect': 'NoSchedule'}]
    """
    if all(has_taint(old, taint) for taint in taints):
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
