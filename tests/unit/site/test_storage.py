"""Kinds of storage: which classes are refused, and the releases that install the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.site.storage import (
    CSI_RELEASE,
    DEFAULT,
    KINDS,
    LOCAL_PATH_RELEASE,
    LOOP,
    LOOP_RELEASE,
    UPSTREAM,
    Release,
    StorageKind,
    class_problems,
    left_classes,
    release_problems,
    releases,
)
from tests.support.storage import CLASSES, LIVE_CLASSES, LOCAL, LOOPED, NFS, SHARED, installed, live_claim, live_class

ROOT = Path(__file__).resolve().parents[3]
INPUTS = {
    "charts": "/repo/charts",
    "source": "release",
    "local_path_chart": "/c/local-path",
    "local_path_version": "0.0.30",
    "helper_image": "mirror.example:5000/busybox:1.37",
    "loop_folder": "/mnt/loop",
    "snapshot_crds": "/c/snapshot-crds",
    "tolerations": [{"key": "flyte/gpu", "operator": "Exists"}],
    "local_path_image": "mirror.example:5000/rancher/local-path-provisioner",
}


def test_no_fact_of_a_kind_has_a_default() -> None:
    for record in (StorageKind, Release):
        assert all(field.default is field.default_factory is MISSING for field in fields(record))


def test_a_valid_inventory_has_no_problems() -> None:
    assert class_problems(CLASSES, LIVE_CLASSES) == []


@pytest.mark.parametrize(
    ("classes", "path", "expected"),
    [
        ([LOCAL, LOCAL | {"default": False}], "storage_classes[1].name", "a name of its own"),
        ([LOCAL | {"folder": ""}], "storage_classes[0].folder", "a folder for kind local"),
        ([LOCAL, NFS | {"provisioner": None}], "storage_classes[1].provisioner", "a provisioner for kind csi"),
        ([LOCAL, NFS | {"folder": "/x"}], "storage_classes[1].folder", "no folder for kind csi"),
        ([LOCAL | {"expansion": True}], "storage_classes[0].expansion", "no expansion for kind local"),
        ([LOCAL, SHARED | {"mount_options": ["ro"]}], "storage_classes[1].mount_options", "for kind shared"),
        ([LOCAL | {"binding_mode": "Immediate"}], "storage_classes[0].binding_mode", "WaitForFirstConsumer"),
        ([LOCAL, NFS | {"kind": "nfs"}], "storage_classes[1].kind", "one of local, shared, csi, loop"),
        ([LOCAL, LOOPED | {"folder": "/x"}], "storage_classes[1].folder", "no folder for kind loop"),
        ([LOCAL, LOOPED | {"binding_mode": "Immediate"}], "storage_classes[1].binding_mode", "with its first pod"),
        ([SHARED], "storage_classes", "exactly one default class"),
        ([LOCAL | {"default": "false"}], "storage_classes[0].default", "true or false"),
        ([LOCAL, SHARED | {"default": True}], "storage_classes", "exactly one default class"),
    ],
)
def test_a_wrong_class_is_refused(classes: list[dict[str, Any]], path: str, expected: str) -> None:
    (problem,) = class_problems(classes)
    assert (problem.path, expected in problem.expected) == (path, True)
    assert problem.fix


def test_the_binding_mode_of_a_local_class_is_explained() -> None:
    (problem,) = class_problems([LOCAL | {"binding_mode": "Immediate"}])
    assert str(problem) == (
        'storage_classes[0].binding_mode: got "Immediate", expected WaitForFirstConsumer: a volume of kind local is '
        "created with its first pod, which chooses the node. Fix: remove it"
    )
    assert class_problems([LOCAL, SHARED | {"binding_mode": "WaitForFirstConsumer"}]) == []


def test_a_driver_that_the_cluster_lacks_is_reported() -> None:
    assert class_problems([LOCAL, NFS], drivers=["nfs.csi.k8s.io"]) == []
    (problem,) = class_problems([LOCAL, NFS, LOOPED], drivers=[])  # the last one brings its driver
    assert (problem.path, problem.got) == ("storage_classes[1].provisioner", '"nfs.csi.k8s.io"')


def test_a_default_class_of_others_is_refused_by_its_name() -> None:
    (problem,) = class_problems(CLASSES, [live_class("theirs", "x.csi", default=True)])
    assert "theirs" in problem.fix
    assert class_problems([NFS], [live_class("theirs", "x.csi", default=True)]) == []


def test_a_second_default_class_can_be_left_out_where_the_cluster_has_one() -> None:
    theirs = live_class("gp2", "x.csi", default=True)
    (problem,) = class_problems([NFS | {"default": True}], [theirs])
    assert problem.fix.startswith("leave `default` out of nfs, or remove the annotation ")
    (problem,) = class_problems([NFS], [theirs, live_class("gp3", "x.csi", default=True)])
    assert problem.fix.startswith("remove the annotation ")
    (problem,) = class_problems([NFS], [])
    assert problem.fix == "set `default: true` in one class"


@pytest.mark.parametrize("left_out", [LOCAL, SHARED])
def test_another_class_may_become_the_default(left_out: dict[str, Any]) -> None:
    """Helm removes the old one, or the role takes the mark from it, if its release has no class any more."""
    old = installed(live_class(left_out["name"], default=True))
    for new in (LOCAL | {"name": "new"}, NFS | {"default": True}):
        assert class_problems([new], [old]) == []
    assert class_problems([NFS], [old]) == [], "it stays the default"
    (problem,) = class_problems([SHARED | {"name": "new"}], [old])
    assert problem.fix == "set `default: true` in one class", "Helm removes it"


def test_a_class_whose_release_is_left_is_no_second_default() -> None:
    local, shared = (installed(live_class(name, default=name == "local-path")) for name in ("local-path", "shared"))
    local_row, shared_row = left_classes([NFS | {"default": True}], [local, shared], [live_claim("local-path")])
    metadata = {"name": "local-path", "annotations": {DEFAULT: None}}
    assert local_row["patch"] == {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata}
    assert local_row["warning"] == (
        "warning: storage class local-path: got a class of release local-path-storage/local-path-provisioner, of which "
        "storage_classes has none, expected it removed once its volume claims are (a/data). Fix: once no claim needs "
        "this release, helm uninstall local-path-provisioner --namespace local-path-storage; or list the class again"
    )
    assert "patch" not in shared_row
    assert "expected it removed, as no volume claim has it. Fix: once no claim needs this" in shared_row["warning"]
    for row in left_classes([NFS], [local, shared]):
        assert "expected it removed, as no volume claim has it. Fix: helm uninstall" in row["warning"]


@pytest.mark.parametrize(
    ("classes", "live", "patched"),
    [
        ([LOCAL], [], None),  # Helm is called for its release, and removes what is left out
        ([], [], [False]),
        ([], [live_class("theirs", "x.csi", default=True)], [True]),
        ([NFS], [live_class("theirs", "x.csi", default=True)], [True]),
        # Helm takes the mark from this one, or removes it, in the same run
        ([NFS], [installed(live_class(NFS["name"], NFS["provisioner"], default=True), CSI_RELEASE)], [False]),
    ],
)
def test_the_only_default_class_stays(
    classes: list[dict[str, Any]], live: list[dict[str, Any]], patched: list[bool] | None
) -> None:
    rows = left_classes(classes, [installed(live_class("old", default=True)), *live])
    assert ["patch" in row for row in rows] == (patched or [])


@pytest.mark.parametrize(
    ("classes", "live", "got"),
    [
        # k3s and kind bring a local-path-provisioner: both would answer every claim of the other's classes.
        ([LOCAL], live_class("local-path", default=True), "another provisioner of them (class local-path)"),
        ([SHARED], live_class("standard", default=True), "another provisioner of them (class standard)"),
        ([LOCAL, NFS], live_class("nfs", "nfs.csi.k8s.io"), "a class of the cluster that this site did not install"),
        ([LOCAL], live_class("local-path", "x.csi"), "a class of the cluster that this site did not install"),
    ],
)
def test_a_class_of_others_is_not_taken_over(classes: list[dict[str, Any]], live: dict[str, Any], got: str) -> None:
    (problem,) = class_problems(classes, [live])
    assert got in problem.got
    assert not any(got in problem.got for problem in class_problems(classes, [installed(live)]))


@pytest.mark.parametrize(
    ("change", "live", "field", "got"),
    [
        ({"reclaim_policy": "Retain"}, {}, "reclaim_policy", '"Retain"'),
        ({}, {"reclaimPolicy": "Retain"}, "reclaim_policy", '"Delete"'),
        ({"binding_mode": "WaitForFirstConsumer"}, {}, "binding_mode", '"WaitForFirstConsumer"'),
        ({"parameters": {"share": "/b"}}, {"parameters": {"share": "/a"}}, "parameters", '{"share": "/b"}'),
        ({"provisioner": "x.csi"}, {}, "provisioner", '"x.csi"'),
        ({"kind": "loop", "provisioner": None, "access_modes": None}, {}, "kind", '"loop"'),
    ],
)
def test_what_kubernetes_changes_in_no_class_is_refused_before(
    change: dict[str, Any], live: dict[str, Any], field: str, got: str
) -> None:
    """Helm would fail half-way, and every later run with it."""
    usual = {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    old = installed(live_class("nfs", "nfs.csi.k8s.io", **usual | live), CSI_RELEASE)
    (problem,) = class_problems([LOCAL, NFS | change], [old])
    assert (problem.path, problem.got) == (f"storage_classes[1].{field}", got)
    assert problem.fix.startswith("give the class another name")


def test_a_class_without_a_name_or_a_kind_is_refused() -> None:
    (problem,) = class_problems([LOCAL, {"name": "a"}])
    assert str(problem).startswith('storage_classes[1]: got {"name": "a"}, expected a class with a name and a kind')


def test_releases_install_the_classes_with_the_same_values_as_ever() -> None:
    local_path, csi, loop = releases([LOCAL, SHARED, NFS, LOOPED], INPUTS)

    def settings(binding_mode: str, *, default: bool) -> dict[str, Any]:
        return {
            "create": True,
            "defaultClass": default,
            "defaultVolumeType": "hostPath",
            "reclaimPolicy": "Delete",
            "volumeBindingMode": binding_mode,
        }

    paths = [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/opt/local"]}]
    assert local_path == {
        "name": "local-path-provisioner",
        "namespace": "local-path-storage",
        "classes": ["local-path", "local-shared"],
        "chart": "/c/local-path",
        "values": {
            "image": {"repository": "mirror.example:5000/rancher/local-path-provisioner", "tag": "v0.0.30"},
            "helperImage": {"repository": "mirror.example:5000/busybox", "tag": "1.37"},
            "storageClass": {"provisionerName": "rancher.io/local-path"},
            "nodePathMap": [],
            "storageClassConfigs": {
                "local-path": {
                    "storageClass": settings("WaitForFirstConsumer", default=True),
                    "nodePathMap": paths,
                },
                "local-shared": {
                    "storageClass": settings("Immediate", default=False),
                    "sharedFileSystemPath": "/mnt/shared",
                },
            },
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "tolerations": INPUTS["tolerations"],
        },
    }
    assert csi == {
        "name": "storage",
        "namespace": "local-path-storage",
        "classes": ["nfs"],
        "chart": "/repo/charts/storage",
        "values": {"classes": [{"name": "nfs", "provisioner": "nfs.csi.k8s.io", "expansion": True}]},
    }
    item = {"name": "loop", "provisioner": LOOP, "volumeBindingMode": "WaitForFirstConsumer", "expansion": True}
    assert loop == {
        "name": "loop-csi",
        "namespace": "local-path-storage",
        "classes": ["loop"],
        "chart": "/repo/charts/storage",
        "values": {
            "classes": [item],
            "loop": {"enabled": True, "folder": "/mnt/loop", "tolerations": INPUTS["tolerations"]},
        },
    }


def test_only_releases_with_classes_are_installed_and_all_are_removed() -> None:
    assert [release["name"] for release in releases([NFS], INPUTS) if release["classes"]] == ["storage"]
    assert [(release["name"], release["namespace"]) for release in releases()] == [
        (release.name, release.namespace) for release in (LOCAL_PATH_RELEASE, CSI_RELEASE, LOOP_RELEASE)
    ]
    assert {release["name"] for release in releases()} == {kind.release.name for kind in KINDS.values()}


@pytest.mark.parametrize(
    ("source", "fix"),
    [
        ("lab", "run playbooks/lab.yml first"),
        (
            "release",
            f"unpack {UPSTREAM}/v0.0.30.tar.gz and name its folder deploy/chart/local-path-provisioner",
        ),
    ],
)
def test_a_missing_chart_is_reported_where_a_class_needs_it(source: str, fix: str) -> None:
    inputs = INPUTS | {"local_path_chart": "", "source": source}
    assert release_problems([NFS], inputs) == []
    (problem,) = release_problems([LOCAL, SHARED, NFS], inputs)
    assert str(problem) == f'storage_local_path_chart: got "", expected the folder of upstream\'s chart. Fix: {fix}'
    assert release_problems(CLASSES, INPUTS) == []


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        ("busybox", True),
        ("mirror.example:5000/busybox", True),
        ("busybox@sha256:0a", True),
        ("busybox:1.37", False),
        ("mirror.example:5000/busybox:1.37@sha256:0a", False),
    ],
)
def test_an_image_without_a_tag_is_refused(image: str, *, refused: bool) -> None:
    """Of the second, the chart would get the image mirror.example with the tag 5000/busybox."""
    problems = release_problems([LOCAL], INPUTS | {"helper_image": image})
    assert [problem.path for problem in problems] == ["storage_helper_image"] * refused


@pytest.mark.parametrize(
    ("source", "fix"),
    [("lab", "run playbooks/lab.yml first"), ("release", "build the part csi-sidecars of lab/versions.yml")],
)
def test_missing_crds_of_snapshots_are_reported_where_a_class_needs_them(source: str, fix: str) -> None:
    inputs = INPUTS | {"snapshot_crds": "", "source": source}
    assert release_problems([LOCAL, NFS], inputs) == []
    (problem,) = release_problems([LOCAL, LOOPED], inputs)
    expected = "the folder of upstream's CRDs of snapshots"
    assert str(problem) == f'storage_snapshot_crds: got "", expected {expected}. Fix: {fix}'


@pytest.mark.slow
@pytest.mark.parametrize(("version", "warns"), [("0.0.30", True), ("0.0.36", False)])
def test_c5_the_role_warns_of_a_provisioner_with_known_vulnerabilities(
    version: str, *, warns: bool, tmp_path: Path
) -> None:
    role = ROOT / "roles/storage"
    tasks = yaml.safe_load((role / "tasks/main.yml").read_text())
    warning = next(task for task in tasks if "known vulnerabilities" in task["name"])
    classes = [{"kind": "local"}]
    inputs = {"storage_source": "release", "storage_local_path_version": version, "storage_classes": classes}
    play = {"hosts": "localhost", "gather_facts": False, "vars_files": [str(role / "vars/main.yml")],
            "vars": inputs, "tasks": [warning]}  # fmt: skip
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    program = Path(sys.executable).with_name("ansible-playbook")
    command = [str(program), "-i", "localhost,", str(tmp_path / "play.yml")]
    env = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "COLUMNS": "400"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("CVE-2025-62878" in done.stdout) is warns
