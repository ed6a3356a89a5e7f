"""How long the library takes for a job of 10,000 replicas, counted in CPU time: other programs can only add to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.figures import Beside, alternate, figure
from bench.growth import WHY, n_log_n
from bench.part import ROOT, Part
from gangplank.backends import BACKENDS
from gangplank.backends.base import Site
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("From a job of 10,000 replicas to all its objects", minutes=2)
ROUNDS = 9
SMALL, THOUSAND, MANY = 3, 1000, 10_000
PEER = "the same objects read from JSON"


def cpu_s(work: Callable[[], object]) -> float:
    """Seconds of CPU time that this process takes for some work."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def expand(backend: str, replicas: int) -> list[dict[str, Any]]:
    """A job from its description to all its objects."""
    job = {"name": "bench", "image": "img", "script": "/a.py", "backend": backend, "workers": replicas - 1}
    spec = parse_job(job)
    return BACKENDS[backend].objects(BACKENDS[backend].manifests(spec)[-1], Site())


def thousand_s(backend: str) -> float:
    """Seconds for a job of 1,000 replicas, by ten jobs, one after the other."""

    def ten() -> None:
        for _ in range(10):
            expand(backend, THOUSAND)

    return cpu_s(ten) / 10


def python_ms(*words: str) -> float:
    """Milliseconds until a new interpreter has done this."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    return 1000 * (time.perf_counter() - begin)


def measure(setting: Setting) -> Iterator[Figure]:
    """For each back-end: three replicas, 10,000, and how the time grows by the last factor of ten."""
    for backend in BACKENDS:
        few, all_of_them = (json.dumps(expand(backend, replicas)) for replicas in (SMALL, MANY))
        works: dict[str, Callable[[], float]] = {
            "peer": partial(cpu_s, partial(json.loads, all_of_them)),
            "small peer": partial(cpu_s, partial(json.loads, few)),
            "small": partial(cpu_s, partial(expand, backend, SMALL)),
            "thousand": partial(thousand_s, backend),
            "many": partial(cpu_s, partial(expand, backend, MANY)),
        }
        values = alternate(ROUNDS, works)
        setting.say(f"{backend}: {ROUNDS} rounds")
        # the machine's pace changes between rounds, hardly within one
        growth = [many / thousand for many, thousand in zip(values["many"], values["thousand"], strict=True)]
        ms, ms_of_peer = ([1000 * value for value in values[name]] for name in ("small", "small peer"))
        peer = Beside.of(PEER, ms_of_peer)
        yield figure(f"expand.{backend}.3", f"expand 3 pods, {backend}", "ms", ms, peer=peer, goal=5)
        peer = Beside.of(PEER, values["peer"])
        yield figure(
            f"expand.{backend}.10000", f"expand 10,000 pods, {backend}", "s", values["many"], peer=peer, goal=2
        )
        yield figure(f"expand.{backend}.growth", f"10,000 pods over 1,000, {backend}", "x", growth,
                     goal=n_log_n(THOUSAND, MANY), why=WHY)  # fmt: skip
    programs = {"help": ("-m", "gangplank", "--help"), "bare": ("-c", "")}
    ms_of = alternate(ROUNDS, {name: partial(python_ms, *words) for name, words in programs.items()})
    floor = Beside.of("an interpreter that does nothing", ms_of["bare"])
    yield figure("expand.help", "gangplank --help", "ms", ms_of["help"], floor=floor, goal=150)
