"""How a job's own status is read, whatever its controller leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.client import MOST_BYTES, Kube
from gangplank.cluster.situation import (
    LEFT_OUT,
    about,
    asked,
    decided,
    ending,
    explanation,
    readable_site,
    refusals_of,
    situation,
    standstill,
    suspension,
)
from gangplank.cluster.snapshot import snapshot
from gangplank.errors import KubeError, SpecError
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.pod_causes import waiting
from gangplank.scheduling.why import Situation, diagnose

if TYPE_CHECKING:
    from tests.unit.conftest import Api


def test_conditions_of_volcano_have_no_type() -> None:
    live = {"status": {"state": {"phase": "Running"}, "conditions": [{"status": "Pending"}, {"status": "Running"}]}}
    assert ending(live).name == "Running"


def test_a_job_whose_pods_are_being_removed_has_failed() -> None:
    target = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded", "message": "was too long"}
    assert ending({"status": {"active": 1, "conditions": [target]}}).failed
    assert ending({"status": {"active": 1, "conditions": [target]}}).reason == "was too long"


@pytest.mark.parametrize("spec", [{"suspend": True}, {"runPolicy": {"suspend": True}}])
def test_a_job_that_kueue_suspends_is_not_to_be_resumed_by_hand(spec: dict[str, Any]) -> None:
    meta = {"name": "digits", "labels": {"kueue.x-k8s.io/queue-name": "vision"}}
    how = suspension({"metadata": meta, "spec": spec}, "Suspended")
    assert how == "Kueue suspends it until its queue vision admits it"
    assert suspension({"metadata": {"name": "digits"}, "spec": spec}, "") == "it is suspended (spec.suspend is true)"
    said = diagnose(Situation("digits", suspended=how)).text()
    assert "describe workloads.kueue.x-k8s.io" in said
    assert "resume it, or" not in said


def test_a_pod_that_is_only_tried_has_nothing_that_a_controller_would_choose() -> None:
    """The API server refused the placeholder of a uid in a label, and that was called the cause."""
    assert decided({"labels": {"a": "<uid>"}, "env": ["x-<random>"]}) == {"labels": {"a": "0"}, "env": ["x-0"]}


def cluster(*flags: str, status: int = 0, priorities: tuple[Any, ...] = ()) -> Any:
    """A cluster with Volcano and a training operator with some flags, which may be read unless there is a status."""
    pod = {"containers": [{"command": ["/manager", *flags]}]}
    operator = {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": {"template": {"spec": pod}}}

    def get(where: str) -> Any:
        if status and where == "/apis/apps/v1/deployments":
            raise KubeError("no", status)
        classes = priorities if where.endswith("/priorityclasses") else ()
        return {"items": [operator] if where.endswith("/deployments") else [*classes]}

    return SimpleNamespace(get=get)


@pytest.mark.parametrize(("kube", "gang"), [
    (cluster(), False), (cluster("--gang-scheduler-name=volcano"), True), (cluster(status=403), True),
])  # fmt: skip
def test_a_pytorchjob_is_a_gang_where_its_operator_makes_one(kube: Any, gang: bool) -> None:
    fields = {"name": "a", "image": "i", "script": "/a.py", "backend": "pytorchjob"}
    job = BACKENDS["pytorchjob"].manifests(parse_job(fields))[-1]
    wanted, _ = asked(kube, job)
    assert wanted
    assert wanted.gang is gang


def test_a_member_who_may_not_read_the_operator_still_knows_the_priorities() -> None:
    """Volcano takes the tasks of a job in this order, so its gang's resources depend on it."""
    high = {"metadata": {"name": "high"}, "value": 7}
    assert readable_site(cluster(status=403, priorities=(high,)), ()).priorities == {"high": 7}


def test_who_follows_a_job_goes_on_where_a_controller_s_settings_cannot_be_read(api: Api) -> None:
    """`gangplank submit --wait` and train.yml ended with the operator's mistake, and the job trained on."""
    fields = {"name": "a", "image": "i", "script": "/a.py", "backend": "pytorchjob"}
    job = BACKENDS["pytorchjob"].manifests(parse_job(fields))[-1]
    pod = {"containers": [{"command": ["/manager", "--pytorch-init-container-max-tries=many"]}]}
    meta = {"name": "training-operator", "namespace": "kubeflow"}
    api.objects["/apis/apps/v1/deployments/a"] = {"metadata": meta, "spec": {"template": {"spec": pod}}}
    with pytest.raises(SpecError, match="many"):
        situation(Kube(api.kubeconfig), job, live=True)
    assert explanation(Kube(api.kubeconfig), job) == ""


def test_events_about_a_job_have_the_fields_that_the_api_leaves_out_when_empty() -> None:
    mine, its = {"involvedObject": {"uid": "u"}}, {"involvedObject": {"kind": "Job", "name": "a"}, "type": "Warning"}
    events = about([{"involvedObject": {}}, mine, its, {"involvedObject": {"uid": "v"}}], {"u"}, {("Job", "a")})
    assert events == ({**LEFT_OUT, **mine}, {**LEFT_OUT, **its})
    pod = {"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": []}, "status": {"phase": "Pending"}}
    assert list(waiting([pod], events, {})) == []


STUCK = "gangplank: rank {}: no step and no exchange for 120 s; it is at a.py:4, in train: dist.barrier()"


@pytest.mark.parametrize("length", [10, MOST_BYTES // 500, MOST_BYTES // 5, 2 * MOST_BYTES])
def test_of_ranks_that_print_long_lines_fewer_are_read_and_always_the_newest(api: Api, length: int) -> None:
    """The API server's limit cuts the newest lines off."""
    pods = [{"metadata": {"name": f"a-{rank}", "namespace": "n"}} for rank in range(2)]
    for rank in range(2):
        lines = [*(2000 * ["x" * length] if length < MOST_BYTES // 5 else 3 * ["x" * length]), STUCK.format(rank)]
        api.logs[f"/api/v1/namespaces/n/pods/a-{rank}/log"] = "\n".join(lines).encode()
    read: list[int] = []

    class Counting(Kube):
        def read(self, *words: Any, **more: Any) -> bytes:
            data = super().read(*words, **more)
            read.append(len(data))
            return data

    cause, unread = standstill(Counting(api.kubeconfig), pods, 2)
    assert cause is not None
    assert "ranks 0, 1 are at a.py:4" in cause.text
    assert unread == ()
    assert max(read) <= MOST_BYTES


def test_logs_of_a_node_that_does_not_answer_are_waited_for_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who follows a job waited three minutes for each pod."""
    monkeypatch.setattr("gangplank.cluster.situation.LOGS_S", 2.0)
    api.says = (500, "dial tcp 192.0.2.1:10250: connection refused")
    pods = [{"metadata": {"name": f"a-{rank}", "namespace": "n"}} for rank in range(4)]
    assert standstill(Kube(api.kubeconfig).patient(), pods, 4) == (None, ())
    asked = [request.split("?")[0].split("/")[-2] for request in api.seen]
    assert asked[-3:] == ["a-1", "a-2", "a-3"]
    assert asked.count("a-0") > 1


def test_logs_that_are_not_read_in_time_are_said_to_be_unread(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log of a node that is silent took half a minute, one after the other."""
    monkeypatch.setattr("gangplank.cluster.situation.SILENT_S", -1)
    pods = [{"metadata": {"name": "a", "namespace": "n"}}]
    assert standstill(Kube(api.kubeconfig), pods, 1) == (None, ("where all ranks stand: logs took longer than -1 s",))
    assert api.seen == []


def test_a_last_line_that_is_longer_than_what_is_read_is_its_beginning(api: Api) -> None:
    api.logs["/api/v1/namespaces/n/pods/a/log"] = b"one\n" + b"x" * 100
    kube, own = Kube(api.kubeconfig), {"metadata": {"name": "a", "namespace": "n"}}
    assert kube.log(own, last=1000, most=50) == ["x" * 50]
    assert kube.log(own, last=1000, most=200) == ["one", "x" * 100]


def test_who_has_tried_a_pod_is_known_to_run_and_who_has_left_all_alone_is_not(api: Api) -> None:
    conditions: dict[str, dict[str, Any]] = {
        "placed": {"status": "True"}, "refused": {"status": "False", "reason": "Unschedulable"},
        "gated": {"status": "False", "reason": "SchedulingGated"}, "silent": {"type": "Ready", "status": "False"},
    }  # fmt: skip
    for name, condition in conditions.items():
        meta, spec = {"name": name, "namespace": "n"}, {"schedulerName": name, "containers": []}
        status = {"conditions": [{"type": "PodScheduled", **condition}]}
        api.objects[f"/api/v1/namespaces/n/pods/{name}"] = {"metadata": meta, "spec": spec, "status": status}
    assert snapshot(Kube(api.kubeconfig), "n").schedulers == frozenset({"placed", "refused"})


@pytest.mark.parametrize("event", [{}, {"type": "Warning"}, {"reason": "FailedCreate"}])
def test_an_event_without_type_or_reason_says_nothing_of_refusals(event: dict[str, str]) -> None:
    assert refusals_of(cluster(), [], [{"involvedObject": {}, **event}]) == ()


def test_a_cluster_that_does_not_answer_is_no_cluster_without_rights() -> None:
    fields = {"name": "a", "image": "i", "script": "/a.py", "backend": "pytorchjob"}
    with pytest.raises(KubeError):
        asked(cluster(status=503), BACKENDS["pytorchjob"].manifests(parse_job(fields))[-1])


@pytest.mark.parametrize(("flags", "unreadable", "actions"), [
    (["--scheduler-conf=/conf/own.conf"], "", ("enqueue", "reclaim")),
    (["--scheduler-conf", "/conf/own.conf"], "", ("enqueue", "reclaim")),
    (["--scheduler-conf=/conf/own.conf"], "/api/v1/namespaces/batch/configmaps/batch-scheduler-configmap", None),
    (["--scheduler-conf=/conf/own.conf"], "/apis/apps/v1/deployments", None),
    ([], "", ("enqueue", "allocate", "backfill")),
])  # fmt: skip
@pytest.mark.parametrize("copies", [0, 2])
def test_a_release_of_another_name_has_its_configuration_where_its_deployment_mounts_it(
    api: Api, flags: list[str], unreadable: str, actions: tuple[str, ...] | None, copies: int
) -> None:
    """Its queues passed for ones that no plugin looks at, and nobody for one who gives back what another deserves."""
    mount, source = {"name": "conf", "mountPath": "/conf"}, {"name": "batch-scheduler-configmap"}
    container = {"image": "r/vc-scheduler:v1.15.1", "args": flags, "volumeMounts": [mount]}
    spec = {"containers": [{"image": "r/proxy:v1"}, container], "volumes": [{"name": "conf", "configMap": source}]}
    meta = {"name": "batch-scheduler", "namespace": "batch"}
    api.objects["/apis/apps/v1/namespaces/batch/deployments/batch-scheduler"] = {
        "metadata": meta, "spec": {"template": {"spec": spec}},
    }  # fmt: skip
    held = {"metadata": {**source, "namespace": "batch"}, "data": {"own.conf": 'actions: "enqueue, reclaim"'}}
    api.objects["/api/v1/namespaces/batch/configmaps/batch-scheduler-configmap"] = held
    for number in range(copies):  # of which none says that the scheduler reads it
        other = {"name": "volcano-scheduler-configmap", "namespace": f"team-{number}"}
        where = f"/api/v1/namespaces/team-{number}/configmaps/volcano-scheduler-configmap"
        api.objects[where] = {"metadata": other, "data": {"own.conf": "actions: allocate"}}
    api.unreadable |= {unreadable}
    settings = snapshot(Kube(api.kubeconfig), "vision").settings
    assert (settings and settings.actions) == actions
