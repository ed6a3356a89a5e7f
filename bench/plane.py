"""The floor of `gangplank fit --exact`: etcd, the API server and Volcano's scheduler, started without a state.

They run as its copy does: in memory, in a network of their own, of the versions that the lab has.
"""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path

from bench.part import shown
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.shadow.exact import OURS
from gangplank.shadow.inside import FOLDER
from gangplank.shadow.plane import Plane
from gangplank.shadow.programs import version_of
from tests.support.bare_site import CONFIGURATION, VOLCANO, in_a_network, namespace, volcano

PROGRAMS = {"etcd": "bin.etcd", "kube-apiserver": "bin.kubernetes", VOLCANO: "bin.volcano"}


def start_s() -> float:
    """Seconds until the scheduler has looked at everything once."""
    programs = {name: str(shown(part) / name) for name, part in PROGRAMS.items()}
    configuration = (shown("charts.volcano") / "config" / CONFIGURATION).read_text()
    state = [*volcano(version_of(Path(programs[VOLCANO])), configuration), *namespace("default")]
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder, in_a_network() as call:
        return call(functools.partial(_started, Plane(programs, Path(folder)), state, configuration))


def _started(programs: Plane, state: list[tuple[str, dict[str, object]]], configuration: str) -> float:
    begin = time.monotonic()
    with programs as plane:
        plane.start_etcd()
        plane.load(state)
        plane.start_api()
        plane.start_scheduler({
            "program": VOLCANO, "words": OURS, "configuration": configuration, "flag": "--scheduler-conf",
        })  # fmt: skip
        for _ in plane.waiting("the scheduler"):
            if plane.metric(QUEUE_SYSTEM.sessions):
                break
        return time.monotonic() - begin
