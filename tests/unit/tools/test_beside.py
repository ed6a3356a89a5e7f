"""`make test` makes two targets at once, and the output of the one that failed comes last."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangplank.wait import polls

ROOT = Path(__file__).resolve().parents[3]
MAKEFILE = """
first:
	@echo one; nice; until test -e other; do sleep 0.1; done; echo two; exit $(FIRST)
other:
	@echo three; nice; touch other; echo four; exit $(OTHER)
long:
	@trap 'echo removed; exit 1' TERM INT; touch "$$PPID.pid"; while :; do sleep 0.1; done
"""


def start(folder: Path, *targets: str, **codes: str) -> subprocess.Popen[str]:
    (folder / "Makefile").write_text(MAKEFILE)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.Popen([sys.executable, "-m", "tools.beside", *targets], cwd=folder, text=True,
                            env=env | {"PYTHONPATH": str(ROOT)} | codes, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


@pytest.mark.parametrize(("first", "other", "last"), [
    ("0", "0", "four"), ("0", "1", "failed: make other"), ("1", "0", "failed: make first"),
    ("1", "1", "failed: make first, make other")])
def test_both_run_to_their_ends_whatever_becomes_of_the_other(
        tmp_path: Path, first: str, other: str, last: str) -> None:
    with start(tmp_path, "first", "other", FIRST=first, OTHER=other) as running:
        text, _ = running.communicate(timeout=60)
    assert running.returncode == ("1" in first + other)
    lines = text.splitlines()
    assert {"one", "two"} <= {*lines}
    assert f"make first {'failed' if first == '1' else 'passed'} after 0 minutes" in lines
    assert lines[-1] == last
    assert ("four" in lines) == (last != "failed: make first"), text
    kept = (tmp_path / ".other.log").read_text().splitlines()
    nice, own = int(kept[kept.index("three") + 1]), int(lines[lines.index("one") + 1])
    assert nice == min(19, own + 10), "it takes time from the first"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_are_stopped_and_waited_for(tmp_path: Path, number: int) -> None:
    with start(tmp_path, "long", "long") as running:
        try:
            assert any(len([*tmp_path.glob("*.pid")]) == 2 for _ in polls(60, 0.1))
            if number == signal.SIGINT:  # as a terminal sends it, to all of them
                os.killpg(running.pid, number)
            else:
                running.send_signal(number)
            text, _ = running.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 1
    assert text.count("removed") == 2, text
