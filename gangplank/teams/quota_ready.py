"""Whether the quotas of teams count what they limit: Kubernetes refuses every object of a kind that is not counted yet.

Its quota controller meets a new kind within half a minute, and looks at a quota again after five minutes, or as soon as
what it limits is changed. https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.teams.metadata import PART_LABEL, TEAM_PART
from gangplank.wait import polls

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

POLL_S = 3.0
NUDGE = "count/limitranges"  # which no team's file can limit


def settle(kube: Kube, timeout_s: float) -> list[str]:
    """Have every quota count every kind that the cluster has; which do not after that time, a line each."""
    kube = kube.patient(limit_s=timeout_s)
    late: list[tuple[Json, list[str]]] = []
    for _ in polls(timeout_s, POLL_S):
        late = uncounted(kube)
        if not late:
            return []
        for quota, _ in late:
            meta = quota["metadata"]
            where = f"/api/v1/namespaces/{meta['namespace']}/resourcequotas/{meta['name']}"
            for value in ("1000", None):  # there and gone: both are a change of what it limits
                kube.call("PATCH", where, {"spec": {"hard": {NUDGE: value}}}, repeat=True)
    return [f"{quota['metadata']['namespace']}: {', '.join(kinds)}" for quota, kinds in late]


def uncounted(kube: Kube) -> list[tuple[Json, list[str]]]:
    """The teams' quotas that do not count all they limit, with these kinds; those that the cluster has not are none."""
    query = {"labelSelector": f"{PART_LABEL}={TEAM_PART[PART_LABEL]}"}
    quotas: list[Json] = kube.call("GET", "/api/v1/resourcequotas", query=query)["items"]
    late = [(quota, quota["spec"]["hard"].keys() - ((quota.get("status") or {}).get("used") or {})) for quota in quotas]
    known = {key for key in set().union(*(keys for _, keys in late)) if there(kube, key)}  # each is asked once
    return [(quota, sorted(keys & known)) for quota, keys in late if keys & known]


def there(kube: Kube, limit: str) -> bool:
    """Whether the cluster has what a quota limits: count/jobs.batch.volcano.sh is one of Volcano's kinds."""
    kind = limit.removeprefix("count/")
    if kind == limit or "." not in kind.partition(".")[2]:
        return True  # Kubernetes' own
    return kube.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}") is not None
