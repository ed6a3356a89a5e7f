"""Faults of a cluster under a training: how it ends, and how long until the next step: `make bench-faults`.

It runs the faults of tests/cluster/faults.py, each under a job of every back-end at once, and after each it writes the
table of docs/faults.md. The floor is the least that any restart needs: the fault is noticed, a pod starts, torch is
imported, ranks meet.

    bench/faults.py [--only "a rank killed" ...]    figures of other faults in the page stay

It needs a lab of three nodes with Volcano, and starts and removes its own unless GANGPLANK_KUBECONFIG is set.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gangplank.errors import KubeError  # noqa: E402  # found by the line above
from tests.cluster.conftest import Lab  # noqa: E402  # the same
from tests.cluster.faults import (  # noqa: E402  # the same
    BACKENDS,
    END_S,
    FAULTS,
    NOT_HERE,
    TRAINER,
    Outcome,
    job,
    prepared,
    undergo,
)
from tests.cluster.jobs import NAMESPACE, Job  # noqa: E402  # the same

PAGE = ROOT / "docs/faults.md"
BEGIN, END = "<!-- begin: make bench-faults -->", "<!-- end -->"
HEAD = ["fault", "back-end", "ends", "next step, s", "floor, s", "noticed + pod + import + meet, s", "ratio", "load"]
GOAL = 1.5
SHOWN = 100  # characters of a cause
Row = dict[str, Any]
PARTS = ("noticed", "pod", "import", "meet")
# A pod of the image that says when it runs, and when it has torch.
ALONE = "import time; print(time.time(), flush=True); import torch; print(time.time())"


def seconds(text: str) -> float:
    """A time of the API server's, which has whole seconds."""
    return datetime.fromisoformat(text).timestamp()


def first_step(records: list[Row], after: float) -> float | None:
    """When the ranks took the first step of the last run that began after a time; None if none did."""
    begins = [float(record["time"]) for record in records if record["kind"] == "begin"]
    if not begins or max(begins) < after:
        return None
    return min(float(record["time"]) for record in records
               if record["kind"] == "gradients" and float(record["time"]) >= max(begins))  # fmt: skip


def pause(records: list[Row], after: float) -> float:
    """The longest time between two epochs from then on, if no rank began again."""
    ends = sorted(float(record["time"]) for record in records if record["kind"] == "epoch" and record["rank"] == 0)
    return max((late - early for early, late in pairwise(ends) if late > after), default=0.0)


def noticed(outcome: Outcome) -> float:
    """Seconds until a pod of the job, or the job itself, was not as before."""
    for when, line in outcome.lines:
        match = re.search(r": (\w+), (\d+)/(\d+) pods ready", line)
        if when > outcome.made and match and (match[2] != match[3] or match[1] != "Running" or match[3] != "2"):
            return when - outcome.made
    return 0.0


def starting(lab: Lab, count: int) -> tuple[float, float]:
    """Seconds from a pod's creation to its program, and of the program's import of torch; `count` pods at once."""
    began = time.time()
    for at in range(count):
        container = {"name": "alone", "image": TRAINER, "command": ["python3", "-c", ALONE]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"alone-{at}", "namespace": NAMESPACE},
               "spec": {"restartPolicy": "Never", "containers": [container]}}  # fmt: skip
        lab.kubectl("create", "-f", "-", stdin=json.dumps(pod))
    times = []
    for at in range(count):
        lab.wait("the pod's end", lambda at=at: lab.get("pod", f"alone-{at}", "-n", NAMESPACE)["status"]["phase"]
                 == "Succeeded", END_S)  # fmt: skip
        up, ready = map(float, lab.kubectl("logs", f"alone-{at}", "-n", NAMESPACE).split())
        times.append((up - began, ready - up))
        lab.kubectl("delete", "pod", f"alone-{at}", "-n", NAMESPACE, "--now")
    return statistics.median(start for start, _ in times), statistics.median(load for _, load in times)


def floors(lab: Lab) -> tuple[dict[str, float], str]:
    """Seconds of each part of a start of two jobs that nothing happens to, and their final weights."""
    start, load = starting(lab, 2 * len(BACKENDS))
    jobs = [job(lab, "calm", backend) for backend in BACKENDS]
    for one in jobs:
        one.submit()
    for one in jobs:
        one.end(END_S)
    (weights,) = {one.weights() for one in jobs}
    both = statistics.median(map(meeting, jobs))  # the import of a pod alone can be slower, if other work went on then
    return {"pod": start, "import": min(load, both), "meet": max(0.0, both - load)}, weights


def meeting(one: Job) -> float:
    """Seconds from the start of a job's last container to its first step."""
    states = [pod["status"]["containerStatuses"][0]["state"] for pod in one.pods()]
    started = max(seconds(state["terminated"]["startedAt"]) for state in states if "terminated" in state)
    return (first_step(one.records(), 0.0) or started) - started


def measured(outcome: Outcome, unproven: str, floor: dict[str, float], weights: str) -> Row:
    """What the page says of a job under a fault."""
    one = outcome.job
    if outcome.end is None or not outcome.end.succeeded:
        return {"end": f"**{outcome.end.name if outcome.end else 'no end'}**"}
    wrong = outcome.verdict(unproven) and "**NOT PROVEN**"
    wrong = wrong or ("" if one.weights() == weights else "**other weights**")
    end = wrong or ("exact weights; the proof names the clock" if unproven else "exact weights, proven")
    records = [dict(record) for record in one.records()]
    step = first_step(records, outcome.made)
    row: Row = {"end": end}
    if step is None:
        return {**row, "pause": pause(records, outcome.made)}
    held = outcome.healed - outcome.made
    # What lasts has to be over before pods can start, unless they started meanwhile.
    lasts = held if step > outcome.healed else 0.0
    parts = {"noticed": max(noticed(outcome), lasts), **floor}
    whole = sum(parts.values())
    return {**row, **parts, "floor": whole, "step": step - outcome.made, "ratio": (step - outcome.made) / whole}


def cells(name: str, backend: str, row: Row) -> list[str]:
    """A row of the page's table."""
    said = row["end"] + (f"; meanwhile: `{shorten(row['cause'], SHOWN)}`" if row.get("cause") else "")
    load = f"{os.getloadavg()[1]:.0f}"
    if "pause" in row:
        return [name, backend, said, f"no restart; longest pause {row['pause']:.1f}", "", "", "", load]
    if "step" not in row:
        return [name, backend, said, "", "", "", "", load]
    parts = " + ".join(f"{row[part]:.1f}" for part in PARTS)
    ratio = f"{row['ratio']:.1f}" if row["ratio"] <= GOAL else f"**{row['ratio']:.1f}**"
    return [name, backend, said, f"{row['step']:.1f}", f"{row['floor']:.1f}", parts, ratio, load]


def write(rows: dict[tuple[str, str], list[str]]) -> None:
    """Write the page's table."""
    order = [(name, backend) for name, one in FAULTS.items() for backend in one.backends]
    table = [HEAD, ["---"] * len(HEAD), *(rows[key] for key in order if key in rows)]
    lines = [
        f"Until {datetime.now(UTC):%Y-%m-%d}, on {os.cpu_count()} cores, each row with its floor in the same run.",
        "",
        *(f"| {' | '.join(row)} |" for row in table),
        "",
        *(f"Not made here: {name}: {why}" for name, why in NOT_HERE.items()),
    ]
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]))


def earlier() -> dict[tuple[str, str], list[str]]:
    """The rows of the page, for the faults that are not made this time."""
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return {(row[0], row[1]): row for row in table if row[0] in FAULTS}


def measure(lab: Lab, names: list[str]) -> int:
    """Make each fault; how many ended otherwise than they have to."""
    rows, wrong = earlier(), 0
    with prepared(lab):
        floor, weights = floors(lab)
        for name in names:
            try:
                outcomes = undergo(lab, FAULTS[name], BACKENDS)
                measurements = {backend: measured(outcome, FAULTS[name].unproven, floor, weights)
                                for backend, outcome in outcomes.items()}  # fmt: skip
            # The other faults are measured all the same.
            except (AssertionError, subprocess.SubprocessError, KubeError, pytest.fail.Exception) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                wrong += 1
                continue
            for backend, outcome in outcomes.items():
                row = measurements[backend]
                cause = FAULTS[name].cause or FAULTS[name].warns
                row["cause"] = next((match[0] for line in outcome.said.splitlines()
                                     if cause and (match := re.search(f"{cause}.*", line))), "")  # fmt: skip
                rows[name, backend] = cells(name, backend, row)
                wrong += "**" in row["end"]
                print(" | ".join(rows[name, backend]), flush=True)
            write(rows)
    return wrong


def main() -> int:
    """Bring up the lab, measure, remove it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), default=list(FAULTS), metavar="FAULT")
    names = parser.parse_args().only
    lab = Lab()
    lab.more = (str(ROOT / "tests/cluster/three.yml"),)
    if os.environ.get("GANGPLANK_KUBECONFIG"):
        return measure(lab, names)
    try:
        lab.playbook("playbooks/lab.yml", "playbooks/site.yml")
        return measure(lab, names)
    finally:
        lab.playbook("playbooks/lab-down.yml")


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
