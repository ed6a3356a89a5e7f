"""Code that is more than one ConfigMap holds, or that has requirements: pieces, and an index that names them.

Each piece is an immutable ConfigMap that is named by its content alone, so jobs share it and no edit sends it again.
The index travels as a script does (pod_template.py), with the program that lays the code out in a pod (lay_out.py).
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.backends import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangplank.spec import Json, Script

ONE_MAP = 2**20 - 4096  # bytes: etcd and the API server take 1 MiB for a ConfigMap, name and labels included
ONE_MAP_FILES = 500  # each is named in every pod template too
MOST_BYTES, MOST_FILES = 32 * 2**20, 5000  # of a folder: all of it lies in etcd, and its index is one ConfigMap
PIECE = 2**20 - 4096  # bytes
OWN = PIECE // 4  # a file of this size has pieces of its own, which an edit of others does not change
LABEL = "gangplank.dev/code"  # of a piece
USED = f"{LABEL}-used"  # an annotation: when a submission last needed the piece
INDEX_FOLDER, PIECES_FOLDER = "/opt/gangplank/code", "/opt/gangplank/pieces"  # in the container
INDEX, PROGRAM = "index.json", "lay_out.py"
PIECES_VOLUME, CODE_VOLUME = "code-pieces", "code"


def in_pieces(script: Script) -> bool:
    """Whether a script's folder travels in pieces.

    >>> from gangplank.spec import Script
    >>> [in_pieces(Script("/a.py", "", folder={"a.py": "x" * size})) for size in (9, 2**20)]
    [False, True]
    """
    size = sum(len(text.encode("utf-8", "surrogateescape")) for text in script.folder.values())
    return bool(script.requirements) or size > ONE_MAP or len(script.folder) > ONE_MAP_FILES


def cut(folder: Mapping[str, str]) -> tuple[dict[str, bytes], list[list[object]]]:
    """The pieces by name, and a row of the index for each file: name, size, SHA-256, and where its bytes are."""
    pieces: dict[str, bytes] = {}
    rows: list[list[object]] = []
    small = bytearray()
    waiting: list[tuple[str, bytes]] = []

    def close() -> None:
        """The small files so far are a piece."""
        if not waiting:
            return
        name, at = named(pieces, bytes(small)), 0
        for file, octets in waiting:
            rows.append(row(file, octets, [[name, at, len(octets)]]))
            at += len(octets)
        small.clear()
        waiting.clear()

    for file, text in sorted(folder.items()):
        octets = text.encode("utf-8", "surrogateescape")
        if len(octets) < OWN:
            if len(small) + len(octets) > PIECE:
                close()
            small += octets
            waiting.append((file, octets))
        else:
            parts = [octets[at : at + PIECE] for at in range(0, len(octets), PIECE)]
            rows.append(row(file, octets, [[named(pieces, part), 0, len(part)] for part in parts]))
    close()
    return pieces, sorted(rows, key=lambda item: str(item[0]))


def named(pieces: dict[str, bytes], content: bytes) -> str:
    """Keep a piece under the name that its content gives it."""
    name = f"code-{hashlib.sha256(content).hexdigest()[:32]}"
    pieces[name] = content
    return name


def row(file: str, octets: bytes, parts: list[list[object]]) -> list[object]:
    """A file in the index."""
    return [file, len(octets), hashlib.sha256(octets).hexdigest(), parts]


def index(script: Script) -> dict[str, str]:
    """What the ConfigMap of the index holds."""
    rows = cut(script.folder)[1]
    text = json.dumps({"files": rows, "requirements": script.requirements}, ensure_ascii=True, separators=(",", ":"))
    return {INDEX: text, PROGRAM: Path(lay_out.__file__).read_text(encoding="utf-8")}


def maps(script: Script, namespace: str, labels: Mapping[str, str]) -> Iterator[Json]:
    """The ConfigMap of each piece."""
    for name, content in cut(script.folder)[0].items():
        meta: Json = {"name": name, "namespace": namespace, "labels": {**labels, LABEL: "piece"}}
        data = {"piece": base64.b64encode(content).decode()}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "binaryData": data}


def volumes(script: Script) -> list[Json]:
    """Where a pod gets the pieces from, and where its code will lie."""
    items = {name: [{"key": "piece", "path": name}] for name in cut(script.folder)[0]}
    sources = [{"configMap": {"name": name, "items": item}} for name, item in items.items()]
    return [{"name": PIECES_VOLUME, "projected": {"sources": sources}}, {"name": CODE_VOLUME, "emptyDir": {}}]


def mounts(folder: str) -> list[Json]:
    """Where a container sees them."""
    return [{"name": PIECES_VOLUME, "mountPath": PIECES_FOLDER, "readOnly": True},
            {"name": CODE_VOLUME, "mountPath": folder}]


def launcher(folder: str) -> list[str]:
    """What a container's command begins with."""
    return ["python3", "-I", f"{INDEX_FOLDER}/{PROGRAM}", f"{INDEX_FOLDER}/{INDEX}", PIECES_FOLDER, folder]


def is_piece(item: Json) -> bool:
    """Whether an object is a piece of code."""
    return item["kind"] == "ConfigMap" and LABEL in (item["metadata"].get("labels") or {})


def pieces_of(manifest: object) -> set[str]:
    """The pieces that a manifest or a live job names."""
    if isinstance(manifest, dict):
        if manifest.get("name") == PIECES_VOLUME and isinstance(source := manifest.get("projected"), dict):
            return {str(item["configMap"]["name"]) for item in source.get("sources") or [] if "configMap" in item}
        manifest = list(manifest.values())
    return set().union(*map(pieces_of, manifest)) if isinstance(manifest, list) else set()
