"""A job that stands still says why, and a lost node does not keep the places of its pods."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import LOST_NODE_S
from gangplank.backends.queueing import JOB_NAME
from gangplank.cluster import standstill
from gangplank.cluster.client import Kube
from gangplank.cluster.follow import JobWatch, follow
from gangplank.cluster.overlooked import OVERLOOKED_S
from gangplank.jobs.parse import parse_job
from gangplank.k8s.nodes import UNREACHABLE

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
DEFAULT = "/api/v1/namespaces/default"


def reasons(kube: Kube, job: Any, pods: list[Any]) -> list[str]:
    return standstill.reasons(kube, job, pods, standstill.size_of(job))


@pytest.fixture
def job(api: Api) -> Json:
    """A live job of two pods, none of which exists."""
    spec = parse_job({"name": "digits", "image": "img", "script": "/a.py", "backend": "volcano", "workers": 1})
    job = BACKENDS["volcano"].manifests(spec)[-1]
    job["metadata"] |= {"uid": "u", "creationTimestamp": "2026-11-22T05:00:00Z"}
    job["status"] = {"state": {"phase": "Restarting"}}
    api.objects["/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/digits"] = job
    return job


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def pod(api: Api, name: str, node: str, *, overdue_s: float | None = None, **state: Json) -> Json:
    """A pod of the job, perhaps one whose grace period has passed."""
    owner = {"uid": "u", "controller": True, "kind": "Job", "name": "digits", "apiVersion": "batch.volcano.sh/v1alpha1"}
    meta: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": {JOB_NAME: "digits"},
                  "ownerReferences": [owner]}  # fmt: skip
    if overdue_s is not None:
        meta |= {"deletionTimestamp": ago(overdue_s), "deletionGracePeriodSeconds": 30}
    status = {"containerStatuses": [{"name": "c", "state": state}] if state else []}
    item = {"metadata": meta, "spec": {"nodeName": node, "containers": [{"name": "c"}]}, "status": status}
    api.objects[f"{DEFAULT}/pods/{name}"] = item
    return item


def lose(api: Api, node: str) -> None:
    """Kubernetes takes a node for lost."""
    api.objects[f"/api/v1/nodes/{node}"] = {"metadata": {"name": node}, "spec": {"taints": [{"key": UNREACHABLE}]}}


def warning(api: Api, name: str, uid: str, when: str, message: str) -> None:
    api.objects[f"{DEFAULT}/events/{name}"] = {
        "type": "Warning", "reason": "FailedCreate", "message": message, "lastTimestamp": when,
        "involvedObject": {"name": "digits", "uid": uid}}  # fmt: skip


def lines(api: Api, job: Json) -> list[str]:
    """What who follows the job reads in a second."""
    said: list[str] = []
    follow(JobWatch(job, Kube(api.kubeconfig)), said.append, 0.5)
    return [line.partition("digits: ")[2] for line in said]


def test_d4_a_gang_that_cannot_start_again_says_why_though_it_has_trained(api: Api, job: Json) -> None:
    start = b'{"event":"start","rank":0,"world_size":2,"host":"h","pod":"p","node":"n","job_uid":null,"pod_uid":"u"}\n'
    pod(api, "digits-master-0", "node-1", running={})
    api.logs[f"{DEFAULT}/pods/digits-master-0/log"] = start
    pod(api, "digits-worker-0", "node-2", waiting={"reason": "ErrImagePull", "message": "img: not found"})
    assert any("1/2 ranks joined (digits-worker-0: ErrImagePull: img: not found)" in line for line in lines(api, job))


@pytest.mark.parametrize(("pods", "explained"), [(1, True), (2, False)])
def test_d4_a_job_whose_pods_all_run_is_explained_while_one_is_missing(
    api: Api, job: Json, monkeypatch: pytest.MonkeyPatch, pods: int, explained: bool
) -> None:
    monkeypatch.setattr("gangplank.cluster.follow.explanation", lambda _kube, _job: "digits does not start because")
    for name in ("digits-master-0", "digits-worker-0")[:pods]:
        pod(api, name, "node-1", running={})["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    watch = JobWatch(job, Kube(api.kubeconfig))
    watch.poll()
    watch.reasons()
    assert bool(watch.why(31.0)) == explained


def test_pods_that_a_quota_forbids_are_the_newest_warning_about_the_job(api: Api, job: Json) -> None:
    warning(api, "a", "u", "2026-11-22T05:00:01Z", "an older one")
    warning(api, "b", "u", "2026-11-22T05:00:02Z", "exceeded quota:\n lowered")
    warning(api, "c", "of-the-job-before", "2026-11-22T05:00:03Z", "not about it")
    assert reasons(Kube(api.kubeconfig), job, []) == ["digits: FailedCreate: exceeded quota: lowered"]


def event(api: Api, name: str, when: str, kind: str, reason: str, message: str, about: str, of: str) -> None:
    """One that a controller has recorded about an object."""
    api.objects[f"{DEFAULT}/events/{name}"] = {
        "type": of, "reason": reason, "message": message, "lastTimestamp": when,
        "involvedObject": {"kind": kind, "name": about, "uid": f"uid of {about}"}}  # fmt: skip


QUOTA = "resource quota insufficient, requested: map[pods:2]"


def test_a_gang_that_the_scheduler_does_not_let_queue_says_why(api: Api, job: Json) -> None:
    warning(api, "a", "u", "2026-11-22T05:00:03Z", "1 Releasing, 2 minAvailable")
    api.objects[f"{DEFAULT}/events/a"]["reason"] = "PodGroupPending"
    event(api, "b", "2026-11-22T05:00:02Z", "PodGroup", "Unschedulable", QUOTA, "digits-u", "Normal")
    event(api, "c", "2026-11-22T05:00:04Z", "PodGroup", "Unschedulable", "1 Binding", "digits-u", "Warning")
    event(api, "d", "2026-11-22T05:00:04Z", "PodGroup", "Unschedulable", "another's", "digits-v", "Normal")
    event(api, "e", "2026-11-22T04:00:00Z", "PodGroup", "Unschedulable", "the job before", "digits", "Normal")
    assert reasons(Kube(api.kubeconfig), job, []) == [f"digits: Unschedulable: {QUOTA}"]


def test_a_cause_that_is_over_does_not_hide_why_the_gang_waits(api: Api, job: Json) -> None:
    warning(api, "a", "u", "2026-11-22T05:05:00Z", "2/2 tasks in gang unschedulable")
    api.objects[f"{DEFAULT}/events/a"]["reason"] = "PodGroupPending"
    event(api, "b", "2026-11-22T05:00:02Z", "PodGroup", "Unschedulable", QUOTA, "digits-u", "Normal")
    assert reasons(Kube(api.kubeconfig), job, []) == ["digits: PodGroupPending: 2/2 tasks in gang unschedulable"]


@pytest.mark.parametrize(("kind", "about"), [("Job", "digits-node-0"), ("JobSet", "digits")])
def test_what_is_made_for_a_trainjob_speaks_for_it(api: Api, job: Json, kind: str, about: str) -> None:
    event(api, "a", "2026-11-22T05:00:02Z", kind, "FailedCreate", "exceeded quota", about, "Warning")
    event(api, "b", "2026-11-22T05:00:03Z", kind, "FailedCreate", "another's", "digits2-node-0", "Warning")
    event(api, "c", "2026-11-22T05:00:03Z", "Pod", "Unhealthy", "no refusal", "digits-node-0", "Warning")
    assert standstill.refusals(job, Kube(api.kubeconfig).items("v1", "Event", "default")) == []
    trainjob = {**job, "apiVersion": BACKENDS["trainjob"].api_version, "kind": "TrainJob"}
    said = standstill.refusals(trainjob, Kube(api.kubeconfig).items("v1", "Event", "default"))
    assert said == ["digits: FailedCreate: exceeded quota"]


def test_refusals_in_the_form_of_go_are_one_in_words(api: Api, job: Json) -> None:
    invalid = 'Pod \\"digits-{}-0\\" is invalid: Invalid value: \\"256Mi\\": must be less than 64Mi'
    errors = [f'failed to create pod, err: &errors.StatusError{{Message:"{invalid.format(role)}", Reason:"Invalid", '
              "Details:(*v1.StatusDetails)(0xdb1413f97a0), Code:422}" for role in ("worker", "master")]  # fmt: skip
    warning(api, "a", "u", "2026-11-22T05:00:01Z", f"Error creating pods: [{' '.join(errors)}]")
    expected = 'Pod "digits-master-0" is invalid: Invalid value: "256Mi": must be less than 64Mi'
    assert reasons(Kube(api.kubeconfig), job, []) == [f"digits: FailedCreate: {expected}"]


@pytest.mark.parametrize(("quoted", "says"), [
    (r"a\x7fb", "a\x7fb"), (r"a\ab", "a\ab"), (r"a\vb", "a b"), (r"a\nb\tc", "a b c"),
    (r"a\U0001f600b", "a\U0001f600b"),
    (r"a\u00e4b", "a\u00e4b"), (r"\"a\\b\"", '"a\\b"'), (r"\U99999999", "\ufffd"), (r"\xzz", "xzz"),
    (r"\ud800x", "\ufffdx"), (r"a\x00b", "a\0b"),
])  # fmt: skip
def test_every_escape_of_go_is_read(quoted: str, says: str) -> None:
    """https://pkg.go.dev/strconv#Quote; JSON has other ones."""
    assert standstill.words(f'err: &errors.StatusError{{Message:"{quoted}", Code:422}}') == says


@given(st.text())
def test_any_message_is_read(message: str) -> None:
    standstill.words(message)
    standstill.words(f'Message:"{message}"')


OPTIONAL = ("type", "reason", "message", "lastTimestamp")


@pytest.mark.parametrize("kind", ["", "Job", "PodGroup", "Pod"])
@pytest.mark.parametrize("without", [*((one,) for one in OPTIONAL), OPTIONAL], ids="-".join)
def test_an_event_may_lack_every_field_that_the_api_leaves_out_when_empty(
    api: Api, job: Json, kind: str, without: tuple[str, ...]
) -> None:
    warning(api, "a", "u", "2026-11-22T05:00:01Z", "exceeded quota")
    about = {"kind": kind, "uid": "u"} if kind else {}  # and no name
    bare = {"type": "Warning", "reason": "Failed", "message": "m", "lastTimestamp": "2026-11-22T05:00:02Z"}
    api.objects[f"{DEFAULT}/events/b"] = {
        **{key: value for key, value in bare.items() if key not in without}, "involvedObject": about}  # fmt: skip
    watch = JobWatch(job, Kube(api.kubeconfig))
    watch.poll()
    assert len(watch.reasons()) == 1
    assert watch._events() == ["event digits: FailedCreate: exceeded quota"]
    api.objects[f"{DEFAULT}/events/b"]["involvedObject"]["name"] = "digits"
    assert len(watch.reasons()) == 1
    assert len(watch._events()) == (1 if "type" in without else 2)


def test_the_events_of_a_failed_job_are_the_newest_and_none_of_the_job_before(api: Api, job: Json) -> None:
    """Kubernetes keeps them for an hour, and a Volcano Job that is submitted again has pods of the same names."""
    pod(api, "digits-master-0", "node-1")
    for number in sorted(range(12), key=lambda number: 7 * number % 12):  # the API server lists them by name
        warning(api, f"digits-{7 * number % 12:x}", "u", f"2026-11-22T05:00:{number:02}Z", f"number {number}")
    event(api, "z", "2026-11-22T04:59:00Z", "Pod", "BackOff", "the job before", "digits-master-0", "Warning")
    event(api, "0", "2026-11-22T05:01:00Z", "Pod", "BackOff", "restarts", "digits-master-0", "Warning")
    api.objects[f"{DEFAULT}/events/0"]["involvedObject"]["uid"] = "uid-digits-master-0"
    watch = JobWatch(job, Kube(api.kubeconfig))
    watch.poll()
    newest = [f"event digits: FailedCreate: number {number}" for number in range(5, 12)]
    assert watch._events() == [*newest, "event digits-master-0: BackOff: restarts"]


def test_old_warnings_about_a_job_whose_pods_are_all_there_are_no_reason(api: Api, job: Json) -> None:
    warning(api, "a", "u", "2026-11-22T05:00:01Z", "an older one")
    pods = [pod(api, "digits-master-0", "node-1", running={}), pod(api, "digits-worker-0", "node-2", running={})]
    assert reasons(Kube(api.kubeconfig), job, pods) == []


def test_a_job_whose_pods_cannot_be_foreseen_is_only_asked_for_warnings_while_it_has_none(api: Api, job: Json) -> None:
    job["spec"]["plugins"] = {"nosuch": []}
    warning(api, "a", "u", "2026-11-22T05:00:01Z", "no such plugin")
    kube = Kube(api.kubeconfig)
    assert reasons(kube, job, []) == ["digits: FailedCreate: no such plugin"]
    assert reasons(kube, job, [pod(api, "digits-master-0", "node-1", running={})]) == []


def test_a_pod_that_a_lost_node_keeps_is_named_and_removed_by_its_uid_without_asking_the_node(
    api: Api, job: Json
) -> None:
    pod(api, "digits-master-0", "node-2", running={})
    pod(api, "digits-worker-0", "node-1", overdue_s=LOST_NODE_S + 1, running={})
    lose(api, "node-1")
    assert "digits-worker-0 is removed: its node node-1 does not answer" in lines(api, job)
    assert f"{DEFAULT}/pods/digits-worker-0" not in api.objects
    (body,) = (body for seen, body in zip(api.seen, api.bodies, strict=True) if seen.startswith("DELETE"))
    assert (body["gracePeriodSeconds"], body["preconditions"]) == (0, {"uid": "uid-digits-worker-0"})


def test_a_pod_that_does_not_end_on_a_node_that_answers_is_removed_and_no_node_is_blamed(api: Api, job: Json) -> None:
    pod(api, "digits-master-0", "node-2", running={})
    stuck = pod(api, "digits-worker-0", "node-1", overdue_s=LOST_NODE_S + 1, running={})
    (reason,) = standstill.reasons(Kube(api.kubeconfig), job, [stuck], 2)
    assert reason.startswith("digits-worker-0: does not end on node-1. Fix: look there for a volume that cannot be unm")
    assert "digits-worker-0 is removed: it does not end on node-1" in lines(api, job)
    assert f"{DEFAULT}/pods/digits-worker-0" not in api.objects


def test_a_pod_that_finalizers_keep_is_not_said_to_be_removed(api: Api, job: Json) -> None:
    pod(api, "digits-master-0", "node-2", running={})
    pod(api, "digits-worker-0", "node-1", overdue_s=LOST_NODE_S + 1)["metadata"]["finalizers"] = ["a.example/b"]
    said = lines(api, job)
    assert not [line for line in said if "removed" in line]
    assert any("(digits-worker-0: its finalizers a.example/b keep it. Fix: check that the controller" in line
               for line in said)  # fmt: skip


@pytest.mark.parametrize(("other", "overdue_s"), [("node-2", LOST_NODE_S - 5), ("node-1", 600)],
                         ids=["within its time", "with the whole gang on one node, which may train on"])  # fmt: skip
def test_a_pod_stays(api: Api, job: Json, other: str, overdue_s: float) -> None:
    pod(api, "digits-master-0", other, running={})
    pod(api, "digits-worker-0", "node-1", overdue_s=overdue_s, running={})
    if overdue_s > LOST_NODE_S:
        lose(api, "node-1")
    said = lines(api, job)
    assert f"{DEFAULT}/pods/digits-worker-0" in api.objects
    fix = "Fix: kubectl taint node node-1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, once node-1 is off"
    assert any(fix in line for line in said) == (overdue_s > LOST_NODE_S)


def test_a_gang_that_is_now_on_one_node_keeps_its_pods_wherever_it_was_before(api: Api, job: Json) -> None:
    """It may train on, beside the one that would take its place."""
    attempt = BACKENDS["volcano"].attempt
    lose(api, "node-1")
    watch = JobWatch(job, Kube(api.kubeconfig))
    for number, other in enumerate(["node-2", "node-1"]):
        for name, node in (("digits-master-0", other), ("digits-worker-0", "node-1")):
            meta = pod(api, name, node, overdue_s=5 if number else None, running={})["metadata"]
            meta |= {"uid": f"{name}-{number}", "annotations": {attempt: str(number)}}
        watch.poll()
    assert watch.restart(0) == []
    assert {f"{DEFAULT}/pods/digits-master-0", f"{DEFAULT}/pods/digits-worker-0"} <= api.objects.keys()


@pytest.mark.parametrize("key", ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"])
def test_a_node_that_kubernetes_takes_for_lost_keeps_no_pod_whose_grace_period_cannot_have_begun_there(
    api: Api, job: Json, key: str
) -> None:
    """Before, a gang waited for that time too: 30 s, which no one used."""
    api.objects["/api/v1/nodes/node-1"] = {"metadata": {"name": "node-1"}, "spec": {"taints": [{"key": key}]}}
    pod(api, "digits-master-0", "node-2", running={})
    pod(api, "digits-worker-0", "node-1", overdue_s=-28, running={})
    pod(api, "digits-worker-1", "node-1", running={})
    lines(api, job)
    assert {f"{DEFAULT}/pods/digits-worker-0", f"{DEFAULT}/pods/digits-worker-1"} <= api.objects.keys()
    pod(api, "digits-worker-0", "node-1", overdue_s=-20, running={})
    lines(api, job)
    assert f"{DEFAULT}/pods/digits-worker-1" in api.objects
    assert (f"{DEFAULT}/pods/digits-worker-0" in api.objects) == key.endswith("not-ready")


def failed(api: Api, job: Json, ago_s: float, phase: str = "Running") -> Json:
    """A running worker, and a master that failed."""
    job["status"]["state"]["phase"] = phase
    pod(api, "digits-worker-0", "node-2", running={})
    master = pod(api, "digits-master-0", "node-1", terminated={"exitCode": 1, "finishedAt": ago(ago_s)})
    master["status"]["phase"] = "Failed"
    return master


def test_a_pod_that_failed_while_the_controller_was_down_is_removed_so_that_the_gang_restarts(
    api: Api, job: Json
) -> None:
    failed(api, job, ago_s=OVERLOOKED_S + 1)
    said = lines(api, job)
    assert "digits-master-0 is removed: it failed, and its job's controller did not restart the job" in said
    assert f"{DEFAULT}/pods/digits-master-0" not in api.objects


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ago_s", "phase", "policies"),
    [(OVERLOOKED_S - 3, "Running", None), (60, "Restarting", None), (60, "Failed", None), (60, "Running", []),
     (60, "Running", [{"event": "PodFailed", "action": "TerminateJob"}]),
     (60, "Running", [{"event": "*", "action": "RestartJob"}, {"exitCode": 3, "action": "CompleteJob"}]),
     (60, "Running", [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"},
                      {"exitCode": 3, "action": "AbortJob"}])],
    ids=["just failed", "being restarted", "of a job that ended", "of a job without policies", "that ends the job",
         "with any event", "with an exit status of its own"],
)  # fmt: skip
def test_a_failed_pod_stays(api: Api, job: Json, ago_s: float, phase: str, policies: list[Json] | None) -> None:
    failed(api, job, ago_s, phase)
    if policies is not None:
        job["spec"]["policies"] = policies
    assert not [line for line in lines(api, job) if "removed" in line]
    assert f"{DEFAULT}/pods/digits-master-0" in api.objects


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 3600.0])
def test_the_times_of_the_api_server_are_judged_by_its_own_clock(api: Api, job: Json, ahead_s: float) -> None:
    """With ours an hour ahead, pods that were still ending lost their time to save a checkpoint."""
    api.clock_s = ahead_s
    failed(api, job, ago_s=OVERLOOKED_S - 4 - ahead_s)
    pod(api, "digits-worker-0", "node-2", overdue_s=-ahead_s - 20, running={})
    assert not [line for line in lines(api, job) if "does not end" in line or "did not restart" in line]
    api.objects[f"{DEFAULT}/pods/digits-worker-0"]["metadata"]["deletionTimestamp"] = ago(LOST_NODE_S + 1 - ahead_s)
    end = api.objects[f"{DEFAULT}/pods/digits-master-0"]["status"]["containerStatuses"][0]["state"]["terminated"]
    end["finishedAt"] = ago(OVERLOOKED_S + 1 - ahead_s)
    assert sorted(line for line in lines(api, job) if "removed" in line) == [
        "digits-master-0 is removed: it failed, and its job's controller did not restart the job",
        "digits-worker-0 is removed: it does not end on node-2",
    ]


GROUP = "digits-u"
PLACES = {"group": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/digits-u",
          "commands": "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"}  # fmt: skip


def waiting(api: Api, ago_s: float, node: str = "") -> Json:
    """A pod that waits with its gang."""
    item = pod(api, "digits-master-0", node)
    item["metadata"] |= {"creationTimestamp": ago(ago_s), "annotations": {"scheduling.k8s.io/group-name": GROUP}}
    return item


def commands(api: Api) -> list[Json]:
    """The commands that were sent."""
    sent = zip(api.seen, api.bodies, strict=True)
    return [body for seen, body in sent if seen.startswith(f"POST {PLACES['commands']}")]


def watched(api: Api, job: Json) -> JobWatch:
    """A watch of the job, whose only pod has lost its gang."""
    waiting(api, ago_s=OVERLOOKED_S + 1)
    job["status"]["state"]["phase"] = "Pending"
    watch = JobWatch(job, Kube(api.kubeconfig))
    watch.poll()
    return watch


LOST = f"PodGroup {GROUP} does not exist: the job's controller is asked to make it again"


def test_d4_a_controller_that_has_lost_the_gang_is_asked_to_look_again_and_not_every_second(
    api: Api, job: Json
) -> None:
    watch = watched(api, job)
    assert [text for waited_s in (0.0, 1.0, 9.0) for text in watch.restart(waited_s)] == [LOST]
    assert watch.restart(10.0) == []  # the first Command waits still
    (place,) = [key for key in api.objects if key.startswith(PLACES["commands"])]
    sent = api.objects.pop(place)  # the controller deletes what it obeys
    assert (sent["action"], sent["target"]["name"], sent["target"]["uid"]) == ("SyncJob", "digits", "u")
    assert watch.restart(20.0) == [LOST]


def test_d4_a_job_that_was_deleted_meanwhile_has_lost_no_gang(api: Api, job: Json) -> None:
    watch, said = watched(api, job), list[str]()
    del api.objects["/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs/digits"]
    ended = follow(watch, said.append, 5)
    assert "does not exist (deleted?)" in (ended.reason if ended else "")
    assert commands(api) == []
    assert "PodGroup" not in "".join(said)


@pytest.mark.parametrize("status", [403, 422])
def test_d4_a_job_is_followed_on_where_no_command_is_admitted(
    api: Api, job: Json, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, answer = watched(api, job), api.answer

    def refused(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        if where == PLACES["commands"]:
            return status, b'{"message": "denied"}'
        return answer(method, where, query, body)

    monkeypatch.setattr(api, "answer", refused)
    assert watch.restart(0.0) == []


def test_d4_the_gang_of_a_job_that_takes_no_command_is_its_own_controller_s(api: Api, job: Json) -> None:
    watch = watched(api, job)
    assert standstill.lost_group(watch.kube, job, watch.pods) == GROUP
    other = {**job, "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    assert standstill.lost_group(watch.kube, other, watch.pods) == ""


@pytest.mark.parametrize(("exists", "ago_s", "node"), [(True, 60.0, ""), (False, OVERLOOKED_S - 3, ""),
                                                       (False, 60.0, "node-1")],
                         ids=["with its gang", "just made", "that has a node"])  # fmt: skip
def test_a_controller_is_not_asked_about_a_pod(
    api: Api, job: Json, exists: bool, ago_s: float, node: str
) -> None:
    waiting(api, ago_s, node)
    if exists:
        api.objects[PLACES["group"]] = {"metadata": {"name": GROUP}}
    watch = JobWatch(job, Kube(api.kubeconfig))
    watch.poll()
    assert watch.restart(0.0) == []
    assert commands(api) == []


def test_status_names_the_fix_for_a_pod_that_failed_while_the_controller_was_down(api: Api, job: Json) -> None:
    master = failed(api, job, ago_s=60)
    (reason,) = reasons(Kube(api.kubeconfig), job, [master, pod(api, "digits-worker-0", "node-2", running={})])
    assert reason.endswith("did not restart the job. Fix: kubectl delete pod digits-master-0 -n default")


def test_who_may_not_remove_pods_reads_what_to_ask_for(api: Api, job: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    pod(api, "digits-master-0", "node-2", running={})
    pod(api, "digits-worker-0", "node-1", overdue_s=LOST_NODE_S + 1, running={})
    lose(api, "node-1")
    answer = api.answer

    def forbid(method: str, *rest: Any) -> tuple[int, bytes]:
        return (403, b"{}") if method == "DELETE" else answer(method, *rest)

    monkeypatch.setattr(api, "answer", forbid)
    assert any("its node node-1 does not answer. Fix: kubectl taint" in line for line in lines(api, job))


def test_an_unreachable_node_costs_each_pod_20_s_and_the_job_may_say_otherwise() -> None:
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 900}
    for backend in BACKENDS:
        spec = parse_job({"name": "a", "image": "i", "script": "/a.py", "backend": backend, "tolerations": [own]})
        text = str(BACKENDS[backend].manifests(spec)[-1])
        assert text.count("'tolerationSeconds': 900") == text.count("'tolerationSeconds': 20") > 0
        assert text.count("node.kubernetes.io/unreachable") == text.count("node.kubernetes.io/not-ready")


def test_a_watch_expands_its_job_once_for_each_generation(
    api: Api, job: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    size_of = standstill.size_of

    def noted(live: Json) -> int:
        sizes.append(size_of(live))
        return sizes[-1]

    monkeypatch.setattr(standstill, "size_of", noted)
    watch = JobWatch(job, Kube(api.kubeconfig))
    for generation in (1, 1, 1, 2):
        job["metadata"]["generation"] = generation
        watch.poll()
        watch.reasons()
    assert sizes == [2, 2]
