"""Whether the quotas of teams count what they limit: until then Kubernetes refuses every object of such a kind.

Its quota controller discovers a new kind within half a minute. It evaluates a quota again after five minutes, or as
soon as its limits change. https://kubernetes.io/docs/concepts/policy/resource-quotas/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.teams.metadata import PART_LABEL, TEAM_PART
from gangplank.wait import polls

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

POLL_S = 3.0
NUDGE = "count/limitranges"  # no team's file can limit it


def settle(kube: Kube, timeout_s: float) -> list[str]:
    """Make every quota count every kind that the cluster has; a line for each that does not by then."""
    kube = kube.patient(limit_s=timeout_s)
    late: list[tuple[Json, list[str]]] = []
    for _ in polls(timeout_s, POLL_S):
        late = uncounted(kube)
        if not late:
            return []
        for quota, _ in late:
            meta = quota["metadata"]
            where = f"/api/v1/namespaces/{meta['namespace']}/resourcequotas/{meta['name']}"
            for value in ("1000", None):  # add and remove a limit: each is a change that the controller notices
                kube.call("PATCH", where, {"spec": {"hard": {NUDGE: value}}}, repeat=True)
    return [f"{quota['metadata']['namespace']}: {', '.join(kinds)}" for quota, kinds in late]


def uncounted(kube: Kube) -> list[tuple[Json, list[str]]]:
    """The teams' quotas that do not count all they limit, with these kinds, except kinds that the cluster lacks."""
    query = {"labelSelector": f"{PART_LABEL}={TEAM_PART[PART_LABEL]}"}
    quotas: list[Json] = kube.call("GET", "/api/v1/resourcequotas", query=query)["items"]
    hard = [(quota, (quota.get("spec") or {}).get("hard") or {}) for quota in quotas]
    late = [(quota, limits.keys() - ((quota.get("status") or {}).get("used") or {})) for quota, limits in hard]
    served = {key for key in set().union(*(keys for _, keys in late)) if is_served(kube, key)}  # one request for each
    return [(quota, sorted(keys & served)) for quota, keys in late if keys & served]


def is_served(kube: Kube, limit: str) -> bool:
    """Whether the cluster has the kind that a quota limits; count/jobs.batch.volcano.sh is one of Volcano's kinds."""
    kind = limit.removeprefix("count/")
    if kind == limit or "." not in kind.partition(".")[2]:
        return True  # Kubernetes' own
    return kube.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}") is not None
