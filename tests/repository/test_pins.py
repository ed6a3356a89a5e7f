"""lab/versions.yml owns every version; go.mod, go.sum, the lock and all other files that name one agree with it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.build.versions import Part, load_pins

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "lab/modules"
PINS = load_pins()
BUILT = {name: part for name, part in PINS.parts.items() if part.module}
UPSTREAM = {name: part for name, part in BUILT.items() if not part.module.startswith("gangplank/")}
IMAGES = [image.name for part in PINS.parts.values() for image in part.images]
# What upgrades begin with is of an older version, and named nowhere else.
CURRENT = [image.name for name, part in PINS.parts.items() if not name.endswith("-before") for image in part.images]
# Where a version may be named besides; tests/unit makes up its own.
FOLDERS = ("roles", "charts", "jobs", "inventories", "molecule", "playbooks", "docs", "trainer")
NAMED_IN = (*FOLDERS, "README.md", "Makefile")


def load(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def lock() -> dict[str, Any]:
    return dict(json.loads((ROOT / "lab/lock.json").read_text()))


def required(part: Part) -> dict[str, str]:
    """Module -> version of the `require` lines in the part's go.mod."""
    text = (MODULES / part.name / "go.mod").read_text()
    blocks = re.findall(r"^require \(\n(.*?)^\)", text, re.MULTILINE | re.DOTALL)
    lines = [*re.findall(r"^require ([^(\n]+)$", text, re.MULTILINE), *"\n".join(blocks).splitlines()]
    return dict(line.split()[:2] for line in lines if line.strip())


def sums(part: Part) -> dict[tuple[str, str], str]:
    """(module, version) -> sum of the lines in the part's go.sum."""
    lines = (MODULES / part.name / "go.sum").read_text().splitlines()
    return {(module, version): digest for module, version, digest in map(str.split, lines)}


def tracked(*paths: str) -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


def test_every_part_has_its_module_and_every_module_its_part() -> None:
    assert {path.name for path in MODULES.iterdir()} == BUILT.keys()


@pytest.mark.parametrize("name", BUILT)
def test_go_mod_is_of_this_part_and_asks_for_the_pinned_go(name: str) -> None:
    text = (MODULES / name / "go.mod").read_text()
    assert text.startswith(f"module gangplank/lab/{name}\n")
    assert re.findall(r"^go (\S+)$", text, re.MULTILINE) == [PINS.go_version]


@pytest.mark.parametrize("name", UPSTREAM)
def test_go_mod_requires_the_pinned_version(name: str) -> None:
    assert required(UPSTREAM[name])[UPSTREAM[name].module] == UPSTREAM[name].version


@pytest.mark.parametrize("name", [name for name, part in BUILT.items() if part.beside])
def test_go_mod_requires_what_stands_beside(name: str) -> None:
    assert BUILT[name].beside.items() <= required(BUILT[name]).items()


def test_a_module_has_one_version_wherever_it_is_named() -> None:
    named = {part.module: part.version for name, part in UPSTREAM.items() if not name.endswith("-before")}
    for part in BUILT.values():
        for module, version in part.beside.items():
            assert named.setdefault(module, version) == version, f"{part.name}: {module}"


def test_a_path_belongs_to_the_module_that_it_begins_with() -> None:
    part = Part("x", "v1", "a.example/x", beside={"b.example/y": "v2"})
    assert part.owner("charts/x") == ("a.example/x", "v1")
    assert part.owner("a.example/x/cmd") == ("a.example/x", "v1")
    assert part.owner("b.example/y") == ("b.example/y", "v2")
    assert part.owner("b.example/y/charts") == ("b.example/y", "v2")
    assert part.owner("b.example/yes") == ("a.example/x", "v1")


@pytest.mark.parametrize("name", UPSTREAM)
def test_go_sum_has_the_pinned_version(name: str) -> None:
    part = UPSTREAM[name]
    recorded = sums(part)
    assert (part.module, f"{part.version}/go.mod") in recorded
    assert (part.module, part.version) in recorded
    assert all(digest.startswith("h1:") for digest in recorded.values())


def test_the_lock_has_digests_of_every_part_and_of_no_other() -> None:
    assert lock()["parts"].keys() == BUILT.keys()
    for name, entry in lock()["parts"].items():
        built = BUILT[name].commands | BUILT[name].files | BUILT[name].libraries
        assert entry["digests"].keys() == {f"bin/{command}" for command in built}
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in entry["digests"].values())


def test_the_programs_in_the_one_binary_of_kubernetes_are_those_that_it_can_be_called_as() -> None:
    ours = [name for name, package in BUILT["kubernetes"].commands.items() if package == "gangplank/lab/kubernetes"]
    text = (MODULES / "kubernetes/main.go").read_text()
    assert sorted(re.findall(r'^\t"([a-z-]+)": +func', text, re.MULTILINE)) == sorted(ours)
    assert len({lock()["parts"]["kubernetes"]["digests"][f"bin/{name}"] for name in ours}) == 1


def test_an_upgrade_begins_with_an_older_version_and_ends_with_the_current_one() -> None:
    before = {name: part for name, part in UPSTREAM.items() if name.endswith("-before")}
    assert before
    for name, part in before.items():
        now = PINS.parts[name.removesuffix("-before")]
        assert (part.module, part.commands) == (now.module, now.commands)
        assert [*map(int, part.version[1:].split("."))] < [*map(int, now.version[1:].split("."))]


def test_the_lock_has_a_digest_of_every_image_and_no_other() -> None:
    assert lock()["images"].keys() == set(IMAGES)
    digests = [entry["digests"]["manifest"] for entry in lock()["images"].values()]
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests)


def test_the_lock_has_every_root_and_a_sum_of_each_of_its_packages() -> None:
    roots = lock()["roots"]
    assert roots.keys() == PINS.roots.keys()
    for name, root in PINS.roots.items():
        packages = roots[name]["packages"]
        assert set(root.packages) - packages.keys() == set(), name
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for _, digest in packages.values())
        assert roots[name]["digests"].keys() == {"root.tar"}


def test_a_copied_module_replaces_the_required_one() -> None:
    for part in UPSTREAM.values():
        if part.copy:
            text = (MODULES / part.name / "go.mod").read_text()
            assert f"{part.copy.module} => ./{part.copy.to}\n" in text


def test_kubernetes_stamps_and_the_python_client_are_of_its_minor_version() -> None:
    kubernetes = PINS.parts["kubernetes"]
    major, minor = kubernetes.version.removeprefix("v").split(".")[:2]
    assert kubernetes.stamp["k8s.io/component-base/version.gitMajor"] == major
    assert kubernetes.stamp["k8s.io/component-base/version.gitMinor"] == minor
    client = re.search(r"^kubernetes==(\d+)\.", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert client
    assert client.group(1) == minor


def test_pip_which_fetches_the_go_toolchain_is_installed_where_debian_has_none() -> None:
    assert re.search(r"^pip==", (ROOT / "requirements.txt").read_text(), re.MULTILINE)


def test_the_roles_install_the_versions_that_the_lab_builds() -> None:
    volcano, storage = load("roles/volcano/defaults/main.yml"), load("roles/storage/defaults/main.yml")
    assert f"v{volcano['volcano_version']}" == PINS.parts["volcano"].version
    assert f"v{storage['storage_local_path_version']}" == PINS.parts["local-path-provisioner"].version
    assert storage["storage_helper_image"] in IMAGES
    operator, trainer = load("roles/training_operator/defaults/main.yml"), load("roles/trainer_v2/defaults/main.yml")
    assert f"v{operator['training_operator_version']}" == PINS.parts["training-operator"].version
    assert operator["training_operator_init_image"] in IMAGES
    assert operator["training_operator_probe_image"] in IMAGES
    assert f"v{trainer['trainer_v2_version']}" == PINS.parts["trainer-v2"].version
    assert f"v{trainer['trainer_v2_jobset_version']}" == PINS.parts["trainer-v2"].beside["sigs.k8s.io/jobset"]
    assert trainer["trainer_v2_runtime_image"] in IMAGES


def test_the_operators_chart_is_of_the_version_and_the_images_that_the_lab_builds() -> None:
    chart, values = load("charts/training-operator/Chart.yaml"), load("charts/training-operator/values.yaml")
    assert f"v{chart['appVersion']}" == PINS.parts["training-operator"].version
    for image in (values["image"], values["initContainer"]["image"]):
        assert f"{image['repository']}:{image['tag']}" in IMAGES
    tags = load("roles/training_operator/vars/main.yml")["__training_operator_tags"]
    assert tags[chart["appVersion"]] == values["image"]["tag"]


def test_lab_dns_is_the_coredns_that_the_lab_builds() -> None:
    assert f"v{load('charts/lab-dns/Chart.yaml')['appVersion']}" == PINS.parts["coredns"].version
    assert load("charts/lab-dns/values.yaml")["image"]["name"] in IMAGES


@pytest.mark.parametrize("job", sorted(path.name for path in (ROOT / "jobs").glob("*.yml")))
def test_every_job_uses_the_trainer_that_the_lab_builds(job: str) -> None:
    assert load(f"jobs/{job}")["training_job"]["image"] in IMAGES


@pytest.mark.parametrize("image", CURRENT)
def test_every_file_that_names_an_image_of_the_lab_names_its_version(image: str) -> None:
    repository, _, tag = image.rpartition(":")
    other = re.compile(rf"(?<![\w/.-]){re.escape(repository)}:(?!{re.escape(tag)}(?![\w.-]*\w))[\w{{][\w.{{-]*")
    strange = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked(*NAMED_IN)
        for name in other.findall(text_of(path))
        if "{" not in name  # a template fills it in
    }
    assert strange == set()


def test_no_image_floats() -> None:
    floating = re.compile(r"[\w.-]+/[\w./-]+:(?:latest|master|main)\b")
    images = {str(path.relative_to(ROOT)): floating.findall(text_of(path)) for path in tracked(*NAMED_IN)}
    assert {path: names for path, names in images.items() if names} == {}
