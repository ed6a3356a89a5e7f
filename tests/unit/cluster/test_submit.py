"""What gangplank/cluster/submit.py makes of a job whose script was edited, on every back-end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster import submit
from gangplank.cluster.client import Kube, path
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.k8s.plan import Plan

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
each_backend = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def volcano(api: Api) -> None:
    """The cluster has Volcano and the operator."""
    api.objects = {where: {"kind": "there"} for where in ("/apis/scheduling.volcano.sh", "/apis/kubeflow.org/v1")}


def manifests(backend: str, script: str, **more: Any) -> list[Json]:
    """What is submitted for a job that carries a script."""
    job = {"name": "a", "image": "i", "script": "own/a.py", "backend": backend, **more}
    return BACKENDS[backend].manifests(parse_job(job, scripts={"own/a.py": script}))


def run(described: list[Json], *, replace: bool = False) -> None:
    """Submit a job as the role does."""
    kube = Kube()
    todo = submit.plan(kube, described, replace=replace)
    if todo.refused:
        raise KubeError("\n".join(todo.refused))
    submit.carry_out(kube, todo, dry_run=False)


def live(api: Api, job: Json) -> Json:
    return api.objects[path(job["apiVersion"], job["kind"], "default", "a")]


def scripts(api: Api) -> list[str]:
    """The scripts that the cluster has."""
    return [text for item in api.objects.values() for text in item.get("data", {}).values()]


@each_backend
def test_amounts_are_compared_as_numbers(api: Api, backend: str) -> None:
    """The API server stores them in its own spelling, and the second run is to find the job as described."""
    written = manifests(backend, "", resources={"cpu": 0.5, "memory": "1.5Gi"}, shm_size="1024Mi")
    run(written)
    stored = json.dumps(live(api, written[-1])).replace('"0.5"', '"500m"')
    stored = stored.replace('"1.5Gi"', '"1536Mi"').replace('"1024Mi"', '"1Gi"')
    api.objects[path(written[-1]["apiVersion"], written[-1]["kind"], "default", "a")] = json.loads(stored)
    assert "1536Mi" in stored
    assert submit.plan(Kube(), written, replace=False) == Plan()
    other = manifests(backend, "", resources={"cpu": 0.5, "memory": "1.6Gi"}, shm_size="1024Mi")
    assert "'1536Mi'" in submit.plan(Kube(), other, replace=False).refused[0]


def test_a_job_that_was_scaled_or_resumed_is_as_described(api: Api) -> None:
    bounds = {"elastic": {"min": 1, "max": 3}, "masters": 0, "workers": 2, "pytorchjob": {"suspend": True}}
    written = manifests("pytorchjob", "", **bounds)
    run(written)
    spec = live(api, written[-1])["spec"]
    for workers in (1, 3):
        spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = workers
        spec["runPolicy"]["suspend"] = workers == 1
        assert submit.plan(Kube(), written, replace=True) == Plan()
    spec["pytorchReplicaSpecs"]["Worker"]["replicas"] = 4
    assert "Worker.replicas: got 4" in submit.plan(Kube(), written, replace=False).refused[0]


def test_a_job_that_is_no_training_is_not_replaced(api: Api) -> None:
    *_, job = manifests("indexed", "")
    where = path("batch/v1", "Job", "default", "a")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "c"}
    api.objects[where] = {"metadata": {"name": "a", "namespace": "default", "ownerReferences": [owner]}, "spec": {}}
    (refused,) = submit.plan(Kube(), [job], replace=True).refused
    assert refused.startswith("Job default/a: got one of CronJob nightly, expected none yet, or a training. Fix: give")


def test_who_may_not_list_claims_is_not_asked_about_them(api: Api) -> None:
    volume = {"claim": "data", "mount": "/data", "access": "ReadWriteMany"}
    written, answer = manifests("indexed", "", volumes=[volume]), api.answer

    def guarded(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        if where.endswith("persistentvolumeclaims"):
            return 403, b'{"message": "forbidden"}'
        return answer(method, where, query, body)

    api.answer = guarded  # type: ignore[method-assign]  # an API server with other rights
    assert submit.plan(Kube(), written, [{"claim": "data"}], replace=False).refused == ()


@each_backend
def test_an_edited_script_is_refused_before_anything_is_changed(api: Api, backend: str) -> None:
    run(manifests(backend, "print(1)"))
    run(manifests(backend, "print(1)"))  # as it is there: nothing to do
    before, asked = json.dumps(api.objects), len(api.seen)
    with pytest.raises(KubeError, match=r"the script was edited: .*\n.*training_job_replace=true"):
        run(manifests(backend, "print(2)"))
    assert json.dumps(api.objects) == before
    assert {line.split()[0] for line in api.seen[asked:]} == {"GET"}


@each_backend
def test_what_replaces_it_runs_the_new_script_and_takes_the_old_one_away(api: Api, backend: str) -> None:
    run(manifests(backend, "print(1)"))
    described = manifests(backend, "print(2)")
    run(described, replace=True)
    assert scripts(api) == ["print(2)"]
    assert live(api, described[-1]) == described[-1]
    assert described[0]["metadata"]["name"] in json.dumps(described[-1])


@each_backend
def test_a_refused_replacement_leaves_the_job_and_its_script(api: Api, backend: str) -> None:
    run(manifests(backend, "print(1)"))
    before = json.dumps(api.objects)
    api.refuses = "admission webhook denied the request"
    with pytest.raises(KubeError, match="denied"):
        run(manifests(backend, "print(2)"), replace=True)
    assert json.dumps(api.objects) == before


def test_a_job_that_is_refused_leaves_no_script(api: Api) -> None:
    api.refuses = "exceeded quota: jobs"
    with pytest.raises(KubeError, match="exceeded quota"):
        run(manifests("indexed", "print(1)"))
    assert scripts(api) == []


def test_a_quota_that_counts_what_is_removed_first_is_no_refusal(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    run(manifests("volcano", "print(1)"))
    answer, api.refuses = api.answer, "exceeded quota: jobs"

    def until_removed(method: str, *request: Any) -> tuple[int, bytes]:
        if method == "DELETE":
            api.refuses = ""
        return answer(method, *request)

    monkeypatch.setattr(api, "answer", until_removed)
    run(manifests("volcano", "print(2)"), replace=True)
    assert scripts(api) == ["print(2)"]


def test_a_script_that_somebody_removed_is_back_and_the_job_stays(api: Api) -> None:
    described = manifests("volcano", "print(1)")
    run(described)
    del api.objects[path("v1", "ConfigMap", "default", described[0]["metadata"]["name"])]
    run(described)
    assert scripts(api) == ["print(1)"]
    assert not any(line.startswith("DELETE") for line in api.seen)


def test_a_script_that_somebody_changed_is_refused_and_replaced_with_its_job(api: Api) -> None:
    described = manifests("volcano", "print(1)")
    run(described)
    where = path("v1", "ConfigMap", "default", described[0]["metadata"]["name"])
    api.objects[where] = {**described[0], "data": {"a.py": "print(666)"}}
    with pytest.raises(KubeError, match="the script in it was changed by hand"):
        run(described)
    run(described, replace=True)
    assert scripts(api) == ["print(1)"]
    assert f"DELETE {where}" in api.seen  # it is immutable


def test_the_files_name_and_the_back_end_tell_scripts_apart() -> None:
    names = {manifests(backend, "print(1)")[0]["metadata"]["name"] for backend in BACKENDS}
    renamed = parse_job({"name": "a", "image": "i", "script": "b.py"}, scripts={"b.py": "print(1)"})
    names.add(BACKENDS["volcano"].manifests(renamed)[0]["metadata"]["name"])
    assert len(names) == len(BACKENDS) + 1
    assert all(manifests(backend, "print(1)")[0]["immutable"] for backend in BACKENDS)


@pytest.mark.parametrize("mine", ["other-script-0123456789", "a-script", "a-script-0123456789-x"])
def test_a_volume_of_that_name_which_is_a_persons_own_is_not_removed(api: Api, mine: str) -> None:
    (job,) = BACKENDS["volcano"].manifests(parse_job({"name": "a", "image": "i", "script": "/a.py"}))
    for task in job["spec"]["tasks"]:
        task["template"]["spec"]["volumes"] = [{"name": "script", "configMap": {"name": mine}}]
    where = path("v1", "ConfigMap", "default", mine)
    api.objects |= {path(job["apiVersion"], "Job", "default", "a"): job, where: {"kind": "ConfigMap"}}
    run(manifests("volcano", "print(1)"), replace=True)
    assert where in api.objects


def test_a_gang_of_a_cluster_without_volcano_is_refused_with_what_to_say_instead(api: Api) -> None:
    api.objects = {"/apis/kubeflow.org/v1": {"kind": "APIResourceList"}}
    before = json.dumps(api.objects)
    with pytest.raises(KubeError, match=r"schedulerName: got \"volcano\", .*pytorchjob: {gang: false}"):
        run(manifests("pytorchjob", "print(1)"))
    assert json.dumps(api.objects) == before
    run(manifests("pytorchjob", "print(1)", pytorchjob={"gang": False}))
    assert scripts(api) == ["print(1)"]


def test_who_may_not_see_queues_may_use_volcano_all_the_same(api: Api) -> None:
    assert not any("queues" in where for where in api.objects)
    run(manifests("pytorchjob", "print(1)"))
    assert scripts(api) == ["print(1)"]


@pytest.mark.slow
@each_backend
@pytest.mark.parametrize("unique", [False, True])
def test_an_object_that_the_quota_could_not_count_at_that_moment_is_submitted_again(
    api: Api, backend: str, *, unique: bool
) -> None:
    *_, job = manifests(backend, "print(1)")
    api.uncounted = 2
    assert Kube().create(job, unique=unique) == "created"
    assert live(api, job)["metadata"]["name"] == "a"


def test_a_quota_that_cannot_count_for_long_is_reported(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangplank.cluster.client.COUNTED_S", 0.2)
    *_, job = manifests("volcano", "print(1)")
    api.uncounted = 100
    with pytest.raises(KubeError, match="cannot be fulfilled on resourcequotas"):
        Kube().create(job, unique=True)


SERVICE = path("v1", "Service", "default", "a")


@pytest.mark.parametrize(("meta", "whose"), [
    ({}, "one without the label gangplank.dev/job"),
    ({"labels": {"gangplank.dev/job": "b"}}, "that of job b"),
    ({"ownerReferences": [{"kind": "StatefulSet", "name": "db", "uid": "1"}]}, "that of StatefulSet db"),
    ({"labels": {"gangplank.dev/job": "a"}, "ownerReferences": [{"kind": "Job", "name": "a", "uid": "1"}]},
     "that of Job a"),
])  # fmt: skip
def test_a_service_that_is_not_the_jobs_is_refused_and_stays(api: Api, meta: Json, whose: str) -> None:
    """Its pods would lose their names: as a rule the API server lets the selector of a headless one be replaced."""
    mine = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "default", **meta}}
    api.objects[SERVICE] = mine | {"spec": {"selector": {"app": "db"}}}
    before = json.dumps(api.objects)
    message = f"Service default/a: got {whose}, expected none yet, or that of job a"
    with pytest.raises(KubeError, match=message) as refused:
        run(manifests("indexed", "print(1)"))
    assert refused.value.exit_code == 1
    assert json.dumps(api.objects) == before


def test_a_service_that_the_job_has_left_is_used_again(api: Api) -> None:
    described = manifests("indexed", "print(1)")
    run(described)
    del api.objects[path("batch/v1", "Job", "default", "a")]
    run(described)
    assert live(api, described[-1]) == described[-1]


@each_backend
@pytest.mark.parametrize("script", ["print(1)", "print(2)"])
def test_a_job_that_is_being_deleted_is_waited_for_and_then_submitted(api: Api, backend: str, script: str) -> None:
    described = manifests(backend, "print(1)")
    run(described)
    live(api, described[-1])["metadata"] = described[-1]["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    new = manifests(backend, script)
    run(new)
    assert live(api, new[-1]) == new[-1]
    assert scripts(api) == [script]


def test_a_template_that_an_interrupted_run_left_is_owned_by_the_job_of_the_next_run(api: Api) -> None:
    """It would stay once the job is removed, and count against the team's."""
    job = {"name": "a", "image": "i", "command": ["a"], "backend": "volcano", "resources": {"gpus": 1}}
    described = BACKENDS["volcano"].manifests(on_site(parse_job(job), Gpus(allocation="dra")))
    run(described)
    (where,) = [key for key, item in api.objects.items() if item["kind"] == "ResourceClaimTemplate"]
    (owner,) = api.objects[where]["metadata"].pop("ownerReferences")
    run(described)
    assert api.objects[where]["metadata"]["ownerReferences"] == [owner]
    written = list(filter(None, api.bodies))
    run(described)
    assert list(filter(None, api.bodies)) == written, "nothing is left to do"
