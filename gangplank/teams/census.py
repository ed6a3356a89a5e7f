"""The census of fields: every field that a member may set, and what is decided about it (census.yml).

A built-in kind's fields are found through the references of the API server's OpenAPI documents. Those of a custom
resource are inlined there; what census.yml names `inside TYPE` is looked up under that type.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gangplank.spec import Json

FILE = "census.yml"
VERDICTS = ("controller", "harmless", "inside", "judged", "refused")
WHOLE = ("harmless", "judged")  # verdicts that say nothing of what lies below a field
REFERENCE = "$ref"


class Field(NamedTuple):
    """One field of one type."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}.{self.name}"


class Kind(NamedTuple):
    """A kind that a member may create or change, and the type of its objects."""

    api_version: str
    kind: str
    plural: str
    type: str


@dataclass(frozen=True)
class Census:
    """What is decided: the kinds, the reasons and a verdict for each field."""

    kinds: tuple[Kind, ...]
    reasons: Mapping[str, str]
    verdicts: Mapping[Field, str]

    def inside(self, field: Field) -> str:
        """The type of a field whose own fields have rows; empty for all others."""
        verdict, _, name = self.verdicts.get(field, "").partition(" ")
        return name if verdict == "inside" else ""

    def rules(self, field: Field) -> tuple[str, ...]:
        """The rules that judge a field."""
        verdict, _, names = self.verdicts[field].partition(" ")
        return tuple(names.split(", ")) if verdict == "judged" else ()

    def with_verdict(self, verdict: str) -> list[Field]:
        """The fields with exactly this verdict, in the order of the file."""
        return [field for field, text in self.verdicts.items() if text == verdict]


@functools.cache
def load() -> Census:
    """The census as it is reviewed."""
    text = resources.files(__package__).joinpath(FILE).read_text("utf-8")
    value = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  safe too, and ten times as fast
    rows = {Field(name, field): text for name, fields in value["types"].items() for field, text in fields.items()}
    return Census(tuple(Kind(**kind) for kind in value["kinds"]), value["reasons"], rows)


def items_of(schema: Json) -> Json:
    """The schema of what a list or a map of lists and maps holds in the end."""
    while True:
        more = schema.get("additionalProperties")
        if schema.get("type") == "array":
            schema = schema["items"]
        elif isinstance(more, dict):
            schema = more
        else:
            return schema


def kinds_of(schemas: Mapping[str, Json]) -> dict[tuple[str, str], Json]:
    """The schemas of whole kinds, by API version and kind."""
    return {
        (f"{row['group']}/{row['version']}".lstrip("/"), row["kind"]): schema
        for schema in schemas.values()
        for row in schema.get("x-kubernetes-group-version-kind", [])
    }


def resolve(schema: Json, schemas: Mapping[str, Json]) -> tuple[str, Json]:
    """The name of the type that a schema refers to, and that type's schema; for an inlined one, no name and itself."""
    for part in (schema, *schema.get("allOf", [])):
        if REFERENCE in part:
            name = part[REFERENCE].rpartition("/")[2]
            return name.rpartition(".")[2], schemas[name]
    return "", schema


def fields(documents: Iterable[Json], census: Census) -> set[Field]:
    """Every field of the census's kinds that the API server's OpenAPI v3 documents show.

    ValueError for a kind that none of them has, and for a type whose name in census.yml is not the server's.
    """
    schemas: dict[str, Json] = {}
    for document in documents:
        schemas |= document["components"]["schemas"]
    seen: set[Field] = set()

    def walk(schema: Json, name: str, path: tuple[str, ...]) -> None:
        for key, value in schema.get("properties", {}).items():
            field = Field(name, key)
            seen.add(field)
            inner, (own, below) = census.inside(field), resolve(items_of(value), schemas)
            if census.verdicts.get(field, "").startswith(WHOLE) and below.get("properties"):
                seen.add(Field(name, f"{key}.*"))  # a row is one field, never what lies below it
            if not inner or inner in path:
                continue
            if own and own != inner:
                msg = f"{field}: got inside {inner}, expected inside {own}. Fix: correct the row in {FILE}"
                raise ValueError(msg)
            if not below.get("properties"):
                msg = f"{field}: got a field without fields, expected those of {inner}. Fix: decide on it in {FILE}"
                raise ValueError(msg)
            walk(below, inner, (*path, inner))

    by_kind = kinds_of(schemas)
    for kind in census.kinds:
        if (kind.api_version, kind.kind) not in by_kind:
            msg = f"{kind.api_version} {kind.kind}: got no schema, expected the API server to document it"
            raise ValueError(msg)
        walk(by_kind[kind.api_version, kind.kind], kind.type, ())
    return seen


def set_fields(manifest: Json, census: Census) -> Iterator[Field]:
    """The fields that a manifest of one of the census's kinds sets."""

    def walk(value: Any, name: str) -> Iterator[Field]:
        for key, part in value.items() if isinstance(value, dict) else ():
            field = Field(name, key)
            if field in census.verdicts:
                yield field
            if inner := census.inside(field):
                for item in objects_in(part, name=inner, census=census):
                    yield from walk(item, inner)

    kinds = {(kind.api_version, kind.kind): kind.type for kind in census.kinds}
    name = kinds.get((manifest["apiVersion"], manifest["kind"]))
    yield from walk(manifest, name) if name else ()


def objects_in(value: Any, name: str, census: Census) -> Iterator[Json]:
    """The objects of a type in a field: the field itself, the items of a list, or the values of a map."""
    if isinstance(value, list):
        for item in value:
            yield from objects_in(item, name, census)
    elif isinstance(value, dict):
        if any(Field(name, key) in census.verdicts for key in value):
            yield value
        else:
            for item in value.values():
                yield from objects_in(item, name, census)
