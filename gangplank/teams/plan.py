"""What a run has to do, told apart by how it is done, and what will come of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.errors import shown
from gangplank.k8s import quantity
from gangplank.k8s.plan import Plan
from gangplank.teams.drift import EXACT, OWN_KEYS, STATE, Difference, drift, identity
from gangplank.teams.metadata import PART_LABEL, SHARED_PART, TEAM_PART, metadata

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gangplank.spec import Json
    from gangplank.teams.drift import Identity

# A field that the API server lets nobody change: the object is made anew.
FIXED = {
    "RoleBinding": ("roleRef",),
    "PriorityClass": ("value", "preemptionPolicy"),
    "ValidatingAdmissionPolicyBinding": (),
}
KEPT = ("Namespace", "PersistentVolumeClaim")  # what holds somebody's data goes only when it is named


@dataclass(frozen=True)
class Step:
    """Objects that are written in one call, each as a JSON merge patch where it is there already."""

    name: str
    objects: tuple[Json, ...]


@dataclass(frozen=True, kw_only=True)
class TeamsPlan(Plan):
    """What a run does for all teams. What is removed: what no file wants any more, and what has to be made again.

    Writes are JSON merge patches: what a hand has added to a part of ours is null in them.
    """

    differences: tuple[Difference, ...] = ()
    lower: tuple[Json, ...] = ()  # queues first brought down, so that no moment promises more than there is
    reopen: tuple[Json, ...] = ()  # Commands that open queues again, parents first
    count: int = 0  # of objects that the files want
    probe: str = ""  # a namespace in which the admission has to refuse a job of another queue; empty: do not wait

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.remove or self.steps)

    @property
    def steps(self) -> tuple[Step, ...]:
        """All that is written, in the order in which the cluster takes it."""
        claims = ("ServiceAccount", "PersistentVolumeClaim")  # after the quota that has to leave room for them
        namespaced = [item for item in self.write if item["metadata"].get("namespace")]
        order = {
            "queues that give up something": self.lower,
            "for all teams": [item for item in self.write if not item["metadata"].get("namespace")],
            "queues that were closed": self.reopen,
            "in the namespaces": sorted(namespaced, key=lambda item: item["kind"] in claims),
        }
        return tuple(Step(name, tuple(items)) for name, items in order.items() if items)


def plan(
    wanted: Sequence[Json], live: Sequence[Json], leaving: Collection[str] = (), spaces: Collection[str] = ()
) -> TeamsPlan:
    """What makes the live objects as wanted; teams without a file stay, and are told unless they are leaving.

    `spaces` are the names of all namespaces of the cluster.
    """
    differences = drift(wanted, live)
    changed = {(item.kind, item.namespace, item.name) for item in differences if item.path != STATE}
    closed = [item.name for item in differences if item.path == STATE]
    there = {identity(item): item for item in live}
    work = [item for item in wanted if identity(item) in changed]
    gone = surplus(wanted, live, leaving)
    anew = [there[identity(item)] for item in work if is_fixed(item, differences) and identity(item) in there]
    return TeamsPlan(
        differences=(*differences, *(Difference(*identity(item), "", None, "this object") for item in gone)),
        remove=(*gone, *anew),
        lower=tuple(lowered(work, there)),
        write=tuple(patch(item, there.get(identity(item))) for item in work),
        reopen=tuple(opening(name) for name in closed),
        refused=(*frozen(differences), *strangers(wanted, there, spaces)),
        notes=(*in_use(work, there), *orphans(wanted, live, leaving)),
    )


def patch(wanted: Json, live: Json | None) -> Json:
    """A merge patch that makes a live object as wanted: null for each key of ours that is too much.

    https://www.rfc-editor.org/rfc/rfc7386
    """
    if live is None:
        return wanted
    exact = EXACT.get(wanted["kind"], ())
    found = {key: without(value, live.get(key)) if key in exact else value for key, value in wanted.items()}
    meta = dict(wanted["metadata"])
    for part in ("labels", "annotations"):
        theirs = live["metadata"].get(part) or {}
        extra = {key: None for key in theirs if key.startswith(OWN_KEYS) and key not in (meta.get(part) or {})}
        if extra:
            meta[part] = {**(meta.get(part) or {}), **extra}
    more = {key: None for key in exact if live.get(key) and key not in wanted}
    return {**found, **more, "metadata": meta}


def without(wanted: object, live: object) -> object:
    """A value with null for each key that only the live one has; lists are replaced as they are.

    >>> without({"a": {"x": 1}}, {"a": {"x": 2, "y": 3}, "b": []})
    {'a': {'x': 1, 'y': None}, 'b': None}
    """
    if not isinstance(wanted, Mapping) or not isinstance(live, Mapping):
        return wanted
    extra = {key: None for key in live if key not in wanted}
    return {**{key: without(value, live.get(key)) for key, value in wanted.items()}, **extra}


def is_fixed(item: Json, differences: Sequence[Difference]) -> bool:
    """Whether an object differs in what cannot be changed."""
    parts = FIXED.get(item["kind"], ())
    own = [found.path for found in differences if (found.kind, found.namespace, found.name) == identity(item)]
    return any(path == part or path.startswith(f"{part}.") for path in own for part in parts)


def frozen(differences: Sequence[Difference]) -> list[str]:
    """Changes of claims that Kubernetes refuses: all but more storage."""
    found = []
    for item in differences:
        if item.kind != "PersistentVolumeClaim" or not item.path.startswith("spec"):
            continue
        sizes = isinstance(item.wanted, str) and isinstance(item.live, str) and item.path.endswith("storage")
        if not sizes or quantity.parse(str(item.wanted)) < quantity.parse(str(item.live)):
            found.append(f"{item}; a claim only ever grows. Fix: put it back, or add a claim of another name")
    return found


def strangers(wanted: Sequence[Json], there: Mapping[Identity, Json], spaces: Collection[str]) -> list[str]:
    """Namespaces that teams' files name and that are on the cluster already without being a team's."""
    return [
        f"team {team_of(item)}: namespace {shown(name)} is there and belongs to no team. Expected a namespace of the "
        f"team's own. Fix: another name under team.namespace, or hand it over: kubectl label namespace {name} "
        f"{PART_LABEL}={TEAM_PART[PART_LABEL]} {TEAM_LABEL}={team_of(item)}"
        for item in wanted
        if item["kind"] == "Namespace" and identity(item) not in there and (name := item["metadata"]["name"]) in spaces
    ]


def opening(queue: str) -> Json:
    """The Command that opens a queue; Volcano removes it when it has obeyed.

    https://volcano.sh/en/docs/queue/
    """
    meta = metadata(f"gangplank-open-{queue}")
    return {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {**meta, "namespace": "default"},  # never a team's, where it would be refused
        "action": "OpenQueue",
        "target": {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue, "uid": ""},
    }


def team_of(item: Json) -> str:
    """The team that an object belongs to; empty for one of all teams."""
    labels = item["metadata"].get("labels") or {}
    return str(labels.get(TEAM_LABEL, "")) if labels.get(PART_LABEL) != SHARED_PART[PART_LABEL] else ""


def surplus(wanted: Sequence[Json], live: Sequence[Json], leaving: Collection[str]) -> list[Json]:
    """Live objects of teams with a file, and of all teams, that no file wants any more: children before parents.

    What all teams share stays while one stays, with a file or without: it guards that one too.
    """
    mine = {identity(item) for item in wanted}
    teams = {team_of(item) for item in wanted} - {""}
    if teams or not {team_of(item) for item in live} - {"", *leaving}:
        teams.add("")
    found = [
        item for item in live if identity(item) not in mine and team_of(item) in teams and item["kind"] not in KEPT
    ]
    depths = {item["metadata"]["name"]: item["spec"].get("parent", "") for item in live if item["kind"] == "Queue"}

    def depth(item: Json) -> int:
        name, count = item["metadata"]["name"], 0
        while item["kind"] == "Queue" and depths.get(name) and count < len(depths):
            name, count = depths[name], count + 1
        return -count

    return sorted(found, key=depth)


def orphans(wanted: Sequence[Json], live: Sequence[Json], leaving: Collection[str]) -> list[str]:
    """Teams that have objects and no file, but for those that are leaving."""
    teams = {team_of(item) for item in wanted}
    lost = sorted({team_of(item) for item in live} - teams - {"", *leaving})
    return [
        f"team {name} has no file any more. Nothing of it is removed until -e teams_remove={name} names it"
        for name in lost
    ]


def lowered(work: Sequence[Json], there: Mapping[Identity, Json]) -> list[Json]:
    """Queues at the lesser of what they have and what they shall have, children first.

    Volcano's webhook looks at every queue as it is written: moving an amount from one queue to another has to take it
    away first.
    """
    found = []
    for item in work:
        live = there.get(identity(item))
        if item["kind"] != "Queue" or live is None:
            continue
        body = {**live["spec"]}
        for part, absent_is_none in (("deserved", True), ("capability", False)):
            body[part] = least(body.get(part) or {}, item["spec"].get(part) or {}, absent_is_none=absent_is_none)
        old, new = (one["spec"].get("guarantee", {}).get("resource") or {} for one in (live, item))
        body["guarantee"] = {"resource": least(old, new, absent_is_none=True)}
        if (
            any(body[part] != (live["spec"].get(part) or {}) for part in ("deserved", "capability"))
            or body["guarantee"]["resource"] != old
        ):
            spec = {key: value for key, value in body.items() if value not in ({}, None)}
            found.append(patch({**item, "spec": spec}, live))
    return found[::-1]


def least(old: Mapping[str, str], new: Mapping[str, str], *, absent_is_none: bool) -> dict[str, str]:
    """The lesser of two resource lists, name by name; what one does not name is nothing, or without bound.

    >>> least({"cpu": "4", "memory": "1Gi"}, {"cpu": "2"}, absent_is_none=True)
    {'cpu': '2'}
    """
    names = [name for name in old if name in new] if absent_is_none else list(dict.fromkeys((*old, *new)))
    found = {}
    for name in names:
        both = [text for text in (old.get(name), new.get(name)) if text is not None]
        found[name] = min(both, key=quantity.parse)
    return found


def in_use(work: Sequence[Json], there: Mapping[Identity, Json]) -> list[str]:
    """What becomes of quotas that are less than what is used."""
    found = []
    for item in work:
        if item["kind"] != "ResourceQuota":
            continue
        used = (there.get(identity(item), {}).get("status") or {}).get("used") or {}
        for name, text in item["spec"]["hard"].items():
            if name in used and quantity.parse(text) < quantity.parse(used[name]):
                team = team_of(item)
                found.append(
                    f"team {team}: {name} becomes {text} while {used[name]} is in use. What runs goes on; "
                    f"nothing new starts until less than {text} is used"
                )
    return found
