"""`gangplank why` of ordinary jobs, while each starts, runs, waits for the others, and has ended.

Nobody is blamed: there is no cause, or others hold what the job needs. An answer whose first line cannot tell blames,
too: an administrator may read everything. A sweep asks about a hundred jobs, and keeps what it counts in
tests/sweeps/nobody-blamed.json; `make test-full` asks about those of one round.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.client import Kube
from tests.support.sweeps import FULL, sweeping
from tests.support.why_stories import SMALL, Story, asked, story
from tools.blame_figures import MOMENTS, UNSURE, Ordinary, keep, summary

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
ROUNDS = 4 if sweeping("nobody-blamed") else 1
JOBS = 25  # of a round
AT_ONCE = 8
LIMIT_S = 300.0  # for each: a large one waits for others
LARGE = {"cpu": "700m", "memory": "32Mi"}  # two pods of it: the lab has room for two such jobs, so that some wait
ENDS = tuple(f"nothing is wrong: it is {end}" for end in ("Complete", "Succeeded"))

pytestmark = pytest.mark.skipif(not (FULL or sweeping("nobody-blamed")), reason="25 jobs: make test-full")


def ordinary(number: int) -> Story:
    """A job that does nothing for a few seconds, in one of three ways."""
    backend = list(BACKENDS)[number % len(BACKENDS)]
    seconds = 2 + number % 4
    commands = (
        ["sleep", str(seconds)],
        ["sh", "-c", f"echo Error: none; sleep {seconds}"],
        ["python3", "-c", f"import time; time.sleep({seconds})"],
    )
    resources = LARGE if number % 5 < 2 else SMALL
    return Story("", {"command": commands[number % len(commands)], "resources": resources}, backend)


def answers(lab: Lab, kubeconfig: str, number: int) -> Ordinary:
    """What why says of a job again and again until it has ended, or is blamed."""
    kube, name, one = Kube(kubeconfig), f"ordinary-{number:02}", ordinary(number)
    counts, line, unsure, blamed = Counter[str](), "", 0, ""
    with story(lab, name, one) as job:
        until = time.monotonic() + LIMIT_S
        while not blamed and not counts["has ended"]:
            diagnosis = asked(kube, job)
            line = diagnosis.first_line
            counts[moment(line)] += 1
            unsure += bool(diagnosis.missing and not diagnosis.cause)
            if UNSURE in line or (diagnosis.cause and not diagnosis.cause.passing):
                blamed = line
            elif time.monotonic() > until and not counts["has ended"]:
                blamed = f"not within {LIMIT_S:.0f} s: {line}"
            time.sleep(0.5)
    return Ordinary(name, one.backend, dict(counts), blamed, unsure)


def moment(line: str) -> str:
    """What a job does of which why says this."""
    if any(end in line for end in ENDS):
        return "has ended"
    if " waits because " in line or "would start now" in line:
        return "waits"
    return "starts" if ", 2 of 2 pods run" not in line else "runs"


@pytest.mark.parametrize("number", range(ROUNDS))
def test_no_ordinary_job_is_blamed_at_any_moment(
    lab: Lab, full_kubeconfig: str, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    jobs = range(number * JOBS, (number + 1) * JOBS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(lambda job: answers(lab, full_kubeconfig, job), jobs))
    if sweeping("nobody-blamed"):
        keep(rows)
    with capsys.disabled():
        print(f"\n{summary(rows)}")
    assert [row for row in rows if row.blamed] == []
    moments = {kind: sum(bool(row.answers.get(kind)) for row in rows) for kind in MOMENTS}
    assert moments["has ended"] == JOBS
    assert min(moments["runs"], moments["waits"]) > 0, moments
