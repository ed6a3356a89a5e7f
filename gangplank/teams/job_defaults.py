"""A team's default values under a job: what the job's own file says wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.teams.spec import TeamSpec


def with_team(job: object, teams: Sequence[TeamSpec], source: str = "job") -> Any:
    """The job with the defaults of the team that it names; a job of no team is as it was.

    Its namespace is the team's, and so is its queue where the team has one alone; mappings are merged, lists replaced.
    """
    inner = job.get("training_job", job) if isinstance(job, Mapping) else None
    if not isinstance(inner, Mapping) or not inner.get("team"):
        return job
    team = next((team for team in teams if team.name == inner["team"]), None)
    if team is None:
        some = ", ".join(team.name for team in teams) or "none yet"
        raise SpecError([Problem("team", shown(inner["team"]), f"a team with a file ({some})")], source)
    defaults: dict[str, Any] = {"namespace": team.namespace, **team.job_defaults}
    if len(team.leaves) == 1:
        defaults.setdefault("queue", team.leaves[0])
    found = merged(defaults, inner)
    return {**job, "training_job": found} if isinstance(job, Mapping) and "training_job" in job else found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One mapping over another.

    >>> merged({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"x": 3}, "b": [2]})
    {'a': {'x': 3, 'y': 2}, 'b': [2]}
    """
    found = dict(below)
    for key, value in above.items():
        old = found.get(key)
        found[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found
