"""Faults of a cluster under a training: how it ends, and how long until the next step.

It runs the faults of tests/cluster/faults.py, each under a job of every back-end at once, and after each it writes the
table of docs/faults.md. The floor is the least that any restart needs: the fault is noticed, a pod starts, torch is
imported, ranks meet. FAULTS="a rank killed,…" makes only these; rows of others stay in the page.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import pytest

from bench.figures import Beside, figure
from bench.part import ROOT, BenchError, Part
from bench.part import Lab as Needs
from gangplank.errors import KubeError
from tests.cluster.conftest import Lab
from tests.cluster.faults import BACKENDS, COMPONENTS, END_S, FAULTS, TRAINER, Outcome, job, prepared, undergo
from tests.cluster.jobs import NAMESPACE, Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("Faults of a cluster under a training", minutes=45, lab=Needs.DOWN, usual=False)
PAGE = ROOT / "docs/faults.md"
BEGIN, END = "<!-- begin: make bench PARTS=faults -->", "<!-- end -->"
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


def first_step(records: Sequence[Mapping[str, Any]], after: float) -> float | None:
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


def ended(lab: Lab, pod: str) -> bool:
    """Whether a pod has succeeded."""
    return bool(lab.get("pod", pod, "-n", NAMESPACE)["status"]["phase"] == "Succeeded")


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
        lab.wait("the pod's end", partial(ended, lab, f"alone-{at}"), END_S)
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


def alone(name: str) -> str:
    """What the page says of a fault that is made on one back-end; "" of others."""
    one = FAULTS[name]
    return f'"{name}" is made on {one.backends[0]} alone: {one.alone}.' if one.alone else ""


def write(to: Path, rows: dict[tuple[str, str], list[str]]) -> None:
    """Write the page's table."""
    order = [(name, backend) for name, one in FAULTS.items() for backend in one.backends]
    table = [HEAD, ["---"] * len(HEAD), *(rows[key] for key in order if key in rows)]
    lines = [
        f"Until {datetime.now(UTC):%Y-%m-%d}, on {os.cpu_count()} cores, each row with its floor in the same run.",
        "",
        *(f"| {' | '.join(row)} |" for row in table),
        "",
        *filter(None, map(alone, FAULTS)),
    ]
    before, _, rest = to.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    to.write_text("\n".join([before + BEGIN, "", *lines, "", END + after]))


def earlier(of: Path) -> dict[tuple[str, str], list[str]]:
    """The rows of the page, for the faults that are not made this time."""
    lines = of.read_text().partition(BEGIN)[2].partition(END)[0].splitlines()
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]
    return {(row[0], row[1]): row for row in table if row[0] in FAULTS}


def made(lab: Lab, names: list[str], to: Path) -> Iterator[tuple[str, str, Row]]:
    """Make each fault: its name, the back-end, and what the page says."""
    page, wrong = earlier(to), []
    with prepared(lab):
        floor, weights = floors(lab)
        for name in names:
            try:
                outcomes = undergo(lab, FAULTS[name])
                measurements = {backend: measured(outcome, FAULTS[name].unproven, floor, weights)
                                for backend, outcome in outcomes.items()}  # fmt: skip
            # The other faults are measured all the same.
            except (AssertionError, subprocess.SubprocessError, KubeError, pytest.fail.Exception) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                wrong.append(name)
                continue
            for backend, outcome in outcomes.items():
                row = measurements[backend]
                cause = FAULTS[name].cause or FAULTS[name].warns
                row["cause"] = next((match[0] for line in outcome.said.splitlines()
                                     if cause and (match := re.search(f"{cause}.*", line))), "")  # fmt: skip
                page[name, backend] = cells(name, backend, row)
                wrong += [f"{name}, {backend}"] if "**" in row["end"] else []
                yield name, backend, row
            write(to, page)
    if wrong:
        raise BenchError(f"faults: got another end for {'; '.join(wrong)}, expected those of docs/faults.md")


def measure(setting: Setting) -> Iterator[Figure]:
    """Bring up a lab of three nodes, measure, remove it."""
    names = [name for name in os.environ.get("FAULTS", "").split(",") if name]
    names = names or [name for name, one in FAULTS.items() if not one.long]
    if unknown := [name for name in names if name not in FAULTS]:
        raise BenchError(f"FAULTS: got {', '.join(unknown)}, expected some of {', '.join(FAULTS)}")
    lab = Lab()
    lab.more = (str(ROOT / "tests/cluster/three.yml"),)
    try:
        lab.playbook("playbooks/lab.yml", "playbooks/site.yml", *COMPONENTS)
        for name, backend, row in made(lab, names, setting.page(PAGE)):
            setting.say(" | ".join(cells(name, backend, row)))
            if "step" in row:
                floor = Beside.of("noticed, a pod, torch, meeting", [row["floor"]])
                slug = re.sub(r"[^a-z0-9]+", "-", name.lower())
                yield figure(f"faults.{slug}.{backend}", f"{name}, {backend}", "s", [row["step"]], floor=floor,
                             goal=GOAL * row["floor"], why=f"{GOAL} x the floor")  # fmt: skip
    finally:
        lab.playbook("playbooks/lab-down.yml")
