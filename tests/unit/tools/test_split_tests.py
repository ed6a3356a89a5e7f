"""`make test-full PART=i/n`: each file and scenario exactly once, in parts of about equal time."""

from __future__ import annotations

import doctest
import hashlib
import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from gangplank.errors import Problem
from tools import commits, part_of, split_tests, sweep, sweeps, write_docs_tables
from tools.part_of import Part

ROOT = Path(__file__).resolve().parents[3]
MINUTES = yaml.safe_load(split_tests.MINUTES.read_text())

SEED = 7


def run_by(words: list[str]) -> list[str]:
    """The files and scenarios that these arguments make `make` run."""
    values = dict(word.split("=", 1) for word in words if "=" in word)
    assert ("molecule" in words, "pytest" in words) == ("SCENARIOS" in values, "TESTS" in values)
    return [*(f"molecule/{name}" for name in values.get("SCENARIOS", "").split()), *values.get("TESTS", "").split()]


@pytest.mark.parametrize("count", range(1, 8))
def test_the_parts_run_every_file_and_every_scenario_exactly_once(count: int) -> None:
    plans = [split_tests.plan(Part(number, count)) for number in range(1, count + 1)]
    calls = [split_tests.stages(plan) for plan in plans if isinstance(plan, list)]
    assert len(calls) == count
    commands = [[word for words in call for word in words] for call in calls]
    folders = [path for path in (ROOT / "tests").iterdir() if path.name not in ("unit", "golden", "repository")]
    files = [str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("test_*.py")]
    scenarios = [f"molecule/{path.parent.name}" for path in (ROOT / "molecule").glob("*/molecule.yml")]
    assert Counter(name for words in commands for name in run_by(words)) == Counter(files + scenarios)
    assert sum("check" in words for words in commands) == 1, "which runs the three other folders of tests/"


def test_make_check_runs_the_folders_that_no_part_names() -> None:
    folders = " ".join(f"tests/{name}" for name in split_tests.CHECKED)

    def planned(*words: str) -> str:
        env = {"HOME": os.environ["HOME"], "PATH": os.environ["PATH"]}
        command = ["make", "-n", *words]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout

    for words, quick in (("unit", True), ("unit ALL=1", False), ("unit GANGPLANK_FULL=1", False)):
        commands = planned(*words.split())
        assert f" -n 2 --dist loadfile {folders}\n" in commands
        assert ('-m "not slow"' in commands) == quick, words
    assert "-m tools.beside unit lint\n" in planned("check")
    assert "-m tools.beside on-lab without-lab\n" in planned("test")
    assert "\ntest: export ALL := 1\n" in (ROOT / "Makefile").read_text()
    assert "-m tools.beside unit lint\n" in planned("without-lab")


def test_every_piece_has_its_minutes() -> None:
    assert sorted(MINUTES) == sorted(split_tests.pieces()), "Fix: a row in tests/minutes.yml for each, and no other"
    assert min(MINUTES.values()) > 0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_parts_take_about_equal_time(count: int) -> None:
    minutes = [sum(MINUTES[name] for name in part) for part in split_tests.split(MINUTES, count)]
    assert max(minutes) - min(minutes) < 5


def test_a_third_takes_what_the_docs_say() -> None:
    page = (ROOT / "docs/testing.md").read_text()
    minutes = int(page.partition("caches, a third about ")[2].split()[0])
    assert abs(sum(MINUTES.values()) / 3 - minutes) < 5


@pytest.mark.parametrize("text", ["4/3", "0/1", "x", "1/500"])
def test_a_wrong_part_is_refused_in_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert split_tests.main(text) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("PART: got ")
    assert line.endswith(". Fix: for example PART=1/3")


def test_a_wrong_seed_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert split_tests.main("1/3", "x") == 2
    assert capsys.readouterr().err == 'SEED: got "x", expected a whole number, as a result names it\n'


def test_the_files_of_a_part_run_in_an_order_that_its_seed_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[tuple[list[str], int]] = []

    def run(_: Part, mine: list[str], seed: int) -> int:
        orders.append((split_tests.shuffled(mine, seed), seed))
        return 0

    monkeypatch.setattr(split_tests, "run", run)
    for seed in ("", "7", "7", "8"):
        split_tests.main("1/1", seed)
    (first, drawn), *others = orders
    assert [seed for _, seed in others] == [7, 7, 8]
    assert 0 <= drawn < split_tests.SEEDS
    assert others[0] == others[1]
    assert others[0][0] != others[2][0]
    assert {tuple(sorted(names)) for names, _ in orders} == {tuple(sorted(first))}
    assert first[0] == "check"


class Full:
    """Runs `make test-full` for pieces of the tests' own, without make; which of its calls fail is set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.fails = {"molecule", "pytest"}
        self.commits, self.fresh = iter(["abc", "abc"]), False
        (folder / ".pytest_cache/v/cache").mkdir(parents=True)
        self.noted = folder / ".pytest_cache/v/cache/lastfailed"
        self.noted.write_text('{"tests/a/test_a.py::test_y": true}')  # of an earlier run
        monkeypatch.setattr(split_tests, "ROOT", folder)
        monkeypatch.setattr("tools.split_tests.subprocess.run", self.make)
        monkeypatch.setattr(sweep, "commit", lambda: next(self.commits))
        monkeypatch.setattr(commits, "fresh", lambda: self.fresh)
        monkeypatch.setattr(sweep, "NOTES", folder / "notes")
        monkeypatch.setattr(sweeps, "RESULTS", folder)
        monkeypatch.setattr(write_docs_tables, "main", lambda _: 0)

    def make(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.made.append(command[2])
        if command[2] == "pytest":  # which keeps what it has noted of tests that it did not run
            noted = json.loads(self.noted.read_text()) if self.noted.exists() else {}
            self.noted.write_text(json.dumps(noted | {"tests/a/test_b.py::test_x[1]": True}))
        return subprocess.CompletedProcess(command, int(command[2] in self.fails))

    def run(self) -> int:
        return split_tests.run(Part(1, 9), ["check", "molecule/gpu", "tests/a/test_a.py", "tests/a/test_b.py"], SEED)


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(tmp_path, monkeypatch)


def test_a_failure_does_not_end_a_part_and_its_result_names_what_failed(full: Full) -> None:
    assert full.run() == 1
    assert full.made == ["check", "parts", "molecule", "pytest"]
    result = sweeps.read(sweeps.FULL)["1/9"]
    assert (result.commit, result.cases, result.passed) == ("abc", 4, 2)
    assert result.failed == ["gpu", "tests/a/test_b.py"]


def test_a_part_without_a_failure_passes(full: Full) -> None:
    full.fails = set()
    assert full.run() == 0
    assert sweeps.read(sweeps.FULL)["1/9"].passed == 4


def test_the_last_runs_of_a_part_are_kept_and_say_whether_they_are_comparable(full: Full) -> None:
    full.commits = iter(f"commit {number // 2}" for number in range(10))
    for number in range(5):
        full.fresh = number == 4
        full.run()
    kept = sweeps.runs(sweeps.FULL)["1/9"]
    assert [one.commit for one in kept] == [f"commit {number}" for number in range(5 - sweeps.KEPT, 5)]
    assert all(isinstance(one, sweeps.FullResult) for one in kept)
    assert [one.seed for one in kept if isinstance(one, sweeps.FullResult)] == [SEED] * sweeps.KEPT
    rows = [(one.fresh, one.division) for one in kept if isinstance(one, sweeps.FullResult)]
    division = hashlib.sha256(split_tests.MINUTES.read_bytes()).hexdigest()[:10]
    assert rows == [*[(False, division)] * (sweeps.KEPT - 1), (True, division)]
    table = write_docs_tables.sweeps_table()
    assert table.count("| `test-full` | 1/9 |") == sweeps.KEPT
    assert table.count(f" | yes | `{division}` |") == 1
    assert table.count(f" | no | `{division}` |") == sweeps.KEPT - 1


def test_a_result_from_before_is_read_and_kept_beside_the_next(full: Full, tmp_path: Path) -> None:
    old = {"commit": "old", "date": "2026-11-24", "machine": "m", "cases": 1, "passed": 1, "failed": [], "minutes": 1.0}
    (tmp_path / "test-full.json").write_text(json.dumps({"1/9": old, "2/9": old, "1/3": old}))
    assert sweeps.read(sweeps.FULL)["2/9"].commit == "old"
    assert "| 2/9 | 2026-11-24 | `old` | m | 1 | 1 |  | 1 |  |  |" in write_docs_tables.sweeps_table()
    full.run()
    assert [one.commit for one in sweeps.runs(sweeps.FULL)["1/9"]] == ["old", "abc"]
    assert list(sweeps.read(sweeps.FULL)) == ["1/9", "2/9"], "parts of another division are outdated"


def test_a_checkout_is_fresh_until_something_but_make_setup_has_run_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "ROOT", tmp_path)
    (tmp_path / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/a.py").touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"], cwd=tmp_path, check=True)
    for name in (".venv", "tools/__pycache__"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").touch()
    assert commits.fresh()
    for name in (".pytest_cache/a", "reports/a", "new.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
        assert not commits.fresh(), name
        (tmp_path / name).unlink()
    assert commits.fresh()
    (tmp_path / ".gitignore").write_text("b\n")
    assert not commits.fresh()


@pytest.mark.parametrize("commits", [
    ["abc", "def"],
    [Problem("make sweep", "changes", "a commit", "commit them")] * 2,
])  # fmt: skip
def test_what_is_not_the_files_of_one_commit_has_no_result(
    full: Full, commits: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    full.commits = iter(commits)  # type: ignore[arg-type]  # or problems
    assert full.run() == 1
    assert "no result is written: " in capsys.readouterr().out
    assert sweeps.read(sweeps.FULL) == {}


def test_doctests_hold() -> None:
    assert [doctest.testmod(module).failed for module in (split_tests, part_of, commits)] == [0, 0, 0]
