"""What a release holds, and which of its objects are not as noted."""

from __future__ import annotations

import base64
import gzip
import json
import tarfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.client import Kube
from gangplank.cluster.helm_processes import Note, Place
from gangplank.cluster.releases import (
    MARK,
    Release,
    contents,
    digest,
    same_version,
    sign,
    third_party,
    unpacked,
    unsign,
)
from gangplank.errors import KubeError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.conftest import Api

CHART = {"name": "dns", "version": "1.0.0", "appVersion": "1.15"}
VALUES = {"replicas": 1, "image": {"name": "a"}}


def packed(text: bytes) -> dict[str, Any]:
    return {"data": {"release": base64.b64encode(base64.b64encode(text)).decode()}}


def release(values: dict[str, Any] | None = VALUES, **chart: str) -> dict[str, Any]:
    return {"chart": {"metadata": CHART | chart}, "manifest": ""} | ({"config": values} if values else {})


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    (tmp_path / "Chart.yaml").write_text("name: dns\nversion: 1.0.0\nappVersion: '1.15'\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates/dns.yaml").write_text("kind: Service\n")
    return tmp_path


def test_the_same_version_has_the_name_the_versions_and_the_values(chart: Path) -> None:
    assert same_version(release(), contents(chart), VALUES)
    assert same_version(release(values=None), contents(chart), {})
    others = [
        release(version="1.0.1"),
        release(appVersion="1.16"),
        release(name="other"),
        release(values=VALUES | {"replicas": 2}),
        release(values=None),
    ]
    assert not any(same_version(other, contents(chart), VALUES) for other in others)


def test_d7_any_changed_added_renamed_or_removed_file_of_the_chart_is_another_content(chart: Path) -> None:
    template, digests = chart / "templates/dns.yaml", [digest(contents(chart))]
    assert digest(contents(chart)) == digests[0]
    template.write_text("kind: Secret\n")
    digests.append(digest(contents(chart)))
    (chart / "charts/sub").mkdir(parents=True)
    (chart / "charts/sub/values.yaml").write_text("a: 1\n")
    digests.append(digest(contents(chart)))
    template.rename(chart / "templates/other.yaml")
    digests.append(digest(contents(chart)))
    (chart / "templates/other.yaml").unlink()
    assert len({*digests, digest(contents(chart))}) == 5


def test_d7_an_archive_has_the_content_of_its_folder(chart: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    archive = tmp_path_factory.mktemp("packed") / "dns-1.0.0.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(chart, "dns")
    assert contents(archive) == contents(chart)
    assert digest(contents(archive)) == digest(contents(chart))


@pytest.mark.parametrize("whole", [b"", b"text", b"\x1f\x8b\x08"])
def test_what_is_no_archive_has_no_content(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "a.tgz").write_bytes(whole)
    assert contents(tmp_path / "a.tgz") == contents(tmp_path / "none.tgz") == {}


@pytest.mark.parametrize(
    "secret",
    [
        {},
        {"data": {"release": "not base64"}},
        {"data": {"release": None}},
        packed(b""),
        packed(b"plain"),
        packed(gzip.compress(b"{}")[:-9]),
        packed(gzip.compress(b"\xff")),
        packed(gzip.compress(b"[]")),
        packed(gzip.compress(b"[" * 100_000)),
        packed(gzip.compress(b'{"chart": {"metadata": 1}, "manifest": ""}')),
        packed(gzip.compress(b'{"chart": {"metadata": {}}, "manifest": null}')),
        {"data": {"release": base64.b64encode(base64.b64encode(b"\x1f\x8b\x08" + b"\0" * 20)).decode()}},
    ],
)
def test_d7_a_secret_of_unknown_format_is_no_traceback(secret: dict[str, Any]) -> None:
    assert unpacked(secret) is None


def test_a_secret_of_helm_is_read() -> None:
    assert unpacked(packed(gzip.compress(json.dumps(release()).encode()))) == release()


RESOURCES = [
    {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
    {"name": "secrets", "kind": "Secret", "namespaced": True},
]
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"word": "first"}}
LABELS = {"app.kubernetes.io/managed-by": "Helm"}
NOTES = {"meta.helm.sh/release-name": "dns", "meta.helm.sh/release-namespace": "ns"}
LIVE: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "ns", "labels": LABELS, "annotations": NOTES},
    "data": {"word": "first"},
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"annotations": {"name": "other"}, "name": "toys.example.com"},
    "spec": {"group": "example.com"},
}
CRDS = "/apis/apiextensions.k8s.io/v1"


def suspects(api: Api, *objects: dict[str, Any]) -> list[str]:
    api.groups = {
        "/api/v1": RESOURCES,
        CRDS: [{"name": "customresourcedefinitions", "kind": CRD["kind"], "namespaced": False}],
    }
    manifest = "---\n# Source: a\n" + yaml.safe_dump_all(objects)
    found = Release(Kube(api.kubeconfig), "dns", "ns", manifest).suspects()
    return [item["metadata"]["name"] for item in found]


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        (LIVE, []),
        (LIVE | {"data": {"word": "first", "more": "x"}}, []),
        (LIVE | {"data": {"word": "second"}}, ["a"]),
        (LIVE | {"metadata": {**LIVE["metadata"], "labels": {}}}, ["a"]),
        ({**LIVE, "metadata": {**LIVE["metadata"], "name": "b"}}, ["a"]),
    ],
)
def test_d7_a_missing_or_changed_object_is_noticed(api: Api, live: dict[str, Any], expected: list[str]) -> None:
    api.objects[f"/api/v1/namespaces/ns/configmaps/{live['metadata']['name']}"] = live
    assert suspects(api, MAP) == expected


@pytest.mark.parametrize(
    ("name", "manager", "fields", "expected"),
    [
        ("toys.example.com", "helm", "f:spec", []),
        ("toys.example.com", "kube-apiserver", "f:status", []),
        ("toys.example.com", "kubectl-annotate", "f:metadata", []),
        ("toys.example.com", "kubectl-edit", "f:spec", ["toys.example.com"]),
        ("other.example.com", "helm", "f:spec", ["toys.example.com"]),
    ],
)
def test_d7_a_crd_that_another_wrote_is_noticed(
    api: Api, name: str, manager: str, fields: str, expected: list[str]
) -> None:
    meta = {"name": name, "labels": LABELS, "managedFields": [{"manager": manager, "fieldsV1": {fields: {}}}]}
    api.objects[f"{CRDS}/customresourcedefinitions/{name}"] = {"metadata": meta}
    assert suspects(api, CRD) == expected


@pytest.mark.parametrize(("live", "expected"), [(["a"], []), ([], ["a"])], ids=["filled in", "missing"])
def test_d7_what_a_controller_wrote_into_a_secret_stays(api: Api, live: list[str], expected: list[str]) -> None:
    """Trainer's chart makes an empty Secret, and a controller puts the certificates of its webhooks there."""
    filled = LIVE | {"data": {"tls.key": "c2VjcmV0"}}
    api.objects["/api/v1/namespaces/ns/secrets"] = {"items": [filled for _ in live]}
    assert suspects(api, MAP | {"kind": "Secret", "data": {"tls.key": ""}}) == expected


def test_d7_a_kind_that_the_cluster_does_not_have_is_named(api: Api) -> None:
    toy = {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "a"}}
    with pytest.raises(KubeError, match=r"Toy of example.com/v1: got no such kind"):
        suspects(api, toy)


def test_crds_that_were_all_deleted_are_missing_and_no_traceback(api: Api) -> None:
    api.objects[f"{CRDS}/customresourcedefinitions"] = {"items": None}  # as the API server says it of no object
    assert suspects(api, CRD) == ["toys.example.com"]


@pytest.mark.parametrize("policy", ["", "keep", '"keep"', "delete"])
def test_crds_that_helm_would_remove_get_a_patch_by_which_it_leaves_them(api: Api, policy: str) -> None:
    notes = f"  annotations:\n    helm.sh/resource-policy: {policy}\n" if policy else ""
    head = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n"
    crd = f"{head}{notes}  name: toys.example.com\n"
    kept = {"name": "toys.example.com", "annotations": {"helm.sh/resource-policy": "keep"}}
    patches = Release(Kube(api.kubeconfig), "dns", "ns", f"{crd}---\nkind: Service\n").unkept()
    assert [patch["metadata"] for patch in patches] == ([] if "keep" in policy else [kept])


@pytest.mark.parametrize("metadata", [
    "{name: toys.example.com}", "\n    name: toys.example.com", " # of toys\n  name: toys.example.com",
])  # fmt: skip
def test_crds_written_in_another_way_are_not_overlooked(api: Api, metadata: str) -> None:
    crd = f"---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {metadata}\n"
    patches = Release(Kube(api.kubeconfig), "dns", "ns", crd).unkept()
    assert [patch["metadata"]["name"] for patch in patches] == ["toys.example.com"]


SPACE = "/api/v1/namespaces/volcano-system"


def judged(api: Api, namespace: str = "volcano-system") -> Problem | None:
    """What is wrong with the release in a namespace as it is now."""
    return third_party(Kube(api.kubeconfig), "volcano", namespace, Kube(api.kubeconfig).get(SPACE))


@pytest.fixture
def theirs(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    """A cluster with a Volcano that upstream's own command installed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    labels = {"owner": "helm", "name": "volcano", "status": "deployed"}
    meta = {"name": "sh.helm.release.v1.volcano.v1", "labels": labels}
    api.objects[f"{SPACE}/secrets/{meta['name']}"] = {"metadata": meta}
    created(api, 3600)
    api.objects[SPACE] = {"metadata": {"name": "volcano-system"}}
    return api


def test_a_third_party_release_has_to_be_handed_over(theirs: Api) -> None:
    problem = str(judged(theirs))
    assert "Helm's release volcano in volcano-system: got a third-party one" in problem
    assert "hand the release over (kubectl annotate namespace volcano-system gangplank.dev/release-volcano=)" in problem


def mark(api: Api) -> None:
    api.objects[f"{SPACE}/secrets/sh.helm.release.v1.volcano.v1"]["metadata"]["annotations"] = {MARK: "before"}


def label(api: Api) -> None:
    api.objects[SPACE]["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "gangplank"}


def hand_over(api: Api) -> None:
    api.objects[SPACE]["metadata"]["annotations"] = {"gangplank.dev/release-volcano": ""}


def fail(api: Api) -> None:
    api.objects[f"{SPACE}/secrets/sh.helm.release.v1.volcano.v1"]["metadata"]["labels"]["status"] = "failed"


def interrupt(api: Api) -> None:
    created(api, 0)
    Note(Place(Kube(api.kubeconfig).api.configuration.host, "volcano-system", "volcano")).write([])


def created(api: Api, ago_s: float) -> None:
    moment = datetime.now(UTC) - timedelta(seconds=ago_s)
    meta = api.objects[f"{SPACE}/secrets/sh.helm.release.v1.volcano.v1"]["metadata"]
    meta["creationTimestamp"] = moment.isoformat(timespec="seconds")


@pytest.mark.parametrize("ago_s", [7200, -7200])
def test_the_note_of_an_interrupted_run_says_nothing_of_a_release_of_another_time(theirs: Api, ago_s: float) -> None:
    """It may be of an earlier cluster at the same address, as a lab's is always the same."""
    interrupt(theirs)
    created(theirs, ago_s)
    assert judged(theirs) is not None


@pytest.mark.parametrize("change", [mark, label, hand_over, fail, interrupt])
def test_a_release_that_has_a_sign_of_ours_or_never_ran_is_no_strangers(
    theirs: Api, change: Callable[[Api], None]
) -> None:
    change(theirs)
    assert judged(theirs) is None


def test_a_name_of_the_sites_own_choice_says_that_the_release_is_meant(theirs: Api) -> None:
    assert judged(theirs, "batch") is None


def test_the_sign_of_a_release_comes_with_it_and_goes_with_it(theirs: Api) -> None:
    """Helm erases annotations of its own Secrets, so that a failed upgrade would leave a third-party release."""
    theirs.groups["/api/v1"] = [{"kind": "Namespace", "name": "namespaces", "namespaced": False}]
    kube = Kube(theirs.kubeconfig)
    sign(kube, "volcano", theirs.objects[SPACE])
    assert judged(theirs) is None
    unsign(kube, "volcano", "volcano-system")
    assert judged(theirs) is not None
    asked = len(theirs.seen)
    for name, namespace in (("volcano", "nowhere"), ("mine", "volcano-system")):
        sign(kube, name, {"metadata": {"name": namespace}})
        unsign(kube, name, namespace)
    assert not [line for line in theirs.seen[asked:] if line.startswith("PATCH")]
