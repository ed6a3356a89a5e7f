"""A job's manifests with comments: what a controller will add is where it will be, with its origin and reason.

The lines that are ours, read as YAML, are what is submitted. The others are known from the back-end's objects().
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS
from gangplank.backends.base import Maker, Site
from gangplank.backends.device_claims import claims_of
from gangplank.k8s.build import clone
from gangplank.k8s.dump import as_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gangplank.spec import JobSpec, Json

LISTED_BY = ("name", "mountPath", "containerPort", "key")  # what identifies an item of a list


CLAIMS = Maker("Kubernetes' resource claim controller", "devices for one pod, from the template above")


@dataclass(frozen=True)
class Block:
    """Lines of YAML that belong together; without `by` they are ours, else `by` adds them for the reason `why`."""

    indent: int  # spaces before each line
    lines: tuple[str, ...]
    by: str = ""
    why: str = ""


def explained(spec: JobSpec) -> Json:
    """All documents of a job as blocks of lines, and the objects that controllers add, ready for the template."""
    backend, site = BACKENDS[spec.backend], Site()
    manifests = backend.manifests(spec)
    objects = backend.objects(backend.by_itself(manifests[-1]), site)
    claims = list(claims_of(objects, manifests))
    documents = [[Block(0, dumped(item))] for item in manifests[:-1]]
    documents.append(merge_neighbours(job_blocks(spec.backend, manifests[-1], objects, site)))
    return {
        "name": spec.name,
        "namespace": spec.namespace,
        "backend": spec.backend,
        "documents": [
            {"kind": item["kind"], "name": item["metadata"]["name"], "blocks": [asdict(block) for block in blocks]}
            for item, blocks in zip(manifests, documents, strict=True)
        ],
        "made": list(objects_beside(spec.backend, [*objects, *claims])),
    }


def dumped(value: Any) -> tuple[str, ...]:
    """The lines of a value as YAML."""
    return tuple(as_yaml([value]).removesuffix("\n").split("\n"))


def job_blocks(backend: str, manifest: Json, objects: list[Json], site: Site) -> Iterator[Block]:
    """The blocks of the job itself, with its templates as the pods that they become."""
    first, last = (job_with_pods(backend, manifest, objects, site, at) for at in (0, -1))
    return fields(manifest, first, last, f"{backend}:", 0)


def job_with_pods(backend: str, manifest: Json, objects: list[Json], site: Site, at: int) -> Json:
    """The job as it is admitted, each template replaced by its first or last pod."""
    pods = [item for item in objects if item["kind"] == "Pod"]
    job, parts = BACKENDS[backend].templates(manifest, site)
    for part, label, value in parts:
        mine = [pod for pod in pods if pod["metadata"]["labels"].get(label) == value]
        if mine:
            meta = {key: mine[at]["metadata"][key] for key in TEMPLATE_META if key in mine[at]["metadata"]}
            part["template"] = {"metadata": meta, "spec": mine[at]["spec"]}
    return job


TEMPLATE_META = ("labels", "annotations", "finalizers")


def fields(ours: Json, first: Json, last: Any, path: str, indent: int) -> Iterator[Block]:
    """The fields of a mapping: our own, then those that only `first` has."""
    for key, value in ours.items():
        final, here = first.get(key, value), f"{path}.{key}"
        other = last.get(key) if isinstance(last, dict) else None
        if final == value:
            yield Block(indent, dumped({key: value}))
        elif isinstance(value, dict) and isinstance(final, dict):
            yield Block(indent, (head(key, value),))
            yield from fields(value, final, other, here, indent + 2)
        elif isinstance(value, list) and isinstance(final, list) and len(final) >= len(value):
            yield Block(indent, (head(key, value),))
            yield from items(value, final, other, here, indent)
        else:
            yield Block(indent, dumped({key: value}))
            yield from added_blocks(key, final, other, here, indent)
    for key, value in first.items():
        if key not in ours:
            other = last.get(key) if isinstance(last, dict) else None
            yield from added_blocks(key, value, other, f"{path}.{key}", indent)


def head(key: str, value: Any) -> str:
    """The line that opens a mapping or a list."""
    return dumped({key: type(value)()})[0].rsplit(" ", 1)[0] if value else dumped({key: value})[0]


def items(ours: list[Any], first: list[Any], last: Any, path: str, indent: int) -> Iterator[Block]:
    """The items of a list: controllers append, so ours come first."""
    twins = last if isinstance(last, list) and len(last) == len(first) else first
    for at, item in enumerate(first):
        here = f"{path}[{item_key(item, at)}]"
        if at >= len(ours):
            yield note(here, item != twins[at], Block(indent, dumped([item])))
        elif ours[at] == item or not isinstance(item, dict):
            yield Block(indent, dumped([ours[at]]))
        else:
            begin, *rest = fields(ours[at], item, twins[at], here, indent + 2)
            marked = (f"- {begin.lines[0]}", *(f"  {line}" for line in begin.lines[1:]))
            yield Block(indent, marked)
            yield from rest


def item_key(item: Any, at: int) -> str:
    """The name of a list's item in a path."""
    name = next((item[key] for key in LISTED_BY if key in item), at) if isinstance(item, dict) else at
    return str(name)


def added_blocks(key: str, value: Any, last: Any, path: str, indent: int) -> Iterator[Block]:
    """A field that a controller adds; one with parts of several origins is split."""
    parts: list[Block] = []
    if isinstance(value, dict):
        parts = list(fields({}, value, last, path, indent + 2)) if PARTED.search(path) else []
    elif isinstance(value, list):
        parts = list(items([], value, last, path, indent))
    if len({(part.by, part.why) for part in parts}) > 1:
        yield replace(parts[0], indent=indent, lines=(head(key, value),))
        yield from parts
    else:
        whole = Block(indent, dumped({key: value}))
        yield replace(whole, by=parts[0].by, why=parts[0].why) if parts else note(path, value != last, whole)


PARTED = re.compile(r"\.(labels|annotations)$")


def note(path: str, differs: bool, block: Block) -> Block:
    """The block with its origin and reason, from the first row of its back-end that matches its path."""
    backend, _, inside = path.partition(":")
    for pattern, by, why in BACKENDS[backend].adds:
        if re.search(pattern, inside):
            return replace(block, by=by, why=f"{why}; each pod has its own" if differs else why)
    raise LookupError(f"{path}: no row of Backend.adds matches")


def merge_neighbours(blocks: Iterable[Block]) -> list[Block]:
    """The blocks, with neighbours of one origin joined."""
    joined: list[Block] = []
    for block in blocks:
        before = joined[-1] if joined else None
        if before and (before.by, before.why) == (block.by, block.why) and before.indent <= block.indent:
            more = tuple(" " * (block.indent - before.indent) + line for line in block.lines)
            joined[-1] = replace(before, lines=before.lines + more)
        else:
            joined.append(block)
    return joined


def objects_beside(backend: str, objects: list[Json]) -> Iterator[Json]:
    """What controllers make besides the pods of the job's templates: the first of each kind, and how many more."""
    makes = {**BACKENDS[backend].makes, "ResourceClaim": CLAIMS}
    groups: dict[tuple[str, str], list[Json]] = {}
    for item in objects:
        if item["kind"] != "Pod" or "Pod" in makes:
            numbered = item["kind"] in {"Pod", "Service", "ResourceClaim"}
            series = re.sub(r"\d+", "N", item["metadata"]["name"]) if numbered else ""
            groups.setdefault((item["kind"], series), []).append(item)
    for (kind, _), group in groups.items():
        by, why = makes[kind]
        name, sample = group[0]["metadata"]["name"], clone(group[0])
        yield {"kind": kind, "name": name, "more": len(group) - 1, "by": by, "why": why, "lines": dumped(sample)}
