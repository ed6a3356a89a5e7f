"""A team's default values for a job; the job's own file wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, DEFAULT
from gangplank.errors import Problem, SpecError, shown
from gangplank.spec import Resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.teams.spec import TeamSpec


def with_team(job: object, teams: Sequence[TeamSpec], source: str = "job") -> Any:
    """The job with the defaults of the team that it names; a job without a team is unchanged.

    A default that cannot be meant for it is left out: of another back-end, or of a script if it has a command. Its
    namespace is the team's, and so is its queue if the team has only one; mappings are merged, lists replaced. Its
    limits are its requests unless it sets limits: the team's quota refuses containers without limits.
    """
    inner = job.get("training_job", job) if isinstance(job, Mapping) else None
    if not isinstance(inner, Mapping) or not inner.get("team"):
        return job
    team = next((team for team in teams if team.name == inner["team"]), None)
    if team is None:
        some = ", ".join(team.name for team in teams) or "none yet"
        raise SpecError([Problem("team", shown(inner["team"]), f"a team of the inventory ({some})")], source)
    defaults: dict[str, Any] = {"namespace": team.namespace, **team.job_defaults}
    if len(team.leaves) == 1:
        defaults.setdefault("queue", team.leaves[0])
    for name in unsuitable(inner, str(inner.get("backend") or defaults.get("backend") or DEFAULT)):
        defaults.pop(name, None)
    complete = with_limits(merge(defaults, inner), team)
    return {**job, "training_job": complete} if isinstance(job, Mapping) and "training_job" in job else complete


def unsuitable(job: Mapping[str, Any], backend: str) -> set[str]:
    """The fields that a team's default cannot set for a job, as the job's own file excludes them."""
    names = {*BACKENDS} - {backend} | {*(BACKENDS[backend].refuses if backend in BACKENDS else ())}
    if job.get("command") and not job.get("script"):
        names |= {"script", "code", "requirements", "hyperparameters", "output"}
    if job.get("script"):
        names |= {"command"}
    own = job.get(backend)
    if isinstance(own, Mapping) and own.get("gang") is False:
        names |= {"queue", "min_available"}
    return names


def with_limits(job: dict[str, Any], team: TeamSpec) -> dict[str, Any]:
    """The job with a limit for each amount of a resource that the team's cap limits."""
    own = Resources()
    result = dict(job)
    for part in ("resources", "master_resources"):
        resources = job.get(part, {} if part == "resources" else None)
        if not isinstance(resources, Mapping):
            continue
        complete = dict(resources)
        for name, amount in (("cpu", own.cpu), ("memory", own.memory)):
            value = resources.get(name, amount.request if part == "resources" else None)
            request = value.get("request") if isinstance(value, Mapping) else value
            has_limit = isinstance(value, Mapping) and "limit" in value
            if request is not None and not has_limit and team.queues[0].share.limit(name) is not None:
                complete[name] = {"request": request, "limit": request}
        if complete:
            result[part] = complete
    return result


def merge(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping with the defaults of another.

    >>> merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"x": 3}, "b": [2]})
    {'a': {'x': 3, 'y': 2}, 'b': [2]}
    """
    result = dict(defaults)
    for key, value in own.items():
        old = result.get(key)
        result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result
