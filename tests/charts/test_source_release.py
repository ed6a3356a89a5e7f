"""Fault C4: a role in source `release`, as a site plays it, refuses other bytes before it asks the cluster anything.

A server on the loopback has upstream's own charts and CRDs, from the modules that go.sum names. There is no cluster, so
whatever asks one fails with another message. The role `storage` reads the cluster first: the server has empty lists for
it, and refuses every change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab.build.parts import build
from tests.support.loopback import chart_repository, served

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
READS = ("apis/storage.k8s.io/v1/storageclasses", "apis/storage.k8s.io/v1/csidrivers", "api/v1/persistentvolumeclaims")
ROLES = {  # part, chart, and where its archive is expected
    "volcano": ("volcano", "volcano", {"volcano_chart_repository": "{}"}),
    "gpu_device_plugin": (
        "nvidia-device-plugin",
        "nvidia-device-plugin",
        {"gpu_device_plugin_chart_repository": "{}"},
    ),
    "gpu_dra_driver": ("dra-example-driver", "dra-example-driver", {"gpu_dra_driver_chart_repository": "{}"}),
    "trainer_v2": (
        "trainer-v2",
        "kubeflow-trainer",
        {
            "trainer_v2_chart_registry": "{}/kubeflow-trainer-2.3.0.tgz",
            "trainer_v2_crds_repository": "{}",
            "trainer_v2_jobset_crds_repository": "{}",
        },
    ),
    "storage": (
        "local-path-provisioner",
        "local-path-provisioner",
        {"storage_local_path_chart": "{}/local-path-provisioner-0.0.30.tgz"},
    ),
}
VERSIONS = {"gpu_dra_driver": "0.4.0"}  # that upstream sets when it publishes the chart
HASHES = {"storage": "storage_local_path_chart_sha256"}


@dataclass(frozen=True)
class Source:
    """What a role takes from a server, and the variables that name it."""

    role: str
    folder: Path
    archive: Path  # of the chart
    variables: dict[str, str]
    helm: str

    @property
    def hash(self) -> str:
        """The variable with the sha256 of the chart's archive."""
        return HASHES.get(self.role, f"{self.role}_chart_sha256")

    def cluster(self, folder: Path) -> Path:
        """The kubeconfig: none, or of a server that has nothing but empty lists, which `storage` reads first."""
        path = folder / "none"
        if self.role == "storage":
            address = next(iter(self.variables.values())).rpartition("/")[0]
            for name in READS:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_text('{"kind": "List", "items": []}')
            clusters = [{"name": "x", "cluster": {"server": address}}]
            contexts = [{"name": "x", "context": {"cluster": "x", "user": ""}}]
            path.write_text(json.dumps({"clusters": clusters, "contexts": contexts, "current-context": "x"}))
        return path

    def play(self, folder: Path, failures: int = 1, /, **more: str) -> str:
        """Play the role, which fails, in so many tasks: what it printed, in one line."""
        variables = {"ansible_python_interpreter": sys.executable, **self.variables, **more}
        tasks = [{"name": "Run", "ansible.builtin.include_role": {"name": f"gangplank.gangplank.{self.role}"}}]
        book = folder / "play.yml"
        book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": variables, "tasks": tasks}]))
        programs = Path(sys.executable).parent
        env = {
            **os.environ, "PATH": f"{self.helm}:{programs}:{os.environ['PATH']}", "TMPDIR": str(folder),
            "HELM_CACHE_HOME": str(folder / "helm"), "KUBECONFIG": str(self.cluster(folder)), "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_REMOTE_TEMP": str(folder / "remote"),
        }  # fmt: skip
        command = [str(programs / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(book)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stdout.count("fatal: ") == failures, done.stdout
        assert not list(folder.glob("gangplank-chart-*")), "the fetched chart was left behind"
        return " ".join(done.stdout.split())


@pytest.fixture(scope="module", params=ROLES)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """The server of a role."""
    part, chart, variables = ROLES[request.param]
    parts = build(["helm", part], print)
    helm, folder = parts["bin"]["helm"], tmp_path_factory.mktemp("source")
    archive = chart_repository(helm, parts["charts"][chart], folder, VERSIONS.get(request.param, ""))
    if request.param == "trainer_v2":
        shutil.copytree(parts["charts"]["trainer-v2-crds"], folder / "v2.3.0/manifests/base/crds")
        shutil.copytree(f"{parts['charts'][chart]}/charts/jobset/crds", folder / "v0.12.0/charts/jobset/crds")
    with served(folder) as address:
        where = {key: text.format(address) for key, text in variables.items()}
        yield Source(request.param, folder, archive, where, helm)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextlib.contextmanager
def changed(path: Path, at: int) -> Iterator[str]:
    """A file with one changed byte: its hash."""
    content = path.read_bytes()
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    try:
        yield sha256(path)
    finally:
        path.write_bytes(content)


def test_c4_a_chart_with_its_hash_gets_as_far_as_the_cluster(source: Source, tmp_path: Path) -> None:
    reads = source.role == "storage"  # it has a cluster, which says no to the first change
    said = source.play(tmp_path, 2 if reads else 1, **{source.hash: sha256(source.archive)})
    assert ("Namespace local-path-storage: the cluster says: " if reads else f"{tmp_path}/none") in said
    assert "sha256" not in said


def test_c4_one_changed_byte_of_a_chart_is_refused_before_the_cluster_is_asked(source: Source, tmp_path: Path) -> None:
    expected = sha256(source.archive)
    with changed(source.archive, 4) as digest:  # the time in gzip's header: the archive unpacks as before
        said = source.play(tmp_path, **{source.hash: expected})
    assert f"got sha256 {digest}, expected {expected}; nothing was installed. Fix: " in said


def test_c4_http_without_a_hash_is_refused_before_anything_is_fetched(source: Source, tmp_path: Path) -> None:
    shouted = {key: text.replace("http", "HTTP") for key, text in source.variables.items()}
    said = source.play(tmp_path, **shouted)
    assert f": got a chart from {next(iter(shouted.values()))}" in said
    assert "without its sha256, expected one, because anyone on the way can change what http:// carries. Fix: " in said


@pytest.mark.parametrize("source", ["trainer_v2"], indirect=True)
def test_c4_one_changed_byte_of_crds_is_refused_before_the_cluster_is_asked(source: Source, tmp_path: Path) -> None:
    names = ("v2.3.0/manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
             "v0.12.0/charts/jobset/crds/jobset.x-k8s.io_jobsets.yaml")  # fmt: skip
    expected = [sha256(source.folder / name) for name in names]
    with changed(source.folder / names[0], 0) as first, changed(source.folder / names[1], 0) as second:
        said = source.play(tmp_path, **{source.hash: sha256(source.archive)})
    for name, digest, right in zip(names, (first, second), expected, strict=True):
        assert f"{name}: got sha256 {digest}, expected {right}. Fix: do not use this source" in said
