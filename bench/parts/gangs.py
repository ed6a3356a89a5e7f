"""How fast gangs start: 1,000 pods on 100 simulated nodes, from the first create to the last binding and to Running.

Ours is Volcano as the role installs it, on the lab's inventory. Its peers are Volcano with upstream's values, and
Kubernetes' own scheduler with plain Jobs, which has no gangs and whose controller sends 20 requests a second. All pods
come from the same template, the library's; the webhooks are on. The floor replays, for each pod, its creation, its
binding and the status of a started pod by a client that does nothing else. The nodes and what their pods do are KWOK's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.figures import Beside, figure, merged
from bench.gangs.site import prepared
from bench.gangs.ways import once, ways
from bench.part import Lab, Part
from tools.gang_figures import WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.figures import Figure
    from bench.gangs.start import Start
    from bench.part import Setting

PART = Part("Gangs on 100 simulated nodes", minutes=24, lab=Lab.UP, builds=("kwok",))
SHAPES = {"10x100": (10, 100), "100x10": (100, 10)}  # gangs, and pods of each
ROUNDS = 3
TIMES, SHARE = 3, 0.8  # the goal: so many times upstream's rate, or this share of the floor's where that is less
REFUSED = "creates of pods that the API server refused, such as of one that exists already"
LEAST_CPU_S, LEAST_REQUESTS = 1, 200  # of what has a line of its own


def measure(setting: Setting) -> Iterator[Figure]:
    """Each way in turns; the release changes once in a round."""
    starts: dict[tuple[str, str], list[Start]] = {}
    with prepared(setting) as volcano:
        every = list(ways(volcano).items())
        for number in range(ROUNDS):
            for way, work in every if number % 2 == 0 else reversed(every):
                if way == "kubernetes" and number:
                    continue  # its limit of requests leaves no spread: three rounds were within half a percent
                for shape, counts in SHAPES.items():
                    one = once(volcano, work, counts)
                    starts.setdefault((shape, way), []).append(one)
                    setting.say(f"round {number + 1}, {shape}, {way}: bound {one.bound_s:.1f} s, running "
                                f"{one.running_s:.1f} s, {one.partial} partial")  # fmt: skip
    for shape in SHAPES:
        yield from figures(shape, {way: rows for (other, way), rows in starts.items() if other == shape})


def figures(shape: str, starts: Mapping[str, Sequence[Start]]) -> Iterator[Figure]:
    """The figures of one shape: seconds and rates beside the peers and the floor."""
    count, size = SHAPES[shape]
    title = f"{count} gangs of {size} pods"
    for key, end in (("bound", "bound"), ("running", "Running")):
        seconds = {way: [getattr(one, f"{key}_s") for one in rows] for way, rows in starts.items()}
        peer, floor = Beside.of("upstream's values", seconds["upstream"]), Beside.of("bare client", seconds["floor"])
        goal = max(peer.value / TIMES, floor.value / SHARE)
        why = f"{TIMES} x upstream's rate, or {SHARE} of the floor's"
        yield figure(f"gangs.{shape}.{key}", f"{title}, all {end}", "s", seconds["ours"], peer=peer, floor=floor,
                     goal=goal, why=why)  # fmt: skip
        jobs = Beside.of("Volcano, ours", seconds["ours"])
        yield figure(f"gangs.{shape}.{key}.jobs", f"{title} as {WAYS['kubernetes']}, all {end}", "s",
                     seconds["kubernetes"], peer=jobs)  # fmt: skip
    rates = [count * size / one.bound_s for one in starts["ours"]]
    yield figure(f"gangs.{shape}.rate", f"{title}, bound", "pods/s", rates, better="more")
    for key in ("failed", "partial"):
        what = {"failed": "failed creates", "partial": "partial gangs"}[key]
        values = [float(getattr(one, key)) for one in starts["ours"]]
        loose = Beside.of("plain Jobs", [float(getattr(one, key)) for one in starts["kubernetes"]])
        yield figure(f"gangs.{shape}.{key}", f"{title}, {what}", "", values, peer=loose, goal=0)
    theirs = Beside.of("upstream's values", [one.refused for one in starts["upstream"]])
    yield figure(f"gangs.{shape}.refused", f"{title}, {REFUSED}", "", [one.refused for one in starts["ours"]],
                 peer=theirs)  # fmt: skip
    idle = {way: [one.idle for one in rows] for way, rows in starts.items()}
    yield figure(f"gangs.{shape}.idle", f"{title}, processors idle meanwhile", "%", idle["ours"],
                 peer=Beside.of("upstream's values", idle["upstream"]),
                 floor=Beside.of("bare client", idle["floor"]))  # fmt: skip
    yield from where_it_goes(shape, title, starts)


def where_it_goes(shape: str, title: str, starts: Mapping[str, Sequence[Start]]) -> Iterator[Figure]:
    """Requests to the API server, and CPU time of programs: all, and each that has a share worth naming."""
    kinds: tuple[tuple[str, str, str, float, Callable[[Start], Mapping[str, float]]], ...] = (
        ("requests", "requests", "", LEAST_REQUESTS, lambda one: one.requests),
        ("cpu", "CPU time", "s", LEAST_CPU_S, lambda one: one.cpu_s),
    )
    for kind, what, unit, least, of in kinds:
        every = {way: merged({"all": sum(of(one).values()), **of(one)} for one in starts[way])
                 for way in ("ours", "upstream", "floor")}  # fmt: skip
        ours = every["ours"]
        for name in sorted(ours, key=lambda name: -max(ours[name])):
            if max(ours[name]) >= least:
                nothing = [0.0] * len(ours[name])
                yield figure(f"gangs.{shape}.{kind}.{name}", f"{title}, {what}: {name}", unit, ours[name],
                             peer=Beside.of("upstream's values", every["upstream"].get(name, nothing)),
                             floor=Beside.of("bare client", every["floor"].get(name, nothing)))  # fmt: skip
