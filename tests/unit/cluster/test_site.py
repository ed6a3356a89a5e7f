"""expand --cluster: the settings of a cluster's controllers, from what the API server says of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cli import main
from gangplank.cli.expand import whole
from gangplank.cluster.client import Kube
from gangplank.cluster.site import site_of
from gangplank.errors import SpecError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

Json = dict[str, Any]
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEPLOYMENTS = "/apis/apps/v1/deployments"
TEMPLATE = """
- name: mine
  image: {{.InitContainerImage}}
  command: [wait, '{{.MasterAddr}}', '{{.MaxTries}}']
"""

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-admission-service-{}-mutate"
POLICIES = "/apis/admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies"
GROUPS = """
resourceGroups:
- resourceGroup: big
  object: {key: namespace, value: [other, team]}
  schedulerName: batch-two
  tolerations: [{key: dedicated, operator: Exists, tolerationseconds: 7, tolerationSeconds: 5}]
  labels: {size: big}
  affinity: '{"nodeAffinity": {}}'
- resourceGroup: never
  object: {key: namespace, value: [team]}
  labels: {size: small}
- resourceGroup: gpu
  labels: {kind: gpu}
- object: {key: annotation, value: ["lane: fast"]}
  labels: {lane: fast}
"""


def operator(*flags: str, **volume: Any) -> Json:
    container = {
        "command": ["/manager"],
        "args": ["--leader-elect", *flags],
        "volumeMounts": [
            {"name": "certificate", "mountPath": "/tmp/certs"},
            {"name": "init", "mountPath": "/etc/config"},
        ],
    }
    source = {"name": "templates", **volume}
    volumes = [{"name": "certificate", "secret": {}}, {"name": "init", "configMap": source}]
    spec = {"template": {"spec": {"containers": [container], "volumes": volumes}}}
    return {"metadata": {"name": "training-operator", "namespace": "kubeflow"}, "spec": spec}


@pytest.fixture
def cluster(api: Api) -> Api:
    """A cluster with a training operator that has other settings than upstream's."""
    api.objects[f"{PRIORITIES}/high"] = {"metadata": {"name": "high"}, "value": 7}
    flags = ("--pytorch-init-container-image=a/b:1", "--pytorch-init-container-max-tries=3")
    api.objects[f"{DEPLOYMENTS}/training-operator"] = operator(*flags)
    held = {"metadata": {"name": "templates"}, "data": {"initContainer.yaml": TEMPLATE}}
    api.objects["/api/v1/namespaces/kubeflow/configmaps/templates"] = held
    return api


def test_the_operator_s_flags_and_template_are_read(cluster: Api) -> None:
    site = site_of(Kube(cluster.kubeconfig))
    assert (site.gang, site.init_image, site.init_tries, site.init_template) == (False, "a/b:1", 3, TEMPLATE)
    assert site.priorities == {"high": 7}


def test_flags_of_two_words_are_read_like_those_of_one(cluster: Api) -> None:
    words = "--gang-scheduler-name volcano -pytorch-init-container-max-tries 0x10 --pytorch-init-container-image c/d:2"
    cluster.objects[f"{DEPLOYMENTS}/training-operator"] = operator(*words.split())
    site = site_of(Kube(cluster.kubeconfig))
    assert (site.gang, site.init_image, site.init_tries) == (True, "c/d:2", 16)


def test_values_that_the_operator_cannot_read_are_problems(cluster: Api) -> None:
    flags = ("--pytorch-init-container-max-tries=many", "--pytorch-init-container-image")
    cluster.objects[f"{DEPLOYMENTS}/training-operator"] = operator(*flags)
    with pytest.raises(SpecError) as caught:
        site_of(Kube(cluster.kubeconfig))
    fix = "Fix: correct the arguments of its container"
    assert str(caught.value).splitlines() == [
        "Deployment kubeflow/training-operator: 2 problems",
        f'  --pytorch-init-container-max-tries: got "many", expected a whole number. {fix}',
        f"  --pytorch-init-container-image: got nothing, expected a value. {fix}",
    ]


def test_a_template_under_another_key_and_path_is_found(cluster: Api) -> None:
    items = [{"key": "initContainer.yaml", "path": "wait.yaml"}]
    flags = ("--gang-scheduler-name=volcano", "--pytorch-init-container-template-file=/etc/config/wait.yaml")
    cluster.objects[f"{DEPLOYMENTS}/training-operator"] = operator(*flags, items=items)
    site = site_of(Kube(cluster.kubeconfig))
    assert (site.gang, site.init_template) == (True, TEMPLATE)


def sidecar(api: Api, deployment: str, image: str) -> None:
    """Put a container with the same flags before the one that runs the program."""
    containers = api.objects[f"{DEPLOYMENTS}/{deployment}"]["spec"]["template"]["spec"]["containers"]
    containers[0]["image"] = image
    containers.insert(0, {"image": "a/proxy:1", "args": ["--gang-scheduler-name=volcano", "--scheduler-name=proxy"]})


def test_the_operator_is_read_behind_a_sidecar(cluster: Api) -> None:
    sidecar(cluster, "training-operator", "a/training-operator:v1")
    site = site_of(Kube(cluster.kubeconfig))
    assert (site.gang, site.init_tries, site.init_template) == (False, 3, TEMPLATE)


def test_a_cluster_without_the_operator_has_upstream_s_settings(api: Api) -> None:
    api.objects[f"{PRIORITIES}/high"] = {"metadata": {"name": "high"}, "value": 7}
    api.objects[f"{DEPLOYMENTS}/other"] = {"metadata": {"name": "other"}, "spec": {}}
    site = site_of(Kube(api.kubeconfig))
    assert (site.gang, site.init_tries, site.init_template) == (True, 100, "")


def test_the_pods_of_expand_are_those_of_the_cluster(
    cluster: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"name": "j", "image": "i", "script": "/a.py", "workers": 1, "backend": "pytorchjob"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    words = [str(tmp_path / "job.json"), "--objects", "-o", "yaml"]
    assert main(["expand", *words, "--cluster", "--kubeconfig", cluster.kubeconfig]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    (worker,) = (item for item in objects if item["kind"] == "Pod" and "worker" in item["metadata"]["name"])
    waiting = {"name": "mine", "image": "a/b:1", "command": ["wait", "j-master-0", "3"]}
    assert worker["spec"]["initContainers"] == [waiting]
    assert "PodGroup" not in {item["kind"] for item in objects}
    assert main(["expand", *words]) == 0
    assert "mine" not in capsys.readouterr().out


def program(api: Api, app: str, *flags: str) -> None:
    """Run one of Volcano's programs, under a release name of the site's own."""
    mount = {"name": "conf", "mountPath": "/conf"}
    spec = {"containers": [{"args": ["--logtostderr", *flags], "volumeMounts": [mount]}],
            "volumes": [{"name": "conf", "configMap": {"name": "conf"}}]}  # fmt: skip
    meta = {"name": f"batch-{app}", "namespace": "batch", "labels": {"app": app}}
    api.objects[f"{DEPLOYMENTS}/batch-{app}"] = {"metadata": meta, "spec": {"template": {"spec": spec}}}


def hook(api: Api, kind: str, **fields: Any) -> None:
    """Have the API server ask a webhook about new objects of a kind."""
    webhook = {"name": "w", "objectSelector": {}, **fields}
    api.objects[WEBHOOKS.format(kind)] = {"metadata": {"name": kind}, "webhooks": [webhook]}


@pytest.fixture
def volcano(api: Api) -> Api:
    """A cluster whose Volcano has other settings than upstream's chart."""
    program(api, "volcano-controller", "--scheduler-name=batch")
    program(api, "volcano-admission", "--scheduler-name=batch", "--scheduler-name=two", "--admission-conf=/conf/a.conf")
    api.objects["/api/v1/namespaces/batch/configmaps/conf"] = {"metadata": {"name": "conf"}, "data": {"a.conf": GROUPS}}
    annotations = {"scheduling.volcano.sh/queue-name": "gold"}
    labels = {"kind": "work"}
    api.objects["/api/v1/namespaces/team"] = {
        "metadata": {"name": "team", "annotations": annotations, "labels": labels}
    }
    hook(api, "jobs")
    return api


def vcjob(namespace: str = "team", pod: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    inner = {"containers": [{"name": "c", "image": "i"}], **(pod or {})}
    template = {"metadata": {"annotations": annotations or {}}, "spec": inner}
    task = {"name": "master", "replicas": 1, "template": template}
    kind = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    return {**kind, "metadata": {"name": "j", "namespace": namespace}, "spec": {"tasks": [task], **spec}}


def become(api: Api, job: Json, backend: str = "volcano") -> dict[str, Json]:
    """The specs of what becomes of a job on a cluster, by kind."""
    site = site_of(Kube(api.kubeconfig), jobs=[job])
    return {item["kind"]: item["spec"] for item in whole(backend, job, site) if "spec" in item}


def refusal(api: Api, job: Json, backend: str = "volcano") -> str:
    """Why expand refuses a job on a cluster."""
    with pytest.raises(SpecError) as caught:
        become(api, job, backend)
    return "\n".join(f"{problem.path}: {problem.got}" for problem in caught.value.problems)


def test_a_job_that_names_no_scheduler_gets_the_first_of_the_webhook(volcano: Api) -> None:
    assert become(volcano, vcjob())["Pod"]["schedulerName"] == "batch"
    assert become(volcano, vcjob(schedulerName="mine"))["Pod"]["schedulerName"] == "mine"


def test_the_webhooks_are_read_behind_a_sidecar(volcano: Api) -> None:
    sidecar(volcano, "batch-volcano-admission", "a/vc-webhook-manager:v1")
    assert become(volcano, vcjob())["Pod"]["schedulerName"] == "batch"
    hook(volcano, "pods")
    assert become(volcano, vcjob())["Pod"]["schedulerName"] == "batch-two", "the group is in the ConfigMap"


def test_a_default_queue_is_the_one_of_the_namespace_where_a_webhook_changes_pod_groups(volcano: Api) -> None:
    assert become(volcano, vcjob())["PodGroup"]["queue"] == "default"
    hook(volcano, "podgroups")
    assert become(volcano, vcjob())["PodGroup"]["queue"] == "gold"
    assert become(volcano, vcjob(queue="own"))["PodGroup"]["queue"] == "own"
    assert become(volcano, vcjob("elsewhere"))["PodGroup"]["queue"] == "default"


def test_pods_move_to_the_first_of_their_resource_groups_where_a_webhook_changes_pods(volcano: Api) -> None:
    taint = {"key": "own", "operator": "Exists"}
    job = vcjob(pod={"nodeSelector": {"size": "any", "disk": "ssd"}, "tolerations": [taint]})
    assert become(volcano, job)["Pod"]["nodeSelector"] == {"size": "any", "disk": "ssd"}
    hook(volcano, "pods")
    pod = become(volcano, job)["Pod"]
    assert pod["nodeSelector"] == {"size": "big", "disk": "ssd"}
    assert pod["tolerations"] == [taint, {"key": "dedicated", "operator": "Exists", "tolerationSeconds": 7}]
    assert (pod["schedulerName"], pod["affinity"]) == ("batch-two", {"nodeAffinity": {}})
    assert become(volcano, vcjob(pod={"affinity": {"podAffinity": {}}}))["Pod"]["affinity"] == {"podAffinity": {}}


@pytest.mark.parametrize(
    ("annotations", "selector"),
    [({"volcano.sh/resource-group": "gpu"}, {"kind": "gpu"}), ({"lane": "fast"}, {"lane": "fast"}), ({}, None)],
)
def test_pods_choose_a_resource_group_by_annotation(volcano: Api, annotations: Json, selector: Json | None) -> None:
    hook(volcano, "pods")
    assert become(volcano, vcjob("elsewhere", annotations=annotations))["Pod"].get("nodeSelector") == selector


def test_a_webhook_changes_only_the_namespaces_that_it_selects(volcano: Api) -> None:
    work = {"matchExpressions": [{"key": "kind", "operator": "In", "values": ["work"]}]}
    hook(volcano, "pods", namespaceSelector=work)
    assert "nodeSelector" in become(volcano, vcjob())["Pod"]
    own = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["team"]}]}
    hook(volcano, "pods", namespaceSelector=own)
    assert "nodeSelector" not in become(volcano, vcjob())["Pod"]


def test_webhooks_change_the_pods_of_every_back_end(volcano: Api) -> None:
    hook(volcano, "pods")
    template = {"spec": {"containers": [{"name": "pytorch", "image": "i"}]}}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    meta = {"name": "j", "namespace": "team"}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": meta, "spec": spec}
    assert become(volcano, job, "pytorchjob")["Pod"]["nodeSelector"] == {"size": "big"}


def test_a_job_is_refused_where_volcano_makes_nothing_that_can_be_told(volcano: Api) -> None:
    program(volcano, "volcano-controller", "--controllers=*,-job-controller", "--feature-gates=VolcanoJobSupport=false")
    hook(volcano, "jobs", namespaceSelector={"matchLabels": {"kind": "play"}})
    hook(volcano, "pods", matchConditions=[{"name": "m", "expression": "true"}])
    volcano.objects[f"{POLICIES}/volcano-job-mutation-policy"] = {"metadata": {"name": "volcano-job-mutation-policy"}}
    volcano.objects[f"{POLICIES}/other"] = {"metadata": {"name": "other"}}
    assert refusal(volcano, vcjob()).splitlines() == [
        "MutatingAdmissionPolicy volcano-job-mutation-policy: one of that name",
        "Deployment batch/batch-volcano-controller --controllers: *, -job-controller",
        "Deployment batch/batch-volcano-controller --feature-gates: VolcanoJobSupport=false",
        "volcano-admission-service-pods-mutate matchConditions: a condition",
        "volcano-admission-service-jobs-mutate: no webhook for jobs in namespace team",
    ]


def test_a_job_is_refused_where_only_a_part_of_volcano_runs(volcano: Api) -> None:
    del volcano.objects[f"{DEPLOYMENTS}/batch-volcano-admission"], volcano.objects[WEBHOOKS.format("jobs")]
    assert refusal(volcano, vcjob()).splitlines() == [
        "Deployments: none",
        "volcano-admission-service-jobs-mutate: no webhook for jobs in namespace team",
    ]
    del volcano.objects[f"{DEPLOYMENTS}/batch-volcano-controller"]
    assert become(volcano, vcjob())["Pod"]["schedulerName"] == "volcano"  # a cluster that will get Volcano


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("resourceGroups: [{labels: {a: true}}]", "configuration.resourceGroups[0].labels.a"),
        ("resourceGroups: [{object: {value: ['a: 1']}}]", "configuration.resourceGroups.object.value.a"),
        ("resourceGroups: [{affinity: '{'}]", "configuration.resourceGroups.affinity"),
        ("[a]", "configuration"),
    ],
)
def test_a_configuration_that_the_webhook_may_read_otherwise_is_a_problem(volcano: Api, text: str, path: str) -> None:
    hook(volcano, "pods")
    held = volcano.objects["/api/v1/namespaces/batch/configmaps/conf"]
    held["data"]["a.conf"] = text
    assert refusal(volcano, vcjob()).partition(": ")[0] == path
    held["data"]["a.conf"] = "# nothing\n"
    assert "nodeSelector" not in become(volcano, vcjob())["Pod"]


@pytest.mark.parametrize(
    ("flag", "got"),
    [
        ("--gang-scheduler-name=coscheduling", "--gang-scheduler-name: coscheduling"),
        ("--enable-scheme=TFJob", "--enable-scheme: tfjob"),
        ("--namespace=other", "--namespace: other"),
    ],
)
def test_a_pytorchjob_is_refused_where_the_operator_makes_other_objects_of_it(api: Api, flag: str, got: str) -> None:
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "j", "namespace": "team"}}
    api.objects[f"{DEPLOYMENTS}/training-operator"] = operator(flag)
    with pytest.raises(SpecError) as caught:
        site_of(Kube(api.kubeconfig), jobs=[job])
    assert [f"{problem.path}: {problem.got}" for problem in caught.value.problems] == [got]
    assert not site_of(Kube(api.kubeconfig), jobs=[vcjob()]).gang
    api.objects[f"{DEPLOYMENTS}/training-operator"] = operator(
        "--gang-scheduler-name=Volcano", "--enable-scheme=TFJob", "--enable-scheme=PyTorchJob", "--namespace=team"
    )
    assert site_of(Kube(api.kubeconfig), jobs=[job]).gang


def test_a_manifest_without_the_form_of_one_is_refused_before_the_cluster_is_asked(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job.json").write_text(json.dumps({**vcjob(), "metadata": []}))
    assert main(["expand", "-f", str(tmp_path / "job.json"), "--cluster", "--kubeconfig", api.kubeconfig]) == 1
    assert "Job.metadata: got [], expected a mapping" in capsys.readouterr().err
    assert not api.seen
