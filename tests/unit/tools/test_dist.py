"""What `make dist` packs: the same bytes of the same commit, nothing of the lab, and the wheel of its own version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import ansible
import jsonschema
import pytest
import yaml

from gangplank import __version__
from tests.support.checkout import copy_checkout, git
from tools import dist

ROOT = Path(__file__).resolve().parents[3]
NOTHING = '{"site_components": []}'
PLAIN = Path(ansible.__file__).parents[4] / "bin"  # of the packages of `make setup`, without the library


@dataclass(frozen=True)
class Packed:
    """What was made of a checkout."""

    checkout: Path
    collection: Path
    wheel: Path


def packed(checkout: Path, folder: Path) -> Packed:
    commit = dist.exported(checkout, folder / "commit")
    out = folder / "out"
    return Packed(checkout, dist.collection(commit, out), dist.wheel(commit, out))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("first") / "checkout")


@pytest.fixture(scope="module")
def first(checkout: Path) -> Packed:
    return packed(checkout, checkout.parent)


@pytest.fixture(scope="module")
def installed(first: Packed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of collections with this one, installed from its archive."""
    folder = tmp_path_factory.mktemp("installed")
    galaxy(folder, "install", str(first.collection), "-p", str(folder), "--offline")
    return folder


def galaxy(folder: Path, *words: str) -> str:
    env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(folder), "ANSIBLE_HOME": str(folder / "home")}
    command = [str(PLAIN / "ansible-galaxy"), "collection", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_the_same_commit_gives_the_same_bytes_elsewhere(
    first: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", str(first.checkout), "second")
    (tmp_path / "second/lab/not-of-the-commit.py").touch()
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    before = os.umask(0o077)
    try:
        second = packed(tmp_path / "second", tmp_path)
    finally:
        os.umask(before)
    assert second.collection.read_bytes() == first.collection.read_bytes()
    assert second.wheel.read_bytes() == first.wheel.read_bytes()


@pytest.mark.slow
def test_the_files_of_an_archive_are_in_order_have_the_commits_time_and_belong_to_nobody(first: Packed) -> None:
    seconds = int(git(first.checkout, "log", "-1", "--format=%ct"))
    with tarfile.open(first.collection) as archive:
        members = archive.getmembers()
        listed = json.load(archive.extractfile("FILES.json") or pytest.fail("no FILES.json"))
    assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {(seconds, 0, 0, "")}
    assert [member.name for member in members] == sorted(member.name for member in members)
    names = [entry["name"] for entry in listed["files"]]
    assert names == sorted(names)


def test_untracked_files_of_what_is_built_are_refused(checkout: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(checkout), "clone")
    for name in ("notes.py", "trainer/secret.py"):
        dist.refuse_changes(tmp_path / "clone", "trainer", "lab")
        (tmp_path / "clone" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "clone" / name).touch()
    with pytest.raises(dist.DistError, match=r"^git status: got trainer/secret\.py"):
        dist.refuse_changes(tmp_path / "clone", "trainer", "lab")


def test_a_change_that_is_not_committed_is_refused(checkout: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(checkout), "clone")
    (tmp_path / "clone/README.md").write_text("other\n")
    with pytest.raises(dist.DistError, match=r"^git status: got README\.md, expected no change that is not committed"):
        dist.exported(tmp_path / "clone", tmp_path / "out")
    with pytest.raises(dist.DistError, match=r"^git: got fatal: .* a checkout with a commit. Fix: "):
        dist.exported(tmp_path, tmp_path / "out")


@pytest.mark.slow
def test_ansible_finds_every_file_of_an_installed_collection_as_its_manifest_says(installed: Path) -> None:
    said = galaxy(installed, "verify", "gangplank.gangplank", "--offline", "-p", str(installed))
    assert "Successfully verified" in said


@pytest.mark.slow
def test_the_lab_stays_in_the_checkout_and_nothing_else_asks_for_it(installed: Path) -> None:
    folder = installed / "ansible_collections/gangplank/gangplank"
    assert {path.name for path in folder.iterdir()} == {
        "CHANGELOG.md", "FILES.json", "LICENSE", "MANIFEST.json", "README.md", "SECURITY.md", "charts", "docs",
        "inventories", "jobs", "meta", "playbooks", "plugins", "roles", "tests"}  # fmt: skip
    assert {path.parent.name for path in (folder / "tests").rglob("*.*")} == {"sanity"}
    code = [path for name in ("playbooks", "plugins", "roles", "charts") for path in (folder / name).rglob("*")]
    assert [path for path in code if path.name.startswith("lab")] == []
    lab = re.compile(r"gangplank\.lab_|^(?:from|import) lab\b|name: lab_", re.MULTILINE)
    assert [path for path in code if path.suffix in (".py", ".yml") and lab.search(path.read_text())] == []
    for part, kept in (("roles", 8), ("playbooks", 5), ("plugins/action", 16), ("charts", 4)):
        assert len(list((folder / part).iterdir())) >= kept


@pytest.mark.slow
def test_every_role_and_plugin_of_the_playbooks_is_in_the_collection(installed: Path) -> None:
    folder = installed / "ansible_collections/gangplank/gangplank"
    text = "\n".join(path.read_text() for name in ("playbooks", "roles") for path in (folder / name).rglob("*.yml"))
    actions = set(re.findall(r"gangplank\.gangplank\.(\w+):", text))
    assert len(actions) > 10
    assert {name for name in actions if not (folder / f"plugins/action/{name}.py").exists()} == set()
    roles = set(re.findall(r"(?:- role: |include_role: \{name: |include_role:\n\s+name: )(\w+)", text))
    assert len(roles) > 5
    assert {name for name in roles if not (folder / f"roles/{name}/tasks/main.yml").exists()} == set()


@pytest.mark.slow
def test_ansible_reads_its_playbooks_by_their_names(installed: Path, tmp_path: Path) -> None:
    names = ["site", "teams", "train", "uninstall", "gpu_nodes"]
    others = [f"gangplank.gangplank.{name}" for name in names[1:]]
    said = play(installed, tmp_path, names[0], *others, "--syntax-check")
    assert (said.returncode, said.stderr) == (0, ""), said.stderr
    assert re.findall(r"playbook: \S*/(\w+)\.yml", said.stdout) == names


def play(
    collections: Path, folder: Path, playbook: str, *words: str, library: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A playbook of the collection, from an empty folder, with Ansible's packages but no library or only this one."""
    (folder / "hosts.yml").write_text("all: {hosts: {localhost: {ansible_connection: local}}, "
                                      "children: {teams: {}, gpu_nodes: {}}}\n")  # fmt: skip
    env = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collections), "ANSIBLE_HOME": str(folder / "home"),
           "NO_COLOR": "1", "KUBECONFIG": str(folder / "none"), "PYTHONPATH": str(library or "")}  # fmt: skip
    command = [str(PLAIN / "ansible-playbook"), "-i", "hosts.yml", f"gangplank.gangplank.{playbook}", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["site", "teams", "train", "uninstall"])
@pytest.mark.parametrize("wheel", ["none", "another"])
def test_without_the_wheel_of_its_version_it_says_so_in_one_message(
    installed: Path, tmp_path: Path, playbook: str, wheel: str
) -> None:
    library = tmp_path / "library"
    if wheel == "another":
        (library / "gangplank").mkdir(parents=True)
        (library / "gangplank/__init__.py").write_text('__version__ = "98.7.6"\n')
    said = play(installed, tmp_path, playbook, "-e", NOTHING, library=library)
    assert said.returncode != 0
    assert "\nchanged: [" not in said.stdout
    (line,) = (line for line in said.stderr.splitlines() if line and "WARNING" not in line)
    python = re.escape(f"{PLAIN}/python")
    got = "no Python module gangplank" if wheel == "none" else r"gangplank 98\.7\.6"
    folder = re.escape(str(installed / "ansible_collections/gangplank/gangplank"))
    file = re.escape(f"gangplank-{__version__}-py3-none-any.whl")
    assert re.fullmatch(
        rf"\[ERROR\]: {python}\S*: got {got}, expected the wheel of the collection {folder}\. "
        rf"Fix: {python}\S* -m pip install '\./{file}\[cluster,report\]' where {file} is; it comes with the collection",
        line,
    ), line


@pytest.mark.slow
def test_with_the_wheel_a_playbook_gets_as_far_as_the_cluster(installed: Path, first: Packed, tmp_path: Path) -> None:
    with zipfile.ZipFile(first.wheel) as archive:
        archive.extractall(tmp_path / "library")  # noqa: S202  our own archive
    said = play(installed, tmp_path, "uninstall", "-e", NOTHING, library=tmp_path / "library")
    assert f"kubeconfig {tmp_path}/none: got " in said.stdout + said.stderr


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_library_and_no_other(first: Packed) -> None:
    with zipfile.ZipFile(first.wheel) as archive:
        names = {name for name in archive.namelist() if not name.startswith(f"gangplank-{__version__}.dist-info/")}
    ours = git(first.checkout, "ls-files", "gangplank").split()
    assert names == set(ours)


def test_the_schema_takes_every_job_of_ours_and_refuses_a_misspelt_field() -> None:
    schema = dist.job_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    for path in (ROOT / "jobs").glob("*.yml"):
        jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    job["training_job"]["wokers"] = 2
    with pytest.raises(jsonschema.ValidationError, match="'wokers' was unexpected"):
        jsonschema.validate(job, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"job": {}}, schema)


def test_the_packages_of_a_site_are_those_of_the_checkout() -> None:
    """requirements-site.txt has no version and no hash of its own."""

    def pins(name: str) -> dict[str, list[str]]:
        text = (ROOT / name).read_text()
        entries = re.findall(r"^([^\s#].*?) \\\n((?: +--hash=\S+(?: \\)?\n)+)", text, re.MULTILINE)
        return {pin: hashes.split() for pin, hashes in entries}

    ours, site = pins("requirements.txt"), pins("requirements-site.txt")
    own = {re.sub(r" ;.*", "", pin): hashes for pin, hashes in ours.items()}
    assert len(site) > 20
    assert {pin for pin, hashes in site.items() if own.get(re.sub(r" ;.*", "", pin)) != hashes} == set()
    assert not any(word in "\n".join(site) for word in ("pytest", "ruff", "molecule"))
