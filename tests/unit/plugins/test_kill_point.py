"""D6: the callback that kills a playbook at a point of a task does so, however short the task is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support import playbook_kills
from tests.support.playbook_kills import BOOKS, CALLBACKS, CHAIN, MOMENTS, Life, Point, chains, points_of

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 60.0  # longer than each of the tasks
SKIPPED, LAST = 3, 4
# By the task and the moment: which tasks have run when the playbook is killed.
DONE = {
    (2, "start"): "a", (2, "middle"): "ab", (2, "end"): "ab", (2, "alone"): "ab",
    (SKIPPED, "end"): "ab", (LAST, "middle"): "abd", (LAST, "alone"): "abd",
}  # fmt: skip


FOUR = tuple(f"Write {name}" for name in "abcd")


def play(folder: Path, tasks: Sequence[object] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook of these tasks; without them, of four short ones of which the third is skipped."""
    short = [{"name": name, "ansible.builtin.raw": f"touch {name[-1]}"} for name in FOUR]
    short[SKIPPED - 1]["when"] = "false"
    tasks = [*(tasks or short)]
    book = folder / "book.yml"
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_LOCAL_TEMP": str(folder / "tmp")}
    own |= {"ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS), "ANSIBLE_CALLBACKS_ENABLED": "kill_point"}
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
               "-e", f"ansible_python_interpreter={sys.executable}", str(book)]  # fmt: skip
    env = os.environ | own | environment
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "moment"), DONE)
def test_d6_a_task_that_is_shorter_than_expected_is_killed_at_its_end(tmp_path: Path, number: int, moment: str) -> None:
    point = Point(FOUR[number - 1], "", 1, moment, LONG_S)
    done = play(tmp_path, GANGPLANK_KILL=json.dumps(asdict(point)))
    assert done.returncode == -signal.SIGKILL, done.stdout
    assert "".join(sorted(path.name for path in tmp_path.glob("?"))) == DONE[number, moment]


def test_d6_the_points_are_those_of_the_tasks_that_did_something(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert play(tmp_path, GANGPLANK_KILL_NOTES=str(notes)).returncode == 0
    seconds = {row["name"]: row["seconds"] for row in map(json.loads, notes.read_text().splitlines())}
    points = points_of(notes)
    moments = [("Write a", "start"), *((f"Write {name}", moment) for name in "abd" for moment in MOMENTS)]
    assert [(point.name, point.moment) for point in points] == moments
    assert all(point.seconds < seconds[point.name] for point in points)


def test_d6_tasks_of_one_name_are_points_of_their_own_whatever_runs_before_them(tmp_path: Path) -> None:
    """A run after one that was killed leaves out what is done, such as a release that is as it should be."""
    notes = tmp_path / "notes"
    included = tmp_path / "included.yml"
    included.write_text(yaml.safe_dump([{"name": "Write", "ansible.builtin.raw": "touch {{ item }}"}] * 2))
    include = {"name": "Include", "ansible.builtin.include_tasks": {"file": str(included)}, "loop": ["a", "b"]}
    assert play(tmp_path, [include], GANGPLANK_KILL_NOTES=str(notes)).returncode == 0
    points = [point for point in points_of(notes) if point.name == "Write" and point.moment == "end"]
    assert [(point.include, point.number) for point in points] == [
        ("Include a", 1), ("Include a", 2), ("Include b", 1), ("Include b", 2)]  # fmt: skip
    assert str(points[3]) == "end of Write (2), included by Include b"
    for path in (tmp_path / "a", tmp_path / "b"):
        path.unlink()
    done = play(tmp_path, [include | {"when": "item == 'b'"}], GANGPLANK_KILL=json.dumps(asdict(points[2])))
    assert done.returncode == -signal.SIGKILL, done.stdout
    assert [path.name for path in tmp_path.glob("?")] == ["b"]


@pytest.mark.parametrize("count", [0, 1, CHAIN, CHAIN + 1, 5 * CHAIN - 3])
def test_d6_chains_have_each_point_once_and_are_spread(count: int) -> None:
    points = [Point(f"{n:03}", "", 1, "end", 0.0) for n in range(count)]
    every = chains(points)
    assert sorted(point.name for chain in every for point in chain) == [point.name for point in points]
    assert all(len(chain) <= CHAIN and chain == sorted(chain, key=lambda point: point.name) for chain in every)
    assert max(map(len, every), default=0) - min(map(len, every), default=0) <= 1


def test_d6_each_playbook_is_killed_once_at_each_of_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose points are done is run for those after it, and a round ends after the last one that has some."""
    counts = {"lab": 3, "site": 2, "teams": 1, "train": 1, "uninstall": 2, "lab-down": 1}
    points = {book: [Point("a", "", n, "end", 0.0) for n in range(2 * count)] for book, count in counts.items()}
    life = Life(points, {book: {} for book in BOOKS}, dict.fromkeys(BOOKS, 0))
    runs: list[str] = []

    def play(book: str, point: Point | None = None, **_: object) -> subprocess.CompletedProcess[str]:
        runs.append(f"{book} {point.number}" if point else book)
        return subprocess.CompletedProcess([], -signal.SIGKILL if point else 0, "ok: changed=0 ")

    monkeypatch.setattr(playbook_kills, "play", play)
    monkeypatch.setattr(playbook_kills, "facts", dict)
    monkeypatch.setattr(playbook_kills, "CHAIN", 2)
    rounds, lives = [], []
    for number in range(5):
        begin = len(runs)
        rounds.append(playbook_kills.one_round(life, number))
        lives.append([run.split()[0] for run in runs[begin:]])
    assert life.rounds == 3
    books = [[row.book for row in rows] for rows in rounds]
    assert books == [[*BOOKS], ["lab", "site", "uninstall"], ["lab"], [], []]
    assert not [row for rows in rounds for row in rows if row.problems or any(row.points.values())]
    killed = [run.split() for run in runs if " " in run]
    assert sorted(killed) == sorted([book, str(n)] for book, count in counts.items() for n in range(2 * count))
    twice = ["lab"] * 4 + ["site"] * 4 + ["teams", "train"] + ["uninstall"] * 4  # two kills, and two runs after them
    assert lives[1] == ["lab-down", *twice]


def test_d6_a_point_that_a_run_after_a_kill_leaves_out_is_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {book: [Point("a", "", n, "end", 0.0) for n in (1, 2)] for book in BOOKS}
    life = Life(points, {book: {} for book in BOOKS}, dict.fromkeys(BOOKS, 0))
    runs: list[str] = []

    def play(book: str, point: Point | None = None, **_: object) -> subprocess.CompletedProcess[str]:
        left_out = point and book == "site" and runs[-1] == "site 1"
        runs.append(f"{book} {point.number}" if point else book)
        return subprocess.CompletedProcess([], -signal.SIGKILL if point and not left_out else 0, "ok: changed=0 ")

    monkeypatch.setattr(playbook_kills, "play", play)
    monkeypatch.setattr(playbook_kills, "facts", dict)
    rows = playbook_kills.one_round(life, 0)
    assert [row.book for row in rows] == [*BOOKS, "site"]
    assert [row.points for row in rows if row.book == "site"] == [{"end of a": ""}, {"end of a (2)": ""}]
    assert runs[-5:] == ["lab-down", "lab", "site 2", "site", "site"]
