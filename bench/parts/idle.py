"""What the lab uses while nothing trains: memory and CPU of every process in its cgroups, those of pods included.

Memory is Pss, in which a page that several processes share counts once. Files that a process has mapped, as programs
and libraries are, count too; the rest of the page cache does not. CPU is what the cgroup counts. The lab has Volcano
and storage, a training has just ended, and its last pods are gone. The floor is the share of Kubernetes itself without
any pods, in the same spans.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Beside, figure
from bench.part import BenchError, Lab, Part, playbook
from bench.programs import memory, spent, ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.figures import Figure
    from bench.part import Setting

Span = tuple[dict[str, float], dict[str, float], float]  # MiB and percent by program, and of all together
PART = Part("What the lab uses while nothing trains", minutes=4, lab=Lab.UP, first=True)
SETTLE_S, SPAN_S, ROUNDS = 90, 30, 4
MEMORY_MIB, CPU_PERCENT = 1024, 10
CPU = ("/sys/fs/cgroup/cpuacct/gangplank", "/sys/fs/cgroup/cpu,cpuacct/gangplank", "/sys/fs/cgroup/gangplank")
LEAST_MIB, LEAST_PERCENT = 10, 0.2  # what has a line of its own
KUBERNETES = {
    "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "containerd",
}  # fmt: skip


def used_s() -> float:
    """Seconds of CPU of the whole lab so far, those of processes that have ended included."""
    for folder in map(Path, CPU):
        if (folder / "cpuacct.usage").exists():
            return int((folder / "cpuacct.usage").read_text()) / 1e9
        if (folder / "cpu.stat").exists():
            return int((folder / "cpu.stat").read_text().split()[1]) / 1e6
    raise BenchError(f"cgroup of the lab: got none at {', '.join(CPU)}, expected one. Fix: make lab")


def span() -> Span:
    """MiB by program, and over some seconds the percents of a core by program, and of all together."""
    began, whole, each = time.monotonic(), used_s(), ticks()
    time.sleep(SPAN_S)
    passed, after = time.monotonic() - began, ticks()
    percent = {name: 100 * seconds / passed for name, seconds in spent(each, after).items()}
    return memory(), percent, 100 * (used_s() - whole) / passed


def measure(setting: Setting) -> Iterator[Figure]:
    """A training, a pause, then some spans of nothing."""
    playbook("playbooks/train.yml", "-e", "@jobs/digits.yml")
    time.sleep(SETTLE_S)
    spans = []
    for _ in range(ROUNDS):
        spans.append(span())
        setting.say(f"{sum(spans[-1][0].values()):.0f} MiB, {spans[-1][2]:.1f} % of a core")
    yield from figures(spans)


def figures(spans: Sequence[Span]) -> Iterator[Figure]:
    """All programs together, beside those of Kubernetes itself; and each of them."""
    sizes, percents, whole = zip(*spans, strict=True)
    yield figure("idle.memory", "memory of all that the lab runs", "MiB", [sum(one.values()) for one in sizes],
                 floor=itself(sizes), goal=MEMORY_MIB)  # fmt: skip
    yield figure("idle.cpu", "CPU of all that the lab runs", "% of a core", whole, floor=itself(percents),
                 goal=CPU_PERCENT)  # fmt: skip
    yield from largest("memory", "MiB", LEAST_MIB, sizes)
    yield from largest("cpu", "% of a core", LEAST_PERCENT, percents)


def itself(spans: Sequence[dict[str, float]]) -> Beside:
    """The share of Kubernetes itself."""
    return Beside.of("Kubernetes itself", [sum(one.get(name, 0.0) for name in KUBERNETES) for one in spans])


def largest(kind: str, unit: str, least: float, spans: Sequence[dict[str, float]]) -> Iterator[Figure]:
    """Where it goes: a figure for each program that has a share worth naming."""
    names = {name for one in spans for name in one}
    values = {name: [one.get(name, 0.0) for one in spans] for name in names}
    for name in sorted(names, key=lambda name: -max(values[name])):
        if max(values[name]) >= least:
            yield figure(f"idle.{kind}.{name}", name, unit, values[name])
