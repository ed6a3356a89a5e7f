"""Faults of a cluster under a training: how it ends, and how long until the next step.

It makes the faults of tests/cluster/faults.py, each under a job of every back-end at once. The floor is the least that
any restart needs: the fault is noticed, a pod starts, torch is imported, ranks meet. FAULTS="a rank killed,…" makes
only these; the figures of others stay. A wrong end is a figure too, which misses its goal. docs/faults.md shows all.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from datetime import datetime
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
from tools.write_docs_tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.figures import Figure, Result
    from bench.part import Setting

PART = Part("Faults of a cluster under a training", minutes=45, lab=Needs.DOWN, usual=False, adds=True)
HEAD = ["fault", "back-end", "ends", "next step, s", "floor, s", "noticed + pod + import + meet, s", "ratio", "load",
        "measured"]  # fmt: skip
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
    lost = max(0.0, outcome.lost - outcome.made)  # no pod can replace that of a node before
    parts = {"noticed": max(noticed(outcome), lasts, lost), **floor}
    whole = sum(parts.values())
    return {**row, **parts, "floor": whole, "step": step - outcome.made, "ratio": (step - outcome.made) / whole}


def kept(name: str, backend: str, row: Row) -> Figure:
    """The figure of a job under a fault, with what the page says of it: of one id, however it ended."""
    facts = {"fault": name, "backend": backend, "load": round(os.getloadavg()[1]), **row}
    id_, title = f"faults.{FAULTS[name].slug}.{backend}", f"{name}, {backend}"
    if "**" in row["end"] or not {"step", "pause"} & {*row}:
        return figure(id_, f"{title}, wrong ends", "ends", [1], goal=0, facts=facts)
    if "step" not in row:
        return figure(id_, f"{title}, longest pause", "s", [row["pause"]], facts=facts)
    floor = Beside.of("noticed, a pod, torch, meeting", [row["floor"]])
    return figure(id_, title, "s", [row["step"]], floor=floor, goal=GOAL * row["floor"], why=f"{GOAL} x the floor",
                  facts=facts)  # fmt: skip


def cells(row: Row) -> list[str]:
    """A row of the page's table, from the facts of a figure."""
    said = row["end"] + (f"; meanwhile: `{shorten(row['cause'], SHOWN)}`" if row.get("cause") else "")
    middle = ["", "", "", ""]
    if "pause" in row:
        middle[0] = f"no restart; longest pause {row['pause']:.1f}"
    elif "step" in row:
        ratio = f"{row['ratio']:.1f}" if row["ratio"] <= GOAL else f"**{row['ratio']:.1f}**"
        middle = [f"{row['step']:.1f}", f"{row['floor']:.1f}", " + ".join(f"{row[part]:.1f}" for part in PARTS), ratio]
    run = f"{row['date']}, `{row['commit']}`, {row['cores']} cores" if "commit" in row else ""
    return [row["fault"], row["backend"], said, *middle, str(row["load"]), run]


def alone(name: str) -> str:
    """What the page says of a fault that is made on one back-end; "" of others."""
    one = FAULTS[name]
    return f'"{name}" is made on {one.backends[0]} alone: {one.alone}.' if one.alone else ""


def shown(text: str, result: Result | None) -> str:
    """What docs/faults.md, whose text this is, has to show of a result, with the rows that name no commit."""
    rows = earlier(text) | {
        (one.facts["fault"], one.facts["backend"]): cells(one.facts) for one in (result.figures if result else ())
    }
    order = [(name, backend) for name, one in FAULTS.items() for backend in one.backends]
    return "\n\n".join([table(HEAD, [rows[key] for key in order if key in rows]), *filter(None, map(alone, FAULTS))])


def earlier(text: str) -> dict[tuple[str, str], list[str]]:
    """The rows of a page that are of before results were kept, and so name no commit."""
    table_of = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()]
    old = [row for row in table_of if len(row) == len(HEAD) and row[0] in FAULTS and "`" not in row[-1]]
    return {(row[0], row[1]): row for row in old}


def made(lab: Lab, names: list[str]) -> Iterator[Figure]:
    """Make each fault: a figure for each back-end."""
    with prepared(lab):
        floor, weights = floors(lab)
        for name in names:
            one = FAULTS[name]
            try:
                outcomes = undergo(lab, one)
                rows = {backend: measured(outcome, one.unproven, floor, weights)
                        for backend, outcome in outcomes.items()}  # fmt: skip
            # The other faults are made all the same.
            except (AssertionError, subprocess.SubprocessError, KubeError, pytest.fail.Exception) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                reason = shorten(f"{type(error).__name__}: {error}", SHOWN).replace("`", "'")
                for backend in one.backends:
                    yield kept(name, backend, {"end": f"**not as expected**: `{reason}`"})
                continue
            for backend, outcome in outcomes.items():
                cause = one.cause or one.warns
                rows[backend]["cause"] = next((match[0] for line in outcome.said.splitlines()
                                               if cause and (match := re.search(f"{cause}.*", line))), "")  # fmt: skip
                yield kept(name, backend, rows[backend])


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
        for one in made(lab, names):
            setting.say(" | ".join(cells(one.facts)))
            yield one
    finally:
        lab.playbook("playbooks/lab-down.yml")
