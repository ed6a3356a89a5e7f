"""What a team's file does not grant is refused before anything is submitted, from a job file and from a manifest."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.teams.grants import check_job, check_manifests
from gangplank.teams.job_defaults import with_team
from gangplank.teams.parse import parse_team

if TYPE_CHECKING:
    from gangplank.teams.spec import TeamSpec

Json = dict[str, Any]
JOB: Json = {"name": "j", "team": "vision", "image": "a.b/c:1", "script": "/a.py"}
BACK_ENDS = sorted({*BACKENDS} - {"indexed"})


def team(**fields: object) -> TeamSpec:
    cap = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
    value = {"team": {"name": "vision", "members": [{"user": "ada"}], "cap": cap} | fields}
    return parse_team(value, "teams/vision.yml")


def lines(own: TeamSpec, **fields: object) -> list[str]:
    """What is wrong with a job of the team."""
    spec = parse_job(with_team(JOB | fields, [own]), "j.yml")
    try:
        check_job(on_site(spec, Gpus(({"key": "flyte/gpu", "effect": "NoSchedule"},))), [own], "j.yml")
    except SpecError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("manifest", [
    {"kind": "ResourceClaimTemplate", "spec": None},
    {"kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": None}}},
    {"kind": "ResourceClaimTemplate", "spec": {"spec": {"devices": {"requests": [{"exactly": 5}, 7]}}}},
    {"kind": "Pod", "spec": {"containers": [None, 5], "tolerations": ["x"], "nodeSelector": [1], "volumes": 7}},
    {"kind": "Pod", "spec": {"containers": [{"env": {}, "envFrom": ["a"], "resources": {"limits": [1]}}]}},
])  # fmt: skip
def test_parts_of_another_form_are_left_to_the_api_server_which_refuses_them(manifest: Json) -> None:
    meta = {"name": "a", "namespace": "vision"}
    with contextlib.suppress(SpecError):  # of what can be read
        check_manifests([{"apiVersion": "v1", "metadata": meta, **manifest}], [team()], "a.yml")


WISHES = [
    ("tolerations", [{"key": "team", "value": "speech"}], "tolerations[0]", "team=speech", "tolerations", "team"),
    ("tolerations", [{"operator": "Exists"}], "tolerations[0]", "*", "tolerations", ""),
    ("gpu_tolerations", [{"key": "x", "operator": "Exists"}], "gpu_tolerations[0]", "x", "tolerations", "x"),
    ("node_selector", {"team": "speech"}, "node_selector.team", "team=speech", "node_labels", "team=speech"),
    ("secrets", ["key"], "secrets[0]", "key", "secrets", "key"),
    ("annotations", {"c.d/x": "y"}, "annotations.c.d/x", "c.d/x", "annotation_domains", "d"),
    ("labels", {"c.d/x": "y"}, "labels.c.d/x", "c.d/x", "annotation_domains", "c.d"),
]


CASES = [(backend, *wish) for backend in BACK_ENDS for wish in WISHES if wish[0] not in BACKENDS[backend].refuses]


@pytest.mark.parametrize(
    ("backend", "field", "value", "path", "got", "grant", "granted"), CASES, ids=lambda item: str(item)[:12]
)
def test_a7_a8_f4_what_the_file_does_not_grant_is_refused_with_place_and_fix(
    backend: str, field: str, value: object, path: str, got: str, grant: str, granted: str
) -> None:
    fields: Json = {field: value, "backend": backend, "resources": {"gpus": int(field == "gpu_tolerations")}}
    head, line = lines(team(), **fields)
    assert head == "j.yml: 1 problem"
    assert line.startswith(f'  training_job.{path}: got "{got}", expected ')
    assert f"that the file of team vision grants under team_{grant} (" in line
    assert line.endswith(f". Fix: leave it out, or have team_{grant} in teams/vision.yml grant it")
    if granted:
        assert lines(team(**{grant: [granted]}), **fields) == []


def test_a5_image_queue_and_priority_are_refused_together() -> None:
    own = team(images=["ghcr.io/*"], queues=[{"name": "a"}, {"name": "b"}])
    assert [line.split(", expected")[0].strip() for line in lines(own, queue="speech", priority="urgent")] == [
        "j.yml: 3 problems",
        'training_job.image: got "a.b/c:1"',
        'training_job.priority: got "urgent"',
        'training_job.queue: got "speech"',
    ]
    assert lines(own, image="ghcr.io/a:1", queue="vision-a") == []


def test_the_scheduler_of_a_back_end_is_a_grant_too() -> None:
    assert 'training_job.backend: got "default-scheduler"' in lines(team(), backend="indexed")[1]
    assert lines(team(schedulers=["default-scheduler"]), backend="indexed") == []


def test_the_taint_of_gpu_nodes_is_tolerated_by_pods_with_gpus_alone() -> None:
    usual = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert lines(team(), tolerations=usual, gpu_tolerations=usual, resources={"gpus": 1}) == []
    assert 'got "nvidia.com/gpu"' in lines(team(), tolerations=usual)[1]
    lost = [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "operator": "Exists"}]
    assert lines(team(), tolerations=lost) == []


def test_a6_the_taint_that_the_site_adds_needs_the_grant_too() -> None:
    assert 'training_job.gpu_tolerations[0]: got "flyte/gpu"' in lines(team(), resources={"gpus": 1})[1]
    assert lines(team(tolerations=["flyte/gpu"]), resources={"gpus": 1}) == []


def pod_job(**spec: object) -> Json:
    container = {"name": "c", "image": "a.b/c:1", "envFrom": [{"secretRef": {"name": "key"}}],
                 "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "other", "key": "a"}}}]}  # fmt: skip
    pod = {"schedulerName": "volcano", "runtimeClassName": "nvidia", "nodeSelector": {"team": "speech"},
           "tolerations": [{"operator": "Exists"}], "containers": [container], "serviceAccountName": "admin",
           "volumes": [{"name": "v", "secret": {"secretName": "third"}}]}  # fmt: skip
    tasks = [{"name": "worker", "replicas": 1, "template": {"spec": pod | spec}}]
    meta = {"name": "j", "namespace": "vision"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta,
        "spec": {"queue": "vision", "tasks": tasks},
    }  # fmt: skip


def test_a7_a8_a_raw_manifest_in_a_team_s_namespace_is_refused_the_same_with_its_own_paths() -> None:
    with pytest.raises(SpecError) as caught:
        check_manifests([pod_job()], [team()], "job.yaml")
    pod = "spec.tasks[0].template.spec"
    assert {(item.path, item.got) for item in caught.value.problems} == {
        (f"{pod}.serviceAccountName", '"admin"'),
        (f"{pod}.runtimeClassName", '"nvidia"'),
        (f"{pod}.tolerations[0]", '"*"'),
        (f"{pod}.nodeSelector.team", '"team=speech"'),
        (f"{pod}.containers[0].env", '"key"'),
        (f"{pod}.containers[0].env", '"other"'),
        (f"{pod}.volumes[0]", '"third"'),
    }
    own = team(runtime_classes=["nvidia"], secrets=["key", "other", "third"], node_labels=["team"],
               service_accounts=["admin"])  # fmt: skip
    check_manifests([pod_job(tolerations=[])], [own], "job.yaml")


def test_a_manifest_of_another_namespace_is_left_alone() -> None:
    elsewhere = pod_job()
    elsewhere["metadata"] = {"name": "j"}
    check_manifests([elsewhere], [team()], "job.yaml")
    with pytest.raises(SpecError, match="7 problems"):
        check_manifests([elsewhere], [team()], "job.yaml", lambda: "vision")
