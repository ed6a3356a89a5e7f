"""A busy cluster: how long one gang of 8 waits while jobs end and others come, and whether memory stays flat meanwhile.

For ten minutes, gangs of ten pods fill three quarters of 100 simulated nodes; each runs for some seconds, is removed
when it has ended, and another takes its place. Beside them, one gang of 8 after the other is timed, from its create to
the last binding and to Running. Its peer is Volcano with upstream's values, its floor a bare client's requests.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

from bench.figures import Beside, figure
from bench.gangs.bare_client import replayed
from bench.gangs.jobs import template
from bench.gangs.place import LIMIT_S, PODS, VOLCANO_JOBS, WITH_PODS, cleared
from bench.gangs.site import prepared
from bench.gangs.start import Start
from bench.gangs.watch import Watch
from bench.part import Lab, Part
from bench.programs import memory
from gangplank.cluster.progress import phase
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.part import Setting
    from gangplank.cluster.client import Kube

Json = dict[str, Any]
PART = Part("A gang on a busy cluster, and ten minutes of churn", minutes=26, lab=Lab.UP, usual=False, builds=("kwok",))
LASTS = "gangplank.dev/lasts"
BESIDE, SIZE, CPU, RUNS_S = 30, 10, "4", 20  # gangs at a time, pods of each, cores of each pod, seconds
PROBE, PROBE_CPU = 8, "1"
SPAN_S, PEER_S, SETTLE_S = 600, 300, 30  # of the peer twice, so that both have as many gangs
GROWTH_PERCENT, LEAST_MIB = 10, 10


def gang(name: str, size: int, cpu: str, runs_s: int) -> Json:
    """A Volcano job whose pods run for some seconds."""
    job = template(name, size, "volcano", cpu)
    for task in job["spec"]["tasks"]:
        task["template"].setdefault("metadata", {}).setdefault("annotations", {})[LASTS] = f"{runs_s}s"
    return job


class Churn:
    """Gangs that come and go in a thread, for as long as the block runs."""

    def __init__(self, kube: Kube) -> None:
        self.kube, self.begun, self.ended = kube, 0, 0
        self.stopped, self.failed = threading.Event(), list[Exception]()
        self.thread = threading.Thread(target=self.work)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        if self.failed:
            raise self.failed[0]

    def work(self) -> None:
        """Remove what has ended, and fill up again."""
        own = uuid.uuid4().hex[:6]
        try:
            while not self.stopped.wait(1):
                jobs = self.kube.call("GET", VOLCANO_JOBS)["items"]
                done = [job["metadata"]["name"] for job in jobs if phase(job).ended]
                for name in done:
                    self.kube.call("DELETE", f"{VOLCANO_JOBS}/{name}", {"propagationPolicy": "Background"})
                self.ended += len(done)
                for _ in range(BESIDE - len(jobs) + len(done)):
                    # not all of the first at once, so that they do not end at once
                    runs_s = RUNS_S if self.begun >= BESIDE else 1 + self.begun * RUNS_S // BESIDE
                    self.kube.call("POST", VOLCANO_JOBS, gang(f"churn-{own}-{self.begun}", SIZE, CPU, runs_s))
                    self.begun += 1
        except KubeError as error:
            self.failed.append(error)  # of a thread; the end of the block raises it


def probe(kube: Kube) -> Start:
    """One gang more: seconds until it is bound, and until it runs."""
    name = f"probe-{uuid.uuid4().hex[:8]}"
    with Watch(kube, {name: PROBE}, name) as watch:
        begin = time.monotonic()
        kube.call("POST", VOLCANO_JOBS, gang(name, PROBE, PROBE_CPU, LIMIT_S))
        watch.wait()
    pods = watch.seen.pods.values()
    kube.call("DELETE", f"{VOLCANO_JOBS}/{name}", WITH_PODS)
    return Start(max(pod.bound for pod in pods) - begin, max(pod.running for pod in pods) - begin, (),
                 len(watch.seen.partial | watch.seen.torn))  # fmt: skip


def floor(kube: Kube) -> Start:
    """The same pods by a bare client."""
    one = replayed(kube, (1, PROBE))
    for number in range(PROBE):
        kube.call("DELETE", f"{PODS}/floor-{number}", {"gracePeriodSeconds": 0})
    return one


def churned(kube: Kube, setting: Setting, span_s: float) -> tuple[dict[str, list[Start]], list[dict[str, float]]]:
    """Gangs and the floor in turns for some time, while others come and go; memory by program after each of them."""
    starts: dict[str, list[Start]] = {"gang": [], "floor": []}
    sizes: list[dict[str, float]] = []
    with Churn(kube) as load:
        time.sleep(SETTLE_S)
        end = time.monotonic() + span_s
        while time.monotonic() < end and not load.failed:
            starts["gang"].append(probe(kube))
            starts["floor"].append(floor(kube))
            sizes.append(memory())
            if len(sizes) % 20 == 0:
                setting.say(f"{len(sizes)} gangs of {PROBE}, {load.ended} others have ended, "
                            f"{sum(sizes[-1].values()):.0f} MiB")  # fmt: skip
    cleared(kube)
    return starts, sizes


def measure(setting: Setting) -> Iterator[Figure]:
    """With ours for ten minutes on end; with upstream's before and after it, as the machine's pace may change."""
    theirs: list[Start] = []
    with prepared(setting, LASTS) as volcano:
        for values, span_s in ((volcano.upstream, PEER_S), (volcano.own, SPAN_S), (volcano.upstream, PEER_S)):
            volcano.use(values)
            starts, sizes_of = churned(volcano.kube, setting, span_s)
            if values == volcano.own:
                ours, sizes = starts, sizes_of
            else:
                theirs += starts["gang"]
    yield from figures(ours, theirs)
    yield from flat(sizes)


def percentile(values: Sequence[float]) -> float:
    """What 99 of 100 stay below."""
    return statistics.quantiles(values, n=100, method="inclusive")[98]


def figures(ours: Mapping[str, Sequence[Start]], theirs: Sequence[Start]) -> Iterator[Figure]:
    """Median and 99th percentile of one gang's seconds."""
    for key, end in (("bound", "bound"), ("running", "Running")):
        every = (ours["gang"], theirs, ours["floor"])
        mine, peer, bare = ([getattr(one, f"{key}_s") for one in rows] for rows in every)
        title = f"one gang of {PROBE} on a busy cluster, all {end}"
        yield figure(f"churn.gang.{key}", title, "s", mine, peer=Beside.of("upstream's values", peer),
                     floor=Beside.of("bare client", bare))  # fmt: skip
        yield figure(f"churn.gang.{key}.99", f"{title}, 99 of 100", "s", [percentile(mine)],
                     peer=Beside.of("upstream's values", [percentile(peer)]),
                     floor=Beside.of("bare client", [percentile(bare)]))  # fmt: skip
    partial = [float(one.partial) for one in ours["gang"]]
    yield figure("churn.gang.partial", f"partial gangs of {PROBE}", "", [sum(partial)], goal=0)


def flat(sizes: Sequence[Mapping[str, float]]) -> Iterator[Figure]:
    """How much more memory each program has in the last third than in the second."""
    third = len(sizes) // 3
    spans = sizes[third : 2 * third], sizes[2 * third :]
    for name in sorted({name for one in sizes for name in one}):
        before, after = (statistics.median(one.get(name, 0.0) for one in span) for span in spans)
        if before >= LEAST_MIB:
            yield figure(f"churn.memory.{name}", f"memory of {name} after ten minutes of churn, more than halfway", "%",
                         [100 * (after / before - 1)], goal=GROWTH_PERCENT)  # fmt: skip
