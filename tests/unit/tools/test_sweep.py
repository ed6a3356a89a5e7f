"""`make sweep`: a killed run continues, another commit begins again, wrong arguments get one message each."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import (
    blame_figures,
    cause_figures,
    commits,
    fit_figures,
    gang_figures,
    kill_figures,
    sweep,
    sweeps,
    when_figures,
    write_docs_tables,
)  # fmt: skip
from tools.sweeps import SWEEPS

ROOT = Path(__file__).resolve().parents[3]
CASES = """
import os, signal
from pathlib import Path
import pytest
from tests.support.sweeps import sweeping
FOLDER = Path({folder!r})

@pytest.mark.parametrize("seed", range(7 if sweeping("tiny") else 1))
def test_case(seed):
    with (FOLDER / "ran").open("a") as file:
        file.write(f"{{seed}} ")
    if seed == 3 and not (FOLDER / "killed").exists():
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 4:
        pytest.skip("a skip is not a pass")
    assert seed != 1
"""
DRIVER = """
import sys
from pathlib import Path
from tools import part_of, sweep, sweeps, write_docs_tables
folder, part, commit = sys.argv[1:]
sweep.RESULTS = sweeps.RESULTS = sweep.ROOT = Path(folder)
sweep.NOTES = Path(folder, "notes")
sweep.commit = lambda: commit
write_docs_tables.main = lambda arguments: Path(folder, "table").touch()
sweeps.SWEEPS["tiny"] = sweeps.Sweep("", "", folder + "/test_tiny.py", after=(f"touch {folder}/removed",))
sys.exit(sweep.main("tiny", part))
"""


class Tiny:
    """A sweep of seven cases: the second fails, the fourth kills the run once, the fifth is skipped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "test_tiny.py").write_text(CASES.format(folder=str(folder)))

    def run(self, part: str = "", commit: str = "abc") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", DRIVER, str(self.folder), part, commit]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    def ran(self) -> list[int]:
        """The cases that have run since the last call."""
        path = self.folder / "ran"
        numbers = [int(word) for word in path.read_text().split()]
        path.write_text("")
        return numbers

    def results(self) -> dict[str, Any]:
        path = self.folder / "tiny.json"
        results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return results


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


@pytest.mark.slow
def test_a_run_that_was_killed_continues_with_the_first_unfinished_case(tiny: Tiny) -> None:
    assert tiny.run().returncode == -signal.SIGKILL
    assert (tiny.ran(), tiny.results()) == ([0, 1, 2, 3], {})
    done = tiny.run()
    assert (done.returncode, tiny.ran()) == (1, [3, 4, 5, 6])
    assert "7 cases, 3 of them finished by an earlier run" in done.stdout
    result = tiny.results()["1/1"]
    assert (result["commit"], result["cases"], result["passed"]) == ("abc", 7, 5)
    assert result["failed"] == ["test_case[1]", "test_case[4]"]
    assert re.fullmatch(r"\d+ cores, Linux [\d.]+", result["machine"])
    assert (tiny.folder / "table").exists()
    assert (tiny.folder / "removed").exists()


@pytest.mark.slow
def test_a_case_whose_note_was_cut_off_runs_again_and_the_next_note_is_whole(tiny: Tiny) -> None:
    tiny.run()
    (notes,) = (tiny.folder / "notes").glob("*-of-1")
    notes.write_text(notes.read_text()[:-5])
    (tiny.folder / "killed").unlink()
    tiny.run()
    assert tiny.ran() == [0, 1, 2, 3, 2, 3]
    tiny.run()
    assert tiny.ran() == [3, 4, 5, 6]
    assert tiny.results()["1/1"]["cases"] == 7


@pytest.mark.slow
def test_another_commit_begins_with_the_first_case_and_says_so(tiny: Tiny) -> None:
    tiny.run()
    tiny.ran()
    done = tiny.run(commit="def")
    assert "3 finished cases are of the commit abc; def begins with the first" in done.stdout
    assert tiny.ran() == [0, 1, 2, 3, 4, 5, 6]
    assert tiny.results()["1/1"]["commit"] == "def"


@pytest.mark.slow
def test_the_parts_of_a_sweep_run_each_case_once_and_another_division_replaces_them(tiny: Tiny) -> None:
    (tiny.folder / "killed").touch()
    codes = [tiny.run(f"{number}/3").returncode for number in (1, 2, 3)]
    assert (codes, tiny.ran()) == ([0, 1, 0], [0, 3, 6, 1, 4, 2, 5])
    assert {part: result["cases"] for part, result in tiny.results().items()} == {"1/3": 3, "2/3": 2, "3/3": 2}
    tiny.run("2/2")
    assert list(tiny.results()) == ["2/2"]


def test_more_parts_than_cases_and_a_second_run_beside_the_first_are_refused(tiny: Tiny) -> None:
    done = tiny.run("9/9")
    assert done.returncode != 0
    assert "PART: got 9/9, expected at most 7 parts. Fix: PART=i/n with n up to 7" in done.stdout + done.stderr
    assert tiny.results() == {}
    with sweep.alone(tiny.folder / "notes/tiny-1-of-1.lock", wait=False):
        done = tiny.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "make sweep: got another run of tiny 1/1, expected one at a time. Fix: wait for it\n"


@pytest.mark.parametrize(("name", "part", "messages"), [
    ("nosuch", "", ['NAME: got "nosuch", expected one of honest,']),
    ("", "1/3", ['NAME: got "", expected one of honest,']),
    *(("honest", part, [f'PART: got "{part}", expected i/n with i from 1 to n. Fix: for example PART=1/3'])
      for part in ("4/3", "0/3", "1", "1/0", "a/b", "1/3 ", "١/٣", "1/99999999")),
    ("nosuch", "4/3", ["NAME: got", "PART: got"]),
])  # fmt: skip
def test_a_wrong_name_or_part_is_refused_in_one_line_each(
    name: str, part: str, messages: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "commit", lambda: "abc")
    monkeypatch.setattr(sweep, "run", lambda *_: pytest.fail("it began"))
    assert sweep.main(name, part) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith(message) for line, message in zip(lines, messages, strict=True)] == [True] * len(lines)
    assert all(". Fix: " in line for line in lines)


def test_changes_in_no_commit_are_refused_but_for_results(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def git(*arguments: str) -> str:
        asked.append(arguments)
        return " M lab/versions.yml" if arguments[0] == "status" else "abc"

    monkeypatch.setattr(commits, "git", git)
    assert str(sweep.commit()).startswith("make sweep: got changes that are in no commit (lab/versions.yml), expected")
    assert {":!tests/sweeps", ":!docs/testing.md"} <= set(asked[0])


def test_the_list_has_each_sweep_with_its_cases_and_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main("", "") == 0
    lines = capsys.readouterr().out.splitlines()
    for name, item in SWEEPS.items():
        (line,) = (line for line in lines if line.split()[:1] == [name])
        assert item.cases in line
        assert all(f"{part}: {row.passed} of {row.cases}" in line for part, row in sweeps.read(name).items())


def test_every_sweep_is_in_a_test_and_every_test_names_one_that_exists() -> None:
    files = {path for folder in ("tests", "molecule") for path in (ROOT / folder).rglob("*.py")} - {Path(__file__)}
    named = {name for path in files for name in re.findall(r'\bsweeping\("([^"]+)"\)', path.read_text())}
    assert named == set(SWEEPS)
    for item in SWEEPS.values():
        assert all((ROOT / test.partition("::")[0]).exists() for test in item.tests.split())


def test_every_results_file_is_of_a_sweep_and_the_table_has_a_row_for_each_part() -> None:
    names = {path.stem for path in sweeps.RESULTS.glob("*")}
    assert names <= {sweeps.FULL, *SWEEPS}
    table = write_docs_tables.sweeps_table().splitlines()
    rows = [line for line in (ROOT / "docs/testing.md").read_text().splitlines() if line in table]
    for name in names:
        for part, own in sweeps.runs(name).items():
            begin = f"| `{name}` | {part} | "
            shown = [line.removeprefix(begin).split(" | ")[:2] for line in rows if line.startswith(begin)]
            assert shown == [[result.date, f"`{result.commit}`"] for result in own]
            assert all(result.passed + len(result.failed) == result.cases > 0 for result in own)


def test_the_answers_of_when_do_not_keep_its_sweep_from_going_on() -> None:
    kept = (when_figures, fit_figures, gang_figures, kill_figures, cause_figures, blame_figures)
    figures = (one.FIGURES for one in kept)
    for path in (*figures, sweeps.RESULTS):
        assert path.is_relative_to(sweeps.ROOT / sweep.WRITTEN[0])
    pages = ("when", "fit", "bench", "testing", "troubleshooting")
    assert {f"docs/{page}.md" for page in pages} <= {*sweep.WRITTEN}
