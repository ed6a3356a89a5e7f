"""How live objects differ from what was rendered: path, wanted and live value of everything that somebody changed.

Unlike live.differences, which lets controllers and webhooks add to a job, what stands in a part that is ours alone
and was not rendered is a difference too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from gangplank.errors import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

# The parts of an object that are ours alone, by kind. Of all other parts only what was rendered counts.
EXACT: dict[str, tuple[str, ...]] = {
    "ClusterRole": ("rules", "aggregationRule"),
    "RoleBinding": ("roleRef", "subjects"),
    "ResourceQuota": ("spec",),
    "LimitRange": ("spec",),
    "NetworkPolicy": ("spec",),
    "Queue": ("spec",),
    "PriorityClass": ("value", "globalDefault"),
    "ValidatingAdmissionPolicy": ("spec",),
    "ValidatingAdmissionPolicyBinding": ("spec",),
}
# What a kind's controller says of an object that is in use. It is changed by a Command, not by a write to the object.
STATES = {"Queue": "Open"}
STATE = "status.state"
OWN_KEYS = ("gangplank.dev/", "pod-security.kubernetes.io/")  # labels and annotations that are ours alone

Identity = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True)
class Difference:
    """One place where a live object is not as wanted; without a path the object itself is missing or too much."""

    kind: str
    namespace: str
    name: str
    path: str
    wanted: object
    live: object

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        if not self.path:
            return f"{self.kind} {place}: {'not there' if self.live is None else 'there, and no file wants it'}"
        return f"{self.kind} {place}: {self.path}: wanted {shown(self.wanted)}, live {shown(self.live)}"


def identity(item: Json) -> Identity:
    """What tells an object from all others.

    >>> identity({"kind": "Queue", "metadata": {"name": "vision"}})
    ('Queue', '', 'vision')
    """
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def drift(wanted: Sequence[Json], live: Sequence[Json]) -> list[Difference]:
    """Every difference, in the order of the wanted objects; a live object that nobody wants is none."""
    there = {identity(item): item for item in live}
    found: list[Difference] = []
    for item in wanted:
        own = identity(item)
        if own not in there:
            found.append(Difference(*own, "", "this object", None))
            continue
        found += [Difference(*own, *difference) for difference in of_object(item, there[own])]
    return found


Place = tuple[str, object, object]  # path, wanted, live


def of_object(wanted: Json, live: Json) -> Iterator[Place]:
    """Where one live object is not as wanted."""
    exact = EXACT.get(wanted["kind"], ())
    for part in dict.fromkeys((*wanted, *exact)):
        if part not in {"apiVersion", "kind", "metadata"}:
            yield from of_value(wanted.get(part), live.get(part), part, exact=part in exact)
    for part in ("labels", "annotations"):
        ours, theirs = wanted["metadata"].get(part) or {}, live["metadata"].get(part) or {}
        mine = {key: value for key, value in theirs.items() if key in ours or key.startswith(OWN_KEYS)}
        yield from of_value(ours, mine, f"metadata.{part}", exact=True)
    wanted_state = STATES.get(wanted["kind"])
    live_state = (live.get("status") or {}).get("state")
    if wanted_state and live_state and live_state != wanted_state:  # one that was just made has none yet
        yield STATE, wanted_state, live_state


def of_value(wanted: object, live: object, path: str, *, exact: bool) -> Iterator[Place]:
    """Where a value is not as wanted; an empty list or mapping is as good as none.

    >>> list(of_value({"a": [1, 2]}, {"a": [1], "b": 3}, "spec", exact=True))
    [('spec.a[1]', 2, None), ('spec.b', None, 3)]
    """
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key in dict.fromkeys((*wanted, *(live if exact else ()))):
            yield from of_value(wanted.get(key), live.get(key), joined(path, key), exact=exact)
    elif isinstance(wanted, list) and isinstance(live, list):
        for index, (one, other) in enumerate(zip_longest(wanted, live)):
            yield from of_value(one, other, f"{path}[{index}]", exact=exact)
    elif wanted != live and not (is_empty(wanted) and is_empty(live)):
        yield path, wanted, live


def joined(path: str, key: str) -> str:
    """The path of a field; a key with dots is put into brackets."""
    return f'{path}["{key}"]' if "." in key or "/" in key else f"{path}.{key}"


def is_empty(value: object) -> bool:
    """Whether the API server may leave a value out."""
    return value is None or value in ([], {}, "")
