"""Charts: their own tests pass, their READMEs are what helm-docs writes, and helm itself finds nothing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gangplank.site.preflight import OLDEST
from lab.build.parts import build
from tests.support.helm import KUBERNETES

ROOT = Path(__file__).resolve().parents[2]
CHARTS = sorted(path.parent for path in (ROOT / "charts").glob("*/Chart.yaml"))


@pytest.fixture(scope="module")
def tools() -> dict[str, str]:
    """The folder of each tool's commands; they are built if the cache lacks them."""
    folders: dict[str, str] = build(["helm", "helm-unittest", "helm-docs"], print)["bin"]
    return folders


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_the_charts_own_tests_pass(tools: dict[str, str], chart: Path) -> None:
    assert list(chart.glob("tests/*_test.yaml"))
    done = run(f"{tools['helm-unittest']}/helm-unittest", "--strict", str(chart))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_helm_lints_it(tools: dict[str, str], chart: Path) -> None:
    done = run(f"{tools['helm']}/helm", "lint", "--strict", KUBERNETES, str(chart))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_helm_refuses_an_older_kubernetes_as_preflight_does(tools: dict[str, str], chart: Path) -> None:
    major, minor = OLDEST
    refusals = []
    for version in (f"v{major}.{minor - 1}.14", f"v{major}.{minor}.0"):
        done = run(f"{tools['helm']}/helm", "template", str(chart), f"--kube-version={version}")
        refusals.append("incompatible with Kubernetes" in done.stderr)
    assert refusals == [True, False]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda path: path.name)
def test_the_readme_is_what_helm_docs_writes(tools: dict[str, str], chart: Path, tmp_path: Path) -> None:
    copy = tmp_path / "charts" / chart.name
    shutil.copytree(chart, copy)
    shutil.copyfile(ROOT / "charts/README.md.gotmpl", tmp_path / "charts/README.md.gotmpl")
    (copy / "README.md").unlink()
    run(f"{tools['helm-docs']}/helm-docs", "--template-files=../README.md.gotmpl", cwd=copy)
    assert (copy / "README.md").read_text() == (chart / "README.md").read_text(), "stale: make docs"
