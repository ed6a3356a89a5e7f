"""`gangplank why` of a hundred ordinary jobs, while each starts, runs, waits for the others, and has ended.

Nobody is blamed: there is no cause, or others hold what the job needs. Only in `make test-full`.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.client import Kube
from tests.support.sweeps import FULL
from tests.support.why_stories import SMALL, Story, asked, story

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
JOBS = 100
AT_ONCE = 8
LIMIT_S = 300.0  # for each: a large one waits for others
LARGE = {"cpu": "700m", "memory": "32Mi"}  # two pods of it: the lab has room for two such jobs, so that some wait
ENDS = tuple(f"nothing is wrong: it is {end}" for end in ("Complete", "Succeeded"))

pytestmark = pytest.mark.skipif(not FULL, reason="a hundred jobs: make test-full")


def ordinary(number: int) -> Story:
    """A job that does nothing for a few seconds."""
    backend = list(BACKENDS)[number % len(BACKENDS)]
    resources = LARGE if number % 5 < 2 else SMALL
    return Story("", {"command": ["sleep", str(2 + number % 4)], "resources": resources}, backend)


def answers(lab: Lab, kubeconfig: str, number: int) -> list[str]:
    """What why says of a job again and again until it has ended; its last line is the one that blames it, if any."""
    kube, lines = Kube(kubeconfig), [""]
    with story(lab, f"ordinary-{number}", ordinary(number)) as job:
        until = time.monotonic() + LIMIT_S
        while not any(end in lines[-1] for end in ENDS):
            if time.monotonic() > until:
                return [*lines, f"not within {LIMIT_S:.0f} s: {lines[-1]}"]
            diagnosis = asked(kube, job)
            lines.append(diagnosis.first_line)
            if diagnosis.cause and not diagnosis.cause.passing:
                return [*lines, diagnosis.text()]
            time.sleep(0.5)
    return lines


def moment(line: str) -> str:
    """What a job does of which why says this."""
    if any(end in line for end in ENDS):
        return "has ended"
    if " waits because " in line or "would start now" in line or "cannot tell" in line:
        return "waits"
    return "starts" if ", 2 of 2 pods run" not in line else "runs"


def test_no_ordinary_job_is_blamed_at_any_moment(lab: Lab, full_kubeconfig: str, capsys: Any) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(pool.map(lambda number: answers(lab, full_kubeconfig, number), range(JOBS)))
    blamed = [lines[-1] for lines in said if not any(end in lines[-1] for end in ENDS)]
    moments = Counter(kind for lines in said for kind in {moment(line) for line in lines if line})
    with capsys.disabled():
        print(f"\n{len(blamed)} of {JOBS} ordinary jobs blamed; asked while each {dict(sorted(moments.items()))}")
    assert blamed == []
    assert moments["has ended"] == JOBS
    assert min(moments["runs"], moments["waits"]) > 0, moments
