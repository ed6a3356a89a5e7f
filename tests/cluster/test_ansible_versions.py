"""The plugins and playbooks work with the oldest ansible-core that the collection names, and with the newest there is.

ansible-core 2.20 and newer need Python 3.12: the newest for the Python of .venv is tried, and what requirements.txt has
for the newest Python of this machine, set up as a user would. Needs the package index, and no lab.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
import yaml

from tests.cluster.conftest import ROOT
from tests.support.checkout import copy_checkout

RANGE = str(yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"])
OLDEST = re.sub(">=", "==", RANGE)
PARTS = ("tests/unit/plugins", "tests/repository/test_playbooks.py")
# It starts the Ansible of `make setup`, which lacks the library. In the environment of this test it does not.
LEFT_OUT = "test_a_python_without_the_library_is_refused_in_one_line_before_any_change"


def make_venv(folder: Path, package: str) -> Path:
    """An environment with this ansible-core before all packages of ours: its Python."""
    venv.create(folder, symlinks=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--upgrade", package]
    subprocess.run(pip, check=True, timeout=300)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return python


def newer_python() -> str:
    """A Python of this machine that takes a newer ansible-core than Python 3.11; "" if there is none."""
    beside = sorted(map(str, Path(sys.base_prefix).parent.glob("*/bin/python3.1[2-4]")))  # pyenv's have a folder each
    for python in [*(f"python3.{minor}" for minor in (14, 13, 12)), *reversed(beside)]:
        with contextlib.suppress(OSError):
            if not subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode:
                return python
    return ""


def tried(python: Path, checkout: Path, *words: str) -> None:
    """Run the tests of the plugins and playbooks in a checkout with a Python."""
    env = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    command = [str(python), "-m", "pytest", *PARTS, "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout[-6000:]
    assert re.search(r"\d\d+ passed", done.stdout)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason=".venv has a newer Python")
def test_plugins_and_playbooks_work_with_the_lock_of_a_newer_python(tmp_path: Path) -> None:
    if not (newer := newer_python()):
        pytest.skip("this machine has no Python from 3.12 to 3.14")
    checkout = copy_checkout(tmp_path / "checkout")
    subprocess.run(["make", "setup", f"PYTHON={newer}"], cwd=checkout, check=True, timeout=600)
    python = checkout / ".venv/bin/python"
    show = [str(python), "-c", "import ansible; print(ansible.__version__)"]
    version = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip()
    assert f"ansible-core=={version} ; python_full_version >= '3.12'" in (ROOT / "requirements.txt").read_text()
    tried(python, checkout, f"--basetemp={tmp_path}/temp")


@pytest.mark.parametrize("package", [f"ansible-core{OLDEST}", f"ansible-core{RANGE}"], ids=["oldest", "newest"])
def test_plugins_and_playbooks_work_with_the(package: str, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", package)
    show = [str(python), "-c", "import ansible; print(ansible.__version__, ansible.__file__)"]
    version, _, place = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip().partition(" ")
    assert place.startswith(str(tmp_path))
    if "==" in package:
        assert package.endswith(f"=={version}")
    tried(python, ROOT, "-k", f"not {LEFT_OUT}", f"--basetemp={tmp_path}/temp")
