"""What runs in the namespaces of the shadow: starts it, submits the job, and waits for the scheduler's answer.

The order comes as one line on standard input, the answer leaves as one line on standard output. When standard input
ends, this process does, and as the first of its process namespace it takes every other one with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import METADATA
from gangplank.errors import GangplankError, KubeError
from gangplank.shadow.plane import Plane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

FOLDER = Path("/dev/shm")  # noqa: S108  in memory, and mounted for this process and its children alone
SETTLED = 3  # sessions without a change: one may have begun before the job was there, and one may still bind
UNSEEN_S = 20  # at least, if the scheduler has said nothing of some pods: on a busy machine it hears of them late
ANSWER_S = 300
MESSAGES = 3
THREADS = 8  # pods that are created at once
WAITING = {None, "", "Pending"}  # phases of a gang that its queue has not let in
SCHEDULED = "PodScheduled"
COUNTS = re.compile("^pod group is not ready|tasks in gang unschedulable: pod group is not ready")  # only how many


def main() -> None:
    """Carry out one order."""
    order = json.loads(sys.stdin.readline())
    threading.Thread(target=_leave_with_the_caller, daemon=True).start()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "shadow", str(FOLDER)], check=True)
        answer = answered(order)
    except GangplankError as error:
        answer = {"error": str(error)}
    except subprocess.CalledProcessError as error:
        answer = {"error": f"{FOLDER}: got exit status {error.returncode} of mount, expected a folder in memory"}
    print(json.dumps(answer), flush=True)


def _leave_with_the_caller() -> None:
    sys.stdin.read()
    os._exit(1)


def answered(order: Json) -> Json:
    """The scheduler's answer to the job of an order."""
    with Plane(order["programs"], FOLDER) as plane:
        plane.start_etcd()
        plane.load(order["objects"])
        kube = plane.start_api()
        question = Question(plane, kube, order)
        plane.start_scheduler(order["scheduler"])
        question.settle()
        if refusal := question.submit():
            return {"verdict": "no", "messages": [refusal], "placement": {}, "ended": []}
        return question.answer()


class Question:
    """A job in the shadow, and what its scheduler does about it."""

    def __init__(self, plane: Plane, kube: Kube, order: Json) -> None:
        self.plane, self.kube, self.order = plane, kube, order
        self.queueing = order["scheduler"]["program"] == QUEUE_SYSTEM.program
        self.pods_here = f"/api/v1/namespaces/{order['namespace']}/pods"
        self.ending = {uid for uid, _, _ in self.terminating()}
        self.ended: list[Json] = []

    def turns(self, what: str) -> Iterator[float]:
        """Poll; yields the number of the scheduler's sessions so far."""
        for _ in self.plane.waiting(what, ANSWER_S):
            yield self.plane.metric(QUEUE_SYSTEM.sessions) if self.queueing else 0.0

    def settle(self) -> None:
        """Wait until the scheduler has looked at everything that waits already."""
        if not self.waiting_pods() and not self.waiting_groups():
            return  # the scheduler starts while the job is created
        for sessions in self.turns("the scheduler's first look"):
            self.end_displaced(count=False)
            if self.queueing and sessions >= SETTLED:
                return
            if not self.queueing and all(map(looked_at, self.waiting_pods())):
                return

    def waiting_pods(self) -> list[Json]:
        """The pods of all namespaces that this scheduler has to place."""
        name = self.order["scheduler"]["name"]
        query = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={name}"}
        pods = self.kube.call("GET", "/api/v1/pods", query=query)["items"] or ()
        return [pod for pod in pods if not pod["spec"].get("schedulingGates")]

    def waiting_groups(self) -> list[Json]:
        """The gangs of all namespaces that have not been let in, also those without pods."""
        if not self.queueing:
            return []
        kind = QUEUE_SYSTEM.pod_group
        groups = self.kube.call("GET", f"/apis/{kind.api_version}/{kind.plural}")["items"]
        return [group for group in groups if (group.get("status") or {}).get("phase") in WAITING]

    def submit(self) -> str:
        """Create what the job's controllers would; why the API server refuses, "" if it does not."""
        orders = self.order["create"]
        group, pods = ([one for one in orders if (one[1]["kind"] == "Pod") is pod] for pod in (False, True))
        with ThreadPoolExecutor(THREADS) as pool:
            return next(filter(None, (*map(self.create, group), *pool.map(self.create, pods))), "")

    def create(self, order: tuple[str, Json]) -> str:
        """Create one object; why the API server refuses, "" if it does not."""
        where, item = order
        try:
            self.kube.call("POST", where, item)
        except KubeError as error:
            if error.outage:
                raise
            return f"the API server refuses {item['kind']} {item['metadata']['name']}: {error}"
        return ""

    def terminating(self) -> list[tuple[str, str, str]]:
        """Uid, namespace and name of the pods that are being removed."""
        metas = [item["metadata"] for item in self.kube.call("GET", "/api/v1/pods", accept=METADATA)["items"] or ()]
        return [(meta["uid"], meta["namespace"], meta["name"]) for meta in metas if meta.get("deletionTimestamp")]

    def end_displaced(self, *, count: bool = True) -> None:
        """Do what kubelets and controllers do with pods that the scheduler removes: end them, and release them."""
        for uid, namespace, name in self.terminating():
            if uid not in self.ending:
                self.ending.add(uid)
                where = f"/api/v1/namespaces/{namespace}/pods/{name}"
                self.kube.call("PATCH", where, {"metadata": {"uid": uid, "finalizers": None}})  # a Job's pods have one
                self.kube.delete_at(where, uid, grace_s=0)
                self.ended += [{"metadata": {"namespace": namespace, "name": name}}] if count else []

    def own(self) -> list[Json]:
        """The job's pods."""
        names = set(self.order["pods"])
        return [pod for pod in self.kube.call("GET", self.pods_here)["items"] if pod["metadata"]["name"] in names]

    def answer(self) -> Json:
        """Yes once enough pods have a node; no once the scheduler has refused and nothing changes any more."""
        last: Any = None
        since, at = 0.0, 0.0
        for sessions in self.turns("the scheduler's answer"):
            self.end_displaced()
            pods, group = self.own(), self.group()
            nodes = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in pods}
            placement = {name: node for name, node in nodes.items() if node}
            if len(placement) >= self.order["minimum"]:
                return {"verdict": "yes", "placement": placement, "messages": [], "ended": self.ended}
            now = (sorted(placement), (group.get("status") or {}).get("phase"), len(self.ended))
            if now != last:
                last, since, at = now, sessions, time.monotonic()
            elif self.refused(pods, group) and (
                not self.queueing or settled(pods, sessions - since, time.monotonic() - at)
            ):
                return {"verdict": "no", "placement": {}, "messages": self.messages(pods, group), "ended": []}
        raise AssertionError

    def group(self) -> Json:
        """The job's gang; empty if it is none."""
        where = self.order["group"]
        return (self.kube.get(where) or {}) if where else {}

    def refused(self, pods: list[Json], group: Json) -> bool:
        """Whether the scheduler has refused what has no node."""
        if group:
            conditions = (group.get("status") or {}).get("conditions") or []
            newest: Json = max(conditions, key=lambda one: str(one.get("lastTransitionTime")), default={})
            return newest.get("type") != "Scheduled"
        return all(pod["spec"].get("nodeName") or looked_at(pod) for pod in pods)

    def messages(self, pods: list[Json], group: Json) -> list[str]:
        """What the scheduler says, the most telling first."""
        said = [one["message"] for pod in pods for one in conditions_of(pod) if one.get("message")]
        if group:
            query = {"fieldSelector": f"involvedObject.kind=PodGroup,involvedObject.name={group['metadata']['name']}"}
            where = f"/api/v1/namespaces/{self.order['namespace']}/events"
            events = [one.get("message") or "" for one in self.kube.call("GET", where, query=query)["items"]]
            conditions = [one.get("message") or "" for one in (group.get("status") or {}).get("conditions") or ()]
            said = [*events, *said, *conditions]
        telling = [text for text in said if text and not COUNTS.search(text)]
        return [*dict.fromkeys(telling or said)][:MESSAGES]


def conditions_of(pod: Json) -> list[Json]:
    """What a scheduler has said of a pod."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return [one for one in conditions if one["type"] == SCHEDULED and one["status"] == "False"]


def settled(pods: list[Json], sessions: float, seconds: float) -> bool:
    """Whether so long without a change is an answer. In each session, Volcano's scheduler refuses all pods it knows."""
    seen = all(pod["spec"].get("nodeName") or conditions_of(pod) for pod in pods)
    return sessions >= SETTLED and (seen or seconds >= UNSEEN_S)


def looked_at(pod: Json) -> bool:
    """Whether a scheduler has refused a pod, and has no node in mind for it."""
    return bool(conditions_of(pod)) and not (pod.get("status") or {}).get("nominatedNodeName")


if __name__ == "__main__":
    main()
