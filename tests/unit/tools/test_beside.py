"""`make test` makes two targets at once, and the output of the one that failed comes last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAKEFILE = """
first:
	@echo one; chrt --pid $$$$; until test -e other; do sleep 0.1; done; echo two; exit $(FIRST)
other:
	@echo three; sleep 0.2; chrt --pid $$$$; touch other; echo four; exit $(OTHER)
long:
	@trap 'echo removed; exit 1' TERM INT; touch "$$PPID.pid"; while :; do sleep 0.1; done
"""


def start(folder: Path, *targets: str, **codes: str) -> subprocess.Popen[str]:
    (folder / "Makefile").write_text(MAKEFILE)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.Popen([sys.executable, "-m", "tools.beside", *targets], cwd=folder, text=True,
                            env=env | {"PYTHONPATH": str(ROOT)} | codes, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


@pytest.mark.parametrize(("first", "other", "last"), [("0", "0", "four"), ("0", "1", "Error 1"), ("1", "0", "passed"),
                                                      ("1", "1", "Error 1")])
def test_both_run_to_their_ends_whatever_becomes_of_the_other(
        tmp_path: Path, first: str, other: str, last: str) -> None:
    with start(tmp_path, "first", "other", FIRST=first, OTHER=other) as running:
        text, _ = running.communicate(timeout=60)
    assert running.returncode == ("1" in first + other)
    lines = text.splitlines()
    assert {"one", "two"} <= {*lines}
    assert ("four" in lines) == (last != "passed"), text
    assert last in lines[-1]
    kept = (tmp_path / ".beside.log").read_text()
    assert "SCHED_IDLE" in kept, "it takes time from the first"
    assert "SCHED_IDLE" not in text.partition("three")[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_are_stopped_and_waited_for(tmp_path: Path, number: int) -> None:
    with start(tmp_path, "long", "long") as running:
        while len([*tmp_path.glob("*.pid")]) < 2:
            assert running.poll() is None
        if number == signal.SIGINT:  # as a terminal sends it, to all of them
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
        text, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert text.count("removed") == 2, text
