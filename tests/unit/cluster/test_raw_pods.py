"""Pods of jobs that kubectl submitted: they have the labels of their controllers alone, and every command sees them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.base import Site
from gangplank.cli import main, terminal
from gangplank.cluster.attempts import attempts
from gangplank.cluster.client import Kube, path
from gangplank.cluster.members import rank_of
from gangplank.cluster.situation import decided
from gangplank.k8s.build import clone
from tests.support.raw_jobs import INDEXED_JOB, PYTORCHJOB, TRAINJOB, VOLCANO_JOB, by_hand
from tests.support.why_stories import in_container
from tests.unit.scheduling.states import node, queue

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
OLD, LATER = "2026-11-24T12:00:00Z", "2026-11-24T12:00:05Z"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
VISION = "/api/v1/namespaces/vision"
BETWEEN = {"JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"), "Job": ("batch/v1", "jobs")}  # a TrainJob and its pods
TEXTS = {"volcano": VOLCANO_JOB, "pytorchjob": PYTORCHJOB, "trainjob": TRAINJOB, "indexed": INDEXED_JOB}
STEP = '{"event":"step","rank":0,"epoch":1,"step":4,"steps_total":9,"loss":1,"mean_loss":1,"gradient_norm":1}'
STUCK = "gangplank: rank 0: no step and no exchange for 120 s; it is at a.py:2, in load: f()"
MANUAL = "indexed with a selector of its own"


def condition(name: str, message: str = "") -> Json:
    return {"conditions": [{"type": name, "status": "True", "message": message}]}


STATES: dict[str, tuple[Json, Json]] = {  # the job's status while it runs, and after it failed
    "volcano": ({"state": {"phase": "Running"}}, {"state": {"phase": "Failed"}}),
    "pytorchjob": (condition("Running"), condition("Failed", "PyTorchJob by-hand is failed")),
    "trainjob": ({"jobsStatus": [{"name": "node", "active": 1, "ready": 1}]}, condition("Failed", "jobset failed")),
    "indexed": ({"active": 2, "ready": 2}, condition("Failed", "Job has reached the specified backoff limit")),
}


class Raw(NamedTuple):
    """A job that kubectl submitted, on a cluster with a node of two cores."""

    api: Api
    job: Json
    pods: list[Json]

    @property
    def backend(self) -> str:
        return str(backend_of(self.job))

    def become(self, failed: bool, pod_phase: str, **state: Json) -> None:
        """Give the job a status, and all of its pods a phase and their containers a state."""
        self.job["status"] = STATES[self.backend][failed]
        for pod in self.pods:
            ready = [{"type": "Ready", "status": str(pod_phase == "Running")}]
            container = {"name": "c", "image": "i", "restartCount": 0, "state": clone(state)}
            pod["status"] = {"phase": pod_phase, "containerStatuses": [container], "conditions": ready}


def choose_labels(job: Json) -> None:
    """Have the Job select its pods by labels of the user's, to which the API server adds none."""
    labels = {"app": "mine"}
    job["spec"] |= {"manualSelector": True, "selector": {"matchLabels": labels}}
    job["spec"]["template"]["metadata"] = {"labels": labels}


@pytest.fixture(params=[*TEXTS, MANUAL])
def raw(request: pytest.FixtureRequest, api: Api) -> Raw:
    """Its two pods are on the node."""
    job = by_hand(INDEXED_JOB, choose_labels) if request.param == MANUAL else by_hand(TEXTS[request.param])
    job["metadata"] |= {"namespace": "vision", "uid": "u", "creationTimestamp": OLD}
    return placed(api, job)


def placed(api: Api, job: Json) -> Raw:
    """The job with all that its controllers make, each object owned by the one that it was made for."""
    backend = BACKENDS[str(backend_of(job))]
    size(job, "10m")
    objects: list[Json] = decided(backend.objects(job, Site(uid="u")))
    of_kind, pods = {item["kind"]: item for item in objects}, [item for item in objects if item["kind"] == "Pod"]
    for number, pod in enumerate(pods):
        pod["metadata"] |= {"uid": f"u{number}", "creationTimestamp": OLD}
        pod["spec"]["nodeName"] = "a"
        api.objects[f"{VISION}/pods/{pod['metadata']['name']}"] = pod
    for kind, (version, plural) in BETWEEN.items() if backend.name == "trainjob" else ():
        api.groups[f"/apis/{version}"] = [{"kind": kind, "name": plural, "namespaced": True}]
        item = of_kind[kind]
        item["metadata"]["uid"] = kind
        api.objects[f"/apis/{version}/namespaces/vision/{plural}/{item['metadata']['name']}"] = item
        for below in [of_kind["Job"]] if kind == "JobSet" else pods:
            below["metadata"]["ownerReferences"][0]["uid"] = kind
    api.objects[path(job["apiVersion"], job["kind"], "vision", "by-hand")] = job
    api.objects["/api/v1/nodes/a"] = node("a", cpu="2")
    api.objects |= {f"{QUEUES}/{name}": queue(name) for name in ("root", "default")}
    return Raw(api, job, pods)


def size(job: Json, cpu: str) -> None:
    """What each pod asks for."""
    resources = {"requests": {"cpu": cpu, "memory": "32Mi"}}
    if job["kind"] == "TrainJob":
        job["spec"]["trainer"]["resourcesPerNode"] = resources
    else:
        in_container(resources=resources)(job)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> Json:
    main([*words, "by-hand", "-n", "vision", "-o", "json"])
    answer: Json = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize("cpu", ["10m", "900m"], ids=["small", "nearly-filling-the-node"])
def test_one_that_runs_is_well_and_its_pods_are_its_own(
    raw: Raw, capsys: pytest.CaptureFixture[str], cpu: str
) -> None:
    raw.become(False, "Running", running={})
    size(raw.job, cpu)
    for pod in raw.pods:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "32Mi"}}
    why = said(capsys, "why")
    assert why["summary"].startswith("by-hand: nothing is wrong: it is "), why
    assert why["summary"].endswith(", 2 of 2 pods run"), why
    assert said(capsys, "fit")["fits"] == "yes"
    assert said(capsys, "when")["state"] == "running"


def test_status_counts_its_pods_and_shows_each(raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    raw.become(False, "Running", running={})
    assert main(["status", "-o", "json"]) == terminal.OK
    [job] = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["job"], job["running"], job["pods"]) == ("by-hand", 2, 2)
    assert main(["status", "by-hand", "-n", "vision"]) == terminal.OK
    out = capsys.readouterr().out
    assert all(pod["metadata"]["name"] in out for pod in raw.pods), out
    assert out.startswith(f"by-hand in vision on {raw.backend}: Running\n")


def test_metrics_count_them(raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    raw.become(False, "Running", running={})
    assert main(["metrics"]) == terminal.OK
    own = f'backend="{raw.backend}",job_name="by-hand",namespace="vision"'
    out = capsys.readouterr().out
    assert f'gangplank_job_phase{{{own},phase="running"}} 1' in out, out
    assert f"gangplank_job_replicas_ready{{{own}}} 2" in out, out


def test_logs_are_those_of_its_pods(raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    raw.become(False, "Running", running={})
    for pod in raw.pods:
        raw.api.logs[f"{VISION}/pods/{pod['metadata']['name']}/log"] = b"a line"
    for words in ((), ("--previous",)):
        assert main(["logs", "by-hand", "-n", "vision", *words]) == terminal.OK
        assert capsys.readouterr().out.count("a line") == 2
    assert {run.number for run in attempts(raw.job, raw.pods)} == {1}, "no pod is another's second attempt"


def test_an_image_that_cannot_be_pulled_is_named(raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    raw.become(False, "Pending", waiting={"reason": "ImagePullBackOff", "message": "no such image"})
    assert said(capsys, "why")["cause"] == "image"


def test_who_failed_first_is_named_with_its_code_and_last_lines(raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    raw.become(True, "Failed", terminated={"exitCode": 7, "reason": "Error", "finishedAt": OLD})
    later, first = raw.pods
    later["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = LATER
    for pod in raw.pods:
        name = pod["metadata"]["name"]
        raw.api.logs[f"{VISION}/pods/{name}/log"] = f"epoch 1\nlast words of {name}".encode()
    why, name = said(capsys, "why"), first["metadata"]["name"]
    assert why["cause"] == "failed"
    assert f"{name} failed first: Error, exit code 7" in why["summary"]
    assert f"last words of {name}" in why["evidence"]


def test_ranks_are_what_the_controllers_say(raw: Raw) -> None:
    ranks = [rank_of(pod) for pod in Kube(raw.api.kubeconfig).pods(raw.job)]
    assert ranks == ([None, None] if raw.backend == "volcano" else [0, 1]), "a Volcano Job without plugins has none"


def test_a_pod_that_only_has_the_label_is_not_counted(raw: Raw, capsys: pytest.CaptureFixture[str]) -> None:
    raw.become(False, "Running", running={})
    for number, owner in enumerate(({}, {"apiVersion": raw.job["apiVersion"], "kind": raw.job["kind"], "uid": "v"})):
        other = clone(raw.pods[0])
        other["metadata"] |= {"name": f"other-{number}", "uid": f"other-{number}"}
        other["metadata"]["ownerReferences"] = [{**owner, "name": "by-hand", "controller": True}] if owner else []
        raw.api.objects[f"{VISION}/pods/other-{number}"] = other
    assert main(["status", "-o", "json"]) == terminal.OK
    assert json.loads(capsys.readouterr().out)["jobs"][0]["running"] == 2


DEFAULT = "kubectl.kubernetes.io/default-container"


@pytest.mark.parametrize("annotation", ["", "trainer", "removed"])
def test_of_several_containers_the_log_is_the_default_one_s_as_for_kubectl(
    raw: Raw, capsys: pytest.CaptureFixture[str], annotation: str
) -> None:
    """The API server refuses to choose one. It lists their states by name."""
    raw.become(True, "Failed", terminated={"exitCode": 7, "reason": "Error", "finishedAt": OLD})
    names, own = (("proxy", "trainer"), "?trainer") if annotation == "trainer" else (("trainer", "proxy"), "")
    for pod in raw.pods:
        name, statuses = pod["metadata"]["name"], pod["status"]["containerStatuses"]
        pod["spec"]["containers"] = [{"name": container, "image": "i"} for container in names]
        pod["metadata"].setdefault("annotations", {})[DEFAULT] = annotation
        statuses.insert(0, {**clone(statuses[0]), "name": "proxy", "restartCount": 3})
        statuses[1]["name"] = "trainer"
        raw.api.logs[f"{VISION}/pods/{name}/log{own}"] = f"last words of {name}".encode()
    for words in ((), ("--previous",)):
        assert main(["logs", "by-hand", "-n", "vision", *words]) == terminal.OK
        assert capsys.readouterr().out.count("last words of ") == 2
    assert {run.number for run in attempts(raw.job, raw.pods)} == {1}
    assert any(line.startswith("last words of ") for line in said(capsys, "why")["evidence"])
    raw.become(False, "Running", running={})
    for pod in raw.pods:
        raw.api.logs[f"{VISION}/pods/{pod['metadata']['name']}/log{own}"] = f"{OLD} {STEP}".encode()
    assert main(["status", "-o", "json"]) == terminal.OK
    assert json.loads(capsys.readouterr().out)["jobs"][0]["progress"] == "epoch 1, step 4 of 9"
    for pod in raw.pods:
        raw.api.logs[f"{VISION}/pods/{pod['metadata']['name']}/log{own}"] = STUCK.encode()
    assert said(capsys, "why")["cause"] == "stuck"
