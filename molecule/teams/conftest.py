"""The lab's cluster as an administrator and as members of its teams have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.kube import Kube
from tests.teams_live import answer, gangplank, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]


@pytest.fixture(scope="session")
def kube() -> Kube:
    """The cluster as its administrator."""
    return Kube()


@pytest.fixture(scope="session")
def kubeconfigs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """The kubeconfig of a member, made once."""
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
    """The cluster as a member has it."""
    return lambda team, member: Kube(kubeconfigs(team, member))


@pytest.fixture
def run_pod(kube: Kube) -> Iterator[Callable[[Json], str]]:
    """Run a pod until it is ready or has ended: its address, or what it printed; it is removed afterwards."""
    made: list[str] = []

    def run(manifest: Json) -> str:
        place = f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"
        where = f"{place}/{manifest['metadata']['name']}"
        kube.call("POST", place, manifest)
        made.append(where)

        def settled() -> bool:
            status = kube.call("GET", where)["status"]
            ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
            return ready or status["phase"] in {"Succeeded", "Failed"}

        until(settled, where)
        status = kube.call("GET", where)["status"]
        if status["phase"] == "Running":
            return str(status["podIP"])
        text: bytes = kube.open("GET", f"{where}/log").data
        return text.decode()

    yield run
    for where in made:
        kube.call("DELETE", where)
        until(lambda where=where: "not found" in answer(kube, "GET", where), f"{where} gone")
