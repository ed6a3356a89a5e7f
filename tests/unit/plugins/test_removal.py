"""uninstall.yml removes what the roles have written, and nothing that others have installed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.plugins.test_cluster_ready import play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TRAINER = "/apis/trainer.kubeflow.org/v1alpha1"
JOBS = f"{CRDS}/pytorchjobs.kubeflow.org"
RUNTIME = f"{TRAINER}/clustertrainingruntimes/torch-distributed"
CLASS = "/apis/node.k8s.io/v1/runtimeclasses/nvidia"
OURS = {"app.kubernetes.io/managed-by": "gangplank"}


def left(api: Api, folder: Path, writers: list[str], labels: dict[str, str], kubeconfig: str = "") -> set[str]:
    """What is left of some objects with these writers and labels, once it is over."""

    def item(kind: str, path: str, **more: Any) -> None:
        meta = {"name": path.rpartition("/")[2], "managedFields": [{"manager": name} for name in writers]}
        api.objects[path] = {"kind": kind, "metadata": {**meta, "labels": labels}, **more}

    names = {"plural": "pytorchjobs", "kind": "PyTorchJob"}
    spec = {"group": "kubeflow.org", "names": names, "versions": [{"name": "v1", "storage": True}]}
    item("CustomResourceDefinition", JOBS, spec=spec)
    item("ClusterTrainingRuntime", RUNTIME)
    item("RuntimeClass", CLASS)
    uninstall(api, folder, kubeconfig)
    return {JOBS, RUNTIME, CLASS} & api.objects.keys()


def uninstall(api: Api, folder: Path, kubeconfig: str = "") -> None:
    """Remove three components."""
    runtimes = {"kind": "ClusterTrainingRuntime", "name": "clustertrainingruntimes", "namespaced": False, "verbs": []}
    api.groups[TRAINER] = [runtimes]
    usual = {"namespaced": True, "verbs": ["delete", "list"]}
    api.groups["/api/v1"] = [{"kind": "Pod", "name": "pods", **usual}]
    api.groups["/apis/batch.volcano.sh/v1alpha1"] = [{"kind": "Job", "name": "jobs", **usual}]
    api.groups["/apis/coordination.k8s.io/v1"] = [{"kind": "Lease", "name": "leases", "namespaced": True, "verbs": []}]
    helm = folder / "bin/helm"  # it knows no release
    helm.parent.mkdir()
    helm.write_text("#!/bin/sh\n")
    helm.chmod(0o755)
    components = ["gpu_device_plugin", "training_operator", "trainer_v2"]
    values = {"site_components": components, "gpu_device_plugin_nodes": []}
    path = f"{helm.parent}:/usr/bin:/bin"
    environment = {"K8S_AUTH_KUBECONFIG": kubeconfig or api.kubeconfig, "PATH": path}
    done = play(folder, "uninstall.yml", "-e", json.dumps(values), **environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_the_roles_have_written_is_removed(api: Api, tmp_path: Path) -> None:
    assert left(api, tmp_path, ["gangplank"], OURS) == set()


@pytest.mark.slow
def test_several_kubeconfigs_are_one_for_helm_too(api: Api, tmp_path: Path) -> None:
    assert left(api, tmp_path, ["gangplank"], OURS, f"~/none:{api.kubeconfig}") == set()


@pytest.mark.slow
@pytest.mark.parametrize(("job", "stays"), [("gangplank-probe", set()), ("mine", {JOBS})])
def test_the_job_of_a_failed_verification_keeps_nothing(api: Api, tmp_path: Path, job: str, stays: set[str]) -> None:
    meta = {"name": job, "namespace": "kubeflow", "uid": "1"}
    path = f"/apis/kubeflow.org/v1/namespaces/kubeflow/pytorchjobs/{job}"
    api.objects[path] = {"kind": "PyTorchJob", "metadata": meta}
    assert left(api, tmp_path, ["gangplank"], OURS) == stays
    assert (path in api.objects) == bool(stays)


@pytest.mark.slow
def test_what_others_have_installed_stays(api: Api, tmp_path: Path) -> None:
    assert left(api, tmp_path, ["kubectl"], {}) == {JOBS, RUNTIME, CLASS}


@pytest.mark.slow
def test_a_runtime_class_that_was_there_before_stays(api: Api, tmp_path: Path) -> None:
    """The role's apply joins the writers of an object; k3s comes with a class of this name."""
    assert left(api, tmp_path, ["k3s", "gangplank"], OURS) == {CLASS}


@pytest.mark.slow
@pytest.mark.parametrize("job", [
    "/apis/batch.volcano.sh/v1alpha1/namespaces/kubeflow/jobs/mine", "",
])  # fmt: skip
def test_a_namespace_with_a_job_of_another_component_stays(api: Api, tmp_path: Path, job: str) -> None:
    """Its pods belong to it, so that none of them keeps the namespace."""
    space = "/api/v1/namespaces/kubeflow"
    api.objects[space] = {"kind": "Namespace", "metadata": {"name": "kubeflow", "labels": OURS}}
    owner = [{"kind": "Job", "name": "mine", "uid": "1"}]
    if job:
        api.objects[job] = {"kind": "Job", "metadata": {"name": "mine"}}
        api.objects[f"{space}/pods/mine-0"] = {"kind": "Pod", "metadata": {"name": "mine-0", "ownerReferences": owner}}
    uninstall(api, tmp_path)
    assert (space in api.objects) == bool(job)


@pytest.mark.slow
def test_a_node_that_the_inventory_no_longer_has_loses_its_label(api: Api, tmp_path: Path) -> None:
    label = "nvidia.com/gpu.present"
    notes = {"gangplank.dev/set-by-gpu-device-plugin": json.dumps({"labels": {label: "true"}, "taints": []})}
    meta = {"name": "a", "resourceVersion": "1", "labels": {label: "true", "other": "1"}, "annotations": notes}
    api.objects["/api/v1/nodes/a"] = {"metadata": meta}
    uninstall(api, tmp_path)
    left_over = api.objects["/api/v1/nodes/a"]["metadata"]
    assert (left_over["labels"], left_over["annotations"]) == ({"other": "1"}, {})
