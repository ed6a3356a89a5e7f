"""A site on one screen, by what its API server says; what may not be read is said."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli import main
from gangplank.cli.overview import CLEAR
from gangplank.cli.overview import page as page_of
from gangplank.cli.terminal import INTERRUPTED
from gangplank.cluster.client import Kube
from gangplank.cluster.overview import overview, readings
from gangplank.k8s.build import JOB_NAME
from tests.support.site_page import PICTURE, SITE, stamp

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
READY = [{"type": "Ready", "status": "True"}]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def screen(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    """The site as JSON."""
    code, out, _ = run(capsys, "status", "-o", "json", *words)
    assert code == 0
    fields: Json = json.loads(out)
    return fields


def pod(name: str, node: str, *, job: str = "", group: str = "", **requests: str) -> Json:
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    meta: Json = {"name": name, "namespace": "vision", "annotations": annotations}
    if job:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "u", "controller": True}
        meta |= {"labels": {JOB_NAME: job}, "ownerReferences": [owner]}
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    return {"metadata": meta, "spec": {"nodeName": node, "containers": containers}, "status": {"phase": "Running"}}


@pytest.fixture
def site(api: Api) -> Api:
    """Two nodes, one of them with GPUs, a queue, a job that runs and a gang that waits."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "9Gi"}
    nodes: dict[str, Json] = {
        "a": {"metadata": {"name": "a"}, "spec": {}, "status": {"allocatable": room, "conditions": READY}},
        "b": {
            "metadata": {"name": "b"},
            "spec": {"unschedulable": True},
            "status": {"allocatable": {**room, "nvidia.com/gpu": "8"}, "conditions": READY},
        },
    }
    queues: dict[str, Json] = {
        "root": {"spec": {}},
        "vision": {"spec": {"parent": "root", "capability": {"cpu": "6"}}, "status": {"state": "Open"}},
    }
    image = {"name": "c", "image": "registry/vc-scheduler:v1.15.0@sha256:abc"}
    scheduler = {
        "metadata": {"name": "volcano-scheduler", "namespace": "volcano-system"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [image]}}},
        "status": {},
    }
    step = {"event": "step", "rank": 0, "epoch": 1, "steps_total": 100, "loss": 1, "mean_loss": 1, "gradient_norm": 1}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "digits", "namespace": "vision", "uid": "u"}}
    job |= {"spec": {"completionMode": "Indexed", "template": {"spec": {"containers": []}}}, "status": {"active": 1}}
    groups = {
        "digits": {"spec": {"queue": "vision", "minMember": 1}, "status": {"phase": "Running"}},
        "next": {
            "spec": {"queue": "vision", "minMember": 1, "minResources": {"cpu": "3"}},
            "status": {"phase": "Pending"},
        },
    }
    own = pod("digits-0", "b", job="digits", group="digits", cpu="2", **{"nvidia.com/gpu": "2"})
    api.objects |= {f"/api/v1/nodes/{name}": item for name, item in nodes.items()}
    api.objects |= {f"{VOLCANO}/queues/{name}": {"metadata": {"name": name}, **item} for name, item in queues.items()}
    api.objects |= {
        f"{VOLCANO}/namespaces/vision/podgroups/{name}": {"metadata": {"name": name, "namespace": "vision"}, **item}
        for name, item in groups.items()
    }
    api.objects["/apis/apps/v1/namespaces/volcano-system/deployments/s"] = scheduler
    api.objects["/api/v1/namespaces/vision/pods/digits-0"] = own
    api.objects["/apis/batch/v1/namespaces/vision/jobs/digits"] = job
    api.logs["/api/v1/namespaces/vision/pods/digits-0/log"] = "\n".join(
        f"2026-11-23T00:00:{second:02}.0Z {json.dumps({**step, 'step': at}, separators=(',', ':'))}"
        for second, at in ((10, 20), (30, 40))
    ).encode()
    return api


@pytest.mark.usefixtures("site")
def test_shows_who_holds_what_who_waits_and_what_is_free(capsys: pytest.CaptureFixture[str]) -> None:
    now = screen(capsys)
    assert now["version"] == "v1.35.4"
    assert now["components"] == [{"component": "Volcano", "version": "v1.15.0", "ready": "no", "pods": "0 of 1"}]
    assert now["queues"] == [{
        "queue": "vision", "state": "Open", "held": {"cpu": "2", "nvidia.com/gpu": "2"}, "gangs waiting": 1,
        "wanted": {"cpu": "3"}, "free": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "6"},
    }]  # fmt: skip
    assert now["gpus"] == [{"device": "nvidia.com/gpu", "nodes": 1, "total": 8, "held": 2, "free": 6}]
    assert [(node["node"], node["state"]) for node in now["nodes"]] == [("b", "cordoned"), ("a", "ready")]
    assert now["nodes"][0]["free"] == {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "6"}
    assert now["cannot_tell"] == []


@pytest.mark.parametrize("command", ["status", "metrics", "when digits -n vision"])
def test_logs_that_are_not_read_in_time_are_said_to_be_unread(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """With many nodes that are silent, a screen or a scrape took a quarter of an hour."""
    monkeypatch.setattr("gangplank.cluster.overview.LOGS_S", -1)
    assert "progress of jobs in vision" in run(capsys, *command.split())[1]
    assert not any("/log" in request for request in site.seen)


def test_gpus_that_are_free_are_those_of_nodes_that_answer(site: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two nodes with eight each, one has lost two of those that its pods hold."""
    site.objects["/api/v1/nodes/a"]["status"]["allocatable"]["nvidia.com/gpu"] = "6"
    for name, where in (("x", "a"), ("y", "b")):
        held = pod(name, where, cpu="1", **{"nvidia.com/gpu": "8" if where == "a" else "4"})
        site.objects[f"/api/v1/namespaces/vision/pods/{name}"] = held
    assert screen(capsys)["gpus"] == [{"device": "nvidia.com/gpu", "nodes": 2, "total": 14, "held": 14, "free": 2}]
    site.objects["/api/v1/nodes/b"]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    assert screen(capsys)["gpus"][0]["free"] == 0


@pytest.mark.parametrize(("ready", "more", "state"), [(1, 1, "yes"), (2, 0, "no"), (1, None, "no")])
def test_a_component_is_ready_once_each_of_its_workloads_is(
    site: Api, capsys: pytest.CaptureFixture[str], ready: int, more: int | None, state: str
) -> None:
    """One pod too many of one made up for another, and a Deployment that was scaled to zero was ready."""
    scheduler = site.objects["/apis/apps/v1/namespaces/volcano-system/deployments/s"]
    scheduler["status"]["readyReplicas"] = ready
    status = {"readyReplicas": more} if more else {}
    other = {**scheduler, "spec": {**scheduler["spec"], "replicas": 0 if more is None else 1}, "status": status}
    site.objects["/apis/apps/v1/namespaces/volcano-system/deployments/t"] = other
    assert screen(capsys)["components"][0]["ready"] == state


@pytest.mark.parametrize("ready", ["True", "Unknown"])
@pytest.mark.parametrize("command", ["status", "metrics", "when digits", "why digits"])
def test_a_node_that_does_not_answer_is_said_and_ends_no_command(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, ready: str
) -> None:
    """The API server asks a node for logs, and answers 500 if that does not: so did the site, and its metrics."""
    usual = site.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        refusal = 500, b'{"message": "dial tcp 192.0.2.1:10250: connection refused"}'
        return refusal if where.endswith("/log") else usual(method, where, query, body)

    monkeypatch.setattr(site, "answer", answer)
    monkeypatch.setattr("gangplank.cluster.situation.LOGS_S", 0)
    site.objects["/api/v1/nodes/b"]["status"]["conditions"] = [{"type": "Ready", "status": ready}]
    site.objects["/api/v1/namespaces/vision/pods/digits-0"]["metadata"] |= {"uid": "p", "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "uid": "u", "controller": True},
    ]}  # fmt: skip
    site.objects[f"{VOLCANO}/namespaces/vision/podgroups/digits"]["metadata"]["uid"] = "g"
    words = command.split()
    code, out, err = run(capsys, *words, *(["-n", "vision"] if len(words) > 1 else []))
    assert code == (6 if "when" in words else 0), err
    if "why" not in words:
        assert "progress of jobs in vision" in out
    assert ready == "True" or not any("/log" in request for request in site.seen), "a node that is cut off takes 30 s"


@pytest.mark.usefixtures("site")
def test_shows_the_progress_of_a_job_and_the_time_that_its_steps_still_take(capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = screen(capsys)["jobs"]
    assert (job["job"], job["namespace"], job["back-end"], job["running"]) == ("digits", "vision", "indexed", 1)
    assert (job["progress"], job["left"]) == ("epoch 1, step 40 of 100", 60.0)
    assert screen(capsys, "-n", "speech")["jobs"] == []


def test_who_may_not_read_something_is_told_so(
    site: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a team's member, whose rights `teams/access.py` lists."""
    site.unreadable = {"/api/v1/pods", f"{VOLCANO}/podgroups", "/apis/apps/v1/deployments", "/apis/batch/v1/jobs"}
    now = screen(capsys, "-n", "vision")
    assert [job["progress"] for job in now["jobs"]] == ["epoch 1, step 40 of 100"]
    assert now["components"] == []
    assert (now["queues"][0]["gangs waiting"], now["gpus"][0]["free"], now["nodes"][0]["free"]) == (None, None, None)
    assert now["cannot_tell"] == [
        "components: you may not list deployments and daemonsets of all namespaces",
        "what is held and free on nodes: you may not list pods of all namespaces",
        "what waits in queues: you may not list pod groups of all namespaces",
    ]
    now = screen(capsys)
    assert now["jobs"] == []
    assert "jobs of other namespaces than default: you may not list them; name yours with -n" in now["cannot_tell"]
    site.set_namespace("vision")
    now = screen(capsys)
    assert [job["job"] for job in now["jobs"]] == ["digits"]
    assert "jobs of other namespaces than vision: you may not list them; name yours with -n" in now["cannot_tell"]


@pytest.mark.parametrize("whole", [True, False])
def test_how_many_pods_run_that_may_not_be_read_is_unknown(
    site: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, whole: bool
) -> None:
    """They passed for none. `whole`: those of all namespaces may not be read, and those of the job's may."""
    site.unreadable = {"/api/v1/pods", *([] if whole else ["/api/v1/namespaces/vision/pods"])}
    for words in ([], ["-n", "vision"]):
        now = screen(capsys, *words)
        (job,) = now["jobs"]
        assert (job["running"], job["progress"]) == ((1, "epoch 1, step 40 of 100") if whole else (None, None))
        assert ("pods in namespace vision: you may not list them" in now["cannot_tell"]) is not whole
    file = tmp_path / "site.html"
    run(capsys, "status", "--html", str(file))
    assert ("<td>Running</td><td></td><td>" in file.read_text()) is not whole
    (line,) = [line for line in run(capsys, "status")[1].splitlines() if line.startswith("digits")]
    assert line.split() == ["digits", "vision", "indexed", "Running", *(
        ["1", "1", "epoch", "1,", "step", "40", "of", "100", "1", "min"] if whole else ["1"])]  # fmt: skip
    _, out, _ = run(capsys, "when", "digits", "-n", "vision")
    assert ("cannot tell when it starts: pods in namespace vision" in out) is not whole


@pytest.mark.usefixtures("site")
def test_the_page_has_every_row_and_needs_no_other_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "site.html"
    code, out, err = run(capsys, "status", "--html", str(file))
    assert (code, out, err) == (0, "", f"{file} written\n")
    page = file.read_text()
    assert all(f'<table id="{name}">' in page for name in ("components", "queues", "jobs", "gpus", "nodes"))
    assert "<td>epoch 1, step 40 of 100</td><td>1 min</td>" in page
    assert all(word not in page for word in ("<script", "src=", "href=", "url("))
    code, _, err = run(capsys, "status", "--html", str(tmp_path / "none/site.html"))
    assert code == 3
    assert "Fix: " in err


def test_the_picture_of_the_page_has_the_tables_of_a_site_and_is_small(site: Api) -> None:
    columns = {one.name: one.columns for one in overview(Kube(site.kubeconfig)).sections}
    assert [one.name for one in SITE.sections] == [*columns]
    assert all(one.columns == columns[one.name] for one in SITE.sections if one.rows)
    picture = PICTURE.read_bytes()
    assert 10_000 < len(picture) < 150 * 1024
    assert stamp(page_of(SITE)) in picture, "the page is another now: see tests/support/site_page.py"


@pytest.mark.usefixtures("site")
def test_a_long_table_is_cut_on_a_screen_and_nowhere_else(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(40):
        meta = {"name": f"n{number:02}"}
        api.objects[f"/api/v1/nodes/n{number}"] = {"metadata": meta, "spec": {}, "status": {"conditions": READY}}
    _, out, _ = run(capsys, "status")
    assert "and 12 more: -o json or --html FILE has all of them" in out
    assert len(screen(capsys)["nodes"]) == 42


@pytest.mark.slow
def test_watch_draws_the_site_again_on_a_terminal_until_ctrl_c(site: Api) -> None:
    """In a terminal of its own: each screen begins at the top, and shows what has changed."""
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "gangplank", "status", "--watch"]
    env = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=env, start_new_session=True) as watch:
        os.close(end)
        try:
            text = read(terminal, "NODE ")
            late = {"metadata": {"name": "late"}, "spec": {}, "status": {"conditions": READY}}
            site.objects["/api/v1/nodes/c"] = late
            text += read(terminal, "late")
            watch.send_signal(signal.SIGINT)
            rest = read(terminal, "Traceback")
            assert watch.wait(10) == INTERRUPTED
        finally:
            watch.kill()
            os.close(terminal)
    _, before, *after = text.split(CLEAR)
    assert "epoch 1, step 40 of 100" in before
    assert "late" not in before
    assert "late" in after[-1]
    assert "Traceback" not in rest


def read(terminal: int, until: str) -> str:
    """What a terminal shows up to some text, or until nothing is written to it any more."""
    text, end = "", time.monotonic() + 60
    while until not in text:
        assert time.monotonic() < end, text
        assert select.select([terminal], [], [], 30)[0], text
        try:
            text += os.read(terminal, 1 << 16).decode()
        except OSError:  # Linux says so when the last program has closed the other end
            break
    return text


def test_watch_in_a_file_clears_nothing(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangplank.cli.overview.polls", lambda *_: iter(range(2)))
    assert run(capsys, "status", "--watch")[1].count("QUEUE") == 2
    code, out, _ = run(capsys, "status", "--watch", "-o", "json")
    assert code == 0
    assert [json.loads(line)["version"] for line in out.splitlines()] == 2 * ["v1.35.4"]
    assert "\x1b" not in out
    assert not any(line.startswith(("POST", "PATCH", "DELETE")) for line in site.seen)


@pytest.mark.parametrize("option", [["--watch"], ["-o", "json"], ["--html", "a.html"]])
def test_what_is_about_the_site_is_refused_with_a_job(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "status", "digits", *option)
    assert code == 2
    assert "expected it without a job" in err


def test_the_pace_is_that_of_the_last_start() -> None:
    step = '{"event":"step","rank":0,"epoch":1,"step":%d,"steps_total":50,"loss":1,"mean_loss":1,"gradient_norm":1}'
    lines = [f"2026-11-23T00:00:{second:02}Z {step % at}" for second, at in ((1, 10), (2, 20), (30, 10), (32, 11))]
    said = readings([*lines, "2026-11-23T00:00:40Z words of another kind"])
    assert said.keys() == {0}
    assert (said[0].left_s, said[0].text) == (78.0, "epoch 1, step 11 of 50")
    assert said[0].seen == 1795392032.0


def test_a_line_of_a_terminal_is_read_as_any_other() -> None:
    pace = "gangplank: rank 1: 60 steps in 30.0 s: data 6.0 s, compute 12.0 s, exchange 12.0 s"
    assert readings([f"2026-11-23T00:00:01Z {pace}\r"])[1].step_s == 0.5


@pytest.mark.parametrize("words", [
    b"loading\rT-00:30 left", b"\rXYZ done", "a\x85T-00:30 b".encode(), "a\u2028XYZ b".encode(), b"a\nXYZ b",
], ids=repr)  # fmt: skip
def test_what_a_rank_prints_is_no_time_of_its_log(site: Api, capsys: pytest.CaptureFixture[str], words: bytes) -> None:
    log = "/api/v1/namespaces/vision/pods/digits-0/log"
    site.logs[log] = b"2026-11-23T00:00:00.0Z " + words + b"\n" + site.logs[log]
    (job,) = screen(capsys)["jobs"]
    assert (job["progress"], job["left"]) == ("epoch 1, step 40 of 100", 60.0)


@pytest.mark.parametrize("zone", ["Z", "+00:00", "+09:00", "-03:30"])
def test_a_node_writes_the_times_of_logs_in_its_own_time_zone(
    site: Api, capsys: pytest.CaptureFixture[str], zone: str
) -> None:
    log = "/api/v1/namespaces/vision/pods/digits-0/log"
    site.logs[log] = site.logs[log].replace(b".0Z ", f".123456789{zone} ".encode())
    (job,) = screen(capsys)["jobs"]
    assert (job["progress"], job["left"]) == ("epoch 1, step 40 of 100", 60.0)
