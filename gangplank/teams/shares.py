"""Problems that no single team's file shows: names that collide, and shares that exceed what exists.

Sums follow Volcano's own webhook for queues (pkg/webhooks/admission/queues/validate/validate_queue.go), so that what
passes here is not refused halfway through a run.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gangplank.backends.device_claims import device_class
from gangplank.errors import Problem, SpecError, shown
from gangplank.k8s import names, quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gangplank.teams.spec import QueueSpec, SiteSpec, TeamSpec

    Exact = dict[str, Fraction]
    Owned = tuple[str, QueueSpec]  # its file and the queue

DEPTH = 5  # levels of queues below the root that Volcano's webhook allows


def check(teams: Sequence[TeamSpec], site: SiteSpec, capacity: Mapping[str, Fraction] | None) -> list[SpecError]:
    """Every problem among teams whose files are valid by themselves; without a capacity, no sum is compared to it."""
    owned = [(site.source, queue) for queue in site.queues]
    owned += [(team.source, queue) for team in teams for queue in team.queues]
    by_file: dict[str, list[Problem]] = {}
    for source, problem in [
        *name_problems(teams, owned),
        *account_problems(teams, {team.namespace: team.name for team in teams}),
        *tree_problems(owned),
        *sum_problems(owned, capacity),
    ]:
        by_file.setdefault(source, []).append(problem)
    return [SpecError(problems, source) for source, problems in by_file.items()]


def cluster_name(name: str) -> str:
    """A name as the cluster compares it: in lower case, cut to a label's length."""
    return name.lower()[: names.LABEL_MAX]


def name_problems(teams: Sequence[TeamSpec], owned: Sequence[Owned]) -> Iterator[tuple[str, Problem]]:
    """Two queues with one name (a team's queue has the name of the team), two teams with one namespace."""
    first_teams: dict[str, TeamSpec] = {}
    for team in teams:
        first = first_teams.setdefault(cluster_name(team.namespace), team)
        if first is not team and cluster_name(first.name) != cluster_name(team.name):
            expected = f"a namespace that {first.source} does not use"
            yield team.source, Problem("team.namespace", shown(team.namespace), expected, "choose another namespace")
    sources: dict[str, str] = {}
    for source, queue in owned:
        name = cluster_name(queue.name)
        if name in sources:
            expected = f"a name that no other queue has; {sources[name]} has this one"
            yield source, Problem(f"{queue.path}.name", shown(queue.name), expected, "choose another name")
        sources.setdefault(name, source)


def account_problems(teams: Sequence[TeamSpec], owners: Mapping[str, str]) -> Iterator[tuple[str, Problem]]:
    """Members that are service accounts of a team's namespace: every trainer there can run a pod as one.

    `owners` are the teams by their namespaces.
    """
    for team in teams:
        for index, member in enumerate(team.members):
            if owner := owners.get(member.namespace):
                path = f"team.members[{index}].service_account"
                expected = (
                    f"an account of a namespace that does not belong to a team, e.g. ci/runner: every trainer of team "
                    f"{owner} can run a pod as this one"
                )
                fix = "create the account in a namespace of its own"
                yield team.source, Problem(path, shown(f"{member.namespace}/{member.name}"), expected, fix)


def tree_problems(owned: Sequence[Owned]) -> Iterator[tuple[str, Problem]]:
    """Parents that do not exist, circles, and trees that are too deep."""
    parents = {queue.name: queue.parent for _, queue in owned}
    for source, queue in owned:
        if queue.parent and queue.parent not in parents:
            yield source, Problem(f"{queue.path}.parent", shown(queue.parent), "a queue of the site")
            continue
        depth, name, above = 1, queue.name, queue.parent
        while above and above != name and depth <= DEPTH:
            depth, above = depth + 1, parents.get(above, "")
        if above == name or depth > DEPTH:
            expected = "no circle of parents" if above == name else f"at most {DEPTH} queues above each other"
            yield source, Problem(f"{queue.path}.parent", shown(queue.parent), expected)


def exact(amounts: Mapping[str, str]) -> Exact:
    """Quantities as numbers."""
    return {name: quantity.parse(text) for name, text in amounts.items()}


def excess(
    source: str, path: str, amounts: Mapping[str, Fraction], limits: Mapping[str, Fraction], origin: str
) -> Iterator[tuple[str, Problem]]:
    """Every resource that exceeds its limit; resources without a limit are left out."""
    for name, value in amounts.items():
        if name in limits and value > limits[name]:
            expected = f"at most {spelled(name, limits[name])}, {origin}"
            yield source, Problem(f"{path}.{name}", spelled(name, value), expected)


def spelled(name: str, value: Fraction) -> str:
    """An amount as people write it."""
    return quantity.canonical(value, binary=name in {"memory", "ephemeral-storage"} or name.startswith("hugepages-"))


def total(owned: Sequence[Owned], part: str) -> Exact:
    """The sum of one part of several queues' shares."""
    totals: Exact = {}
    for _, queue in owned:
        for name, value in exact(getattr(queue.share, part)).items():
            totals[name] = totals.get(name, Fraction(0)) + value
    return totals


def excess_together(
    owned: Sequence[Owned], part: str, sums: Exact, limits: Mapping[str, Fraction], origin: str
) -> Iterator[tuple[str, Problem]]:
    """Every sum of one part of several queues' shares that exceeds its limit, with the queues that have some of it."""
    for name, value in sums.items():
        some = [(source, queue) for source, queue in owned if name in getattr(queue.share, part)]
        source, first = some[0]
        path = f"{first.path}.{part} of {', '.join(queue.name for _, queue in some)}"
        yield from excess(source, path + (" together" if len(some) > 1 else ""), {name: value}, limits, origin)


def caps_above(queue: QueueSpec, by_name: Mapping[str, Owned]) -> Iterator[tuple[str, Exact]]:
    """The caps that bound a queue's cap, nearest first: each resource by the first queue above it that limits it."""
    visited, name = {queue.name}, queue.parent
    free = {*limited(queue, queue.share.cap)}
    while name in by_name and name not in visited:  # tree_problems reports a circle
        visited.add(name)
        above = by_name[name][1]
        limits = limited(above, free)
        yield name, limits
        free -= {*limits}
        name = above.parent


def limited(queue: QueueSpec, resources: Iterable[str]) -> Exact:
    """Those resources that a queue's cap limits, and to how much."""
    limits = {resource: queue.share.limit(resource) for resource in resources}
    return exact({resource: text for resource, text in limits.items() if text is not None})


def sum_problems(owned: Sequence[Owned], capacity: Mapping[str, Fraction] | None) -> Iterator[tuple[str, Problem]]:
    """Guaranteed <= deserved <= cap <= caps above; children together at most their parent, all at most the cluster."""
    by_name = {queue.name: (source, queue) for source, queue in owned}
    children: dict[str, list[Owned]] = {}
    for source, queue in owned:
        share, path, variable = queue.share, queue.path, queue.variable
        children.setdefault(queue.parent, []).append((source, queue))
        deserved, cap = exact(share.deserved), limited(queue, share.cap)
        guaranteed = exact(share.guaranteed)
        yield from excess(source, f"{path}.guaranteed", guaranteed, deserved, f"its {variable('deserved')}")
        yield from excess(source, f"{path}.deserved", deserved, limited(queue, deserved), f"its {variable('cap')}")
        for above, limits in caps_above(queue, by_name):
            origin = f"{by_name[above][1].variable('cap')} of {above} above it"
            yield from excess(source, f"{path}.cap", cap, limits, origin)
    for parent, below in children.items():
        if parent not in by_name:
            continue
        _, queue = by_name[parent]
        for part in ("guaranteed", "deserved"):
            sums, own = total(below, part), exact(getattr(queue.share, part))
            limits = {name: own.get(name, Fraction(0)) for name in sums}
            yield from excess_together(below, part, sums, limits, f"{queue.variable(part)} of {parent}")
    if capacity is not None:
        top = children.get("", [])
        sums = total(top, "guaranteed")
        # How many devices a class has, only the scheduler knows: it evaluates the class's expressions.
        limits = {name: capacity.get(name, Fraction(0)) for name in sums if not device_class(name) or name in capacity}
        yield from excess_together(top, "guaranteed", sums, limits, "what the cluster has")
