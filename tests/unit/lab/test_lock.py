"""D6 and D9: one run at a time changes a lab, and only a lab's folder is changed or removed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.runs import holder, title
from lab.errors import LabError
from lab.host import node
from lab.host.lock import free, hold, refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
HOLD = """
import os, sys
from pathlib import Path
from gangplank.runs import holder
from lab.host.lock import hold
hold(Path(sys.argv[1]), holder(os.getpid(), ["playbooks/lab.yml"]), lambda line: print("said", line, flush=True), 30)
print("held", flush=True)
sys.stdin.readline()
"""

WITH_A_TASK = f"""
import os, time
if not (task := os.fork()):
    time.sleep(120)
print(task, flush=True)
{HOLD}"""


def mine() -> dict[str, Any]:
    """The record of this process."""
    return holder(os.getpid(), ["playbooks/lab.yml"])


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lab."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lab")]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_d6_the_second_run_says_who_holds_the_lab_and_stops_waiting(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    lines: list[str] = []
    with pytest.raises(LabError) as refusal:
        hold(tmp_path / "lab", mine(), lines.append, 1)
    who = title(json.loads((tmp_path / "lab/lab.lock").read_text()))
    assert f"@{socket.gethostname()}, process {other.pid} (playbooks/lab.yml), since " in who
    assert lines == [f"the lab in {tmp_path}/lab is in use by {who}: waiting for it up to 1 s"]
    fix = f"wait for it or end it (kill {other.pid} on {socket.gethostname()}), then run it again"
    assert str(refusal.value) == f"lab {tmp_path}/lab: got {who}, expected its end within 1 s. Fix: {fix}"
    assert sys.executable not in (tmp_path / "lab/lab.lock").read_text(), "its command may contain a password"


@pytest.mark.parametrize("end", ["free", "exit", "kill"])
def test_d6_the_second_run_goes_on_when_the_first_ends(
    tmp_path: Path, other: subprocess.Popen[str], end: str
) -> None:
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        if end == "free":
            free(tmp_path / "lab", other.pid)
        elif end == "exit":
            other.communicate("\n")
        else:
            other.send_signal(signal.SIGKILL)

    hold(tmp_path / "lab", mine(), say, 20)
    assert len(lines) == 1
    free(tmp_path / "lab", other.pid)  # not its own: nothing happens
    with pytest.raises(LabError, match=f"process {os.getpid()} "):
        hold(tmp_path / "lab", holder(os.getppid(), ["playbooks/lab.yml"]), lines.append, 0)


def test_d6_the_task_of_a_killed_run_holds_the_lab_until_it_ends(tmp_path: Path) -> None:
    """ansible-playbook alone is killed: the process that runs its task goes on changing the lab."""
    command = [sys.executable, "-c", WITH_A_TASK, str(tmp_path / "lab")]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout
        task = int(run.stdout.readline())
        assert run.stdout.readline() == "held\n"
        run.kill()
        run.wait()
        lines: list[str] = []
        try:
            with pytest.raises(LabError, match=rf"process {task} \(.*Fix: wait .* end it \(kill {task} on "):
                hold(tmp_path / "lab", mine(), lines.append, 0)
            assert len(lines) == 1
        finally:
            os.kill(task, signal.SIGKILL)
        hold(tmp_path / "lab", mine(), lines.append, 20)


def test_d6_a_run_may_hold_what_it_holds_and_a_torn_record_holds_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    for text in ("", '{"pid": 1', '{"pid": 1, "started": 0, "boot": ""}', "[]"):
        (tmp_path / "lab.lock").write_text(text)
        hold(tmp_path, mine(), lines.append, 0)
        hold(tmp_path, mine(), lines.append, 0)
    assert lines == []


def interrupted(folder: Path, *, ignore_errors: bool = False) -> None:
    """Removes nothing of an existing folder."""
    if not ignore_errors:
        raise KeyboardInterrupt(folder)


def test_d9_only_a_labs_folder_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("kill_all", "lab_nodes", "links", "run", "remove_cgroup", "unmount"):
        monkeypatch.setattr(node, name, lambda *_words, **_more: [])
    monkeypatch.setattr(node, "RUN", tmp_path / "run")
    monkeypatch.setattr(node, "NETNS", tmp_path / "netns")
    folder = tmp_path / "srv/data"
    folder.mkdir(parents=True)
    (folder / "mine").write_text("precious")
    message = f"lab_cluster_folder: got {folder} with other files in it, expected the folder of a lab. Fix: set"
    for _ in range(2):
        with pytest.raises(LabError, match=message):
            node.remove_lab(folder)
    assert (folder / "mine").read_text() == "precious"
    (folder / "mine").rename(folder / "parts.json")  # of another program
    with pytest.raises(LabError, match=message):
        node.remove_lab(folder)
    (folder / "parts.json").write_text('{"bin": {}}')
    (folder / "nodes/node-0").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr("gangplank.disk.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            node.remove_lab(folder)
    assert not (folder / "nodes").exists(), "a part of it"
    (folder / "nodes/node-0").mkdir(parents=True)  # by a lab that comes up before the next removal
    assert node.remove_lab(folder)
    assert folder.parent.exists(), "the user's own"
    assert not folder.exists()
    monkeypatch.setattr(node, "PARENT", folder.parent)
    assert not node.remove_lab(folder)
    assert not folder.parent.exists()
    refuse_foreign(folder)  # a new one
