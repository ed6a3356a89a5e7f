"""The command fetch, around what tests/unit/cluster/test_fetch.py shows."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cli import fetch
from gangplank.cluster import evidence
from gangplank.cluster.landing import Landing
from gangplank.jobs.parse import parse_job
from gangplank.proof.expected import EVIDENCE, job_uid

if TYPE_CHECKING:
    from pathlib import Path

VOLUMES = [{"claim": "data", "mount": "/data", "on": "master"}]


def cluster(host: str = "https://a:6443") -> Any:
    """One of that address, with a job without pods."""
    return SimpleNamespace(api=SimpleNamespace(configuration=SimpleNamespace(host=host)), pods=lambda _: [])


def job(output: str = "/data/out", uid: str = "uid-2") -> Any:
    """A live job with an output."""
    fields = {"name": "digits", "image": "img", "script": "/a.py", "output": output, "volumes": VOLUMES}
    manifest = BACKENDS["volcano"].manifests(parse_job(fields))[-1]
    manifest["metadata"] |= {"uid": uid, "namespace": "vision"}
    return manifest


def test_a_job_of_this_name_elsewhere_or_with_another_output_has_other_files() -> None:
    """What one of them had left was replaced by that of another."""
    jobs = [fetch.owner(cluster(), job()), fetch.owner(cluster("https://b:6443"), job()),
            fetch.owner(cluster(), job("/data/again"))]
    assert len(set(jobs)) == 3
    assert jobs[0] == fetch.owner(cluster(), job(uid="uid-3")), "a later run of it has the same"


@pytest.mark.parametrize("of", ["uid-1", "uid-2"])
def test_evidence_of_an_earlier_run_is_named_if_the_logs_of_this_one_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """A proof of the folder judged the earlier run, beside the weights of this one."""
    monkeypatch.setattr(evidence, "logged", lambda *_: [])
    uid = job_uid(job(uid=of))
    (tmp_path / EVIDENCE).write_text(f'{{"event": "start", "job_uid": "{uid}"}}\n')
    with Landing(tmp_path) as target:
        left = fetch.keep_evidence(cluster(), job(), target, ())
    assert set(left) == ({EVIDENCE} if of == "uid-1" else set())
    with Landing(tmp_path / "empty") as target:
        assert not fetch.keep_evidence(cluster(), job(), target, ())


def test_what_a_pod_says_of_its_progress_is_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fetch.Meter("set").show("compares a\x1b]0;title\x07", 0, 0)
    assert capsys.readouterr().err == "\r\x1b[Kset: compares a\\x1b]0;title\\x07"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_lets_it_remove_its_pod(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # a test run under nohup ignores one
    removed = list[bool]()

    def work() -> None:
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)  # a terminal that closes sends it twice
            removed.append(True)

    try:
        with pytest.raises(KeyboardInterrupt), fetch.interruptible():
            work()
        assert removed
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_under_nohup_the_end_of_the_terminal_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with fetch.interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
