"""The lab's cluster as its administrator and as members of its teams see it, and the order of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.client import Kube
from gangplank.teams.quota_ready import settle
from tests.support.teams_fields import RUNTIME_CLASS
from tests.support.teams_live import ROOT, gangplank, until, until_gone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
LAST = "test_changes.py"  # it removes members and whole teams, which all other tests need
CRDS = {  # of kinds whose controllers the lab need not run: what a team may submit is decided before them
    "pytorchjobs.kubeflow.org": ("charts.training-operator-crds", "kubeflow.org_pytorchjobs.yaml"),
    "trainjobs.trainer.kubeflow.org": ("charts.trainer-v2-crds", "trainer.kubeflow.org_trainjobs.yaml"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that change the teams themselves after all others."""
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
def kube() -> Kube:
    """The cluster as its administrator."""
    return Kube()


@pytest.fixture(scope="session")
def kubeconfigs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """The kubeconfig of a member, created once."""
    folder = tmp_path_factory.mktemp("kubeconfigs")

    def of(team: str, member: str) -> str:
        name = folder / f"{team}-{member}"
        if not name.exists():
            done = gangplank("team", "kubeconfig", team, member, "--ttl", "1h", "-o", str(name))
            assert done.returncode == 0, done.stderr
            assert "PRIVATE KEY" not in done.stdout + done.stderr
            assert name.stat().st_mode & 0o777 == 0o600
        return str(name)

    return of


@pytest.fixture
def as_member(kubeconfigs: Callable[[str, str], str]) -> Callable[[str, str], Kube]:
    """The cluster as a member sees it."""
    return lambda team, member: Kube(kubeconfigs(team, member))


@pytest.fixture
def start_pod(kube: Kube) -> Iterator[Callable[[Json, Callable[[Json], bool]], str]]:
    """Create a pod and wait until its status meets a condition: the pod's path; it is deleted afterwards."""
    pods: list[str] = []

    def start(manifest: Json, condition: Callable[[Json], bool]) -> str:
        place = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
        where = f"{place}/{manifest['metadata']['name']}"
        kube.call("POST", place, manifest)
        pods.append(where)
        until(lambda: condition(kube.call("GET", where)["status"]), where)
        return where

    yield start
    for where in pods:
        kube.call("DELETE", where)
        until_gone(kube, where)


@pytest.fixture
def serve(kube: Kube, start_pod: Callable[[Json, Callable[[Json], bool]], str]) -> Callable[[Json], str]:
    """Run a pod until it is ready: its address."""

    def ready(status: Json) -> bool:
        return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))

    return lambda manifest: str(kube.call("GET", start_pod(manifest, ready))["status"]["podIP"])


@pytest.fixture
def printed(kube: Kube, start_pod: Callable[[Json, Callable[[Json], bool]], str]) -> Callable[[Json], str]:
    """Run a pod until it has ended: its output."""

    def ended(status: Json) -> bool:
        return status["phase"] in {"Succeeded", "Failed"}

    def run(manifest: Json) -> str:
        text: bytes = kube.open("GET", f"{start_pod(manifest, ended)}/log").data
        return text.decode()

    return run


@pytest.fixture(scope="session", autouse=True)
def definitions(kube: Kube) -> Iterator[None]:
    """Upstream's own definitions of the kinds, installed during these tests if they are missing."""
    installed = []
    for kind, (part, name) in CRDS.items():
        where = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}"
        if "deletionTimestamp" in (kube.get(where) or {"metadata": {}})["metadata"]:  # of a run that was killed
            until_gone(kube, where)
        if kube.get(where) is None:
            command = [sys.executable, "-m", "lab.build", "--show", part]
            folder = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
            kube.call("POST", where.rpartition("/")[0], yaml.safe_load((Path(folder) / name).read_text()))
            installed.append(where)
        established(kube, where)
    yield
    for where in installed:
        kube.call("DELETE", where)
    for where in installed:  # the next run would take one that is being removed for one that is installed
        until_gone(kube, where)


@pytest.fixture(scope="session")
def crds(kube: Kube) -> None:
    """Every quota counts these kinds, as after the next run of playbooks/teams.yml."""
    assert settle(kube, 90) == []


def established(kube: Kube, where: str) -> None:
    """Wait until the API serves a kind."""

    def is_served() -> bool:
        conditions = kube.call("GET", where).get("status", {}).get("conditions") or []
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    until(is_served, where)


@pytest.fixture
def admin(kube: Kube) -> Iterator[None]:
    """A service account and a runtime that the team's file does not grant; Kubernetes wants them to exist."""
    accounts, classes = "/api/v1/namespaces/vision/serviceaccounts", "/apis/node.k8s.io/v1/runtimeclasses"
    kube.call("POST", accounts, {"metadata": {"name": "admin"}})
    kube.call("POST", classes, {"metadata": {"name": RUNTIME_CLASS}, "handler": "runc"})
    yield
    kube.call("DELETE", f"{accounts}/admin")
    kube.call("DELETE", f"{classes}/{RUNTIME_CLASS}")
