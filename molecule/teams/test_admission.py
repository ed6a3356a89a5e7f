"""Every way to a queue is closed to all queues but the team's own, for an administrator too; one test each."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.teams_live import ROOT, answer, gangplank, pod, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.kube import Kube

Json = dict[str, Any]
QUEUE = 'team vision: queue "{}" is none of its queues (vision)'
CRDS = {  # of kinds whose controllers the lab need not run: what a team may submit is decided before them
    "charts.training-operator-crds": "kubeflow.org_pytorchjobs.yaml",
    "charts.trainer-v2-crds": "trainer.kubeflow.org_trainjobs.yaml",
}


@pytest.fixture(scope="module", autouse=True)
def crds(kube: Kube) -> Iterator[None]:
    """Upstream's own definitions of the kinds, for as long as these tests run where they are not there already."""
    made = []
    for part, name in CRDS.items():
        command = [sys.executable, "-m", "lab.build", "--show", part]
        folder = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        crd = yaml.safe_load((Path(folder) / name).read_text())
        where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        if answer(kube, "GET", where):
            kube.call("POST", where.rpartition("/")[0], crd)
            made.append(where)
        until(lambda where=where: established(kube.call("GET", where)), where)
    yield
    for where in made:
        kube.call("DELETE", where)


def established(crd: Json) -> bool:
    """Whether the API serves a kind."""
    conditions = crd.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def template(queue: str | None) -> Json:
    """A pod template whose pods go to a queue."""
    made = pod("x", "vision", queue or "")
    if queue is None:
        del made["metadata"]["annotations"]
    meta = {key: value for key, value in made["metadata"].items() if key == "annotations"}
    return {"metadata": meta | {"labels": {"a": "b"}}, "spec": made["spec"]}


def volcano(queue: str | None) -> Json:
    """A Volcano job's spec."""
    made = template("vision")
    del made["metadata"]
    body: Json = {"schedulerName": "volcano", "tasks": [{"name": "w", "replicas": 1, "template": made}]}
    return body | ({"queue": queue} if queue else {})


def obj(api_version: str, kind: str, spec: Json, annotations: Json | None = None) -> Json:
    """An object in the team's namespace."""
    meta: Json = {"name": "probe", "namespace": "vision"} | ({"annotations": annotations} if annotations else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def workload(kind: str) -> Callable[[str | None], Json]:
    """What the apps group makes pods by."""
    selector = {"selector": {"matchLabels": {"a": "b"}}}

    def made(queue: str | None) -> Json:
        body: Json = {**selector, "template": template(queue)}
        body["template"]["spec"]["restartPolicy"] = "Always"
        return obj("apps/v1", kind, body | ({"serviceName": "x"} if kind == "StatefulSet" else {}))

    return made


def flow(queue: str | None) -> Json:
    patch = {"jobSpec": volcano(queue)}
    return obj("flow.volcano.sh/v1alpha1", "JobFlow", {"flows": [{"name": "a", "patch": patch}]})


def pytorch(queue: str | None) -> Json:
    policy = {"schedulingPolicy": {"queue": queue}} if queue else {}
    made = template("vision")
    made["spec"]["containers"][0]["name"] = "pytorch"
    replicas = {"Master": {"replicas": 1, "template": made}}
    return obj("kubeflow.org/v1", "PyTorchJob", {"runPolicy": policy, "pytorchReplicaSpecs": replicas})


def trainjob(queue: str | None) -> Json:
    notes = {"scheduling.volcano.sh/queue-name": queue} if queue else None
    return obj("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch-distributed"}}, notes)


def annotated(key: str) -> Callable[[str | None], Json]:
    def made(queue: str | None) -> Json:
        found = pod("probe", "vision", "")
        found["metadata"]["annotations"] = {key: queue} if queue else {}
        return found

    return made


def group(queue: str | None) -> Json:
    return obj("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 1} | ({"queue": queue} if queue else {}))


def nested(queue: str | None) -> Json:
    body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template(queue)}}}
    return obj("batch/v1", "CronJob", body)


BATCH = "batch.volcano.sh/v1alpha1"
# (way, where it is posted, what, what is refused when no queue is named: "" where that is decided later)
WAYS: tuple[tuple[str, str, Callable[[str | None], Json], str], ...] = (
    ("Volcano Job", f"/apis/{BATCH}/namespaces/vision/jobs", lambda q: obj(BATCH, "Job", volcano(q)), "default"),
    (
        "Volcano CronJob",
        f"/apis/{BATCH}/namespaces/vision/cronjobs",
        lambda q: obj(BATCH, "CronJob", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": volcano(q)}}),
        "default",
    ),
    (
        "JobTemplate",
        "/apis/flow.volcano.sh/v1alpha1/namespaces/vision/jobtemplates",
        lambda q: obj("flow.volcano.sh/v1alpha1", "JobTemplate", volcano(q)),
        "default",
    ),
    ("JobFlow", "/apis/flow.volcano.sh/v1alpha1/namespaces/vision/jobflows", flow, "default"),
    ("PodGroup", "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups", group, "default"),
    ("pod", "/api/v1/namespaces/vision/pods", annotated("scheduling.volcano.sh/queue-name"), ""),
    ("pod by job key", "/api/v1/namespaces/vision/pods", annotated("volcano.sh/queue-name"), ""),
    (
        "batch Job",
        "/apis/batch/v1/namespaces/vision/jobs",
        lambda q: obj("batch/v1", "Job", {"template": template(q)}),
        "",
    ),
    ("batch CronJob", "/apis/batch/v1/namespaces/vision/cronjobs", nested, ""),
    ("Deployment", "/apis/apps/v1/namespaces/vision/deployments", workload("Deployment"), ""),
    ("ReplicaSet", "/apis/apps/v1/namespaces/vision/replicasets", workload("ReplicaSet"), ""),
    ("StatefulSet", "/apis/apps/v1/namespaces/vision/statefulsets", workload("StatefulSet"), ""),
    ("DaemonSet", "/apis/apps/v1/namespaces/vision/daemonsets", workload("DaemonSet"), ""),
    ("PyTorchJob", "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs", pytorch, ""),
    ("TrainJob", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/vision/trainjobs", trainjob, "allowed"),
)
each_way = pytest.mark.parametrize(("where", "made", "absent"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])


@each_way
def test_a_foreign_queue_the_default_one_and_none_are_refused_and_the_own_one_is_not(
    kube: Kube, where: str, made: Callable[[str | None], Json], absent: str
) -> None:
    assert answer(kube, "POST", where, made("vision"), dryRun="All") == ""
    for queue in ("speech", "default"):
        assert QUEUE.format(queue) in answer(kube, "POST", where, made(queue), dryRun="All")
    told = answer(kube, "POST", where, made(None), dryRun="All")
    assert told == "" if absent == "allowed" else QUEUE.format(absent) in told


def test_a_pod_group_does_not_move_to_another_queue(kube: Kube) -> None:
    place = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups"
    there = kube.call("POST", place, group("vision"))
    try:
        there["spec"]["queue"] = "speech"
        assert QUEUE.format("speech") in answer(kube, "PUT", f"{place}/probe", there)
    finally:
        kube.call("DELETE", f"{place}/probe")


def change(path: str, value: object) -> Callable[[Json], None]:
    """A change of a pod, by the path of a field."""

    def apply(manifest: Json) -> None:
        *above, last = path.split(".")
        for key in above:
            manifest = manifest[int(key)] if isinstance(manifest, list) else manifest[key]
        manifest[last] = value

    return apply


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (change("spec.schedulerName", "default-scheduler"), 'scheduler "default-scheduler" is none of its schedulers'),
        (change("spec.priorityClassName", "urgent"), 'priority "urgent" is none of its priorities (normal)'),
        (change("spec.priorityClassName", "system-node-critical"), "system-node-critical"),
        (change("spec.serviceAccountName", "admin"), 'service account "admin" is none of its accounts (default)'),
        (
            change("spec.containers.0.image", "docker.io/evil/miner:1"),
            'image "docker.io/evil/miner:1" is none of its images',
        ),
        (change("spec.nodeName", "node-0"), 'node "node-0" is none of its nodes (); leave nodeName out'),
        (change("spec.hostNetwork", True), 'violates PodSecurity "restricted:latest"'),
    ],
    ids=["scheduler", "priority", "critical", "account", "image", "node", "host network"],
)
def test_a_pod_takes_nothing_that_the_team_has_not(kube: Kube, edit: Callable[[Json], None], told: str) -> None:
    if "admin" in told:
        kube.call("POST", "/api/v1/namespaces/vision/serviceaccounts", {"metadata": {"name": "admin"}})
    try:
        manifest = pod("probe", "vision", "vision")
        edit(manifest)
        assert told in answer(kube, "POST", "/api/v1/namespaces/vision/pods", manifest, dryRun="All")
        allowed = copy.deepcopy(manifest) | {"spec": pod("probe", "vision", "vision")["spec"]}
        allowed["spec"]["priorityClassName"] = "normal"
        assert answer(kube, "POST", "/api/v1/namespaces/vision/pods", allowed, dryRun="All") == ""
    finally:
        answer(kube, "DELETE", "/api/v1/namespaces/vision/serviceaccounts/admin")


def test_more_than_the_quota_is_refused(kube: Kube) -> None:
    greedy = pod("probe", "vision", "vision", cpu="2100m")
    assert "exceeded quota: gangplank-team" in answer(
        kube, "POST", "/api/v1/namespaces/vision/pods", greedy, dryRun="All"
    )
    claim = {"metadata": {"name": "more"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    claim["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    where = "/api/v1/namespaces/vision/persistentvolumeclaims"
    assert "exceeded quota: gangplank-team" in answer(kube, "POST", where, claim, dryRun="All")


def test_a_foreign_queue_is_refused_where_a_person_submits(
    kubeconfigs: Callable[[str, str], str], tmp_path: Path
) -> None:
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    job["training_job"] |= {"team": "vision", "queue": "speech"}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    done = gangplank("submit", str(tmp_path / "job.yml"), kubeconfig=kubeconfigs("vision", "bob"))
    assert done.returncode != 0
    assert QUEUE.format("speech") in done.stderr
    assert "Traceback" not in done.stderr


def test_namespaces_of_nobody_are_as_free_as_before(kube: Kube) -> None:
    free = pod("probe", "default", "default")
    free["spec"]["schedulerName"] = "default-scheduler"
    assert answer(kube, "POST", "/api/v1/namespaces/default/pods", free, dryRun="All") == ""
