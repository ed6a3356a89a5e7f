"""Pieces of code in a namespace (backends/code_pieces.py): sent once, removed when no job has needed them for long.

A submission marks each piece that it finds with the time. A removal goes by these marks, and names the version that it
has read: a piece that a submission has marked since then stays.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from gangplank.backends import submitted_kinds
from gangplank.backends.code_pieces import LABEL, USED, is_piece, pieces_of
from gangplank.cluster.client import METADATA, NOT_FOUND, path
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

KEPT_S = 3600  # so that the next edit of the same code finds its pieces


def stored(kube: Kube, namespace: str) -> dict[str, Json]:
    """The metadata of each piece in a namespace, by name."""
    answer = kube.call("GET", path("v1", "ConfigMap", namespace), query={"labelSelector": LABEL}, accept=METADATA)
    metadata = [item["metadata"] for item in answer["items"] or []]  # null if it is empty
    return {meta["name"]: meta for meta in metadata if LABEL in (meta.get("labels") or {})}


def now() -> str:
    """The time of a mark."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def first(items: Sequence[Json]) -> list[Json]:
    """What a dry run asks for: of many pieces, one."""
    pieces = list(filter(is_piece, items))
    return [*pieces[:1], *(item for item in items if not is_piece(item))]


def send(kube: Kube, items: Sequence[Json], report: Callable[[str], None]) -> None:
    """Create the pieces that the namespace lacks, and mark the others; an interrupted command continues here."""
    pieces = list(filter(is_piece, items))
    if not pieces:
        return
    namespace = pieces[0]["metadata"]["namespace"]
    there, sent = stored(kube, namespace), 0
    for piece in pieces:
        marked = {**piece, "metadata": {**piece["metadata"], "annotations": {USED: now()}}}
        if piece["metadata"]["name"] in there and mark(kube, marked):
            continue
        kube.create(marked)
        sent += 1
    report(f"code: {sent} of {len(pieces)} pieces sent, {len(pieces) - sent} were in namespace {namespace}")


def mark(kube: Kube, piece: Json) -> bool:
    """Say that a piece is needed; false if it is gone."""
    try:
        kube.patch(piece, {"metadata": {"annotations": piece["metadata"]["annotations"]}})
    except KubeError as error:
        if error.status != NOT_FOUND:
            raise
        return False
    return True


def remove_unused(kube: Kube, namespace: str, gone: Json) -> list[str]:
    """Remove the pieces that no job but the one that is gone names, and that none has needed for long; their names."""
    there = stored(kube, namespace) if pieces_of(gone) else {}
    if not there:
        return []
    used: set[str] = set()
    for job in kube.listed(namespace, submitted_kinds()):
        if job["metadata"].get("uid") != gone["metadata"].get("uid"):
            used |= pieces_of(job)
    limit = (datetime.now(UTC) - timedelta(seconds=KEPT_S)).isoformat(timespec="seconds")
    unused = {name: meta for name, meta in there.items()
              if name not in used and str((meta.get("annotations") or {}).get(USED, "")) < limit}
    for name, meta in unused.items():
        place = path("v1", "ConfigMap", namespace, name)
        kube.delete_at(place, meta["uid"], version=meta.get("resourceVersion", ""))
    return list(unused)
