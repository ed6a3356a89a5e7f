"""How a job's own status is read, whatever its controller leaves out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.situation import LEFT_OUT, about, asked, decided, ending, refusals_of
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.pod_causes import waiting


def test_conditions_of_volcano_have_no_type() -> None:
    live = {"status": {"state": {"phase": "Running"}, "conditions": [{"status": "Pending"}, {"status": "Running"}]}}
    assert ending(live).name == "Running"


def test_a_job_whose_pods_are_being_removed_has_failed() -> None:
    target = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded", "message": "was too long"}
    assert ending({"status": {"active": 1, "conditions": [target]}}).failed
    assert ending({"status": {"active": 1, "conditions": [target]}}).reason == "was too long"


def test_a_pod_that_is_only_tried_has_nothing_that_a_controller_would_choose() -> None:
    """The API server refused the placeholder of a uid in a label, and that was called the cause."""
    assert decided({"labels": {"a": "<uid>"}, "env": ["x-<random>"]}) == {"labels": {"a": "0"}, "env": ["x-0"]}


def cluster(*flags: str, status: int = 0) -> Any:
    """A cluster with Volcano and a training operator with some flags, which may be read unless there is a status."""
    pod = {"containers": [{"command": ["/manager", *flags]}]}
    operator = {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": {"template": {"spec": pod}}}

    def get(where: str) -> Any:
        if status and where == "/apis/apps/v1/deployments":
            raise KubeError("no", status)
        return {"items": [operator] if where.endswith("/deployments") else []}

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


def test_events_about_a_job_have_the_fields_that_the_api_leaves_out_when_empty() -> None:
    mine, its = {"involvedObject": {"uid": "u"}}, {"involvedObject": {"kind": "Job", "name": "a"}, "type": "Warning"}
    events = about([{"involvedObject": {}}, mine, its, {"involvedObject": {"uid": "v"}}], {"u"}, {("Job", "a")})
    assert events == ({**LEFT_OUT, **mine}, {**LEFT_OUT, **its})
    pod = {"metadata": {"name": "a", "uid": "u"}, "spec": {"containers": []}, "status": {"phase": "Pending"}}
    assert list(waiting([pod], events, {})) == []


@pytest.mark.parametrize("event", [{}, {"type": "Warning"}, {"reason": "FailedCreate"}])
def test_an_event_without_type_or_reason_says_nothing_of_refusals(event: dict[str, str]) -> None:
    assert refusals_of(cluster(), [], [{"involvedObject": {}, **event}]) == ()


def test_a_cluster_that_does_not_answer_is_no_cluster_without_rights() -> None:
    fields = {"name": "a", "image": "i", "script": "/a.py", "backend": "pytorchjob"}
    with pytest.raises(KubeError):
        asked(cluster(status=503), BACKENDS["pytorchjob"].manifests(parse_job(fields))[-1])
