"""expand --cluster: the settings of a cluster's controllers, from what the API server says of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cli import main
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
