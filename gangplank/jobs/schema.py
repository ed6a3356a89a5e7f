"""The JSON schema of a job file, recorded from the readers of parse.py: each notes what it would accept.

https://json-schema.org/draft-07. Rules over several fields (rules.py) are not in it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gangplank.backends import wiring
from gangplank.jobs import parse
from gangplank.k8s import names, quantity
from gangplank.k8s.nodes import EFFECTS
from gangplank.reading.fields import Fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

Json = dict[str, Any]
LONGEST = re.compile(r"\(\?=\.\{1,(\d+)\}\$\)|(?<=\])\{0,(\d{4,})\}")  # what Go's regular expressions lack
TEXT = {"type": "string", "pattern": r"^[^\x00-\x1f\x7f]*$"}
KEY = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
VALUE = {"type": "string", "pattern": r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"}
TOLERATION = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "key": {"type": "string", "pattern": f"^$|{KEY}"},
        "operator": {"enum": ["Exists", "Equal"]},
        "value": VALUE,
        "effect": {"enum": [*EFFECTS]},
        "tolerationSeconds": {"type": "integer"},
    },
}


def unlike(words: Iterable[str], prefixes: Iterable[str]) -> Json:
    """Any text but some words and what begins with one of some prefixes."""
    whole, begin = "|".join(map(re.escape, sorted(words))), "|".join(map(re.escape, prefixes))
    return {"not": {"pattern": f"^({whole})$|^({begin})"}}


def variable_pairs() -> Json:
    """What parse.env_problem lets pass."""
    reserved = unlike(wiring.RESERVED, wiring.RESERVED_PREFIXES)
    keys = {"pattern": f"^{names.ENV.pattern}$", "anyOf": [{"enum": sorted(wiring.SETTABLE)}, reserved]}
    seconds = {"type": "string", "pattern": f"^{wiring.SECONDS.pattern}$"}
    times = dict.fromkeys(sorted(wiring.SETTABLE), seconds)
    return {"propertyNames": keys, "properties": times, "additionalProperties": {"type": "string"}}


def annotation_pairs() -> Json:
    """What parse.annotation_problem lets pass."""
    return {"propertyNames": {"pattern": KEY}, "additionalProperties": {"type": "string"}}


def label_pairs() -> Json:
    """What parse.label_problem lets pass."""
    owned = parse.owned_prefixes()
    keys = {"pattern": KEY, **unlike(owned, (f"{prefix}/" for prefix in owned))}
    return {"propertyNames": keys, "additionalProperties": VALUE}


PAIRS: dict[Callable[[str, str], str], Callable[[], Json]] = {
    parse.env_problem: variable_pairs,
    parse.annotation_problem: annotation_pairs,
    parse.label_problem: label_pairs,
}


def pattern(ok: re.Pattern[str]) -> Json:
    """A pattern as JSON schema and Go's regular expressions have it, with the length limit on its own.

    >>> pattern(re.compile("(?=.{1,253}$)[a-z]+"))
    {'pattern': '^([a-z]+)$', 'maxLength': 253}
    """
    form: Json = {"pattern": f"^({LONGEST.sub(lambda hit: '*' if hit[2] else '', ok.pattern)})$"}
    if hit := LONGEST.search(ok.pattern):
        form["maxLength"] = int(hit[1] or hit[2])
    return form


class Everything(dict[str, Any]):
    """A mapping that has a mapping for each field, so that readers take the longer of two forms."""

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ARG002  dict's own signature
        """A mapping, for any key."""
        return Everything()


class Described(Fields):
    """Missing fields: the form that each reader expects is recorded instead of read."""

    def __init__(self, *, long: bool) -> None:
        super().__init__(None, "", [])
        self.long, self.properties, self.required = long, dict[str, Json](), list[str]()
        self.map = Everything() if long else {}
        self.inside: dict[str, Described] = {}

    def note(self, name: str, form: Json, *, need: bool = False) -> None:
        """Record a field and its form."""
        self.properties[name] = form
        if need:
            self.required.append(name)

    def raw(self, name: str) -> Any:
        """Nothing, or a mapping if the longer form is wanted."""
        return self.map.get(name)

    def text(
        self, name: str, default: str = "", *, need: bool = False, what: str = "text", ok: re.Pattern[str] | None = None
    ) -> str:
        """Text."""
        self.note(name, {"description": what, "type": "string", **(pattern(ok) if ok else TEXT)}, need=need)
        return default

    def choice(self, name: str, default: str, options: Collection[str]) -> str:
        """One of a few words."""
        self.note(name, {"enum": [option for option in options if option]})
        return default

    def integer(self, name: str, default: int, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """A whole number."""
        self.note(name, {"type": "integer", "minimum": minimum, "maximum": maximum})
        return default

    def maybe(self, name: str, minimum: int = 0) -> int | None:
        """A whole number that may be left out."""
        self.integer(name, minimum, minimum)
        return None

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """A number."""
        self.note(name, {"type": "number", "minimum": minimum, "maximum": maximum})
        return default

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false."""
        self.note(name, {"type": "boolean"})
        return default

    def quantity(
        self, name: str, default: str = "", *, need: bool = False, what: str = "a Kubernetes quantity, e.g. 500m or 1Gi"
    ) -> str:
        """A quantity; a bare number counts."""
        form = {"description": what, "type": ["string", "number"], "pattern": f"^{quantity.PATTERN}$"}
        self.note(name, {**form, "exclusiveMinimum": 0}, need=need)
        return default

    def words(self, name: str) -> tuple[str, ...]:
        """A list of text."""
        self.note(name, {"type": "array", "items": {"type": "string"}})
        return ()

    def mappings(self, name: str) -> tuple[dict[str, Any], ...]:
        """A list of what Kubernetes owns; of these only tolerations are portable."""
        portable = "tolerations" in name
        self.note(name, {"type": "array", "items": TOLERATION if portable else {"type": "object", "minProperties": 1}})
        return ()

    def pairs(self, name: str, check: Callable[[str, str], str] | None = None) -> dict[str, str]:
        """A mapping from text to text."""
        form = PAIRS[check]() if check else {"additionalProperties": {"type": "string"}}
        self.note(name, {"type": "object", **form})
        return {}

    def inner(self, name: str) -> Described:
        """A mapping of fields; read twice, it is recorded once."""
        return self.inside.setdefault(name, Described(long=self.long))

    def each(self, name: str) -> list[Fields]:
        """A list of mappings of fields: one stands for all."""
        item = Described(long=self.long)
        self.inside[f"{name}[]"] = item
        return [item]

    def done(self) -> None:
        """Nothing is refused."""

    def form(self) -> Json:
        """The recorded fields, as a schema."""
        properties = dict(self.properties)
        for name, part in self.inside.items():
            inner = part.form()
            properties[name.removesuffix("[]")] = {"type": "array", "items": inner} if name.endswith("[]") else inner
        schema: Json = {"type": "object", "additionalProperties": False, "properties": properties}
        return {**schema, "required": self.required} if self.required else schema


def merge_forms(short: Json, long: Json) -> Json:
    """One schema of two recordings, in which a field may have a short form or a long one."""
    if short.get("type") != "object" or long.get("type") != "object" or "properties" not in short:
        return short if short == long else {"anyOf": [short, long]}
    mine, other = short["properties"], long["properties"]
    merged = {name: merge_forms(mine[name], other[name]) if name in mine else other[name] for name in other}
    return {**short, "properties": {**mine, **merged}}


def job() -> Json:
    """The schema of the value of training_job."""
    forms = []
    for long in (False, True):
        fields = Described(long=long)
        parse.read_job(fields, {})
        forms.append(fields.form())
    return merge_forms(*forms)
