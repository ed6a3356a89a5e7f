"""What the training operator makes of a PyTorchJob, against what its sources say."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends.base import Site
from gangplank.backends.pytorchjob.objects import objects
from gangplank.errors import SpecError

Json = dict[str, Any]


def replica(count: int | None = 1, name: str = "pytorch", **more: Any) -> Json:
    body: Json = {"template": {"spec": {"containers": [{"name": name, "image": "img"}]}}, **more}
    return body if count is None else {"replicas": count, **body}


def job(master: Json | None = None, worker: Json | None = None, **spec: Any) -> Json:
    parts = {"Master": master, "Worker": worker}
    replicas = {kind: part for kind, part in parts.items() if part is not None}
    body = {"pytorchReplicaSpecs": replicas, **spec}
    meta = {"name": "demo", "namespace": "ns", "annotations": {"note": "x"}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": body}


def by_name(manifest: Json, kind: str = "Pod", **site: Any) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in objects(manifest, Site(**site)) if item["kind"] == kind}


def env(pod: Json) -> Json:
    return {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}


def test_wires_the_worked_example() -> None:
    pods = by_name(job(replica(), replica(2)), gang=False)
    assert list(pods) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]
    for rank, pod in enumerate(pods.values()):
        assert env(pod) == {
            "PYTHONUNBUFFERED": "1",
            "MASTER_PORT": "23456",
            "PET_MASTER_PORT": "23456",
            "MASTER_ADDR": "demo-master-0",
            "PET_MASTER_ADDR": "demo-master-0",
            "WORLD_SIZE": "3",
            "RANK": str(rank),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": "auto",
            "PET_NNODES": "3",
        }
    assert "initContainers" not in pods["demo-master-0"]["spec"]
    waiting = pods["demo-worker-1"]["spec"]["initContainers"][0]
    assert "nslookup demo-master-0" in waiting["command"][2]
    assert "$(seq 100)" in waiting["command"][2]


def test_world_size_counts_processes_and_rank_counts_nodes() -> None:
    pods = by_name(job(replica(), replica(2), nprocPerNode="4"))
    assert [env(pod)["WORLD_SIZE"] for pod in pods.values()] == ["12", "12", "12"]
    assert [env(pod)["RANK"] for pod in pods.values()] == ["0", "1", "2"]


def test_workers_alone_get_no_rank_and_the_first_is_called_master() -> None:
    pods = by_name(job(worker=replica(2)))
    assert set(env(pods["demo-worker-0"])) == {"PYTHONUNBUFFERED", "PET_NPROC_PER_NODE", "PET_NNODES"}
    assert all("initContainers" not in pod["spec"] for pod in pods.values())
    role = "training.kubeflow.org/job-role"
    assert pods["demo-worker-0"]["metadata"]["labels"][role] == "master"
    assert role not in pods["demo-worker-1"]["metadata"]["labels"]


def test_an_elastic_job_meets_at_its_first_worker() -> None:
    elastic = {"maxReplicas": 4, "maxRestarts": 2, "rdzvConf": [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]}
    manifest = job(worker=replica(2), elasticPolicy={**elastic, "standalone": True, "nProcPerNode": 2})
    variables = env(by_name(manifest)["demo-worker-1"])
    assert variables["PET_RDZV_ENDPOINT"] == "demo-worker-0:23456"
    assert variables["PET_NNODES"] == "4:4"
    assert (variables["PET_RDZV_CONF"], variables["PET_STANDALONE"]) == ("a=1,b=2", "")
    assert variables["PET_NPROC_PER_NODE"] == "2"
    assert "RANK" not in variables


def test_every_replica_has_a_service_with_the_ports_of_its_container() -> None:
    manifest = job(replica(), replica(1))
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["ports"] = [
        {"name": "metrics", "containerPort": 9090}
    ]
    services = by_name(manifest, "Service")
    assert services["demo-worker-0"]["spec"]["ports"] == [
        {"name": "metrics", "port": 9090},
        {"name": "pytorchjob-port", "port": 23456},
    ]
    assert services["demo-master-0"]["spec"]["selector"] == services["demo-master-0"]["metadata"]["labels"]


def test_the_masters_own_port_is_everybodys_master_port() -> None:
    manifest = job(replica(), replica(1))
    manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["ports"] = [
        {"name": "pytorchjob-port", "containerPort": 1234}
    ]
    assert env(by_name(manifest)["demo-worker-0"])["MASTER_PORT"] == "1234"


def test_the_gang_takes_its_numbers_from_the_scheduling_policy() -> None:
    manifest = job(replica(), replica(2), runPolicy={"schedulingPolicy": {"queue": "q", "minAvailable": 2}})
    for part in manifest["spec"]["pytorchReplicaSpecs"].values():
        part["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    group = by_name(manifest, "PodGroup")["demo"]
    assert group["spec"] == {"minMember": 2, "queue": "q", "minResources": {"cpu": "2"}}
    assert group["metadata"]["annotations"] == {"note": "x"}
    pod = by_name(manifest)["demo-worker-0"]
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"]["volcano.sh/task-spec"] == "worker"
    assert by_name(manifest, "PodGroup", gang=False) == {}
    assert "schedulerName" not in by_name(manifest, gang=False)["demo-worker-0"]["spec"]


@pytest.mark.parametrize(("policy", "stored"), [(None, "OnFailure"), ("ExitCode", "Never"), ("Always", "Always")])
def test_the_replicas_restart_policy_is_the_pods(policy: str | None, stored: str) -> None:
    more: Json = {} if policy is None else {"restartPolicy": policy}
    assert by_name(job(replica(**more)))["demo-master-0"]["spec"]["restartPolicy"] == stored


def test_metrics_bring_an_autoscaler() -> None:
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource"}]}
    spec = by_name(job(worker=replica(2), elasticPolicy=elastic), "HorizontalPodAutoscaler")["demo"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 3)


def test_a_suspended_job_has_no_objects() -> None:
    assert objects(job(replica(), runPolicy={"suspend": True})) == []


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (job(), "Master, Worker or both"),
        (job(replica(None)), "an explicit 1"),
        (job(replica(2)), "an explicit 1"),
        (job(replica(), replica(0)), "at least 1"),
        (job(replica(name="main")), "one named pytorch"),
        (job(replica(), elasticPolicy={}), "workers, as there is an elasticPolicy"),
        (job(worker=replica(1), nprocPerNode="1", elasticPolicy={"nProcPerNode": 1}), "no number here"),
        (job(worker=replica(1), elasticPolicy={"rdzvConf": []}), "panic"),
        ({**job(replica()), "metadata": {"name": "d" * 60}}, "at most 63"),
        ({**job(replica()), "metadata": {"name": "1d"}}, "beginning with a letter"),
    ],
)
def test_refuses_what_the_operator_would_refuse_or_choke_on(manifest: Json, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        objects(manifest)
    assert said in str(caught.value)
