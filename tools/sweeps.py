"""The sweeps: long counts of a test that `make test` samples, and their last results.

A name here is the one that the test's file gives to `tests.support.sweeps.sweeping`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "tests/sweeps/results"
PARTS = ("make --no-print-directory parts",)
FULL = "test-full"  # no sweep: the parts of `make test-full`, whose results are kept in the same way
KEPT = 4  # runs of each of these parts: a failure is not forgotten because the next run passed
LAB = "/var/lib/gangplank/lab"


@dataclass(frozen=True)
class Sweep:
    """One sweep."""

    shows: str
    cases: str
    """How many and of what."""
    tests: str
    """What pytest collects."""
    before: tuple[str, ...] = ()
    """Commands that build or start what the cases need."""
    after: tuple[str, ...] = ()
    """Commands that end it, whatever happened."""
    environment: dict[str, str] = field(default_factory=dict)


SWEEPS = {
    "honest": Sweep(
        "Honest runs of every shape are proven",
        "300 seeds",
        "tests/trainer/test_honest.py::test_an_honest_run_is_proven",
        PARTS,
    ),
    "host-kills": Sweep(
        "A run after a SIGKILL of the lab's host code, after a reboot or after a power cut, converges",
        "each step of making nodes, of one that joins or leaves, of removing them, of making them around a reboot,"
        " of writing what they need, and of starting and changing their programs",
        "tests/lab/test_host_kills.py::test_a_run_after_a_kill_converges"
        " tests/lab/test_supervisor_kills.py::test_d1_a_killed_start_or_change_of_the_labs_programs_converges",
    ),
    "playbook-kills": Sweep(
        "A run after a SIGKILL of a playbook, at any moment of any task, converges",
        "40 rounds; in each, every playbook that has points left is killed at eight of them, in a new lab;"
        " a round beyond the last point does nothing",
        "tests/cluster/test_playbook_kills.py::test_d6_each_playbook_of_a_labs_life_converges",
        PARTS,
    ),
    "long-faults": Sweep(
        "A training survives a fault of its cluster that lasts",
        "a node cut off for 10 minutes, under a job of each of two back-ends, on a lab of three nodes",
        "tests/cluster/test_cluster_faults.py::test_d_ends_with_the_exact_weights",
        PARTS,
    ),
    "vm": Sweep(
        "The lab runs on cgroup v2 below systemd, and a run after a power cut heals it",
        "every test of tests/vm: the lab comes up, limits of pods hold, three power cuts, nothing is left",
        "tests/vm",
        PARTS,
    ),
    "reproducible": Sweep(
        "Clean builds give the locked digests, which an earlier build had",
        "every part that is compiled, with its images; every Debian root. `make test` builds `pause`, `shell`",
        "tests/lab/test_reproducible.py::test_c3_clean_builds_have_the_locked_digests"
        " tests/lab/test_roots.py::test_builds_give_the_locked_bytes_without_a_network",
        PARTS,
    ),
    "mutants": Sweep(
        "Without any one rule of the admission, what it refused gets in",
        "every mutant of every policy, on the lab",
        "molecule/teams/test_mutants.py",
        (
            *PARTS,
            "molecule create --scenario-name default",
            "molecule converge --scenario-name teams",
        ),
        ("molecule destroy --scenario-name default",),
        {"KUBECONFIG": f"{LAB}/admin.kubeconfig"},
    ),
    "race": Sweep(
        "Two teams and one that cheats submit at once: every moment keeps caps, gangs and shares",
        "2 x 100 jobs with each of 5 seeds, on the lab",
        "tests/cluster/test_race.py",
        PARTS,
    ),
    "when": Sweep(
        "How near `when` comes to when jobs start and end, and how often its intervals hold",
        "50 trainings of three lengths, 10 behind one another five times, on the lab",
        "tests/cluster/test_when.py",
        PARTS,
    ),
    "fit-mixes": Sweep(
        "What `fit` computes is what the scheduler answers in a copy, and what the live one does",
        "300 seeds, each with 20 to 100 simulated nodes and a job that waits or starts, on the lab",
        "tests/cluster/test_fit_mixes.py",
        PARTS,
    ),
    "causes": Sweep(
        "How soon `why` names a cause, and that it names no other before",
        "every cause that a test makes real in an unchanged lab, and those that a taint, a cordon, a silent node or"
        " component, a closed queue or another job makes; each alone",
        "tests/cluster/test_causes.py",
        PARTS,
    ),
    "nobody-blamed": Sweep(
        "`why` blames no job that is healthy or merely waits, at any moment of its life",
        "100 jobs of four back-ends, 8 at a time, asked about twice a second until each has ended, on the lab",
        "tests/cluster/test_nobody_blamed.py",
        PARTS,
    ),
    "gangs": Sweep(
        "Gangs of other shapes, and on ten times as many nodes, start whole, and how fast",
        "500 gangs of 20 pods and 1 of 1,000 on 100 simulated nodes, 10 of 100 and 100 of 10 on 1,000. The first has"
        " one round and the others have three, beside their peers and the floor, on the lab",
        "tests/cluster/test_gangs.py",
        PARTS,
    ),
    "differential": Sweep(
        "The library predicts what live controllers make of generated jobs",
        "every test of tests/cluster/differential, with 60 generated jobs of each back-end",
        "tests/cluster/differential",
        PARTS,
    ),
}


@dataclass(frozen=True)
class Result:
    """What the last run of a part found."""

    commit: str
    date: str
    machine: str
    cases: int
    passed: int
    failed: list[str]
    """The cases, with their seeds."""
    minutes: float


@dataclass(frozen=True)
class FullResult(Result):
    """What a run of a part of `make test-full` found; older results do not say the rest."""

    fresh: bool | None = None
    """Whether the checkout had nothing but its commit when the run began: it was a clone made for it."""
    division: str = ""
    """The hash of tests/minutes.yml, which divides the pieces into parts: parts with another one overlap."""
    seed: int | None = None
    """Of the order of its files; SEED=… of `make test-full` repeats it."""


def runs(name: str) -> dict[str, list[Result]]:
    """The last results of a sweep by part, the newest last; of `make test-full` up to `KEPT` of each part."""
    path = RESULTS / f"{name}.json"
    parts = json.loads(path.read_text()) if path.exists() else {}
    kind = FullResult if name == FULL else Result
    return {part: [kind(**one) for one in (own if isinstance(own, list) else [own])] for part, own in parts.items()}


def read(name: str) -> dict[str, Result]:
    """The last result of each part of a sweep."""
    return {part: own[-1] for part, own in runs(name).items()}


def write(name: str, part: str, result: Result) -> None:
    """Put a result beside those of the other parts; parts of another division are outdated."""
    results = {key: own for key, own in runs(name).items() if key.split("/")[1] == part.split("/")[1]}
    results[part] = [*results.get(part, []), result][-(KEPT if name == FULL else 1) :]
    RESULTS.mkdir(parents=True, exist_ok=True)
    parts = sorted(results.items(), key=lambda item: int(item[0].split("/")[0]))
    rows = {key: [dataclasses.asdict(one) for one in own] for key, own in parts}
    text = json.dumps(rows if name == FULL else {key: own[-1] for key, own in rows.items()}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
