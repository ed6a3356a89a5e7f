"""Fault F3: what a pod writes is shown, and never obeyed by the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gangplank.cli.terminal import complain, note
from gangplank.cluster.client import Kube
from gangplank.cluster.follow import JobWatch, follow
from gangplank.teams import compare
from gangplank.teams.drift import Difference
from gangplank.teams.plan import TeamsPlan
from gangplank.text import UNSEEN
from tests.unit.cli.test_jobs import JOBS, ROOT, run, running

if TYPE_CHECKING:
    from tests.unit.conftest import Api

HOSTILE = "\x1b[2J \x1b]0;title\x07 \x1b]52;c;YQ==\x1b\\ ab\rc \x9b31m \x9d0;x\x9c \x08\x7f"
SHOWN = r"\x1b[2J \x1b]0;title\x07 \x1b]52;c;YQ==\x1b\ ab\rc \x9b31m \x9d0;x\x9c \x08\x7f"


def obeyed(text: str) -> list[str]:
    """Lines with anything that a terminal would obey."""
    return [line for line in text.split("\n") if UNSEEN.search(line)]


@pytest.fixture
def hostile(api: Api) -> Api:
    """A job whose pods put it everywhere: logs, reasons, messages, events."""
    running(api)
    for where in [key for key in api.objects if "/pods/" in key]:
        api.logs[f"{where}/log"] = f"{HOSTILE}\nbye".encode()
        status = api.objects[where]["status"]
        status["containerStatuses"][0] = {
            "name": "worker", "restartCount": 0, "state": {"waiting": {"reason": HOSTILE, "message": HOSTILE}},
            "lastState": {"terminated": {"exitCode": 1, "reason": HOSTILE, "finishedAt": "2026"}},
        }  # fmt: skip
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": HOSTILE}]
        event = {"type": "Warning", "reason": "Unhealthy", "message": f"Readiness probe failed: {HOSTILE}",
                 "involvedObject": {"name": where.rpartition("/")[2]}}  # fmt: skip
        api.objects[where.replace("/pods/", "/events/")] = event | {"metadata": {"name": "e"}}
    return api


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("follow_option", [[], ["-f"]])
def test_f3_logs(
    hostile: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *,
    terminal: bool, follow_option: list[str],
) -> None:  # fmt: skip
    if follow_option:
        for where in [key for key in hostile.objects if "/pods/" in key]:
            hostile.objects[where]["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
        hostile.objects[f"{JOBS}/digits"]["status"]["state"]["phase"] = "Completed"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", "1")
    code, out, _ = run(capsys, "logs", "digits", *follow_option)
    assert code == 0
    assert SHOWN in out
    assert obeyed(out) == []


def test_f3_status(hostile: Api, capsys: pytest.CaptureFixture[str]) -> None:
    hostile.objects[f"{JOBS}/digits"]["status"]["state"]["phase"] = HOSTILE
    _, out, _ = run(capsys, "status", "digits")
    assert out.count(SHOWN) > 1
    assert obeyed(out) == []
    _, out, _ = run(capsys, "status")
    assert SHOWN in out
    assert obeyed(out) == []


def test_f3_progress_and_the_reasons_of_a_failure(hostile: Api) -> None:
    hostile.objects[f"{JOBS}/digits"]["status"]["state"] = {"phase": "Failed", "message": HOSTILE}
    watch, lines = JobWatch({**hostile.objects[f"{JOBS}/digits"]}, Kube()), list[str]()
    assert follow(watch, lines.append, 5)
    said = "\n".join([*lines, watch.trouble()])
    for place in ("not scheduled: ", "failed first (", "Readiness probe failed: "):
        assert f"{place}{SHOWN}" in said
    assert obeyed(said) == []


@pytest.mark.usefixtures("api")
def test_f3_drift(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Difference("Queue", "", HOSTILE, f"metadata.labels.{HOSTILE}", "none", HOSTILE)
    plan = TeamsPlan(differences=(changed,), notes=(HOSTILE,), refused=(HOSTILE,))
    monkeypatch.setattr(compare, "plan_teams", lambda *_: plan)
    code, out, err = run(capsys, "drift", str(ROOT / "inventories/example"))
    assert code == 1
    assert out.count(SHOWN) == 2, "its name and its path"
    assert err == f"note: {SHOWN}\nnote: {SHOWN}\n"
    assert obeyed(out) == []


def test_f3_messages(capsys: pytest.CaptureFixture[str]) -> None:
    complain(f"one\n{HOSTILE}", 1)
    note(HOSTILE)
    err = capsys.readouterr().err
    assert err == f"gangplank: one\n{SHOWN}\n{SHOWN}\n"
