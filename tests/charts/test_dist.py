"""All of `make dist`: the same commit gives the same bytes, and Helm takes the charts from their archives."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangplank import __version__
from lab.build.parts import build
from tests.support.checkout import copy_checkout, git
from tests.support.helm import KUBERNETES
from tests.support.loopback import served
from tools.dist import SCHEMA, SUMS

ROOT = Path(__file__).resolve().parents[2]
CHARTS = ("simulated-gpu", "storage", "training-job", "training-operator")


def make_dist(checkout: Path, **more: str) -> Path:
    """What `make dist` writes in a checkout."""
    command = [sys.executable, "-m", "tools.dist"]
    done = subprocess.run(
        command, cwd=checkout, env={**os.environ, **more}, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (checkout / "dist" / SUMS).read_text()
    return checkout / "dist"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_checkout(tmp_path_factory.mktemp("dist") / "checkout")


@pytest.fixture(scope="module")
def dist(checkout: Path) -> Path:
    return make_dist(checkout)


@pytest.fixture(scope="module")
def helm() -> str:
    return f"{build(['helm'], print)['bin']['helm']}/helm"


def template(helm: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HELM_CACHE_HOME": str(folder / "helm"), "HELM_CONFIG_HOME": str(folder / "helm")}
    command = [helm, "template", KUBERNETES, "digits", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_the_same_commit_gives_the_same_bytes_in_another_folder_and_time_zone(
    dist: Path, checkout: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "--quiet", str(checkout), "other")
    other = make_dist(tmp_path / "other", TZ="Asia/Kathmandu")
    assert (other / SUMS).read_text() == (dist / SUMS).read_text()


def test_the_sums_name_every_file(dist: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--quiet", "--strict", SUMS], cwd=dist, check=True)
    listed = {line.split("  ")[1] for line in (dist / SUMS).read_text().splitlines()}
    assert listed == {str(path.relative_to(dist)) for path in dist.rglob("*") if path.is_file()} - {SUMS}
    assert SCHEMA in listed


def test_the_index_names_every_chart_of_a_site_by_its_hash(dist: Path) -> None:
    index = yaml.safe_load((dist / "charts/index.yaml").read_text())
    archives = {name: f"{name}-{__version__}.tgz" for name in CHARTS}
    assert {name: entry["urls"] for name, (entry,) in index["entries"].items()} == {
        name: [archive] for name, archive in archives.items()
    }
    for name, archive in archives.items():
        digest = hashlib.sha256((dist / "charts" / archive).read_bytes()).hexdigest()
        assert index["entries"][name][0]["digest"] == digest


def test_helm_renders_a_job_from_the_archive_and_from_the_repository_as_from_the_checkout(
    dist: Path, helm: str, tmp_path: Path
) -> None:
    job = ("--values", str(ROOT / "jobs/digits.yml"))
    expected = template(helm, tmp_path, str(ROOT / "charts/training-job"), *job)
    assert "kind: Job" in expected.stdout, expected.stderr
    archive = dist / f"charts/training-job-{__version__}.tgz"
    assert template(helm, tmp_path, str(archive), *job).stdout == expected.stdout
    with served(dist / "charts") as address:
        assert template(helm, tmp_path, "training-job", "--repo", address, *job).stdout == expected.stdout


def test_the_schema_in_the_archive_refuses_a_misspelt_field(dist: Path, helm: str, tmp_path: Path) -> None:
    (tmp_path / "job.yml").write_text("training_job: {name: a, image: a, wokers: 2}\n")
    archive = dist / f"charts/training-job-{__version__}.tgz"
    done = template(helm, tmp_path, str(archive), "--values", "job.yml")
    assert done.returncode != 0
    assert "wokers" in done.stderr


def test_a_refusal_leaves_what_was_built_before(dist: Path, checkout: Path) -> None:
    before = (dist / SUMS).read_text()
    (checkout / "README.md").write_text("other\n")
    try:
        command = [sys.executable, "-m", "tools.dist"]
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=60)
    finally:
        git(checkout, "checkout", "--quiet", "README.md")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("git status: got README.md, expected no change that is not committed. Fix: ")
    assert (dist / SUMS).read_text() == before
    assert not (checkout / ".dist").exists()
