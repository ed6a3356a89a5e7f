"""What a run has to do, sorted by how it is done, and what it will lead to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s import quantity
from gangplank.k8s.plan import Plan
from gangplank.teams.drift import EXACT, OWN_KEYS, STATE, Difference, drift, identity
from gangplank.teams.metadata import metadata, team_of
from gangplank.teams.namespaces import foreign, taken

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gangplank.spec import Json
    from gangplank.teams.drift import Identity

# Fields that the API server never lets anyone change: the object is replaced.
FIXED = {
    "ClusterRoleBinding": ("roleRef",),
    "RoleBinding": ("roleRef",),
    "PriorityClass": ("value", "preemptionPolicy"),
    "ValidatingAdmissionPolicyBinding": (),
}
LATER = ("Namespace", "RoleBinding")  # kinds whose new objects have a step of their own
GUARDS = ("LimitRange", "NetworkPolicy", "ResourceQuota")
CLAIMABLE = ("Queue", "PriorityClass")  # kinds whose objects have names of the inventory, in the whole cluster
KEPT = ("Namespace", "PersistentVolumeClaim")  # they hold data: removed only when they are named


@dataclass(frozen=True)
class Step:
    """Objects that are written in one call, each as a JSON merge patch if it already exists."""

    name: str
    objects: tuple[Json, ...]


@dataclass(frozen=True, kw_only=True)
class TeamsPlan(Plan):
    """What a run does for all teams; it removes what the inventory no longer describes and what has to be replaced.

    Writes are JSON merge patches: a manual addition to a part of ours is null in them. Commands, which are written too,
    reopen queues, parents first.
    """

    lower: tuple[Json, ...] = ()  # queues that are lowered first, so that the cluster never promises more than it has
    new: frozenset[Identity] = frozenset()  # objects that do not exist yet
    probe: tuple[str, ...] = ()  # namespaces in which the admission must refuse a job before new members get access
    probes: tuple[Json, ...] = ()  # the objects that it must refuse there
    count: int = 0  # of objects that the files describe

    @property
    def steps(self) -> tuple[Step, ...]:
        """All that is written, in an order that the cluster accepts."""
        claims = ("ServiceAccount", "PersistentVolumeClaim")  # after the quota, which must leave room for them
        objects = [item for item in self.write if item["kind"] != "Command"]
        spaces, bindings = ([item for item in objects if is_new(item, kind, self.new)] for kind in LATER)
        others = [item for item in objects if item["kind"] not in LATER or identity(item) not in self.new]
        namespaced = [item for item in others if item["metadata"].get("namespace")]
        order = {
            "queues that give up something": self.lower,
            "for all teams": [item for item in others if not item["metadata"].get("namespace")],
            "new namespaces": spaces,  # created: a merge would take over one that exists
            "queues that were closed": [item for item in self.write if item["kind"] == "Command"],
            "in the namespaces": sorted(namespaced, key=lambda item: item["kind"] in claims),
            "access": bindings,  # once the admission has been probed
        }
        return tuple(Step(name, tuple(items)) for name, items in order.items() if items)


def plan(
    desired: Sequence[Json],
    live: Sequence[Json],
    leaving: Collection[str] = (),
    namespaces: Collection[str] = (),
    others: Collection[Identity] = (),
) -> TeamsPlan:
    """What turns the live objects into the desired ones; teams without a file stay, noted unless they are leaving.

    `namespaces` are the names of all namespaces of the cluster, `others` its queues and priorities without our labels.
    """
    differences = drift(desired, live)
    changed = {(item.kind, item.namespace, item.name) for item in differences if item.path != STATE}
    closed = [item.name for item in differences if item.path == STATE]
    live_objects = {identity(item): item for item in live}
    work = [item for item in desired if identity(item) in changed]
    new = frozenset(identity(item) for item in work if identity(item) not in live_objects)
    superfluous = surplus(desired, live, leaving)
    replaced = [
        live_objects[identity(item)]
        for item in work
        if changes_fixed_field(item, differences) and identity(item) in live_objects
    ]
    return TeamsPlan(
        differences=(*differences, *(Difference(*identity(item), "", None, "this object") for item in superfluous)),
        remove=(*superfluous, *replaced),
        lower=tuple(lowered_queues(work, live_objects)),
        write=(*(patch(item, live_objects.get(identity(item))) for item in work), *map(open_command, closed)),
        new=new,
        probe=probed(desired, work, new),
        refused=(
            *claim_problems(differences),
            *foreign_namespaces(desired, live_objects, namespaces),
            *foreign_objects(desired, live_objects, others),
        ),
        notes=(*exceeded_quotas(work, live_objects), *orphans(desired, live, leaving)),
    )


def is_new(item: Json, kind: str, new: Collection[Identity]) -> bool:
    """Whether an object is of a kind and does not exist yet."""
    return item["kind"] == kind and identity(item) in new


def probed(desired: Sequence[Json], work: Sequence[Json], new: Collection[Identity]) -> tuple[str, ...]:
    """The namespaces in which the admission is probed: those whose members are new, and all if policies change."""
    guards = any(item["kind"].startswith("ValidatingAdmission") for item in work)
    bindings = [
        item for item in desired if item["kind"] == "RoleBinding" and (guards or is_new(item, "RoleBinding", new))
    ]
    return tuple(sorted({item["metadata"]["namespace"] for item in bindings}))


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


def changes_fixed_field(item: Json, differences: Sequence[Difference]) -> bool:
    """Whether an object differs in a field that cannot be changed."""
    parts = FIXED.get(item["kind"], ())
    paths = [one.path for one in differences if (one.kind, one.namespace, one.name) == identity(item)]
    return any(path == part or path.startswith(f"{part}.") for path in paths for part in parts)


def claim_problems(differences: Sequence[Difference]) -> list[str]:
    """Changes of claims that Kubernetes refuses: everything but more storage."""
    problems = []
    for item in differences:
        if item.kind != "PersistentVolumeClaim" or not item.path.startswith("spec"):
            continue
        sizes = isinstance(item.desired, str) and isinstance(item.live, str) and item.path.endswith("storage")
        if not sizes or quantity.parse(str(item.desired)) < quantity.parse(str(item.live)):
            problems.append(f"{item}; a claim only ever grows. Fix: restore it, or add a claim with another name")
    return problems


def foreign_namespaces(
    desired: Sequence[Json], live_objects: Mapping[Identity, Json], namespaces: Collection[str]
) -> list[str]:
    """Namespaces that teams' files name and that already exist without belonging to the team."""
    existing = [
        item
        for item in desired
        if item["kind"] == "Namespace" and (item["metadata"]["name"] in namespaces or identity(item) in live_objects)
    ]
    return [line for item in existing if (line := foreign(item, live_objects.get(identity(item))))]


def foreign_objects(
    desired: Sequence[Json], live_objects: Mapping[Identity, Json], others: Collection[Identity]
) -> list[str]:
    """Queues and priorities of the inventory that exist already, and are an administrator's or of a team that left it.

    A write would take them over, and the removal of a team would delete them.
    """
    teams = {"", *map(team_of, desired)}
    pairs = [(item, live_objects.get(identity(item))) for item in desired if item["kind"] in CLAIMABLE]
    return [
        taken(item, live)
        for item, live in pairs
        if identity(item) in others or (live is not None and team_of(live) not in teams)
    ]


def open_command(queue: str) -> Json:
    """The Command that opens a queue; Volcano deletes it once obeyed.

    https://volcano.sh/en/docs/queue/
    """
    meta, command, target = metadata(f"gangplank-open-{queue}"), QUEUE_SYSTEM.command, QUEUE_SYSTEM.queue
    return {
        "apiVersion": command.api_version,
        "kind": command.kind,
        "metadata": {**meta, "namespace": "default"},  # in a team's namespace it would be refused
        "action": "OpenQueue",
        "target": {"apiVersion": target.api_version, "kind": target.kind, "name": queue, "uid": ""},
    }


def surplus(desired: Sequence[Json], live: Sequence[Json], leaving: Collection[str]) -> list[Json]:
    """Live objects of teams of the inventory, and of all teams, that it does not describe any more: children first.

    What all teams share stays as long as any team exists, with a file or without: it guards that team too. What guards
    a namespace that its team left stays with it, as do its jobs.
    """
    described = {identity(item) for item in desired}
    spaces = {item["metadata"].get("namespace", "") for item in desired}
    teams = {team_of(item) for item in desired} - {""}
    if teams or not {team_of(item) for item in live} - {"", *leaving}:
        teams.add("")
    superfluous = [
        item
        for item in live
        if identity(item) not in described
        and team_of(item) in teams
        and item["kind"] not in KEPT
        and (item["kind"] not in GUARDS or item["metadata"].get("namespace", "") in spaces)
    ]
    queues = [item for item in live if item["kind"] == "Queue"]
    parents = {item["metadata"]["name"]: (item.get("spec") or {}).get("parent", "") for item in queues}

    def height(item: Json) -> int:
        name, count = item["metadata"]["name"], 0
        while item["kind"] == "Queue" and parents.get(name) and count < len(parents):
            name, count = parents[name], count + 1
        return -count

    return sorted(superfluous, key=height)


def orphans(desired: Sequence[Json], live: Sequence[Json], leaving: Collection[str]) -> list[str]:
    """Teams that have objects but no file, except those that are leaving, and namespaces that a team left."""
    teams = {team_of(item) for item in desired}
    names = sorted({team_of(item) for item in live} - teams - {"", *leaving})
    described = {identity(item) for item in desired}
    spaces = [item for item in live if item["kind"] == "Namespace" and identity(item) not in described]
    left = [(team_of(item), item["metadata"]["name"]) for item in spaces if team_of(item) in teams]
    return [
        *(
            f"team {name} is no longer in the inventory. Nothing of it is removed until -e teams_remove={name} names it"
            for name in names
        ),
        *(
            f"team {name} left the namespace {space}, which stays with its jobs, quota and NetworkPolicies. No member "
            f"has access. kubectl delete namespace {space} deletes it with all its data"
            for name, space in left
        ),
    ]


def lowered_queues(work: Sequence[Json], live_objects: Mapping[Identity, Json]) -> list[Json]:
    """Queues at the lesser of their live and their desired amounts, children first.

    Volcano's webhook checks every queue as it is written: an amount that moves from one queue to another must first be
    taken away.
    """
    patches = []
    for item in work:
        live = live_objects.get(identity(item))
        if item["kind"] != "Queue" or live is None:
            continue
        before = live.get("spec") or {}
        body = {**before}
        for part, absent_is_none in (("deserved", True), ("capability", False)):
            body[part] = least(body.get(part) or {}, item["spec"].get(part) or {}, absent_is_none=absent_is_none)
        old, new = ((one.get("guarantee") or {}).get("resource") or {} for one in (before, item["spec"]))
        body["guarantee"] = {"resource": least(old, new, absent_is_none=True)}
        if (
            any(body[part] != (before.get(part) or {}) for part in ("deserved", "capability"))
            or body["guarantee"]["resource"] != old
        ):
            spec = {key: value for key, value in body.items() if value not in ({}, None)}
            patches.append(patch({**item, "spec": spec}, live))
    return patches[::-1]


def least(old: Mapping[str, str], new: Mapping[str, str], *, absent_is_none: bool) -> dict[str, str]:
    """The lesser of two resource lists, name by name; a resource that one list omits is zero there, or unlimited.

    >>> least({"cpu": "4", "memory": "1Gi"}, {"cpu": "2"}, absent_is_none=True)
    {'cpu': '2'}
    """
    names = [name for name in old if name in new] if absent_is_none else list(dict.fromkeys((*old, *new)))
    amounts = {}
    for name in names:
        both = [text for text in (old.get(name), new.get(name)) if text is not None]
        amounts[name] = min(both, key=quantity.parse)
    return amounts


def exceeded_quotas(work: Sequence[Json], live_objects: Mapping[Identity, Json]) -> list[str]:
    """What happens where a new quota is below current use."""
    notes = []
    for item in work:
        if item["kind"] != "ResourceQuota":
            continue
        used = (live_objects.get(identity(item), {}).get("status") or {}).get("used") or {}
        for name, text in item["spec"]["hard"].items():
            if name in used and quantity.parse(text) < quantity.parse(used[name]):
                team = team_of(item)
                notes.append(
                    f"team {team}: {name} becomes {text} while {used[name]} is in use. Running work continues; "
                    f"nothing new starts until less than {text} is used"
                )
    return notes
