"""`gangplank metrics` on a live cluster, in a run with known events: each panel and each alert gives its known answer.

With GANGPLANK_GOLDEN=write, what was scraped becomes the recording of tests/charts/test_monitoring.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

from gangplank.cluster.progress import phase
from gangplank.wait import polls
from tests.support import known_events
from tests.support.known_events import MOST_JOBS, NOBODY, STORIES
from tests.support.recorded import FIXTURE, INTERVAL_S, Recording, judged
from tests.support.why_stories import begin, kubeconfig_of_nobody, under_way

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.conftest import Lab

BEGINS_S, KNOWN_S, SILENT_S = 120, 345, 90
# The command, but a scrape has a few jobs at most: a thousand would be too many to begin
EXPORTER = f"""import sys
from gangplank.cli import main
from gangplank.cluster import metrics
metrics.MOST_JOBS = {MOST_JOBS}
sys.exit(main())"""


@contextlib.contextmanager
def endpoint(kubeconfig: str) -> Iterator[Callable[[], str]]:
    """Something that scrapes `gangplank metrics --listen`."""
    command = [sys.executable, "-c", EXPORTER, "metrics", "--listen", "127.0.0.1:0", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        match = re.match(r"samples: (http://\S+)", server.stderr.readline())
        assert match
        url = match[1]

        def scrape() -> str:
            with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310  an http address
                return str(answer.read().decode())

        try:
            yield scrape
        finally:
            server.terminate()
            _, errors = server.communicate(timeout=60)
            assert "Traceback" not in errors


class Prometheus:
    """What scrapes both endpoints every INTERVAL_S seconds, as Prometheus would."""

    def __init__(self, scrapes: dict[str, Callable[[], str]]) -> None:
        self.scrapes, self.recording, self.began = scrapes, Recording(start=int(time.time())), time.monotonic()

    def scrape(self) -> None:
        """The next scrape, when it is due."""
        due = self.began + self.recording.length * INTERVAL_S
        time.sleep(max(0.0, due - time.monotonic()))
        for name, scrape in self.scrapes.items():
            self.recording.add(scrape(), instance=name, job=NOBODY["job"])
        self.recording.tick()

    def until(self, mark: str, done: Callable[[Recording], bool], limit_s: float) -> None:
        """Scrape until something holds of the last one, which gets a name."""
        for _ in polls(limit_s, 0):
            self.scrape()
            self.recording.marks[mark] = self.recording.length - 1
            if done(self.recording):
                return
        raise AssertionError(f"{mark}: not within {limit_s} s")

    def lasts(self, mark: str, seconds: float) -> None:
        """Scrape for a time."""
        end = self.recording.length + seconds / INTERVAL_S
        self.until(mark, lambda recording: recording.length >= end, 2 * seconds)


AVAILABLE = ("wait", "deployment", "--all", "--all-namespaces", "--for=condition=Available", "--timeout=60s")


def all_begun(recording: Recording) -> bool:
    """Whether two jobs run, one of them a training that says how far it is, and two others wait or run."""
    running = recording.at("begun", "gangplank_job_phase", phase="running", job_name="stops|over|fails")
    steps = recording.at("begun", "gangplank_rank_step", job_name="stops")
    return len(running) == 3 and len(steps) == 2


def test_every_panel_and_every_alert_gives_the_known_answer(lab: Lab, kubeconfig: str, tmp_path: Path) -> None:
    first = {name: story for name, story in STORIES.items() if name not in {"old", "fails"}}
    with under_way(lab, {"old": STORIES["old"]}), contextlib.ExitStack() as stack:
        where = ("jobs.batch.volcano.sh", "old", "-n", "why-old")
        lab.wait("the oldest job has ended", lambda: phase(lab.get(*where)).ended)
        stack.enter_context(under_way(lab, first))
        nobody = kubeconfig_of_nobody(lab, kubeconfig, tmp_path, "why-over")
        scrapes = {"admin": stack.enter_context(endpoint(kubeconfig)), "nobody": stack.enter_context(endpoint(nobody))}
        one = scrapes["admin"]
        lab.wait("a training says how far it is", lambda: one().count("gangplank_rank_step{") == 2, 180)
        prometheus = Prometheus(scrapes)
        stack.callback(lambda: lab.kubectl("delete", "namespace", "why-fails", "--wait=false", check=False))
        begin(lab, "fails", STORIES["fails"])
        prometheus.until("begun", all_begun, BEGINS_S)
        lab.kubectl("exec", "-n", "why-stops", "stops-worker-0", "--", "sh", "-c", "kill -STOP -1", check=False)
        prometheus.until("stopped", lambda _: True, BEGINS_S)
        prometheus.lasts("known", KNOWN_S)
        with lab.supervisor() as server:
            server.stopProcess("kube-apiserver")
        try:
            prometheus.lasts("silent", SILENT_S)
        finally:
            with lab.supervisor() as server:
                server.startProcess("kube-apiserver")
            lab.wait("the API server", lab.ready, 120)
            lab.wait("controllers that gave it up", lambda: lab.kubectl(*AVAILABLE), 400)  # begin again ever later
    recording = prometheus.recording
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        recording.save(FIXTURE)
    recording = recording.rebased()
    known_events.check(recording)
    assert judged(tmp_path, recording, known_events.answers(recording), known_events.firing(recording)) == ""
