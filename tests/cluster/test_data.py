"""gangplank data on the live lab, by a member of a team: a folder and a web server's files, killed, and refused."""

from __future__ import annotations

import hashlib
import random
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.conftest import ROOT, Lab
from tests.support.claims import Files
from tests.support.teams_live import gangplank, team_of, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube

TEAM = "data"
OBJECTS = f"/api/v1/namespaces/{TEAM}"
ODD = "raw/a $(HOME) $$ ü.bin"
SERVED = random.Random(3).randbytes(3 * 10**6)
SERVE = """
import http.server
import random
open("images.gz", "wb").write(random.Random(3).randbytes(3 * 10**6))
open("labels", "w").write("0123")
http.server.test(http.server.SimpleHTTPRequestHandler, port=8000)
"""


@pytest.fixture(scope="module")
def member(kubeconfig: str, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The kubeconfig of a member of the team, which exists as long as this module runs."""
    members = [{"user": "bob", "role": "trainer"}, {"user": "eve", "role": "viewer"}]
    cap = {"cpu": "1", "memory": "1Gi", "ephemeral_storage": "20Gi"}
    claims = [{"name": "mnist", "size": "1Gi"}, {"name": "small", "size": "1Mi"}]
    fields = {"members": members, "cap": cap, "claims": claims}
    with team_of(TEAM, fields, kubeconfig, kube, tmp_path_factory.mktemp("team")) as config:
        yield config


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of more than one pod brings."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "raw").mkdir()
    (folder / "images.bin").write_bytes(random.Random(1).randbytes(20 * 2**20 + 5))
    (folder / ODD).write_text("odd")
    (folder / "empty").touch()
    return folder


def bring(member: Callable[[str], str], *words: str, user: str = "bob") -> subprocess.CompletedProcess[str]:
    return gangplank("data", *words, "-n", TEAM, kubeconfig=member(user))


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in folder.rglob("*") if path.is_file()}


def on_claim(claim: str) -> dict[str, str]:
    """The files of a claim with their hashes."""
    return Files(Lab(), TEAM, claim).hashes()


def left(kube: Kube) -> list[str]:
    """What the command has in the namespace."""
    return [item["metadata"]["name"] for kind in ("pods", "configmaps")
            for item in kube.call("GET", f"{OBJECTS}/{kind}")["items"] if item["metadata"]["name"].startswith("data-")]


def test_a_member_brings_a_folder_and_nothing_is_overwritten(
        kube: Kube, member: Callable[[str], str], source: Path, tmp_path: Path) -> None:
    done = bring(member, str(source), "mnist:set")
    assert done.returncode == 0, done.stderr
    assert on_claim("mnist") == {f"set/{name}": sha256 for name, sha256 in hashes(source).items()}
    assert left(kube) == []
    again = bring(member, str(source), "mnist:set")
    assert (again.returncode, "0 brought now" in again.stdout) == (0, True), again.stderr
    assert again.stdout.splitlines()[-1] == done.stdout.splitlines()[-1], "its content names it"

    (tmp_path / "empty").write_text("other")
    refused = bring(member, str(tmp_path), "mnist:set")
    assert refused.returncode == 1
    assert "claim data/mnist/set: got other files named empty, expected none, or the same files" in refused.stderr
    assert on_claim("mnist")["set/empty"] == hashes(source)["empty"]
    allowed = bring(member, str(tmp_path), "mnist:set", "--replace", "empty")
    assert allowed.returncode == 0, allowed.stderr
    assert on_claim("mnist")["set/empty"] == hashes(tmp_path)["empty"]


def test_a_member_lists_a_claim_and_removes_a_folder_of_it(
        kube: Kube, member: Callable[[str], str], source: Path) -> None:
    assert bring(member, str(source), "mnist:listed").returncode == 0
    listed = bring(member, "ls", "mnist:listed")
    sizes = {str(path.relative_to(source)): path.stat().st_size for path in source.rglob("*") if path.is_file()}
    rows = [line.split(None, 1) for line in listed.stdout.splitlines()[:-1]]
    assert {name: int(size) for size, name in rows} == sizes, listed.stderr
    removed = bring(member, "rm", "mnist:listed/raw")
    assert removed.stdout == "claim data/mnist/listed/raw: removed, 1 file (0.0 MiB)\n", removed.stderr
    assert f"listed/{ODD}" not in on_claim("mnist")
    assert "listed/images.bin" in on_claim("mnist")
    assert left(kube) == []
    refused = bring(member, "rm", "mnist:listed", user="eve")
    assert refused.returncode != 0, "who may only look removes nothing"
    assert "listed/images.bin" in on_claim("mnist")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_that_is_killed_continues(
        kube: Kube, member: Callable[[str], str], source: Path, number: signal.Signals) -> None:
    """Each of its pods brings 8 of 20 MiB."""
    folder = f"killed-{number.value}"
    command = [str(ROOT / ".venv/bin/gangplank"), "data", str(source), f"mnist:{folder}", "-n", TEAM,
               "--kubeconfig", member("bob")]
    before = left(kube)  # of a command killed before its pod had come: a later one removes it when it is old enough
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 600
    while process.poll() is None and not any(f"{folder}/.gangplank-data/" in name for name in on_claim("mnist")):
        assert time.monotonic() < end
        time.sleep(0.2)
    process.send_signal(number)
    process.communicate(timeout=400)
    assert process.returncode != 0, "it was killed before its end"
    there = on_claim("mnist")
    assert f"{folder}/images.bin" not in there, "a part is not taken for the file"
    if number == signal.SIGTERM:
        until(lambda: {*left(kube)} <= {*before}, "its pod is removed")
    pods = f"{OBJECTS}/pods"
    until(lambda: {pod["status"]["phase"] for pod in kube.call("GET", pods)["items"]} <= {"Succeeded"},
          "the pod of a killed command ends without it")
    done = gangplank(*command[1:])
    assert done.returncode == 0, done.stderr
    assert "brings: " in done.stderr, "it says how far it is"
    expected = {f"{folder}/{name}": sha256 for name, sha256 in hashes(source).items()}
    assert {name: sha256 for name, sha256 in on_claim("mnist").items() if name.startswith(folder)} == expected


@pytest.fixture(scope="module")
def web(kube: Kube, member: Callable[[str], str]) -> str:
    """A web server in a pod of the team: the team's pods may talk to each other."""
    limits = {"cpu": "100m", "memory": "64Mi"}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "web", "image": "gangplank.dev/trainer:0.1.0", "workingDir": "/tmp/web",
                 "command": ["python3", "-c", SERVE], "resources": {"limits": limits, "requests": limits},
                 "securityContext": security, "volumeMounts": [{"name": "web", "mountPath": "/tmp/web"}]}
    spec = {"containers": [container], "schedulerName": "volcano", "volumes": [{"name": "web", "emptyDir": {}}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000,
                                "seccompProfile": {"type": "RuntimeDefault"}}}
    meta = {"name": "web", "namespace": TEAM, "annotations": {"scheduling.volcano.sh/queue-name": TEAM}}
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    assert member("bob")
    kube.create(pod)
    place = f"{OBJECTS}/pods/web"
    until(lambda: kube.call("GET", place)["status"].get("phase") == "Running", "the server runs", 120)
    until(lambda: "Serving" in "".join(kube.log(pod)), "the server serves", 120)
    return f"http://{kube.call('GET', place)['status']['podIP']}:8000"


def test_a_member_brings_files_of_a_web_server(member: Callable[[str], str], web: str) -> None:
    names = ("images.gz", "labels")
    addresses = [f"{web}/{name}" for name in names]
    done = bring(member, *addresses, "mnist:web")
    assert done.returncode == 0, done.stderr
    expected = {"images.gz": hashlib.sha256(SERVED).hexdigest(), "labels": hashlib.sha256(b"0123").hexdigest()}
    assert {name: on_claim("mnist")[f"web/{name}"] for name in names} == expected
    assert dict(map(reversed, re.findall(r"^  (\w{64})  (.+)$", done.stdout, re.MULTILINE))) == expected
    again = bring(member, addresses[0], "mnist:web", "--sha256", expected["images.gz"])
    assert "0 brought now" in again.stdout, again.stderr
    other = bring(member, addresses[0], "mnist:other", "--sha256", "0" * 64)
    assert (other.returncode, f"images.gz: got SHA-256 {expected['images.gz']}" in other.stderr) == (1, True)
    gone = bring(member, f"{web}/gone", "mnist:other")
    assert (gone.returncode, f"{web}/gone: got 404 File not found" in gone.stderr) == (1, True), gone.stderr
    assert not [name for name in on_claim("mnist") if name.startswith("other")]


def test_what_cannot_be_brought_is_said_in_one_message(
        kube: Kube, member: Callable[[str], str], source: Path) -> None:
    for words, user, code, message in (
        ((str(source), "mnits"), "bob", 4, "claim data/mnits: got nothing, expected a claim of"),
        ((str(source), "small"), "bob", 1, "claim data/small: got 1048576 bytes of space, expected 20971528 bytes"),
        ((f"{source}/gone", "mnist"), "bob", 3, f"{source}/gone: got nothing, expected a folder or a file"),
        ((str(source), "mnist"), "eve", 4, 'User "eve" cannot patch resource "configmaps"'),
    ):
        done = bring(member, *words, user=user)
        assert message in done.stderr
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
    assert left(kube) == []
    assert on_claim("small") == {}
