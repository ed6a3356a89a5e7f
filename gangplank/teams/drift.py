"""How live objects differ from what was rendered: path, wanted and live value of everything that somebody changed.

Unlike the differences of a job, to which controllers and webhooks may add, what stands in a part that is ours alone and
was not rendered is a difference too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.errors import shown
from gangplank.k8s.diff import spelled, unlike

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gangplank.k8s.diff import Path
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


def of_object(wanted: Json, live: Json) -> Iterator[tuple[str, object, object]]:
    """Where one live object is not as wanted: path, wanted and live value."""
    exact = EXACT.get(wanted["kind"], ())
    for part in dict.fromkeys((*wanted, *exact)):
        if part not in {"apiVersion", "kind", "metadata"}:
            yield from of_part((part,), wanted.get(part), live.get(part), exact=part in exact)
    for part in ("labels", "annotations"):
        ours, theirs = wanted["metadata"].get(part) or {}, live["metadata"].get(part) or {}
        mine = {key: value for key, value in theirs.items() if key in ours or key.startswith(OWN_KEYS)}
        yield from of_part(("metadata", part), ours, mine, exact=True)
    wanted_state = STATES.get(wanted["kind"])
    live_state = (live.get("status") or {}).get("state")
    if wanted_state and live_state and live_state != wanted_state:  # one that was just made has none yet
        yield STATE, wanted_state, live_state


def of_part(part: Path, wanted: object, live: object, *, exact: bool) -> Iterator[tuple[str, object, object]]:
    """Where a part of an object is not as wanted."""
    for path, ours, theirs in unlike(wanted, live, part, exact=exact, entries=True):
        yield spelled(path), ours, theirs
