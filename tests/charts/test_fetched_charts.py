"""Fault C4: the digests of a site are in the rendered objects, and the hashes of CRDs are those of upstream's bytes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bench.parts.tried import TRIED
from bench.tuned import TUNED
from gangplank.site.rights import installation
from lab.build.cache import cache_home
from lab.build.go_commands import module_folder
from lab.build.parts import Workshop, build
from lab.build.versions import MODULES, load_pins
from tests.support.helm import KUBERNETES
from tests.unit.site.test_rights import plural

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = ("admission_resources", "controller_resources", "scheduler_resources")  # one pod each


@pytest.fixture(scope="module")
def helm() -> Path:
    return Path(build(["helm"], print)["bin"]["helm"])


A, B = (f"sha256:{digit * 64}" for digit in "ab")
IMAGES = {
    "volcano": ("volcano", "volcano", {"volcano_image_digests": {"scheduler": A, "admission": B}}),
    "trainer_v2": ("trainer-v2", "kubeflow-trainer",
        {"trainer_v2_image_digest": A, "trainer_v2_jobset_image_digest": B}),
    "training_operator": ("", "training-operator", {"training_operator_image_digest": A}),
    "gpu_device_plugin": ("nvidia-device-plugin", "nvidia-device-plugin", {"gpu_device_plugin_image_digest": A}),
    "gpu_dra_driver": ("dra-example-driver", "dra-example-driver", {"gpu_dra_driver_image_digest": A}),
    "storage": ("local-path-provisioner", "local-path-provisioner",
        {"storage_local_path_digest": A, "storage_helper_image": f"docker.io/library/busybox:1.37@{B}"}),
}  # fmt: skip
INNER = {
    "gpu_device_plugin": "__gpu_device_plugin_nvidia_values",
    "training_operator": "__training_operator_values",
    "storage": "(storage_classes | gangplank.gangplank.storage_releases(__storage_inputs))[0]['values']",
}
NAMES = {
    "volcano": [f"vc-scheduler:v1.15.1@{A}", f"vc-webhook-manager:v1.15.1@{B}", "vc-controller-manager:v1.15.1"],
    "trainer_v2": [f"trainer-controller-manager:v2.3.0@{A}", f"jobset:v0.12.0@{B}"],
    "training_operator": [f"training-operator@{A}"],
    "gpu_device_plugin": [f"k8s-device-plugin:v0.19.3@{A}"],
    "gpu_dra_driver": [f"dra-example-driver:v0.4.0@{A}"],
    "storage": [f"local-path-provisioner:v0.0.30@{A}", f"busybox:1.37@{B}"],
}


@pytest.mark.parametrize("role", IMAGES)
def test_c4_images_have_the_digests_of_the_site_and_every_kind_is_asked_for(
    role: str, helm: Path, tmp_path: Path
) -> None:
    part, chart, values = IMAGES[role]
    inner = INNER.get(role, f"__{role}_own_values")
    files = [str(ROOT / "roles" / role / folder / "main.yml") for folder in ("defaults", "vars")]
    write = {"ansible.builtin.copy": {"content": f"{{{{ {inner} | to_json }}}}", "dest": str(tmp_path / "values.json")}}
    others = {"ansible_python_interpreter": sys.executable, "__training_operator_cluster": {"found": [[], []]},
              "role_path": str(ROOT / "roles" / role)}  # fmt: skip
    (tmp_path / "play.yml").write_text(json.dumps(
        [{"hosts": "localhost", "gather_facts": False, "vars_files": files, "vars": others, "tasks": [write]}]
    ))  # fmt: skip
    bin_folder = Path(sys.executable).parent
    command = [str(bin_folder / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")]
    extra = ["-e", json.dumps(values)]
    done = subprocess.run([*command, *extra], cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout
    folder = build([part], print)["charts"][chart] if part else str(ROOT / "charts" / chart)
    words = [str(helm / "helm"), "template", KUBERNETES, "x", folder, "-n", "y", "-f", f"{tmp_path}/values.json"]
    text = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    images = {line.rpartition("/")[2].strip('"') for line in text.splitlines() if " image: " in line}
    assert images >= set(NAMES[role])
    asked = {right.partition(" ")[2].partition(".")[0] for right in installation([role])}
    assert {plural(item["kind"]) for item in yaml.safe_load_all(text) if item} <= asked


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


def test_what_volcano_s_values_were_before_they_were_tuned_is_upstream_s() -> None:
    chart = Path(build(["volcano"], print)["charts"]["volcano"])
    custom = yaml.safe_load((chart / "values.yaml").read_text())["custom"]
    for one in TUNED.values():
        if one.home == "roles/volcano":
            assert {name: custom[name] for name in one.upstream} == one.upstream
    assert {name for tried in TRIED.values() for name in tried.values} <= custom.keys()


def test_volcano_s_chart_requests_nothing_by_default() -> None:
    """So that what the role requests is all that counts on a node (tests/unit/lab/test_fits.py)."""
    chart = Path(build(["volcano"], print)["charts"]["volcano"])
    custom = yaml.safe_load((chart / "values.yaml").read_text())["custom"]
    assert {name: custom[name] for name in REQUESTS} == dict.fromkeys(REQUESTS)
