"""The samples of `gangplank metrics`, by what the API server says; what may not be read, or is too much, is counted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import urllib.request
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gangplank.cli import main
from gangplank.cli.metrics import Collector
from gangplank.cluster import metrics
from gangplank.cluster.client import Kube
from gangplank.cluster.metrics import FAMILIES, retries_of, site_metrics, waiting_s
from gangplank.k8s.build import JOB_NAME
from gangplank.teams import inventory
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
Samples = dict[str, list[tuple[Json, float]]]
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "uid": "u", "controller": True}
OWN = {"namespace": "vision", "job_name": "digits", "backend": "indexed"}
STEP = {"event": "step", "epoch": 1, "steps_total": 100, "loss": 0.5, "mean_loss": 1, "gradient_norm": 1}


def samples(text: str, read: Callable[[str], Any] = text_string_to_metric_families) -> Samples:
    """Labels and value of each sample, by name."""
    result: Samples = {}
    for family in read(text):
        for sample in family.samples:
            result.setdefault(sample.name, []).append((sample.labels, sample.value))
    return result


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Samples:
    assert main(["metrics", *words]) == 0
    out = capsys.readouterr().out
    return samples(out, openmetrics if "openmetrics" in words else text_string_to_metric_families)


def log(*steps: tuple[int, int, int]) -> bytes:
    """What ranks print: second, rank and step of each line."""
    lines = [f"2026-11-23T00:00:{second:02}Z {json.dumps({**STEP, 'rank': rank, 'step': step}, separators=(',', ':'))}"
             for second, rank, step in steps]  # fmt: skip
    return "\n".join(lines).encode()


def pod(name: str, phase: str = "Running", **more: Any) -> Json:
    meta = {"name": name, "namespace": "vision", "labels": {JOB_NAME: "digits"}, "ownerReferences": [OWNER], **more}
    meta["annotations"] = {"scheduling.k8s.io/group-name": "digits"}
    spec = {"nodeName": "a", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": str(phase == "Running")}]}
    return {"metadata": meta, "spec": spec, "status": status}


@pytest.fixture
def site(api: Api) -> Api:
    """A queue with a gang that waits, a team's quota, a job with two pods, and one that failed."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = [{"type": "Ready", "status": "True"}]
    node = {"metadata": {"name": "a"}, "spec": {}, "status": {"allocatable": room, "conditions": ready}}
    queue = {"deserved": {"cpu": "500m"}, "capability": {"cpu": "6"}, "parent": "root"}
    groups = {
        "digits": {"spec": {"queue": "vision", "minMember": 1}, "status": {"phase": "Running"}},
        "next": {"spec": {"queue": "vision", "minResources": {"cpu": "3"}}, "status": {"phase": "Pending"}},
    }
    template = {"spec": {"completionMode": "Indexed", "template": {"spec": {"containers": []}}}}
    job = {"metadata": {"name": "digits", "namespace": "vision", "uid": "u"}, **template, "status": {"active": 2}}
    failed = [{"type": "Failed", "status": "True"}]
    lost: Json = {"metadata": {"name": "lost", "namespace": "vision", "uid": "v"}}
    lost["spec"] = {**template["spec"], "backoffLimit": 3}
    quota = {"metadata": {"name": "gangplank-team", "namespace": "vision", "labels": {"gangplank.dev/team": "vision"}}}
    other = {"metadata": {"name": "own", "namespace": "vision"}, "status": {"hard": {"pods": "1"}}}
    api.objects |= {
        "/api/v1/nodes/a": node,
        f"{VOLCANO}/queues/root": {"metadata": {"name": "root"}, "spec": {}},
        f"{VOLCANO}/queues/vision": {"metadata": {"name": "vision"}, "spec": queue, "status": {"state": "Open"}},
        "/api/v1/namespaces/vision/pods/digits-0": pod("digits-0"),
        "/api/v1/namespaces/vision/pods/digits-1": pod("digits-1"),
        "/apis/batch/v1/namespaces/vision/jobs/digits": job,
        "/apis/batch/v1/namespaces/vision/jobs/lost": {**lost, "status": {"failed": 4, "conditions": failed}},
        "/api/v1/namespaces/vision/resourcequotas/gangplank-team": {
            **quota, "status": {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1500m"}},
        },
        "/api/v1/namespaces/vision/resourcequotas/own": other,
    }  # fmt: skip
    for name, item in groups.items():
        group = {"metadata": {"name": name, "namespace": "vision"}, **item}
        api.objects[f"{VOLCANO}/namespaces/vision/podgroups/{name}"] = group
    api.logs["/api/v1/namespaces/vision/pods/digits-0/log"] = log((10, 0, 20), (30, 0, 40))
    pace = "gangplank: rank 1: 60 steps in 30.0 s: data 6.0 s, compute 12.0 s, exchange 12.0 s"
    api.logs["/api/v1/namespaces/vision/pods/digits-1/log"] = f"2026-11-23T00:00:31Z {pace}".encode()
    return api


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize("form", ["prometheus", "openmetrics"])
def test_queues_teams_jobs_and_ranks_are_samples(capsys: pytest.CaptureFixture[str], form: str) -> None:
    now = printed(capsys, "-o", form)
    cpu = {"queue": "vision", "resource": "cpu"}
    for side, value in (("deserved", 0.5), ("capability", 6.0), ("held", 1.0), ("waiting", 3.0)):
        assert now[f"gangplank_queue_{side}"] == [(cpu, value)], side
    assert now["gangplank_queue_waiting_gangs"] == [({"queue": "vision"}, 1.0)]
    team = {"team": "vision", "namespace": "vision", "resource": "requests.cpu"}
    assert (now["gangplank_team_quota_hard"], now["gangplank_team_quota_used"]) == ([(team, 2.0)], [(team, 1.5)])
    lost = {**OWN, "job_name": "lost"}
    phases = [({**OWN, "phase": "running"}, 1.0), ({**lost, "phase": "failed"}, 1.0)]
    assert now["gangplank_job_phase"] == phases
    assert now["gangplank_job_replicas_ready"] == [(OWN, 2.0), (lost, 0.0)]
    assert now["gangplank_job_waiting_seconds"] == [(OWN, 0.0)]
    assert now["gangplank_job_retries_total"] == [(OWN, 0.0), (lost, 3.0)]
    first, second = {**OWN, "rank": "0"}, {**OWN, "rank": "1"}
    assert now["gangplank_rank_step"] == [(first, 40.0)]
    assert now["gangplank_rank_steps_planned"] == [(first, 100.0)]
    assert now["gangplank_rank_loss"] == [(first, 0.5)]
    assert now["gangplank_rank_step_seconds"] == [(first, 1.0), (second, 0.5)]
    seen = [(first, 1795392030.0), (second, 1795392031.0)]
    assert now["gangplank_rank_last_seen_timestamp_seconds"] == seen
    assert now["gangplank_up"] == [({}, 1.0)]
    assert now["gangplank_omitted"] == [({"kind": kind}, 0.0) for kind in ("jobs", "logs", "ranks")]
    assert "gangplank_unreadable" not in now


@pytest.mark.usefixtures("site")
def test_every_sample_is_of_a_documented_metric_and_no_sample_comes_twice(capsys: pytest.CaptureFixture[str]) -> None:
    now = printed(capsys)
    labels_by_name = {family.full_name: set(family.labels) for family in FAMILIES.values()}
    for name, own in now.items():
        assert all(labels.keys() == labels_by_name[name] for labels, _ in own), name
        assert len({json.dumps(labels, sort_keys=True) for labels, _ in own}) == len(own), name


def test_what_may_not_be_read_is_a_sample(
    site: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    site.unreadable = {"/api/v1/pods", f"{VOLCANO}/podgroups", "/apis/batch/v1/jobs", "/api/v1/resourcequotas"}
    now = printed(capsys, "-n", "vision")
    assert {labels["what"] for labels, _ in now["gangplank_unreadable"]} == {
        "what is held and free on nodes", "what waits in queues",
    }  # fmt: skip
    assert "gangplank_queue_waiting" not in now
    assert now["gangplank_rank_step"] == [({**OWN, "rank": "0"}, 40.0)]
    assert len(now["gangplank_team_quota_used"]) == 1
    now = printed(capsys)
    assert "gangplank_job_phase" not in now
    what = {labels["what"] for labels, _ in now["gangplank_unreadable"]}
    assert {"jobs of other namespaces than default", "quotas of other namespaces than default"} < what
    site.set_namespace("vision")
    assert "gangplank_job_phase" in printed(capsys)


@pytest.mark.parametrize("readable", [True, False])
def test_jobs_of_several_namespaces_have_their_pods_without_a_right_to_those_of_all(
    site: Api, readable: bool
) -> None:
    """Jobs of all namespaces but the first passed for waiting."""
    site.unreadable = {"/api/v1/pods", *([] if readable else ["/api/v1/namespaces/vision/pods"])}
    now = site_metrics(Kube(site.kubeconfig), ["other", "vision"]).values
    key = tuple(OWN.values())
    assert {labels for labels in now["job_phase"] if labels[:3] == key} == ({(*key, "running")} if readable else set())
    assert now["job_replicas_ready"].get(key) == (2.0 if readable else None)
    assert (("pods in namespace vision",) in now["unreadable"]) is not readable


def test_a_site_is_the_namespaces_of_its_teams(
    site: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = dict(site.objects["/apis/batch/v1/namespaces/vision/jobs/digits"])
    job["metadata"] = {"name": "more", "namespace": "other"}
    site.objects["/apis/batch/v1/namespaces/other/jobs/more"] = job
    (tmp_path / "hosts.yml").write_text("all: {children: {teams: {hosts: {vision: }}}}\n")
    (tmp_path / "host_vars").mkdir()
    cap = "{cpu: 4, memory: 8Gi, ephemeral_storage: 9Gi}"
    (tmp_path / "host_vars/vision.yml").write_text(f"team_members: [{{user: ada}}]\nteam_cap: {cap}\n")
    assert {labels["namespace"] for labels, _ in printed(capsys)["gangplank_job_info"]} == {"vision", "other"}
    own = printed(capsys, "--site", str(tmp_path))
    assert {labels["namespace"] for labels, _ in own["gangplank_job_info"]} == {"vision"}
    assert not any(line.startswith("GET /apis/batch/v1/jobs") for line in site.seen[len(site.seen) // 2 :])


@pytest.mark.parametrize(("words", "message"), [
    (["-n", "vision"], "--site: got it with -n, expected it without -n. Fix: leave out --site, or -n"),
    (["--write", "monitoring"], "--site: got it with --write, expected it without --write. Fix: leave out"),
    ([], "which has no teams, expected an inventory with teams. Fix: leave out --site to see all namespaces"),
])
def test_a_site_that_would_decide_nothing_is_refused(
    api: Api, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str],
    message: str
) -> None:
    monkeypatch.setattr(inventory, "program_of_ansible", lambda _: None)  # which would take seconds
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text("all: {}\n")
    assert main(["metrics", "--site", str(tmp_path), *words]) == 2
    assert message in capsys.readouterr().err
    assert (api.seen, [path.name for path in tmp_path.glob("monitoring/*")]) == ([], [])


def test_what_is_beyond_the_limits_is_left_out_and_counted(
    site: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script may print what it likes: as many ranks as it likes, too."""
    lines = [(10, rank, 1) for rank in range(5)]
    site.logs["/api/v1/namespaces/vision/pods/digits-0/log"] = log(*lines)
    for name, most in (("MOST_JOBS", 1), ("MOST_LOGS", 1), ("MOST_RANKS", 2)):
        monkeypatch.setattr(metrics, name, most)
    now = printed(capsys)
    assert [labels["job_name"] for labels, _ in now["gangplank_job_info"]] == ["digits"]
    assert [labels["rank"] for labels, _ in now["gangplank_rank_step"]] == ["0", "1"]
    assert {labels["kind"]: value for labels, value in now["gangplank_omitted"]} == {"jobs": 1, "logs": 1, "ranks": 3}


@pytest.mark.parametrize(("option", "value"), [("-n", "vision"), ("-o", "openmetrics"), ("-o", "prometheus")])
def test_an_option_that_would_decide_nothing_of_what_is_written_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, option: str, value: str
) -> None:
    assert main(["metrics", "--write", str(tmp_path / "new"), option, value]) == 2
    message = f"{option}: got it with --write, expected it without --write. Fix: leave out {option}, or --write"
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()

DAY = "2026-11-24T"


@pytest.mark.parametrize(
    ("created", "pods", "retries", "waits_s"),
    [
        ("10:00:00", [], 0, 600),
        ("10:00:00", [("Pending", "10:05:00")], 0, 600),
        ("10:00:00", [("Pending", "10:05:00")], 1, 300),  # it began again
        ("10:00:00", [("Running", "10:01:00"), ("Pending", "10:08:00")], 0, 120),  # one pod was replaced
        ("10:00:00", [("Running", "10:01:00")], 1, 0),
    ],
)
def test_a_job_waits_since_it_was_submitted_or_began_again(
    created: str, pods: list[tuple[str, str]], retries: int, waits_s: float
) -> None:
    own = [pod(f"p-{number}", phase, creationTimestamp=f"{DAY}{time}Z") for number, (phase, time) in enumerate(pods)]
    now = datetime.fromisoformat(f"{DAY}10:10:00Z")  # by the API server's clock, whatever this machine's says
    assert round(waiting_s({"metadata": {"creationTimestamp": f"{DAY}{created}Z"}}, own, retries, now)) == waits_s


@pytest.mark.parametrize("status", [
    {"state": {"phase": "Pending", "lastTransitionTime": f"{DAY}10:08:00Z"}},
    {"conditions": [{"lastTransitionTime": f"{DAY}10:02:00Z"}, {"lastTransitionTime": f"{DAY}10:08:00Z"}]},
])
def test_a_job_that_began_again_and_has_no_pods_yet_waits_since_its_state_changed(status: dict[str, Any]) -> None:
    """It waited since it was submitted, and the alert fired at once."""
    job = {"metadata": {"creationTimestamp": f"{DAY}00:00:00Z"}, "status": status}
    assert round(waiting_s(job, [], 1, datetime.fromisoformat(f"{DAY}10:10:00Z"))) == 120


class Turn:
    """A lock that counts who wanted it."""

    def __init__(self) -> None:
        self.lock, self.wanted = threading.Lock(), 0

    def __enter__(self) -> None:
        self.wanted += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_scrapes_that_come_while_the_cluster_is_read_take_what_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read the cluster for itself, one after the other: those that nobody awaited any more piled up."""
    reads, begun, done = list[int](), threading.Event(), threading.Event()

    def read() -> metrics.Samples:
        reads.append(1)
        begun.set()
        assert done.wait(30)
        return metrics.unanswered()

    collector, turn = Collector(read), Turn()
    monkeypatch.setattr(collector, "turn", turn)
    scrapes = [threading.Thread(target=lambda: [*collector.collect()]) for _ in range(8)]
    for scrape in scrapes:
        scrape.start()
    assert begun.wait(30)
    assert any(turn.wanted == len(scrapes) for _ in polls(30, 0.01))
    done.set()
    for scrape in scrapes:
        scrape.join(30)
    assert len(reads) == 1
    assert [*collector.collect()]
    assert len(reads) == 2, "a later one reads it again"


def test_retries_are_what_the_controller_or_the_pods_count() -> None:
    volcano: Json = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "digits"}}
    again = pod("digits-0", annotations={})
    again["metadata"]["annotations"] = {"volcano.sh/job-retry-count": "2"}
    assert retries_of(volcano, [again]) == 2
    limited = {**volcano, "spec": {"maxRetry": 3}}
    assert [retries_of({**limited, "status": {"retryCount": count}}, []) for count in (0, 1, 2, 3)] == [0, 1, 2, 2]
    crashed = pod("digits-0")
    crashed["status"]["containerStatuses"] = [{"name": "c", "restartCount": 4}]
    assert retries_of(volcano, [crashed]) == 4


def endpoint(*words: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "gangplank", "metrics", "--listen", "127.0.0.1:0", *words]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr
    match = re.fullmatch(r"samples: (http://127\.0\.0\.1:\d+/metrics)\n", server.stderr.readline())
    assert match
    return server, match[1]


def scraped(url: str, accept: str = "") -> tuple[str, str]:
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})  # noqa: S310  an http address
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  as above
        return answer.headers["Content-Type"], answer.read().decode()


@pytest.mark.slow
def test_an_endpoint_reads_the_cluster_at_each_scrape_and_says_when_it_does_not_answer(site: Api) -> None:
    server, url = endpoint("--kubeconfig", site.kubeconfig)
    try:
        kind, text = scraped(url)
        assert kind.startswith("text/plain")
        assert samples(text)["gangplank_rank_step"] == [({**OWN, "rank": "0"}, 40.0)]
        site.logs["/api/v1/namespaces/vision/pods/digits-0/log"] = log((10, 0, 20), (40, 0, 41))
        kind, text = scraped(url, "application/openmetrics-text")
        assert kind.startswith("application/openmetrics-text")
        assert samples(text, openmetrics)["gangplank_rank_step"] == [({**OWN, "rank": "0"}, 41.0)]
        site.says = (503, "the server is not ready")
        assert samples(scraped(url)[1]) == {"gangplank_up": [({}, 0.0)]}
        site.says = None
        assert samples(scraped(url)[1])["gangplank_up"] == [({}, 1.0)]
    finally:
        server.terminate()
        _, errors = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "Traceback" not in errors
    assert "the server is not ready" in errors


@pytest.mark.parametrize("address", ["9400", ":9400", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:http"])
def test_an_address_without_a_port_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", f"--listen={address}"]) == 2
    assert f"--listen: got {address}, expected ADDRESS:PORT" in capsys.readouterr().err


def test_an_address_that_is_not_of_this_machine_is_refused(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--listen", "192.0.2.1:9400", "--kubeconfig", api.kubeconfig]) == 2
    assert "expected an address of this machine and a free port" in capsys.readouterr().err


def test_rules_and_dashboards_are_written_without_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--write", str(tmp_path / "new")]) == 0
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"gangplank-alerts.yml", "gangplank-job.json", "gangplank-site.json"}
    assert len(capsys.readouterr().out.splitlines()) == 3
    (tmp_path / "file").write_text("")
    assert main(["metrics", "--write", str(tmp_path / "file")]) == 3
    assert "Fix: name another folder" in capsys.readouterr().err
