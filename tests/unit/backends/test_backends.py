"""Each back-end honours every portable field, or refuses it by name with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.backends import BACKENDS, backend_of, pod_template
from gangplank.backends.base import Site
from gangplank.backends.pod_template import LOST_NODE
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job

Json = dict[str, Any]
CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
METRIC: Json = {"type": "Resource", "resource": CPU}
BASE: Json = {"name": "digits", "image": "img:1", "script": "/opt/train.py"}
VALUES: Json = {
    "deadline_s": 60,
    "elastic": {"min": 1, "max": 4},
    "max_retries": 2,
    "ttl_s": 60,
    "priority": "high",
    "queue": "research",
    "min_available": 2,
    "image_pull_policy": "Always",
    "port": 4000,
    "master_resources": {"cpu": "2"},
    "secrets": ["bucket"],
}


def manifest(backend: str, **changes: Any) -> Json:
    spec = parse_job({**BASE, "backend": backend, **changes})
    return BACKENDS[backend].manifests(spec)[-1]


def pods(backend: str, **changes: Any) -> list[Json]:
    objects = BACKENDS[backend].objects(manifest(backend, **changes), Site())
    return [item for item in objects if item["kind"] == "Pod"]


REFUSED = sorted((name, field) for name, backend in BACKENDS.items() for field in backend.refuses)


@pytest.mark.parametrize(("backend", "field"), REFUSED)
def test_refuses_by_name_what_a_back_end_cannot_do(backend: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_job({**BASE, "backend": backend, field: VALUES[field]})
    (problem,) = [problem for problem in caught.value.problems if problem.path == f"training_job.{field}"]
    reason, fix = BACKENDS[backend].refuses[field]
    assert problem.expected == f"no {field} on {backend} ({reason})"
    assert problem.fix == fix


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_field_keeps_the_observer_out_of_every_pod(backend: str) -> None:
    for observe in (True, False):
        for pod in pods(backend, observe=observe):
            env = {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}
            assert env.get("GANGPLANK_OBSERVE") == (None if observe else "0")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("field", sorted(VALUES))
def test_a_field_that_is_not_refused_changes_the_manifest(backend: str, field: str) -> None:
    if field in BACKENDS[backend].refuses:
        return
    more = {"masters": 0} if field == "elastic" else {}
    assert manifest(backend, **{field: VALUES[field]}, **more) != manifest(backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_knows_its_own_manifest_again(backend: str) -> None:
    assert backend_of(manifest(backend)) == backend


@pytest.mark.parametrize("backend", BACKENDS)
def test_pods_comply_with_pod_security_restricted(backend: str) -> None:
    for pod in pods(backend):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        security = pod["spec"]["containers"][0]["securityContext"]
        assert security == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("backend", BACKENDS)
def test_variables_in_the_launch_line_exist_in_the_container(backend: str) -> None:
    for pod in pods(backend):
        container = pod["spec"]["containers"][0]
        variables = {item["name"] for item in container["env"]}
        used = {word.split("$(")[1].rstrip(")") for word in container["command"] if "$(" in word}
        assert len(used) == 4
        assert used <= variables


def test_elastic_workers_meet_through_variables_that_exist() -> None:
    container = pods("pytorchjob", elastic={"min": 1, "max": 4}, masters=0)[0]["spec"]["containers"][0]
    used = {word.split("$(")[1].rstrip(")") for word in container["command"] if "$(" in word}
    assert used == {"PET_NNODES", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT"}
    assert used <= {item["name"] for item in container["env"]}


def test_an_elastic_job_with_metrics_has_an_autoscaler_and_one_without_has_none() -> None:
    for metrics in ([METRIC], []):
        job = manifest("pytorchjob", elastic={"min": 1, "max": 4, "metrics": metrics}, masters=0)
        objects = BACKENDS["pytorchjob"].objects(job, Site())
        scaled = [item["spec"]["metrics"] for item in objects if item["kind"] == "HorizontalPodAutoscaler"]
        assert scaled == ([metrics] if metrics else [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_replica_says_who_and_where_it_is(backend: str) -> None:
    for pod in pods(backend):
        names = [item["name"] for item in pod["spec"]["containers"][0]["env"]]
        for name in ("GANGPLANK_POD", "GANGPLANK_POD_UID", "GANGPLANK_NODE", "GANGPLANK_JOB_UID", "PYTHONUNBUFFERED"):
            assert names.count(name) == 1
        assert pod["metadata"]["labels"][pod_template.JOB_LABEL] == "digits"


def test_the_operators_pods_are_selected_as_guides_do() -> None:
    assert {pod["metadata"]["labels"]["job-name"] for pod in pods("pytorchjob")} == {"digits"}


@pytest.mark.parametrize(("own", "value"), [({}, "false"), ({"sidecar.istio.io/inject": "true"}, "true")])
@pytest.mark.parametrize("backend", BACKENDS)
def test_pods_have_no_mesh_sidecar_unless_the_job_asks_for_one(backend: str, own: Json, value: str) -> None:
    """It outlives the trainer, so that the pod would never complete."""
    for pod in pods(backend, annotations=own):
        assert pod["metadata"]["annotations"]["sidecar.istio.io/inject"] == value


@pytest.mark.parametrize("backend", BACKENDS)
def test_gpus_are_requested_and_limited_and_tolerated(backend: str) -> None:
    for pod in pods(backend, resources={"gpus": 2}):
        resources = pod["spec"]["containers"][0]["resources"]
        assert resources["requests"]["nvidia.com/gpu"] == resources["limits"]["nvidia.com/gpu"] == "2"
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in pod["spec"]["containers"][0]["volumeMounts"]
        assert "--nproc-per-node=2" in pod["spec"]["containers"][0]["command"]


def test_a_site_has_its_own_toleration_for_gpus() -> None:
    ours = {"key": "flyte/gpu", "operator": "Equal", "value": "dedicated", "effect": "NoSchedule"}
    own = {"key": "x", "operator": "Exists"}
    usual = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

    def tolerated(**changes: Any) -> Any:
        every = pods("volcano", **changes)[0]["spec"]["tolerations"]
        assert every[-2:] == list(LOST_NODE)
        return every[:-2]

    gpus = {"resources": {"gpus": 1}}
    assert tolerated(**gpus) == [usual]
    assert tolerated(**gpus, gpu_tolerations=[ours]) == [ours]
    assert tolerated(**gpus, gpu_tolerations=[ours], tolerations=[own]) == [own, ours]
    assert tolerated(**gpus, tolerations=[own]) == [own]
    assert tolerated(gpu_tolerations=[ours]) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_carried_script_is_a_config_map_that_every_replica_mounts(backend: str) -> None:
    spec = parse_job({**BASE, "backend": backend, "script": "a/b.py"}, scripts={"a/b.py": "print(1)\n"})
    manifests = BACKENDS[backend].manifests(spec)
    assert manifests[0]["kind"] == "ConfigMap"
    assert manifests[0]["data"] == {"b.py": "print(1)\n"}
    for pod in BACKENDS[backend].objects(manifests[-1], Site()):
        if pod["kind"] == "Pod":
            assert "/opt/gangplank/script/b.py" in pod["spec"]["containers"][0]["command"]
            assert {"name": "script", "configMap": {"name": manifests[0]["metadata"]["name"]}} in pod["spec"]["volumes"]


def test_volcano_gives_the_gang_as_many_retries_as_the_job_says() -> None:
    spec = manifest("volcano", max_retries=2)["spec"]
    assert spec["maxRetry"] == 3
    assert [item["maxRetry"] for item in spec["tasks"]] == [3, 5]
    assert manifest("volcano", max_retries=0)["spec"]["maxRetry"] == 1


def test_volcano_completes_when_the_master_does_and_loses_no_pod_silently() -> None:
    spec = manifest("volcano")["spec"]
    assert spec["tasks"][0]["policies"] == [{"event": "TaskCompleted", "action": "CompleteJob"}]
    assert "policies" not in spec["tasks"][1]
    assert {"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"} in spec["policies"]


def test_volcanos_policies_are_the_jobs_own_where_it_has_some() -> None:
    own = [{"event": "PodPending", "action": "AbortJob", "timeout": "10m"}, {"exitCode": 3, "action": "RestartTask"}]
    assert manifest("volcano", volcano={"policies": own})["spec"]["policies"] == own
    assert manifest("volcano", volcano={"policies": []})["spec"]["policies"] == []


def test_an_indexed_job_counts_the_restarts_of_a_whole_gang_as_one_retry() -> None:
    assert manifest("indexed", max_retries=2)["spec"]["backoffLimit"] == 7
    assert manifest("indexed", max_retries=0)["spec"]["backoffLimit"] == 0
    own = manifest("indexed", indexed={"backoff": 1})["spec"]
    assert (own["backoffLimitPerIndex"], own["template"]["spec"]["restartPolicy"]) == (1, "Never")


def test_threads_are_the_whole_cores_shared_among_the_processes() -> None:
    def threads(cpu: str, processes: int) -> str:
        pod = pods("volcano", resources={"cpu": cpu}, processes_per_node=processes)[0]
        variables = {item["name"]: str(item.get("value")) for item in pod["spec"]["containers"][0]["env"]}
        return variables["OMP_NUM_THREADS"]

    assert [threads("4500m", 1), threads("4500m", 2), threads("500m", 1)] == ["4", "2", "1"]


def test_volumes_on_the_master_alone_are_not_mounted_elsewhere() -> None:
    volumes = [{"claim": "data", "mount": "/out", "on": "master"}]
    for backend in ("volcano", "pytorchjob"):
        first, *others = pods(backend, volumes=volumes)
        assert "/out" in [mount["mountPath"] for mount in first["spec"]["containers"][0]["volumeMounts"]]
        for pod in others:
            assert "claim-0" not in [volume["name"] for volume in pod["spec"].get("volumes", [])]


def test_a_command_goes_as_it_is_and_one_template_back_ends_give_it_the_usual_wiring() -> None:
    plain = {key: value for key, value in BASE.items() if key != "script"}
    for backend in BACKENDS:
        spec = parse_job({**plain, "backend": backend, "command": ["python3", "a.py"], "args": ["--x"]})
        objects = BACKENDS[backend].objects(BACKENDS[backend].manifests(spec)[-1], Site())
        for pod in objects:
            if pod["kind"] == "Pod":
                container = pod["spec"]["containers"][0]
                assert (container["command"], container["args"]) == (["python3", "a.py"], ["--x"])
                variables = {item["name"] for item in container["env"]}
                assert variables >= {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"volcano": {"plugins": {"pytorch": ["--port=1"]}}}, "use the field port"),
        ({"volcano": {"plugins": {"pytorch": ["--wait-master-timeout=abc"]}}}, "is not a value"),
        ({"volcano": {"plugins": {"svc": ["--nope"]}}}, "not a flag of the plugin"),
        ({"volcano": {"min_task_member": {"worker": 3}}}, "at most the 2 replicas"),
        ({"volcano": {"depends_on": {"worker": ["master"]}}}, "Fix: set min_available to 1"),
        ({"volcano": {"depends_on": {"worker": ["worker"]}}, "min_available": 1}, "the other role"),
        ({"queue": "root"}, "leaf queue"),
        ({"volcano": {"policies": [{"event": "PodRunning", "action": "RestartJob"}]}}, "one of"),
        ({"volcano": {"policies": [{"event": "PodFailed", "action": "Restart"}]}}, "Did you mean Restart"),
        ({"volcano": {"policies": [{"event": "PodFailed"}]}}, "policies[0].action"),
        (
            {"volcano": {"policies": [{"event": "PodFailed", "action": "AbortJob"}] * 2}},
            'volcano.policies[1].event: got "PodFailed", expected an event that no other policy has',
        ),
        ({"volcano": {"policies": [{"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}]}}, "either event"),
        ({"volcano": {"policies": [{"events": ["Nope"], "action": "AbortJob"}]}}, "one of"),
        ({"volcano": {"policies": [{"event": "PodPending", "action": "AbortJob", "timeout": "5"}]}}, "as Go writes it"),
        ({"backend": "pytorchjob", "volcano": {"restart_policy": "Never"}}, "only the block of"),
        ({"backend": "pytorchjob", "pytorchjob": {"gang": False}, "queue": "q"}, "no queue with"),
        ({"backend": "pytorchjob", "elastic": {"min": 1, "max": 4}}, "0 for an elastic job"),
        ({"backend": "pytorchjob", "elastic": {"min": 3, "max": 4}, "masters": 0}, "from elastic.min 3"),
        (
            {"backend": "pytorchjob", "elastic": {"min": 1, "max": 4, "metrics": [METRIC]}, "masters": 0}
            | {"max_retries": 0},
            "max_retries: got 0, expected at least 1 with elastic.metrics",
        ),
        ({"elastic": {"min": 1, "max": 4, "metrics": [METRIC | {"pods": {}}]}}, "elastic.metrics[0]: got {"),
        ({"elastic": {"min": 1, "max": 4, "metrics": [{"type": "CPU"}]}}, "Resource and resource"),
        ({"elastic": {"min": 1, "max": 4, "metrics": ["cpu"]}}, 'elastic.metrics[0]: got "cpu", expected a mapping'),
        ({"backend": "volcano", "elastic": {"min": 1, "max": 4, "metrics": [METRIC]}}, "no elastic on volcano"),
        ({"backend": "trainjob", "volumes": [{"claim": "c", "mount": "/o", "on": "master"}]}, "share one template"),
        ({"backend": "indexed", "name": "d" * 62}, "shorten it by 1"),
        ({"backend": "trainjob", "name": "d" * 49}, "shorten it by 1"),
        ({"output": "/elsewhere", "volumes": [{"claim": "c", "mount": "/o", "on": "master"}]}, "lost with the pod"),
        ({"output": "/o/in/out", "volumes": [{"claim": "c", "mount": "/o", "on": "master"},
                                             {"claim": "d", "mount": "/o/in", "on": "master", "read_only": True}]},
         "a folder of a volume that is not read_only"),
    ],
)
def test_refuses_contradictions(changes: Json, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_job({**BASE, **changes})
    assert said in str(caught.value)


def test_a_claim_on_all_replicas_is_fine_where_one_node_or_many_readers_are_promised() -> None:
    everywhere = {"claim": "data", "mount": "/data"}
    assert parse_job({**BASE, "volumes": [{**everywhere, "access": "ReadWriteMany"}]}).volumes[0].on == "all"
    pinned = {"node_selector": {"kubernetes.io/hostname": "node-0"}}
    assert parse_job({**BASE, "volumes": [everywhere], **pinned}).volumes[0].on == "all"


def test_a_pytorchjob_without_retries_is_not_started_again() -> None:
    def policies(**changes: Any) -> set[str]:
        replicas = manifest("pytorchjob", **changes)["spec"]["pytorchReplicaSpecs"].values()
        return {replica["restartPolicy"] for replica in replicas}

    assert policies(max_retries=0) == {"Never"}
    assert policies() == policies(max_retries=1) == {"OnFailure"}
    assert policies(max_retries=0, pytorchjob={"restart_policy": "ExitCode"}) == {"ExitCode"}


def test_an_indexed_job_without_retries_is_not_started_again() -> None:
    policies = [pod["spec"]["restartPolicy"] for count in (0, 1) for pod in pods("indexed", max_retries=count)]
    assert policies == ["Never"] * 3 + ["OnFailure"] * 3
