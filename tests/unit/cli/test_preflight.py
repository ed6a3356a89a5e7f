"""`gangplank preflight --site` sees what site.yml sees: the inventory's components, cluster and environment."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cli import main
from gangplank.cluster.preflight import AUTOSCALERS
from gangplank.errors import Problem
from gangplank.site.components import COMPONENTS
from gangplank.site.preflight import ROLE_CLASSES, TOLERATED_IN, VARIABLES, wanted_of
from gangplank.site.storage import DEFAULT, LOCAL_PATH
from gangplank.teams import inventory as module
from tests.support.storage import NFS

if TYPE_CHECKING:
    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
SITE = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())[0]["pre_tasks"][1]


def site(folder: Path, **variables: Any) -> str:
    """An inventory with these variables."""
    (folder / "group_vars").mkdir()
    (folder / "hosts.yml").write_text("all: {}\n")
    (folder / "group_vars/all.yml").write_text(json.dumps(variables))
    return str(folder)


def preflight(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    """The checks by their name."""
    main(["preflight", "-o", "json", *words])
    return {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


@pytest.fixture
def bare(api: Api) -> Api:
    """A cluster with one storage class, which is not the default."""
    api.objects["/apis/storage.k8s.io/v1/storageclasses/a"] = {"metadata": {"name": "a"}}
    return api


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ansible", "plain"])
def test_the_inventory_says_what_is_wanted(
    bare: Api, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "plain":
        monkeypatch.setattr(module, "program_of_ansible", lambda _: None)
    server = json.loads(Path(bare.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    (tmp_path / "helm").touch(mode=0o755)
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    (tmp_path / "site").mkdir()
    place = site(tmp_path / "site", site_components=["storage", "trainer_v2"], site_cluster=server, storage_classes=[],
                 site_environment={"PATH": str(tmp_path), "K8S_AUTH_KUBECONFIG": bare.kubeconfig})  # fmt: skip
    checks = preflight(capsys, "--site", place)
    assert [name for name in checks if name in COMPONENTS] == ["storage", "trainer_v2"]
    assert checks["cluster"]["problems"] == checks["programs"]["problems"] == []
    assert "no default storage class" in str(checks["class"]["problems"])  # this site installs none
    assert [name for name in preflight(capsys, "--site", place, "--components", "volcano") if name in COMPONENTS] == [
        "volcano"
    ]


# As clusters list their class: kind, k3s, and EKS with its add-on, whose driver the cluster lists.
CLASSES: dict[str, dict[str, Any]] = {
    "kind": {"metadata": {"name": "standard"}, "provisioner": LOCAL_PATH},
    "k3s": {"metadata": {"name": "local-path"}, "provisioner": LOCAL_PATH},
    "EKS": {"metadata": {"name": "auto-ebs-sc"}, "provisioner": "ebs.csi.eks.amazonaws.com"},
}


@pytest.mark.slow
@pytest.mark.parametrize("of", CLASSES)
def test_without_an_inventory_the_cluster_s_own_default_class_will_do(
    api: Api, of: str, capsys: pytest.CaptureFixture[str]
) -> None:
    item = CLASSES[of] | {"reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer"}
    item["metadata"] = {**item["metadata"], "annotations": {DEFAULT: "true"}}
    api.objects[f"/apis/storage.k8s.io/v1/storageclasses/{item['metadata']['name']}"] = item
    check = preflight(capsys)["class"]
    assert check["problems"] == []
    assert check["finding"] == f"the default class is {item['metadata']['name']}"


def test_without_an_inventory_the_default_class_is_that_of_the_role(
    bare: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    check = preflight(capsys, "--components", "volcano,storage")["class"]
    assert check["problems"] == []
    assert check["finding"] == "no default class; the component storage installs one (local-path)"
    assert yaml.safe_load((ROOT / "roles/storage/defaults/main.yml").read_text())["storage_classes"] == [*ROLE_CLASSES]
    assert bare.objects


@pytest.mark.slow
def test_a_provisioner_of_others_is_refused(bare: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare.objects["/apis/storage.k8s.io/v1/storageclasses/a"]["provisioner"] = LOCAL_PATH  # as k3s has it
    place = site(tmp_path, site_components=["storage"])
    assert "another provisioner of them (class a)" in str(preflight(capsys, "--site", place)["class"]["problems"])


@pytest.mark.slow
def test_a_driver_that_the_cluster_lacks_is_refused(
    bare: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare.objects["/apis/storage.k8s.io/v1/csidrivers/x"] = {"metadata": {"name": "x.csi"}}
    place = site(tmp_path, site_components=["storage"], storage_classes=[NFS | {"default": True}])
    (problem,) = preflight(capsys, "--site", place)["class"]["problems"]
    assert problem["expected"] == "a CSI driver of the cluster, which has x.csi"
    bare.objects["/apis/storage.k8s.io/v1/csidrivers/nfs"] = {"metadata": {"name": NFS["provisioner"]}}
    assert preflight(capsys, "--site", place)["class"]["problems"] == []


@pytest.mark.parametrize("name", AUTOSCALERS)
def test_what_adds_nodes_is_seen_by_an_object_of_it(bare: Api, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    bare.objects |= {f"/api/v1/{kind}": {"items": []} for kind in ("nodes", "pods")}
    for seen in (False, True):
        if seen:
            bare.objects[AUTOSCALERS[name]] = {"metadata": {"name": "a"}}
        check = preflight(capsys)["room"]
        assert len(check["problems"]) == (not seen)
        assert check["finding"].endswith(f"{name} has to add a node") == seen
    bare.unreadable = {AUTOSCALERS[name]}
    assert len(preflight(capsys)["room"]["problems"]) == 1


DEAD = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "got", "address"),
    [(DEAD, "no answer (", "http://127.0.0.1:9"), ({}, "Invalid kube-config file", None)],
)
def test_without_an_answer_of_the_cluster_this_machine_is_examined_all_the_same(
    config: dict[str, Any], got: str, address: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "config").write_text(json.dumps(config))
    words = ("preflight", "--kubeconfig", str(tmp_path / "config"))
    assert main([*words, "-o", "json"]) == 4
    report = json.loads(capsys.readouterr().out)
    cluster, programs = report["checks"]
    assert (report["cluster"] or {}).get("address") == address
    assert got in cluster["problems"][0]["got"]
    assert cluster["problems"][0]["fix"]
    assert "none on PATH" in programs["problems"][0]["got"]
    assert main([*words]) == 4
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["cluster", "PROBLEM"], ["programs", "PROBLEM"]]  # fmt: skip


def test_a_refusal_of_the_cluster_is_a_problem_of_the_report(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    api.says = (401, "Unauthorized")
    assert main(["preflight", "-o", "json"]) == 4
    cluster, _ = json.loads(capsys.readouterr().out)["checks"]
    (problem,) = cluster["problems"]
    assert problem["got"] == "the cluster says: Unauthorized"
    assert "choose another kubeconfig" in problem["fix"]


def test_another_cluster_than_the_inventory_s_is_refused(
    bare: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = site(tmp_path, site_cluster="https://203.0.113.10:6443")
    assert "another cluster" in str(preflight(capsys, "--site", place))
    assert bare.seen == ["GET /version"]


@pytest.mark.parametrize("components", [["volcano", "vulcano"], "volcano"])
def test_unknown_components_are_refused(tmp_path: Path, components: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--site", site(tmp_path, site_components=components)]) == 2
    assert "site_components: got v" in capsys.readouterr().err


def test_a_missing_inventory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--site", "/nowhere"]) != 0
    assert "/nowhere: got no such file or folder" in capsys.readouterr().err


def test_releases_are_those_of_the_playbook() -> None:
    inputs = {name: f"my-{name}" for name in VARIABLES if name.endswith(("_release", "_namespace"))}
    wanted = wanted_of(inputs, COMPONENTS)
    assert len(inputs) == sum(len(what.inputs) for what in COMPONENTS.values())
    for name, own in SITE["vars"]["site_releases"].items():
        for part, value in zip(("release", "namespace"), wanted.releases[name], strict=True):
            template = re.fullmatch(r"\{\{ (\w+) \}\}", own.get(part, ""))
            assert value == (inputs[template[1]] if template else getattr(COMPONENTS[name], part))
            assert (part in COMPONENTS[name].inputs) == bool(template) == (part in own), "two places own it"
    assert wanted.releases.keys() == SITE["vars"]["site_releases"].keys()


def test_whether_trainer_brings_jobset_is_the_inventory_s() -> None:
    assert SITE["gangplank.gangplank.cluster_ready"]["jobset"] == "{{ trainer_v2_jobset }}"
    role = yaml.safe_load((ROOT / "roles/trainer_v2/defaults/main.yml").read_text())
    assert wanted_of({}, []).jobset == role["trainer_v2_jobset"]
    for value in (False, "false", "no", "n", "f"):
        assert not wanted_of({"trainer_v2_jobset": value}, []).jobset


def test_tolerations_are_those_of_the_inventory_s_values() -> None:
    own = {name: SITE["vars"]["site_releases"][name].get("values") for name in COMPONENTS}
    expected: dict[str, Any] = {name: f"{{{{ {variable} }}}}" for name, variable in TOLERATED_IN.items()}
    expected["storage"] = {"tolerations": expected["storage"]}
    assert {name: value for name, value in own.items() if value} == expected
    items = [{"key": "dedicated", "operator": "Exists"}]
    values = {"volcano_values": {"custom": {"default_tolerations": items}}, "trainer_v2_values": {"manager": []},
              "storage_tolerations": items}  # fmt: skip
    tolerations = wanted_of(values, COMPONENTS).tolerations
    assert tolerations == {name: [] for name in TOLERATED_IN} | {"volcano": items, "storage": items}


def test_gpus_by_claim_are_the_inventory_s() -> None:
    assert "training_job_gpu_allocation" in SITE["gangplank.gangplank.cluster_ready"]["gpu_allocation"]
    assert wanted_of({"training_job_gpu_allocation": "dra"}, []).by_claim
    assert not wanted_of({}, []).by_claim


@pytest.mark.parametrize("exists", [True, False])
def test_a_pod_is_tried_in_the_kubeconfig_s_namespace_once_that_exists(
    api: Api, exists: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Policies of many clusters forbid pods in `default`."""
    api.set_namespace("train")
    answer = api.answer

    def refuses(method: str, where: str, query: str, body: Any) -> tuple[int, bytes]:
        if (method, where) == ("POST", "/api/v1/namespaces/default/pods"):
            return 400, b'{"message": "admission webhook denied the request: no pods in default"}'
        if method == "POST" and where.startswith("/api/v1/namespaces/") and not exists:
            return 404, b'{"message": "namespaces \\"train\\" not found"}'
        return answer(method, where, query, body)

    monkeypatch.setattr(api, "answer", refuses)
    check = preflight(capsys)["pods"]
    if exists:
        assert check["finding"] == "the namespace train admits pods as jobs have them"
    else:
        (problem,) = check["problems"]
        assert problem["path"] == "pods in default"
        assert "no pods in default" in problem["got"]


def test_another_helm_than_3_is_refused_before_anything_is_installed(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    helm = tmp_path / "helm"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for version, words in (("v3.19.0+g3d8990f", "[]"), ("v4.0.1+g12500dd", "got='v4.0.1")):
        helm.write_text(f"#!/bin/sh\necho {version}\n")
        helm.chmod(0o755)
        assert words in str([Problem(**one) for one in preflight(capsys)["programs"]["problems"]])
    assert api.seen
