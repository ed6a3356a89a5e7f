"""Fault C4: a chart's archive is compared with its hash before Helm installs it, and CRDs with upstream's bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.build.cache import cache_home
from lab.build.go_commands import module_folder
from lab.build.parts import Workshop, build
from lab.build.versions import MODULES, load_pins

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {
    "ansible_python_interpreter": sys.executable, "helm_release_name": "x", "helm_release_namespace": "y",
    "helm_release_chart": "storage", "helm_release_version": "",
}  # fmt: skip


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: pytest shows what matters."""


@pytest.fixture(scope="module")
def helm() -> Path:
    return Path(build(["helm"], print)["bin"]["helm"])


@pytest.fixture
def repository(helm: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a chart repository on the loopback, and the archive in it."""
    folder = tmp_path / "repository"
    version = yaml.safe_load((ROOT / "charts/storage/Chart.yaml").read_text())["version"]
    for words in (["package", ROOT / "charts/storage", "-d", folder], ["repo", "index", folder]):
        subprocess.run([helm / "helm", *words], check=True, capture_output=True, timeout=60)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder / f"storage-{version}.tgz"
    server.shutdown()
    server.server_close()


def play(helm: Path, folder: Path, tasks_from: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run tasks of the role helm_release, without a cluster."""
    role = {"name": "gangplank.gangplank.helm_release", "tasks_from": tasks_from}
    tasks = [{"name": "Run", "ansible.builtin.include_role": role}]
    if tasks_from == "fetch":
        message = {"msg": "chart={{ __helm_release_archive.files[0].path }}"}
        tasks.append({"name": "Show", "ansible.builtin.debug": message})
    (folder / "play.yml").write_text(
        json.dumps([{"hosts": "localhost", "gather_facts": False, "vars": VARIABLES | more, "tasks": tasks}])
    )
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    env = {
        **os.environ, "PATH": f"{helm}:{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": str(temporary),
        "HELM_CACHE_HOME": str(folder / "helm"), "KUBECONFIG": str(folder / "none"), "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_REMOTE_TEMP": str(folder / "remote"),
    }  # fmt: skip
    program = str(Path(sys.executable).parent / "ansible-playbook")
    command = [program, "-i", "localhost,", "-c", "local", str(folder / "play.yml")]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_c4_an_archive_with_its_hash_is_what_is_installed(
    helm: Path, repository: tuple[str, Path], tmp_path: Path
) -> None:
    address, archive = repository
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    done = play(helm, tmp_path, "fetch", helm_release_repository=address, helm_release_chart_sha256=digest)
    assert done.returncode == 0, done.stdout
    assert f"{archive.name}" in done.stdout.partition("chart=")[2]


def test_c4_one_changed_byte_is_refused_and_removed(helm: Path, repository: tuple[str, Path], tmp_path: Path) -> None:
    address, archive = repository
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    content = bytearray(archive.read_bytes())
    content[4] ^= 1  # the time in gzip's header: the archive unpacks as before
    archive.write_bytes(content)
    done = play(helm, tmp_path, "fetch", helm_release_repository=address, helm_release_chart_sha256=digest)
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert f"got sha256 {hashlib.sha256(content).hexdigest()}, expected {digest}; nothing was installed." in said
    assert "chart=" not in done.stdout
    assert not list((tmp_path / "temporary").glob("gangplank-chart-*"))


def test_c4_http_without_a_hash_is_refused_with_one_message(helm: Path, tmp_path: Path) -> None:
    done = play(helm, tmp_path, "main", helm_release_repository="HTTP://127.0.0.1:9", helm_release_chart_sha256="")
    said = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "x: got a chart from HTTP://127.0.0.1:9 storage without its sha256, expected one, because anyone" in said
    assert done.stdout.count("fatal: ") == 1
    assert "Look for the release" not in done.stdout, "the cluster was asked first"


A, B = (f"sha256:{digit * 64}" for digit in "ab")
IMAGES = {
    "volcano": ("volcano", "volcano", {"volcano_image_digests": {"scheduler": A, "admission": B}}),
    "trainer_v2": ("trainer-v2", "kubeflow-trainer",
        {"trainer_v2_image_digest": A, "trainer_v2_jobset_image_digest": B}),
    "training_operator": ("", "training-operator", {"training_operator_image_digest": A}),
    "gpu_device_plugin": ("nvidia-device-plugin", "nvidia-device-plugin", {"gpu_device_plugin_image_digest": A}),
}  # fmt: skip
NAMES = {
    "volcano": [f"vc-scheduler:v1.15.1@{A}", f"vc-webhook-manager:v1.15.1@{B}", "vc-controller-manager:v1.15.1"],
    "trainer_v2": [f"trainer-controller-manager:v2.3.0@{A}", f"jobset:v0.12.0@{B}"],
    "training_operator": [f"training-operator@{A}"],
    "gpu_device_plugin": [f"k8s-device-plugin:v0.18.0@{A}"],
}


@pytest.mark.parametrize("role", IMAGES)
def test_c4_images_have_the_digests_of_the_site(role: str, helm: Path, tmp_path: Path) -> None:
    part, chart, values = IMAGES[role]
    inner = "__gpu_device_plugin_nvidia_values" if role == "gpu_device_plugin" else f"__{role}_values"
    inner = inner if role in ("gpu_device_plugin", "training_operator") else f"__{role}_own_values"
    files = [str(ROOT / "roles" / role / folder / "main.yml") for folder in ("defaults", "vars")]
    write = {"ansible.builtin.copy": {"content": f"{{{{ {inner} | to_json }}}}", "dest": str(tmp_path / "values.json")}}
    others = {"ansible_python_interpreter": sys.executable, "__training_operator_cluster": {"found": [[], []]}}
    (tmp_path / "play.yml").write_text(json.dumps(
        [{"hosts": "localhost", "gather_facts": False, "vars_files": files, "vars": others, "tasks": [write]}]
    ))  # fmt: skip
    bin_folder = Path(sys.executable).parent
    command = [str(bin_folder / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    extra = ["-e", json.dumps(values)]
    done = subprocess.run([*command, *extra], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
    folder = build([part], print)["charts"][chart] if part else str(ROOT / "charts" / chart)
    words = [str(helm / "helm"), "template", "x", folder, "-n", "y", "-f", str(tmp_path / "values.json")]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    images = {line.rpartition("/")[2].strip('"') for line in text.splitlines() if " image: " in line}
    assert images >= set(NAMES[role])


def pinned(role: str, name: str) -> dict[str, dict[str, str]]:
    """{version: {file: sha256}} of a role's own pins."""
    values = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())
    return dict(values[f"__{role}_{name}"])


@pytest.mark.parametrize(
    ("role", "name", "part", "module", "folder"),
    [
        ("training_operator", "crds_sha256", "training-operator", "", "manifests/base/crds"),
        ("training_operator", "crds_sha256", "training-operator-before", "", "manifests/base/crds"),
        ("trainer_v2", "crds_sha256", "trainer-v2", "", "manifests/base/crds"),
        ("trainer_v2", "jobset_crds_sha256", "trainer-v2", "sigs.k8s.io/jobset", "charts/jobset/crds"),
    ],
)
def test_c4_the_hashes_are_those_of_the_module_in_go_sum(
    role: str, name: str, part: str, module: str, folder: str
) -> None:
    pins = load_pins()
    item = pins.parts[part]
    go = Workshop(cache_home(), pins, print, dry=False).go
    source = module_folder(item, module or item.module, go, MODULES / part) / folder
    version = (item.beside[module] if module else item.version).removeprefix("v")
    files = pinned(role, name)[version]
    assert files
    assert {path: hashlib.sha256((source / path).read_bytes()).hexdigest() for path in files} == files
