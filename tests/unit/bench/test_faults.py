"""The part `faults`: what it keeps of each fault, and what docs/faults.md shows of it."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bench.figures import Result
from bench.parts import faults
from tests.cluster.faults import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figures import Figure

RUN = {"date": "2026-11-26", "commit": "abc", "cores": 2}
STEP = {"end": "exact weights, proven", "noticed": 1.0, "pod": 1.0, "import": 3.0, "meet": 1.0, "floor": 6.0,
        "step": 12.0, "ratio": 2.0}  # fmt: skip
CALM = {"end": "exact weights, proven", "pause": 0.4}
OLD = ["etcd killed", "volcano", "exact weights, proven", "14.6", "11.6", "4.5 + 1.1", "1.3", "3", "until 2026-11-23"]


def result(*figures: Figure) -> Result:
    for one in figures:
        one.facts.update(RUN)
    return Result("2026-11-26", "abc", {}, 1.0, figures)


def text(*rows: list[str]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (faults.HEAD, *rows))


def shown(page: str) -> dict[tuple[str, str], list[str]]:
    rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in page.splitlines() if line.startswith("| ")]
    return {(row[0], row[1]): row[2:] for row in rows[1:]}


@pytest.mark.parametrize(("row", "value", "met"), [
    (STEP, 12.0, False), (CALM, 0.4, None), ({"end": "**Failed**"}, 1, False), ({**STEP, "end": "**other**"}, 1, False),
], ids=["restarts", "no restart", "fails", "other weights"])  # fmt: skip
def test_a_fault_has_one_figure_however_it_ends(row: dict[str, Any], value: float, met: bool | None) -> None:
    one = faults.kept("etcd killed", "volcano", row)
    assert (one.id, one.value, one.met) == ("faults.etcd-killed.volcano", value, met)
    assert (one.goal == 0) == ("**" in row["end"])


def test_the_page_shows_each_fault_with_its_commit_and_old_rows_until_a_figure_replaces_them() -> None:
    killed = ["a rank killed", *OLD[1:]]
    before = text(killed, OLD)
    assert shown(faults.shown(before, None)) == shown(before)
    after = faults.shown(before, result(faults.kept("etcd killed", "volcano", STEP)))
    rows = shown(after)
    assert rows["a rank killed", "volcano"] == killed[2:]
    assert rows["etcd killed", "volcano"][1:5] == ["12.0", "6.0", "1.0 + 1.0 + 3.0 + 1.0", "**2.0**"]
    assert rows["etcd killed", "volcano"][-1] == "2026-11-26, `abc`, 2 cores"
    assert shown(faults.shown(after, None)).keys() == {("a rank killed", "volcano")}, "what is of no result goes"


def test_what_ends_otherwise_is_kept_as_such_and_the_next_fault_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def prepared(_: object) -> Iterator[None]:
        yield

    def undergo(_: object, one: Any) -> dict[str, Any]:
        if one.name == "etcd killed":
            raise AssertionError("no | `end`\nafter 300 s")
        return dict.fromkeys(one.backends, SimpleNamespace(said=""))

    monkeypatch.setattr(faults, "prepared", prepared)
    monkeypatch.setattr(faults, "floors", lambda _: ({}, ""))
    monkeypatch.setattr(faults, "undergo", undergo)
    monkeypatch.setattr(faults, "measured", lambda *_: dict(CALM))
    no_lab: Any = SimpleNamespace()
    rows = list(faults.made(no_lab, ["etcd killed", "a rank killed"]))
    assert [one.id.split(".")[1] for one in rows] == ["etcd-killed"] * 2 + ["a-rank-killed"] * 2
    assert [one.goal for one in rows] == [0, 0, None, None]
    assert "| **not as expected**: `AssertionError: no \\| 'end' after 300 s` |" in faults.shown("", result(*rows))


@pytest.mark.parametrize(("healed", "lost", "noticed"), [
    (100.0, 0.0, 4.0), (131.0, 0.0, 31.0), (300.0, 147.0, 47.0),
], ids=["at once", "once it is healed", "once the node counts as lost"])  # fmt: skip
def test_the_floor_counts_what_has_to_be_over_before_a_pod_can_start(
    healed: float, lost: float, noticed: float
) -> None:
    records = [{"kind": "begin", "time": 160.0}, {"kind": "gradients", "time": 161.0}]
    job: Any = SimpleNamespace(weights=lambda: "w", records=lambda: records, command=lambda _: SimpleNamespace(
        returncode=0, stdout="PROVEN", stderr=""))  # fmt: skip
    lines = [(104.0, "train: Running, 1/2 pods ready")]
    end: Any = SimpleNamespace(succeeded=True)
    outcome = Outcome(job, made=100.0, healed=healed, lost=lost, lines=lines, end=end)
    row = faults.measured(outcome, "", {"pod": 1.0, "import": 3.0, "meet": 2.0}, "w")
    assert (row["noticed"], row["step"], row["floor"]) == (noticed, 61.0, noticed + 6.0)
