"""What a watch sees of gangs: when their pods had nodes and ran, and gangs that were begun in part."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from bench.gangs.place import HOME, PODS, limit_s
from bench.part import BenchError
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangplank.cluster.client import Kube

Json = dict[str, Any]


@dataclass
class Pod:
    """What a watch has seen of a pod: when it had a node, when it ran."""

    gang: str
    bound: float = 0.0
    running: float = 0.0


@dataclass
class Seen:
    """All pods of a run, and the gangs that were begun before they were whole."""

    sizes: Mapping[str, int]
    pods: dict[str, Pod] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Pods of each gang, as the watch has seen them so far."""
    partial: set[str] = field(default_factory=set)

    def see(self, kind: str, item: Json, at: float) -> None:
        """One change of a pod. Raises BenchError for one that is removed: the one in its place would count as well."""
        meta = item["metadata"]
        if kind == "DELETED":
            raise BenchError(f"pod {meta['name']}: got its removal while gangs start, expected that it stays")
        if meta["uid"] not in self.pods:
            gang = meta["labels"][JOB_LABEL]
            self.pods[meta["uid"]] = Pod(gang)
            self.counts[gang] = self.counts.get(gang, 0) + 1
        pod = self.pods[meta["uid"]]
        if item["spec"].get("nodeName") and not pod.bound:
            pod.bound = at
            if self.counts[pod.gang] < self.sizes[pod.gang]:
                self.partial.add(pod.gang)  # a pod has a node before all of its gang exist
        if item.get("status", {}).get("phase") == "Running" and not pod.running:
            pod.running = at

    @property
    def torn(self) -> set[str]:
        """Gangs of which only some pods have a node."""
        bound: dict[str, int] = {}
        for pod in self.pods.values():
            bound[pod.gang] = bound.get(pod.gang, 0) + bool(pod.bound)
        return {gang for gang, count in bound.items() if 0 < count < self.sizes[gang]}

    def whole(self) -> bool:
        """Whether all pods run."""
        return len(self.pods) == sum(self.sizes.values()) and all(pod.running for pod in self.pods.values())


def batches(answer: Any) -> Iterator[list[bytes]]:
    """The changes of a watch as they come, from its open answer: of each chunk the lines that it completes."""
    rest = b""
    for chunk in answer.stream(amt=2**16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield lines


class Watch:
    """Follows the pods of the namespace in a thread; with `gang`, those of this one alone."""

    def __init__(self, kube: Kube, sizes: Mapping[str, int], gang: str = "") -> None:
        self.kube, self.seen = kube, Seen(sizes)
        self.only = {"labelSelector": f"{JOB_LABEL}={gang}"} if gang else {}
        self.stopped, self.failed = threading.Event(), list[Exception]()
        self.thread = threading.Thread(target=self.follow, daemon=True)

    def __enter__(self) -> Self:
        start = self.kube.call("GET", PODS, query=self.only)
        if start["items"]:
            raise BenchError(f"{HOME}: got {len(start['items'])} pods, expected none")
        self.version = start["metadata"]["resourceVersion"]
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()  # the thread ends with the next change or within 3 s, which is no part of a start

    def follow(self) -> None:
        """Read changes until the block ends."""
        try:
            while not self.stopped.is_set():
                query = {"watch": "true", "resourceVersion": self.version, "timeoutSeconds": "3"} | self.only
                answer = self.kube.open("GET", PODS, query=query)
                for lines in batches(answer):
                    at = time.monotonic()
                    for line in lines:
                        self.note(json.loads(line), at)
                    if self.stopped.is_set():
                        break
                answer.close()
        except Exception as error:  # noqa: BLE001  of a thread; `wait` raises it
            self.failed.append(error)

    def note(self, change: Json, at: float) -> None:
        """Keep one change, and the version it made."""
        if change["type"] == "ERROR":
            raise BenchError(f"watch of {HOME}: got {change['object']}, expected changes")
        self.version = change["object"]["metadata"]["resourceVersion"]
        self.seen.see(change["type"], change["object"], at)

    def wait(self) -> None:
        """Until every pod runs."""
        pods = sum(self.seen.sizes.values())
        for _ in polls(limit_s(pods), 0.05):
            if self.failed:
                raise self.failed[0]
            if self.seen.whole():
                return
        seen = self.seen.pods.values()
        bound, running = (sum(bool(getattr(one, key)) for one in seen) for key in ("bound", "running"))
        got = f"{len(seen)} pods, {bound} bound, {running} running"
        raise BenchError(late(HOME, got, f"{pods} running", limit_s(pods)))
