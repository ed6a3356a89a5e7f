"""Clusters on which nothing may be installed: one message each, and nothing is changed."""

from __future__ import annotations

import hashlib
import json
import os
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.site.storage import LOCAL_PATH
from tests.cluster.conftest import ROOT, STATE
from tests.support.api_faults import Handler, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.conftest import Lab

ADMIN = STATE / "admin.kubeconfig"
SPACE = "preflight-theirs"
READER = "preflight-reader"
LISTING = ROOT / "molecule/uninstall/listing.py"


def preflight(kubeconfig: object, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command with the components of the lab's site."""
    command = [sys.executable, "-m", "gangplank", "preflight", "--kubeconfig", str(kubeconfig), *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def problems(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    """All problems of the JSON report."""
    return [problem for check in json.loads(done.stdout)["checks"] for problem in check["problems"]]


def site(lab: Lab, kubeconfig: object, *words: str) -> str:
    """What site.yml prints for a cluster that it refuses; it has changed nothing, not even what it could."""
    before = listing()
    own = {"K8S_AUTH_KUBECONFIG": str(kubeconfig), "PATH": f"{lab.parts['bin']['helm']}:{os.environ['PATH']}"}
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", "inventories/lab/hosts.yml", "playbooks/site.yml", "-e",
               json.dumps({"site_environment": own, "site_components": ["volcano"]}), *words]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0, done.stdout
    assert "changed=0" in done.stdout
    assert done.stdout.count("fatal: ") == 1
    assert "Nothing was changed:" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert difference(before) == []
    return done.stdout


def listing() -> str:
    """Every object of the cluster."""
    environment = {**os.environ, "K8S_AUTH_KUBECONFIG": str(ADMIN)}
    command = [sys.executable, str(LISTING)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout


def difference(before: str) -> list[str]:
    """The objects that are in this listing, or in one made now, and not in both."""
    return sorted(set(before.splitlines()) ^ set(listing().splitlines()))


def changed(folder: Path, user: dict[str, Any]) -> Path:
    """A copy of the administrator's kubeconfig with another user."""
    config = yaml.safe_load(ADMIN.read_text())
    config["users"][0]["user"] = user
    place = folder / "kubeconfig"
    place.write_text(yaml.safe_dump(config))
    return place


@pytest.fixture(autouse=True)
def settled(lab: Lab) -> None:
    """Nothing of an earlier test is still being removed, or a listing would change by itself."""
    kinds = ("namespaces", "persistentvolumes", "pods")
    lab.wait("nothing is being removed", lambda: not [
        item for kind in kinds for item in lab.get(kind, "--all-namespaces")
        if item["metadata"].get("deletionTimestamp") or item["status"].get("phase") == "Released"
    ], 180)  # fmt: skip


@pytest.fixture
def theirs(lab: Lab) -> Iterator[str]:
    """A namespace that is not the site's."""
    lab.kubectl("create", "namespace", SPACE)
    yield SPACE
    lab.kubectl("delete", "namespace", SPACE, "--wait=true")


def test_a_lab_is_a_good_cluster(lab: Lab) -> None:
    service = "kubernetes.io/service-name=kube-dns"
    lab.wait("the cluster's names are served, which a new lab does not wait for", lambda: any(
        endpoint["conditions"].get("ready") for item in lab.get("endpointslices", "-n", "kube-system", "-l", service)
        for endpoint in item.get("endpoints") or ()))  # fmt: skip
    done = preflight(ADMIN, "-o", "json", "--expected-cluster", "https://198.18.0.1:6443")
    report = json.loads(done.stdout)
    left = [problem for problem in problems(done) if problem["path"] not in ("helm", "class")]
    assert left == [], done.stdout
    (digest,) = report["cluster"]["ca"]
    assert hashlib.sha256(ssl.PEM_cert_to_DER_cert((STATE / "pki/ca.crt").read_text())).hexdigest() in digest
    again = preflight(ADMIN, "--expected-cluster", digest)
    assert "cluster   ok " in again.stdout
    assert lab.ready()
    assert again.stderr.startswith("cluster: https://198.18.0.1:6443 (context ")


def test_a_kubeconfig_of_nobody_is_refused(lab: Lab, tmp_path: Path) -> None:
    place = changed(tmp_path, {"token": "nobody's"})
    assert "Unauthorized" in site(lab, place)
    assert preflight(place).returncode == 4


def test_a_reader_is_refused_with_all_rights_that_are_missing(lab: Lab, tmp_path: Path) -> None:
    try:
        lab.kubectl("create", "serviceaccount", READER, "-n", "default")
        lab.kubectl("create", "clusterrolebinding", READER, "--clusterrole=view", f"--serviceaccount=default:{READER}")
        place = changed(tmp_path, {"token": lab.kubectl("create", "token", READER, "-n", "default").strip()})
        said = site(lab, place)
        assert "an account that may not create namespaces" in said
        (problem,) = (item for item in problems(preflight(place, "-o", "json")) if item["path"] == "rights")
        assert "more" in problem["got"]
    finally:
        lab.kubectl("delete", "clusterrolebinding", READER, "--ignore-not-found")
        lab.kubectl("delete", "serviceaccount", READER, "-n", "default", "--ignore-not-found")


@pytest.mark.parametrize("expected", ["https://203.0.113.10:6443", f"sha256:{'0' * 64}"])
@pytest.mark.parametrize("book", ["site", "teams", "uninstall", "train"])
def test_every_playbook_refuses_another_cluster_than_the_sites(lab: Lab, book: str, expected: str) -> None:
    before = listing()
    job = ["-e", "@jobs/digits.yml"] if book == "train" else []
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", "inventories/lab/hosts.yml", f"playbooks/{book}.yml",
               "-e", json.dumps({"site_cluster": expected}), *job]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode != 0
    assert f"the cluster that site_cluster names in the inventory, {expected}" in done.stdout
    assert "changed=0" in done.stdout
    assert difference(before) == []
    assert lab.ready()


class Old(Handler):
    """A server that says it is an old Kubernetes, and is the real one in all else."""

    def whole(self, status: int, data: bytes, kind: str, **more: str) -> None:
        """The answer, with another version in /version."""
        if self.path == "/version":
            data = json.dumps({**json.loads(data), "gitVersion": "v1.27.16", "minor": "27"}).encode()
        super().whole(status, data, kind, **more)


def test_an_old_cluster_is_refused(lab: Lab, tmp_path: Path) -> None:
    with Proxy(ADMIN, share=0) as proxy:
        proxy.door.RequestHandlerClass = Old
        said = site(lab, proxy.client_config(tmp_path))
    assert "Kubernetes: got v1.27.16, expected 1.30 to 1.35. Fix: upgrade the cluster" in said


def test_half_of_somebody_elses_volcano_is_refused(lab: Lab, theirs: str) -> None:
    image = "docker.io/volcanosh/vc-scheduler:v1.10.0"
    lab.kubectl("create", "deployment", "their-scheduler", "-n", theirs, f"--image={image}", "--replicas=0")
    said = site(lab, ADMIN)
    assert f"Volcano: got half of one (Deployment {theirs}/their-scheduler; no vc-controller-manager" in said
    for name in ("vc-controller-manager", "vc-webhook-manager"):
        image = f"docker.io/volcanosh/{name}:v1.10.0"
        lab.kubectl("create", "deployment", name, "-n", theirs, f"--image={image}", "--replicas=0")
    said = site(lab, ADMIN)
    assert "Volcano: got a third-party one" in said


def test_a_webhook_that_does_not_answer_is_refused(lab: Lab, theirs: str) -> None:
    rule = {"apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
            "resources": ["customresourcedefinitions"]}  # fmt: skip
    hook = {"name": "a.example.org", "clientConfig": {"service": {"namespace": theirs, "name": "nobody"}},
            "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"]}  # fmt: skip
    others = {**hook, "name": "b.example.org", "rules": [{**rule, "apiGroups": ["example.org"]}]}
    kind = "ValidatingWebhookConfiguration"
    item = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": SPACE},
            "webhooks": [hook, others]}  # fmt: skip
    try:
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(item))
        said = site(lab, ADMIN)
        assert f"webhook a.example.org: got no ready endpoint of {theirs}/nobody" in said
        assert f"remove {kind} {SPACE}" in said
        assert "b.example.org" not in said, "the site writes nothing that it sees"
    finally:
        lab.kubectl("delete", kind.lower(), SPACE, "--ignore-not-found")


def test_a_provisioner_of_others_is_refused_before_volcano_is_installed(lab: Lab) -> None:
    item = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": SPACE},
            "provisioner": LOCAL_PATH}  # fmt: skip
    try:
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(item))
        said = site(lab, ADMIN, "-e", json.dumps({"site_components": ["volcano", "storage"]}))
        assert f"got another provisioner of them (class {SPACE})" in said
    finally:
        lab.kubectl("delete", "storageclass", SPACE, "--ignore-not-found")


def test_a_jobset_of_others_is_refused(lab: Lab, theirs: str) -> None:
    image = "registry.k8s.io/jobset/jobset:v0.8.0"
    lab.kubectl("create", "deployment", "jobset-controller-manager", "-n", theirs, f"--image={image}", "--replicas=0")
    said = site(lab, ADMIN, "-e", json.dumps({"site_components": ["trainer_v2"]}))
    assert f"JobSet: got a third-party one (Deployment {theirs}/jobset-controller-manager)" in said
    assert "Fix: set trainer_v2_jobset: false" in said
