"""In a fresh clone, README and docs work as printed: all commands that need no cluster, no root and nothing built."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import PYTHON, copy_checkout, git

ROOT = Path(__file__).resolve().parents[2]
PAGES = [page for name in ("*", "changes/*", "docs/**/*") for page in sorted(ROOT.glob(f"{name}.md"))]
# Commands that are not run here, and what runs them.
ELSEWHERE = {
    r"make (train|lab|test|lab-load|molecule)\b": "make test, tests/cluster/test_lab.py, molecule",
    r"make pytest TESTS=": "make test",
    r"make sweep NAME=": "hours; tests/unit/tools/test_sweep.py",
    r"make (gpu-check|bench PARTS=\S+|test-vm|test-full)\b": "a GPU, a lab or hours",
    r"make check\b": "this test is a part of it",
    r"git clone …": "not an address yet",
    r"gangplank (submit|run|status|logs|fetch|scale|delete|proof|report|team|drift)\b": "tests/cluster, tests/unit/cli",
    r"gangplank data\b": "tests/unit/cluster, tests/cluster",
    r"gangplank preflight\b": "tests/cluster/test_preflight.py",
    r"gangplank (why|fit)\b": "tests/cluster/test_why.py",
    r"gangplank (when|metrics)\b": "tests/cluster/test_when.py, test_metrics.py",
    r"helm install |kubectl |nsenter ": "tests/charts, tests/cluster, molecule",
    r"make dist\b": "tests/charts/test_dist.py",
    r"make bundle\b|tar -xf gangplank-bundle|sed -i 's.gangplank.dev/trainer": "tests/cluster/test_bundle.py",
    r"\.venv/bin/pip install --target gcs ": "tests/cluster/test_gcs.py",
    r"(\$\()?\.venv/bin/python -m lab\.build": "tests/cluster/test_images.py",
    r"sha256sum |python3 -m venv |\. venv/|pip install |ansible-galaxy |cp -r ~/"
    r"|ansible-playbook -i site |gangplank expand --site site |helm template ": "tests/cluster/test_dist.py",
    r"docker (build|push) ": "no Docker here; tests/repository/test_cuda_recipe.py",
    r"\.venv/bin/pytest tests/unit/backends": "make check",
}
CHECKED = re.compile(r"(\S*/)?ansible-playbook ")  # only the syntax of playbook and inventory


def blocks(page: Path) -> list[list[str]]:
    """The command lines of each block of a page, without prompts, comments and output."""
    text = page.read_text()
    lines = [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)]
    console = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines += [re.findall(r"^\$ (.*)$", block, re.MULTILINE) for block in console]
    indented = re.findall(r"(?<=\n\n)(?: {4}[a-z.].*\n)+", text)
    lines += [[line.strip() for line in block.splitlines()] for block in indented]
    return [[re.sub(r"\s+# .*$", "", line) for line in block if line] for block in lines]


def elsewhere(line: str) -> bool:
    return any(re.match(pattern, line) for pattern in ELSEWHERE)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that `make setup` keeps on the Python of this checkout."""
    folder = copy_checkout(tmp_path_factory.mktemp("fresh clone") / "gangplank")
    done = run(f"make setup PYTHON='{PYTHON}'", folder)
    assert done.returncode == 0, done.stderr
    return folder


def run(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script in an environment with nothing but HOME and PATH."""
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part)
    names = ("HOME", "XDG_CACHE_HOME")
    env = {name: os.environ[name] for name in names if name in os.environ} | {"PATH": path}
    command = ["sh", "-ec", script]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run_as_printed(page: Path, clone: Path) -> None:
    lines = [line for block in blocks(page) for line in block if not elsewhere(line)]
    if not lines:
        return
    script = [f"{line} --syntax-check" if CHECKED.match(line) else line for line in lines]
    done = run("\n".join(["make setup", ". .venv/bin/activate", *script]), clone)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_playbook_is_run() -> None:
    lines = [line for page in PAGES for block in blocks(page) for line in block if not elsewhere(line)]
    assert [line for line in lines if "ansible-playbook" in line and not CHECKED.match(line)] == []


def test_the_table_of_the_readme_is_printed_from_any_folder(clone: Path, tmp_path: Path) -> None:
    done = run(f"'{clone}/.venv/bin/gangplank' expand '{clone}/jobs/digits.yml'", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout in (ROOT / "README.md").read_text()


def test_make_alone_lists_the_targets(clone: Path) -> None:
    assert re.search(r"^train +everything: ", run("make", clone).stdout, re.MULTILINE)


def test_a_clone_stays_clean(clone: Path) -> None:
    """Setup and the commands above leave ignored files, apart from those that the reader is to create."""
    left = git(clone, "status", "--porcelain").splitlines()
    assert [line for line in left if not line.endswith(("inventories/yours/", ".added.md"))] == []
