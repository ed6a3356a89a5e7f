"""What no single team's file shows: names that meet, and more promised than there is.

Sums follow Volcano's own webhook for queues (pkg/webhooks/admission/queues/validate/validate_queue.go), so that what
passes here is not refused halfway through a run.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from gangplank.errors import Problem, SpecError, shown
from gangplank.k8s import names, quantity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gangplank.teams.spec import QueueSpec, SiteSpec, TeamSpec

    Exact = dict[str, Fraction]
    Owned = tuple[str, QueueSpec]  # its file and the queue

DEPTH = 5  # of a tree of queues, the root left out: what Volcano's webhook lets through


def check(teams: Sequence[TeamSpec], site: SiteSpec, capacity: Mapping[str, Fraction] | None) -> list[SpecError]:
    """Every problem among teams that are each right by themselves, by file; no capacity, no sum against it."""
    owned = [(site.source, queue) for queue in site.queues]
    owned += [(team.source, queue) for team in teams for queue in team.queues]
    found: dict[str, list[Problem]] = {}
    for source, problem in [*same_names(teams, owned), *own_accounts(teams), *trees(owned), *sums(owned, capacity)]:
        found.setdefault(source, []).append(problem)
    return [SpecError(problems, source) for source, problems in found.items()]


def key(name: str) -> str:
    """A name as the cluster tells names apart: in lower case, cut to a label's length."""
    return name.lower()[: names.LABEL_MAX]


def same_names(teams: Sequence[TeamSpec], owned: Sequence[Owned]) -> Iterator[tuple[str, Problem]]:
    """Two queues of one name (a team's queue has the team's), two teams of one namespace."""
    spaces: dict[str, TeamSpec] = {}
    for team in teams:
        other = spaces.setdefault(key(team.namespace), team)
        if other is not team and key(other.name) != key(team.name):
            expected = f"another than in {other.source}"
            yield team.source, Problem("team.namespace", shown(team.namespace), expected, "no two teams share one")
    queues: dict[str, str] = {}
    for source, queue in owned:
        path = f"{queue.path}.name"
        if key(queue.name) in queues:
            first = queues[key(queue.name)]
            yield source, Problem(path, shown(queue.name), "a queue's name of its own", f"{first} has this one")
        queues.setdefault(key(queue.name), source)


def own_accounts(teams: Sequence[TeamSpec]) -> Iterator[tuple[str, Problem]]:
    """Members that are service accounts of a team's namespace: whoever may make a pod there runs it as one."""
    owners = {key(team.namespace): team.name for team in teams}
    for team in teams:
        for index, member in enumerate(team.members):
            if owner := owners.get(key(member.namespace)):
                path = f"team.members[{index}].service_account"
                expected = "an account of a namespace that is no team's, e.g. ci/runner"
                fix = f"every trainer of team {owner} can run a pod as this one"
                yield team.source, Problem(path, shown(f"{member.namespace}/{member.name}"), expected, fix)


def trees(owned: Sequence[Owned]) -> Iterator[tuple[str, Problem]]:
    """Parents that are not there, circles, and trees that are too deep."""
    parents = {queue.name: queue.parent for _, queue in owned}
    for source, queue in owned:
        if queue.parent and queue.parent not in parents:
            yield source, Problem(f"{queue.path}.parent", shown(queue.parent), "a queue of the site")
            continue
        depth, name, above = 1, queue.name, queue.parent
        while above and above != name and depth <= DEPTH:
            depth, above = depth + 1, parents.get(above, "")
        if above == name or depth > DEPTH:
            what = "no circle of parents" if above == name else f"at most {DEPTH} queues above each other"
            yield source, Problem(f"{queue.path}.parent", shown(queue.parent), what)


def exact(amounts: Mapping[str, str]) -> Exact:
    """Quantities as numbers."""
    return {name: quantity.parse(text) for name, text in amounts.items()}


def over(
    source: str, path: str, got: Mapping[str, Fraction], most: Mapping[str, Fraction], what: str
) -> Iterator[tuple[str, Problem]]:
    """Every resource of which there is more than may be; what `most` does not name is not looked at."""
    for name, value in got.items():
        if name in most and value > most[name]:
            yield (
                source,
                Problem(f"{path}.{name}", spelled(name, value), f"at most {spelled(name, most[name])}, {what}"),
            )


def spelled(name: str, value: Fraction) -> str:
    """An amount as people write it."""
    return quantity.canonical(value, binary=name == "memory")


def total(queues: Sequence[QueueSpec], part: str) -> Exact:
    """The sum of one part of several queues' shares."""
    found: Exact = {}
    for queue in queues:
        for name, value in exact(getattr(queue.share, part)).items():
            found[name] = found.get(name, Fraction(0)) + value
    return found


def caps_above(queue: QueueSpec, by_name: Mapping[str, Owned]) -> Iterator[tuple[str, Exact]]:
    """What bounds a queue's cap, nearest first: each resource by the first queue above it that caps it."""
    seen, name = {queue.name}, queue.parent
    bound: set[str] = set()
    while name in by_name and name not in seen:  # a circle is told by itself
        seen.add(name)
        above = by_name[name][1]
        yield name, {key: value for key, value in exact(above.share.cap).items() if key not in bound}
        bound |= {*above.share.cap}
        name = above.parent


def sums(owned: Sequence[Owned], capacity: Mapping[str, Fraction] | None) -> Iterator[tuple[str, Problem]]:
    """Guaranteed <= deserved <= cap <= caps above; children together at most their parent, all at most the cluster."""
    by_name = {queue.name: (source, queue) for source, queue in owned}
    children: dict[str, list[QueueSpec]] = {}
    for source, queue in owned:
        share, path = queue.share, queue.path
        children.setdefault(queue.parent, []).append(queue)
        yield from over(source, f"{path}.guaranteed", exact(share.guaranteed), exact(share.deserved), "its deserved")
        yield from over(source, f"{path}.deserved", exact(share.deserved), exact(share.cap), "its cap")
        for above, most in caps_above(queue, by_name):
            yield from over(source, f"{path}.cap", exact(share.cap), most, f"the cap of {above} above it")
    for parent, below in children.items():
        if parent not in by_name:
            continue
        source, queue = by_name[parent]
        for part in ("guaranteed", "deserved"):
            got, own = total(below, part), exact(getattr(queue.share, part))
            who = ", ".join(child.name for child in below)
            most = {name: own.get(name, Fraction(0)) for name in got}
            yield from over(source, f"{queue.path}.{part} of {who} together", got, most, f"the share of {parent}")
    if capacity is not None:
        first = children.get("", [])
        got = total(first, "guaranteed")
        who = ", ".join(queue.name for queue in first if queue.share.guaranteed)
        most = {name: capacity.get(name, Fraction(0)) for name in got}
        source = next((source for source, queue in owned if not queue.parent), "teams")
        yield from over(source, f"guaranteed of {who} together", got, most, "what the cluster has")
