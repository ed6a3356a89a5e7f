"""The start of a helper pod: for how long it is waited for, and why it does not come."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gangplank.cluster.client import path
from gangplank.cluster.progress import waiting_reasons
from gangplank.cluster.situation import about
from gangplank.cluster.standstill import lost
from gangplank.errors import KubeError
from gangplank.scheduling import pod_causes
from gangplank.text import listed
from gangplank.wait import late

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from gangplank.scheduling.cause import Cause
    from gangplank.spec import Json

START_S = 120  # without a node, or with a cause that keeps its container from being created
IMAGE_S = 900  # while its node prepares it: to pull an image of many GiB takes minutes
LOOK_S = 10.0  # between two looks at what its node says


class Start:
    """The wait for one pod; messages say `what` it does."""

    def __init__(self, kube: Kube, what: str) -> None:
        self.kube, self.what = kube, what
        self.next_s, self.noted = LOOK_S, False

    def check(self, pod: Json, waited_s: float) -> None:
        """Raise KubeError if a pod that does not run yet is too late; a note says once what its node is doing."""
        if waited_s <= self.next_s:
            return
        self.next_s = waited_s + LOOK_S
        meta, node, image = pod["metadata"], pod["spec"].get("nodeName"), pod["spec"]["containers"][0]["image"]
        title = f"pod {meta['namespace']}/{meta['name']}, which {self.what}"
        cause, limit_s = self.cause(pod) if node else None, START_S
        got = listed(waiting_reasons([pod]), 2) or str(pod["status"].get("phase"))
        fix = "free a place on the claim's node"
        if cause:
            got, fix = " ".join([cause.text, *(f"({text})" for text in cause.evidence)]), cause.fix.partition(";")[0]
        elif node:
            limit_s, got = IMAGE_S, f"{got} on node {node}"
            says = f"kubectl events -n {meta['namespace']} --for pod/{meta['name']}"
            fix = f"see what {node} says of it ({says}), or bring the image {image} to it"
            if not self.noted:
                work = f"node {node} mounts its volumes and pulls its image {image}"
                self.kube.patience.say(f"{title}: waiting up to {IMAGE_S} s while {work}")
            self.noted = True
        if waited_s > limit_s:
            raise KubeError(late(title, got, "its start", limit_s, f"{fix}, then try again"))

    def cause(self, pod: Json) -> Cause | None:
        """What keeps a pod that has a node from starting."""
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        query = {"fieldSelector": f"involvedObject.uid={meta['uid']}"}
        try:
            events = self.kube.call("GET", path("v1", "Event", meta["namespace"]), query=query)["items"]
        except KubeError as error:
            if error.outage:
                raise
            events = []
        away = {node} if lost(self.kube, node) else set()
        own = about(events, {meta["uid"]}, ())
        return next(chain(pod_causes.lost([pod], away), pod_causes.waiting([pod], own, {})), None)
