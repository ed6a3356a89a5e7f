"""D6: the callback that kills a playbook at a point of a task does so, however short the task is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import playbook_kills
from tests.support.playbook_kills import BOOKS, CALLBACKS, MOMENTS, Life, Point, points_of

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 60.0  # longer than each of the tasks
SKIPPED, LAST = 3, 4
# By the task's number and the moment: which tasks have run when the playbook is killed.
DONE = {
    (2, "start"): "a", (2, "middle"): "ab", (2, "end"): "ab", (2, "alone"): "ab",
    (SKIPPED, "end"): "ab", (LAST, "middle"): "abd", (LAST, "alone"): "abd",
}  # fmt: skip


def play(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook of four short tasks, of which the third is skipped."""
    tasks: list[dict[str, str]] = [{"name": f"Write {name}", "ansible.builtin.raw": f"touch {name}"} for name in "abcd"]
    tasks[SKIPPED - 1]["when"] = "false"
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
    done = play(tmp_path, GANGPLANK_KILL=f"{number} {moment} {LONG_S}")
    assert done.returncode == -signal.SIGKILL, done.stdout
    assert "".join(sorted(path.name for path in tmp_path.glob("?"))) == DONE[number, moment]


def test_d6_the_points_are_those_of_the_tasks_that_did_something(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert play(tmp_path, GANGPLANK_KILL_NOTES=str(notes)).returncode == 0
    seconds = {row["number"]: row["seconds"] for row in map(json.loads, notes.read_text().splitlines())}
    points = points_of(notes)
    assert sorted((point.number, point.moment) for point in points) == sorted(
        (number, moment) for number in (1, 2, LAST) for moment in MOMENTS)  # fmt: skip
    assert all(point.seconds < seconds[point.number] for point in points)


def test_d6_each_playbook_is_killed_once_at_each_of_its_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose points are done is run for those after it, and a round ends after the last one that has some."""
    counts = {"lab": 3, "site": 2, "teams": 1, "train": 1, "uninstall": 2, "lab-down": 1}
    points = {book: [Point(n, "a", "start", 0.0) for n in range(count)] for book, count in counts.items()}
    life = Life(points, {book: {} for book in BOOKS}, dict.fromkeys(BOOKS, 0))
    runs: list[str] = []

    def play(book: str, point: Point | None = None, **_: object) -> subprocess.CompletedProcess[str]:
        runs.append(f"{book} {point.number}" if point else book)
        return subprocess.CompletedProcess([], -signal.SIGKILL if point else 0, "ok: changed=0 ")

    monkeypatch.setattr(playbook_kills, "play", play)
    monkeypatch.setattr(playbook_kills, "facts", dict)
    rounds = [playbook_kills.one_round(life, number) for number in range(5)]
    assert life.rounds == 3
    books = [[row["book"] for row in rows] for rows in rounds]
    assert books == [[*BOOKS], ["lab", "site", "uninstall"], ["lab"], [], []]
    assert not [row for rows in rounds for row in rows if row["problems"]]
    killed = [run.split() for run in runs if " " in run]
    assert sorted(killed) == sorted([book, str(n)] for book, count in counts.items() for n in range(count))
    second = runs[runs.index("lab 1") - 1 : runs.index("lab 2") - 1]
    assert second == ["lab-down", "lab 1", "lab", "lab", "site 1", "site", "site", "teams", "train",
                      "uninstall 1", "uninstall", "uninstall"]  # fmt: skip
