"""How live objects differ from the rendered ones: path, wanted value and live value of everything that was changed.

Controllers and webhooks may add to a job, and such additions do not count. Here they do: an addition to a part that is
ours alone is a difference too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.errors import shown
from gangplank.k8s.diff import spelled, unlike

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gangplank.k8s.diff import Path
    from gangplank.spec import Json

# The parts of an object that are ours alone, by kind. Of all other parts only the rendered fields are compared.
EXACT: dict[str, tuple[str, ...]] = {
    "ClusterRole": ("rules", "aggregationRule"),
    "ClusterRoleBinding": ("roleRef", "subjects"),
    "RoleBinding": ("roleRef", "subjects"),
    "ResourceQuota": ("spec",),
    "LimitRange": ("spec",),
    "NetworkPolicy": ("spec",),
    "Queue": ("spec",),
    "PriorityClass": ("value", "globalDefault"),
    "ValidatingAdmissionPolicy": ("spec",),
    "ValidatingAdmissionPolicyBinding": ("spec",),
}
# The state that a kind's controller reports for a usable object. A Command changes it, not a write to the object.
STATES = {"Queue": "Open"}
STATE = "status.state"
OWN_KEYS = ("gangplank.dev/", "pod-security.kubernetes.io/")  # labels and annotations that are ours alone

Identity = tuple[str, str, str]  # kind, namespace, name


@dataclass(frozen=True)
class Difference:
    """One place where a live object differs; without a path the object itself is missing or superfluous."""

    kind: str
    namespace: str
    name: str
    path: str
    desired: object
    live: object

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        if not self.path:
            state = "missing" if self.live is None else "exists, but the inventory does not describe it"
            return f"{self.kind} {place}: {state}"
        return f"{self.kind} {place}: {self.path}: wanted {shown(self.desired)}, live {shown(self.live)}"


def identity(item: Json) -> Identity:
    """What distinguishes an object from all others.

    >>> identity({"kind": "Queue", "metadata": {"name": "vision"}})
    ('Queue', '', 'vision')
    """
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def drift(desired: Sequence[Json], live: Sequence[Json]) -> list[Difference]:
    """Every difference, in the order of the desired objects; superfluous live objects do not count."""
    live_objects = {identity(item): item for item in live}
    differences: list[Difference] = []
    for item in desired:
        own = identity(item)
        if own not in live_objects:
            differences.append(Difference(*own, "", "this object", None))
            continue
        differences += [Difference(*own, *difference) for difference in compare_objects(item, live_objects[own])]
    return differences


def compare_objects(desired: Json, live: Json) -> Iterator[tuple[str, object, object]]:
    """Where one live object differs: path, desired and live value."""
    exact = EXACT.get(desired["kind"], ())
    for part in dict.fromkeys((*desired, *exact)):
        if part not in {"apiVersion", "kind", "metadata"}:
            yield from compare_parts((part,), desired.get(part), live.get(part), exact=part in exact)
    for part in ("labels", "annotations"):
        ours, theirs = desired["metadata"].get(part) or {}, live["metadata"].get(part) or {}
        mine = {key: value for key, value in theirs.items() if key in ours or key.startswith(OWN_KEYS)}
        yield from compare_parts(("metadata", part), ours, mine, exact=True)
    desired_state = STATES.get(desired["kind"])
    live_state = (live.get("status") or {}).get("state")
    if desired_state and live_state and live_state != desired_state:  # a new object does not have a state yet
        yield STATE, desired_state, live_state


def compare_parts(part: Path, desired: object, live: object, *, exact: bool) -> Iterator[tuple[str, object, object]]:
    """Where one part of an object differs."""
    for path, ours, theirs in unlike(desired, live, part, exact=exact, entries=True):
        yield spelled(path), ours, theirs


def patch(desired: Json, live: Json | None) -> Json:
    """A merge patch that turns a live object into the desired one: null for each superfluous key of ours.

    https://www.rfc-editor.org/rfc/rfc7386
    """
    if live is None:
        return desired
    exact = EXACT.get(desired["kind"], ())
    fields = {key: merge_patch(value, live.get(key)) if key in exact else value for key, value in desired.items()}
    meta = dict(desired["metadata"])
    for part in ("labels", "annotations"):
        theirs = live["metadata"].get(part) or {}
        extra = {key: None for key in theirs if key.startswith(OWN_KEYS) and key not in (meta.get(part) or {})}
        if extra:
            meta[part] = {**(meta.get(part) or {}), **extra}
    more = {key: None for key in exact if live.get(key) and key not in desired}
    return {**fields, **more, "metadata": meta}


def merge_patch(desired: object, live: object) -> object:
    """A value with null for each key that only the live one has; lists are replaced as a whole.

    >>> merge_patch({"a": {"x": 1}}, {"a": {"x": 2, "y": 3}, "b": []})
    {'a': {'x': 1, 'y': None}, 'b': None}
    """
    if not isinstance(desired, Mapping) or not isinstance(live, Mapping):
        return desired
    extra = {key: None for key in live if key not in desired}
    return {**{key: merge_patch(value, live.get(key)) for key, value in desired.items()}, **extra}
