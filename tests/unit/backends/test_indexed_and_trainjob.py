"""What Kubernetes' Job controller, Trainer and JobSet make, against what their sources say."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangplank.backends import wiring
from gangplank.backends.base import Site
from gangplank.backends.indexed import objects
from gangplank.backends.trainjob import objects as trainjob_objects
from gangplank.errors import SpecError

Json = dict[str, Any]


def indexed(**spec: Any) -> Json:
    pod = {"containers": [{"name": "main", "image": "img"}], "restartPolicy": "Never"}
    body = {"completionMode": "Indexed", "completions": 3, "parallelism": 3, "template": {"spec": pod}, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "demo", "namespace": "ns"}, "spec": body}


def test_an_indexed_job_names_its_pods_by_index() -> None:
    pods = objects.objects(indexed(), Site(uid="U"))
    assert [pod["spec"]["hostname"] for pod in pods] == ["demo-0", "demo-1", "demo-2"]
    assert [pod["metadata"]["generateName"] for pod in pods] == ["demo-0-", "demo-1-", "demo-2-"]
    assert pods[2]["metadata"]["labels"] == {
        "job-name": "demo",
        "batch.kubernetes.io/job-name": "demo",
        "controller-uid": "U",
        "batch.kubernetes.io/controller-uid": "U",
        "batch.kubernetes.io/job-completion-index": "2",
    }
    assert wiring.environment(pods[2], pods[2]["spec"]["containers"][0]) == {"JOB_COMPLETION_INDEX": "2"}
    assert pods[0]["metadata"]["finalizers"] == ["batch.kubernetes.io/job-tracking"]


def test_an_index_variable_of_the_users_own_is_kept() -> None:
    manifest = indexed()
    manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "JOB_COMPLETION_INDEX", "value": "x"}]
    assert objects.objects(manifest)[0]["spec"]["containers"][0]["env"] == [
        {"name": "JOB_COMPLETION_INDEX", "value": "x"}
    ]


def test_a_limit_per_index_is_counted_on_the_pods() -> None:
    pod = objects.objects(indexed(backoffLimitPerIndex=1))[0]
    assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "0"


@pytest.mark.parametrize(
    ("spec", "status", "indexes"),
    [
        ({"completions": 9, "parallelism": 2}, {}, ["0", "1"]),
        ({"completions": 9, "parallelism": None}, {}, ["0"]),  # 1, as the API server has it
        ({"completions": 9, "parallelism": 3}, {"completedIndexes": "0,2-3", "failedIndexes": "5"}, ["1", "4", "6"]),
        ({"completions": 2, "parallelism": 4}, {"completedIndexes": "0"}, ["0", "1"]),
    ],
)
def test_of_pods_that_a_job_makes_one_after_another_so_many_exist_at_once(
    spec: Json, status: Json, indexes: list[str]
) -> None:
    live = {**indexed(**spec), "status": status}
    label = "batch.kubernetes.io/job-completion-index"
    pods = objects.objects(live, Site(at_once=True))
    assert [pod["metadata"]["labels"][label] for pod in pods] == indexes
    assert len(objects.objects(live)) == spec["completions"]


@pytest.mark.parametrize("spec", [{"suspend": True}, {"parallelism": 0}])
def test_a_job_that_may_not_run_has_no_pods(spec: Json) -> None:
    assert objects.objects(indexed(**spec)) == []


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"completionMode": "NonIndexed"}, "no rank"),
        ({"completions": None}, "the number of indexes"),
        ({"template": {"spec": {"containers": [], "restartPolicy": "Never"}}}, "a container"),
        ({"template": {"spec": {"containers": [{"name": "a"}], "restartPolicy": "Always"}}}, "Never or OnFailure"),
        ({"completions": "3"}, "a whole number"),
    ],
)
def test_refuses_jobs_without_ranks(spec: Json, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        objects.objects(indexed(**spec))
    assert said in str(caught.value)


HARD = "requiredDuringSchedulingIgnoredDuringExecution"
RULES = {HARD: {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a"}]}]}}
AWAY: Json = {HARD: [{"labelSelector": {}}]}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("nodeSelector", {"gpu": True}, "nodeSelector.gpu: got true, expected text"),
        ("nodeSelector", ["gpu"], "expected a mapping"),
        ("tolerations", {"key": "gpu"}, "expected a list"),
        ("affinity", "gpu", "expected a mapping"),
        ("affinity", {"nodeAffinity": RULES}, "matchExpressions[0].operator: got nothing"),
        ("affinity", {"podAntiAffinity": AWAY}, "topologyKey: got nothing"),
        ("topologySpreadConstraints", ["zone"], "expected a mapping"),
        ("schedulingGates", ["mine"], "expected a mapping"),
        ("resourceClaims", ["gpus"], "expected a mapping"),
        ("volumes", [{"name": "a", "persistentVolumeClaim": "data"}], "persistentVolumeClaim: got"),
    ],
)
def test_refuses_rules_for_nodes_that_are_no_rules(field: str, value: Any, said: str) -> None:
    """Each but the first was a traceback of `gangplank fit`."""
    manifest = indexed()
    manifest["spec"]["template"]["spec"][field] = value
    with pytest.raises(SpecError) as caught:
        objects.objects(manifest)
    assert said in str(caught.value)


def trainjob(trainer: Json | None = None, **spec: Any) -> Json:
    body: Json = {"runtimeRef": {"name": "torch-distributed"}, **spec}
    if trainer is not None:
        body["trainer"] = trainer
    meta = {"name": "demo", "namespace": "ns"}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": meta, "spec": body}


def pods(manifest: Json, **site: Any) -> list[Json]:
    return [item for item in trainjob_objects.objects(manifest, Site(uid="U", **site)) if item["kind"] == "Pod"]


def test_a_trainjob_is_wired_for_torchrun_alone() -> None:
    both = pods(trainjob({"numNodes": 2, "numProcPerNode": 4, "image": "mine", "env": [{"name": "A", "value": "1"}]}))
    assert [pod["spec"]["hostname"] for pod in both] == ["demo-node-0-0", "demo-node-0-1"]
    container = both[1]["spec"]["containers"][0]
    assert container["image"] == "mine"
    assert {
        key: text for key, text in wiring.environment(both[1], container).items() if key != "JOB_COMPLETION_INDEX"
    } == {
        "A": "1",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "demo-node-0-0.demo",
        "PET_MASTER_PORT": "29500",
    }
    assert container["ports"] == [{"containerPort": 29500}]
    assert both[0]["spec"]["subdomain"] == "demo"
    assert (
        both[0]["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"]
        == both[1]["metadata"]["labels"]["jobset.sigs.k8s.io/job-key"]
    )


def test_without_a_trainer_stanza_nothing_is_wired() -> None:
    alone = pods(trainjob())
    assert len(alone) == 1
    assert "PET_NNODES" not in wiring.environment(alone[0], alone[0]["spec"]["containers"][0])


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ({"requests": {"cpu": "2500m"}}, "3"),
        ({"limits": {"cpu": "4"}}, "4"),
        ({"limits": {"nvidia.com/gpu": "2"}}, "auto"),
        ({}, "1"),
    ],
)
def test_processes_follow_the_resources_unless_they_are_given(resources: Json, count: str) -> None:
    pod = pods(trainjob({"resourcesPerNode": resources}))[0]
    assert wiring.environment(pod, pod["spec"]["containers"][0])["PET_NPROC_PER_NODE"] == count


def test_a_runtime_of_the_same_file_counts_and_may_ask_for_a_gang() -> None:
    runtime = copy.deepcopy(trainjob_objects.TORCH_DISTRIBUTED)
    runtime["metadata"]["name"] = "ours"
    runtime["spec"]["podGroupPolicy"] = {"volcano": {}}
    runtime["spec"]["mlPolicy"]["numNodes"] = 4
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    manifest = trainjob({"resourcesPerNode": resources}, runtimeRef={"name": "ours"})
    objects = trainjob_objects.objects(manifest, Site(uid="U", others=(runtime,)))
    group = next(item for item in objects if item["kind"] == "PodGroup")
    assert group["spec"] == {"minMember": 4, "minResources": {"cpu": "4"}}
    assert all(
        item["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "demo"
        for item in objects
        if item["kind"] == "Pod"
    )


def test_patches_reach_the_pods() -> None:
    pod = {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"x": "y"}}}
    part = {"name": "node", "template": {"spec": {"template": pod}}}
    patch = {"manager": "me.dev/x", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [part]}}}}
    patched = pods(trainjob({}, runtimePatches=[patch]))[0]
    assert patched["spec"]["nodeSelector"] == {"x": "y"}
    assert patched["metadata"]["labels"]["a"] == "b"
    assert patched["spec"]["containers"][0]["name"] == "node"


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (trainjob({}, runtimeRef={"name": "unknown"}), "is in the same file"),
        (trainjob({"env": [{"name": "PET_NNODES", "value": "1"}]}), "torchrun reads"),
        (trainjob({"command": ["tune", "run"]}), "torchtune"),
        (trainjob({}, initializer={"model": {}}), "not supported yet"),
        (
            trainjob(
                {},
                runtimePatches=[{"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "x"}]}}}}],
            ),
            "x",
        ),
        ({**trainjob({}), "metadata": {"name": "d" * 60}}, "at most 63"),
    ],
)
def test_refuses_what_trainer_would_refuse(manifest: Json, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        trainjob_objects.objects(manifest)
    assert said in str(caught.value)
