"""`make bench`: what is refused, how results are kept and compared, and what the page makes of them."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import signal
import subprocess
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from bench import __main__ as bench
from bench import machine, page
from bench.figures import Beside, Result, compare, figure, of_json, read, to_json
from bench.part import BenchError, Lab, Part, Setting, parts
from bench.tuned import TUNED
from gangplank.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.figures import Figure

MACHINE = {"cores": 2, "processor": "one", "memory_gib": 24, "kernel": "Linux 6", "load_before": 0.1}
GANGS = figure(
    "gangs.10x100.running", "10 gangs <of> 100 pods", "s", [10.0, 11.0, 12.0], goal=9, why="a third",
    peer=Beside.of("defaults", [30.0, 31.0]), floor=Beside.of("a bare client", [8.0]),
)  # fmt: skip
RATE = figure("gangs.rate", "pods", "pods/s", [89.0, 90.0, 91.0], better="more", goal=80)


def result(*figures: Figure, **changes: Any) -> Result:
    return dataclasses.replace(Result("2026-11-23", "abc", MACHINE, 1.5, figures or (GANGS, RATE)), **changes)


class Fake:
    """A part that measures the values it gets, or fails."""

    def __init__(
        self, *figures: Figure, fails: BaseException | None = None, lab: Lab = Lab.ANY, adds: bool = False
    ) -> None:
        self.PART = Part("fake", 1, lab=lab, adds=adds)
        self.figures, self.fails = figures, fails

    def measure(self, setting: Setting) -> Iterator[Figure]:
        assert list(setting.folder.iterdir()) == []
        yield from self.figures
        if self.fails:
            raise self.fails


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    every: dict[str, Any] = {
        "good": Fake(GANGS),
        "bad": Fake(GANGS, fails=BenchError("fake: got nothing")),
        "last": Fake(RATE),
    }
    monkeypatch.setattr(bench, "parts", lambda: every)
    return every


def site(folder: Path) -> Path:
    """A checkout with a result, and pages that were never written."""
    (folder / "bench/results").mkdir(parents=True)
    (folder / "bench/results/fit.json").write_text(to_json(result()))
    for name in (page.PAGE, page.FAULTS, page.README, *(f"{one.home}/README.md" for one in TUNED.values())):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        marks = "" if name.startswith("charts/") else f"{page.BEGIN}\n\n{page.END}\n"  # those of charts are helm-docs'
        (folder / name).write_text(f"before\n{marks}after\n")
    return folder


def test_a_result_is_read_as_it_was_written() -> None:
    assert of_json(to_json(result())) == result()


def test_what_became_slower_by_more_than_both_spreads_is_named() -> None:
    worse = figure("gangs.10x100.running", "", "s", [12.5, 13.0, 14.0])
    within = figure("gangs.10x100.running", "", "s", [11.5, 13.0, 14.0])
    fewer = figure("gangs.rate", "", "pods/s", [70.0, 71.0], better="more")
    (line,) = compare(result(), result(worse))
    assert line.startswith("gangs.10x100.running: 11 s (abc) became 13 s; the spreads 10 to 12 and 12.5 to 14 do not")
    assert compare(result(), result(within)) == []
    assert [line.split(":")[0] for line in compare(result(), result(fewer))] == ["gangs.rate"]
    assert compare(result(), result(worse, machine=MACHINE | {"cores": 4})) == []


@pytest.mark.usefixtures("fakes")
def test_every_wrong_name_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["nosuch", "good", "other"]) == 2
    lines = capsys.readouterr().err.splitlines()
    expected = "expected one of usual, all, good, bad, last. Fix: make bench lists them"
    assert [line for line in lines if line.startswith("PARTS")] == [
        f"PARTS: got {word}, {expected}" for word in ("nosuch", "other")
    ]


def test_without_a_name_the_parts_are_listed_and_nothing_is_measured(
    fakes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main([]) == 0
    words = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line]
    assert words[:4] == ["PART", *fakes]


def test_a_running_lab_another_user_and_changes_are_refused_together(
    fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes["good"] = Fake(GANGS, lab=Lab.DOWN)
    monkeypatch.setattr(bench, "STATE", tmp_path)
    monkeypatch.setattr("bench.__main__.os.geteuid", lambda: 1000)
    monkeypatch.setattr("bench.__main__.commits.commit", lambda *_: Problem("make bench", "changes", "a commit"))
    assert bench.main(["good", "last"]) == 2
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "make bench", "user for good", "lab for good",
    ]  # fmt: skip


def test_a_part_that_needs_root_without_a_lab_is_refused_by_name(
    fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.os.geteuid", lambda: 1000)
    fakes["last"].PART = dataclasses.replace(fakes["last"].PART, root=True)
    assert bench.main(["good", "last", "--out", str(tmp_path)]) == 2
    assert "user for last: got uid 1000, expected root. Fix: sudo make bench" in capsys.readouterr().err


def test_a_part_that_fails_leaves_no_result_and_the_others_are_measured(
    fakes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    assert bench.main([*fakes, "--out", str(out)]) == 1
    assert {name: [one.id for one in it.figures] for name, it in read(out).items()} == {
        "good": [GANGS.id], "last": [RATE.id],
    }  # fmt: skip
    printed = capsys.readouterr()
    assert "bad: fake: got nothing" in printed.err
    assert "NO" in printed.out


@pytest.mark.parametrize("error", [
    KeyError("start"), ValueError("no number"), subprocess.CalledProcessError(1, "x"), AssertionError("x"),
    pytest.fail.Exception("x"), ZeroDivisionError("x"),
], ids=repr)  # fmt: skip
def test_whatever_ends_a_part_the_next_one_is_measured(
    fakes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    fakes["bad"] = Fake(fails=error)
    assert bench.main([*fakes, "--out", str(tmp_path)]) == 1
    assert set(read(tmp_path)) == {"good", "last"}
    printed = capsys.readouterr().err
    assert "bad: Traceback" in printed, "the place is named"
    assert f"{type(error).__name__}: {error}" in printed


def test_a_run_that_is_interrupted_ends_at_once(fakes: dict[str, Any], tmp_path: Path) -> None:
    fakes["bad"] = Fake(fails=KeyboardInterrupt())
    assert bench.main([*fakes, "--out", str(tmp_path)]) == 1
    assert set(read(tmp_path)) == {"good"}


def test_sigterm_interrupts_a_run_as_ctrl_c_does(
    fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The lab and Volcano's values are put back by `finally`, which SIGTERM alone passes over."""
    ends: list[str] = []

    def measure(_: Setting) -> Iterator[Figure]:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "it would end the tests"
        try:
            signal.raise_signal(signal.SIGTERM)
            yield RATE
        finally:
            ends.append("put back")

    monkeypatch.setattr(fakes["bad"], "measure", measure)
    assert bench.main([*fakes, "--out", str(tmp_path)]) == 1
    assert ends == ["put back"]
    assert set(read(tmp_path)) == {"good"}


def test_a_run_that_is_slower_than_the_committed_result_says_so_and_fails(
    fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "described", lambda: MACHINE)
    monkeypatch.setattr(bench, "committed", lambda _: result())
    assert bench.main(["good", "--out", str(tmp_path)]) == 0
    fakes["good"] = Fake(figure(GANGS.id, "", "s", [20.0, 21.0]))
    assert bench.main(["good", "--out", str(tmp_path)]) == 1
    assert "SLOWER gangs.10x100.running: 11 s (abc) became 20.5 s" in capsys.readouterr().out


def test_a_result_of_another_machine_is_not_compared_and_the_run_says_so(
    fakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "described", lambda: MACHINE | {"processor": "another"})
    monkeypatch.setattr(bench, "committed", lambda _: result())
    fakes["good"] = Fake(figure(GANGS.id, "", "s", [20.0, 21.0]))
    assert bench.main(["good", "--out", str(tmp_path)]) == 0
    assert "not compared: made on another machine (2 cores, one)\n" in capsys.readouterr().out


def test_what_must_not_happen_and_happened_fails_the_run(
    fakes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fakes["good"] = Fake(figure("good.lost", "lost", "pods", [2], goal=0))
    assert bench.main(["good", "--out", str(tmp_path)]) == 1
    assert "WRONG good.lost: got 2 pods\n" in capsys.readouterr().out
    fakes["good"] = Fake(figure("good.lost", "lost", "pods", [0], goal=0), GANGS)
    assert bench.main(["good", "--out", str(tmp_path)]) == 0, "a goal that is missed is no more than that"


def test_what_must_not_happen_and_happened_in_one_round_of_three_fails_the_run(
    fakes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = figure("good.lost", "lost", "pods", [0, 0, 2], goal=0)
    assert once.met is False
    assert page.outcome(once) == "at most 0: **missed**"
    fakes["good"] = Fake(once)
    assert bench.main(["good", "--out", str(tmp_path)]) == 1
    assert "WRONG good.lost: got 2 pods\n" in capsys.readouterr().out


def test_a_part_that_adds_keeps_each_figure_at_once_and_those_of_earlier_runs(
    fakes: dict[str, Any], tmp_path: Path
) -> None:
    def run(*figures: Figure, commit: str, fails: BaseException | None = None) -> int:
        fakes["good"] = Fake(*figures, adds=True, fails=fails)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bench.__main__.commits.git", lambda *_: commit)
            return bench.main(["good", "--out", str(tmp_path)])

    lost = figure("good.lost", "lost", "pods", [2], goal=0)
    assert run(GANGS, lost, commit="first") == 1
    assert run(RATE, commit="second", fails=KeyboardInterrupt()) == 1, "it was killed after its first figure"
    assert run(dataclasses.replace(GANGS, value=1.0), commit="third") == 0, "what others had is not its end"
    kept = {one.id: (one.value, one.facts["commit"]) for one in read(tmp_path)["good"].figures}
    assert kept == {lost.id: (2, "first"), RATE.id: (90.0, "second"), GANGS.id: (1.0, "third")}
    shown = page.section("good", "Good", read(tmp_path)["good"])
    assert all(f"`{commit}`) |" in shown for commit in ("first", "second", "third"))


@pytest.mark.parametrize("adds", [True, False])
def test_a_figure_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, adds: bool) -> None:
    kept: list[list[str]] = []
    monkeypatch.setattr(bench, "keep", lambda _, one: kept.append([it.id for it in one.figures]))
    bench.measured("good", Fake(GANGS, RATE, adds=adds), "abc", tmp_path)
    assert kept == ([[GANGS.id], [GANGS.id, RATE.id]] if adds else [[GANGS.id, RATE.id]])


def test_each_part_waits_for_the_load_of_the_one_before_and_refuses_one_that_stays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = iter([2.0, 1.0, 0.4])
    monkeypatch.setattr(bench, "polls", lambda *_: iter(range(3)))
    monkeypatch.setattr(machine, "load", lambda: next(loads))
    bench.quieten("gangs")
    assert next(loads, None) is None
    assert capsys.readouterr().err == "gangs: waits until the load is at most 0.5; it is 2.00\n"
    monkeypatch.setattr(machine, "load", lambda: 0.6)
    with pytest.raises(BenchError, match=r"machine for gangs: got load 0\.60, expected at most 0\.5 within 300 s"):
        bench.quieten("gangs")


@pytest.mark.parametrize("committed", [True, False])
def test_only_figures_that_are_to_be_committed_need_a_quiet_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, committed: bool
) -> None:
    waited: list[str] = []
    monkeypatch.setattr(bench, "quieten", waited.append)
    if committed:
        monkeypatch.setattr(bench, "RESULTS", tmp_path)
    bench.measured("good", Fake(GANGS), "abc", tmp_path)
    assert waited == ["good"] * committed


def test_the_readme_names_its_figures_that_have_no_result() -> None:
    every = [figure(key, key, "s", [1.0]) for key in page.HEADLINES]
    assert page.headlines({"a": result(*every)}).endswith("| 1 s |  |  |  |")
    text = page.headlines({"a": result(*every[2:])})
    assert text.endswith(f"\n\nWithout a result so far: `{page.HEADLINES[0]}`, `{page.HEADLINES[1]}`.")
    assert page.headlines({}).startswith("Without a result so far: ")


def test_page_and_readmes_are_stale_until_they_are_written(tmp_path: Path) -> None:
    root = site(tmp_path)
    roles = ["roles/volcano/README.md", "roles/lab_cluster/README.md"]
    assert page.stale(root) == [page.PAGE, page.FAULTS, page.README, *roles, "docs/bench/fit.svg"]
    page.write(root)
    assert page.stale(root) == []
    row = "| 10 gangs <of> 100 pods | 11 s | defaults: 30.5 (30 to 31), 0.361 x | a bare client: 8, 1.38 x |"
    row += " at most 9 (a third): **missed** |"
    assert row in (root / page.README).read_text().splitlines()
    text = (root / page.PAGE).read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "at most 9 (a third): **missed**" in text
    for name in (page.README, roles[0]):
        (root / name).write_text((root / name).read_text().replace("11 s", "9 s"))
    assert page.stale(root) == [page.README, roles[0]]


def test_a_missed_goal_has_its_reason_at_the_top_of_the_page() -> None:
    text = page.missed({"gangs": result(), "fit": result(figure("fit.x", "x", "s", [2.0], goal=1))})
    row = "| [gangs](#gangs) | 10 gangs <of> 100 pods: 11 s (10 to 12), goal at most 9 (a third) | Both cores are busy"
    assert any(line.startswith(row) for line in text.splitlines())
    assert text.endswith("| not known yet |")
    assert page.missed({}) == "None."
    torn = figure("gangs.10x100.bound", "partial gangs", "", [1.0], goal=0)
    assert page.missed({"gangs": result(torn)}).endswith("| not known yet |"), "no reason excuses what must not happen"


def test_the_headlines_say_on_which_machine_each_was_measured() -> None:
    first, second, *_ = (figure(key, key, "s", [1.0]) for key in page.HEADLINES)
    other = result(second)
    other = dataclasses.replace(other, machine={**other.machine, "processor": "another"})
    text = page.headlines({"a": result(first), "b": other})
    assert text.startswith(f"Measured on 2 cores (one). {second.title}: on 2 cores (another).\n\n")


def test_figures_of_one_title_are_named_by_their_unit_too() -> None:
    figures = [figure("a.b", "b", "s", [1]), figure("a.b.memory", "b", "MiB", [1]), figure("a.c", "c", "s", [1])]
    assert page.titles(figures) == ["b, in s", "b, in MiB", "c"]


def test_a_tuned_default_is_shown_with_its_before_and_after_where_they_were_measured() -> None:
    (unmeasured, *_), measured = (page.tuned(results).splitlines()[2:] for results in ({}, {"gangs": result()}))
    assert unmeasured.endswith("| not measured yet |  |  |")
    row = "| 10 gangs <of> 100 pods | defaults: 30.5 (30 to 31), 0.361 x | 11 s (10 to 12) |"
    assert [line for line in measured if "| `controller_kube_api_qps` 500, " in line and line.endswith(row)]


def test_every_figure_of_a_tuned_default_is_one_of_a_part() -> None:
    assert {key.split(".")[0] for one in TUNED.values() for key in one.figures} <= {*parts()}


def test_a_drawing_without_a_result_is_removed(tmp_path: Path) -> None:
    root = site(tmp_path)
    page.write(root)
    (root / "bench/results/fit.json").unlink()
    assert "docs/bench/fit.svg" in page.stale(root)
    page.write(root)
    assert page.stale(root) == []
    assert not list(root.glob("docs/bench/*.svg"))


def test_a_drawing_is_svg_that_shows_every_figure_with_what_is_beside_it() -> None:
    drawn = ET.fromstring(page.drawing([GANGS, RATE]))  # noqa: S314  our own text
    texts = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}text")]
    titles = [node.text for node in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert {"10 gangs <of> 100 pods", "11 s", "90 pods/s"} <= {*texts}
    assert sorted(filter(None, titles)) == ["floor", "goal", "goal", "peer"]


def test_a_bar_is_not_narrower_than_nothing() -> None:
    """Memory that shrank is less than zero percent more."""
    drawn = ET.fromstring(page.drawing([figure("churn.memory.etcd", "", "%", [-2.0], goal=10)]))  # noqa: S314  as above
    widths = [node.get("width", "") for node in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == ["100%", "0"]


@pytest.mark.parametrize("name", [
    "bench.figures", "bench.page", "bench.gangs.place", "bench.growth", "bench.parts.evidence", "bench.parts.nodes",
])  # fmt: skip
def test_examples(name: str) -> None:
    done = doctest.testmod(importlib.import_module(name))
    assert done.attempted
    assert not done.failed


@pytest.mark.parametrize("name", parts())
def test_every_part_says_what_it_measures_and_needs(name: str) -> None:
    part = parts()[name].PART
    assert part.title[0].isupper() or part.title.startswith(("fit", "playbooks/"))
    assert part.minutes > 0
    assert callable(parts()[name].measure)


def test_what_an_idle_lab_uses_is_measured_before_others_fill_its_memory() -> None:
    assert next(name for name, module in parts().items() if module.PART.lab is Lab.UP) == "idle"


def test_the_usual_parts_take_at_most_an_hour() -> None:
    assert sum(module.PART.minutes for module in parts().values() if module.PART.usual) <= 60
