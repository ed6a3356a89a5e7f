"""What a run has to do, sorted by how it is done, and what it will lead to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.k8s import quantity
from gangplank.k8s.plan import Plan
from gangplank.teams.drift import STATE, Difference, drift, identity, patch
from gangplank.teams.lowering import depths, leavers, lowered_queues, moving_queues, parents_left
from gangplank.teams.metadata import metadata, team_of
from gangplank.teams.namespaces import foreign, taken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

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

    remove_last: tuple[Json, ...] = ()  # queues whose children move to other parents first
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
    left = parents_left(work, live_objects, superfluous)
    first = [item for item in superfluous if item not in left]
    gone = set(map(identity, first))
    remaining = {key: item for key, item in live_objects.items() if key not in gone}
    moving = leavers(work, remaining, left)
    replaced = [
        live_objects[identity(item)]
        for item in work
        if changes_fixed_field(item, differences) and identity(item) in live_objects
    ]
    return TeamsPlan(
        differences=(*differences, *absent(superfluous)),
        remove=(*first, *replaced),
        remove_last=tuple(left),
        lower=tuple(lowered_queues(work, remaining, left, moving)),
        write=(*(patch(item, live_objects.get(identity(item))) for item in work), *map(open_command, closed)),
        new=new,
        probe=probed(desired, work, new),
        refused=(
            *claim_problems(differences),
            *foreign_namespaces(desired, live_objects, namespaces),
            *foreign_objects(desired, live_objects, others),
        ),
        notes=(
            *exceeded_quotas(work, live_objects),
            *moving_queues(moving),
            *orphans(desired, live, leaving),
        ),
    )


def absent(objects: Iterable[Json]) -> Iterator[Difference]:
    """What a run reports of objects that it removes."""
    return (Difference(*identity(item), "", None, "this object") for item in objects)


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
    depth = {("Queue", "", name): count for name, count in depths(live).items()}
    return sorted(superfluous, key=lambda item: -depth.get(identity(item), 0))


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
