"""The plugins and playbooks work with the oldest ansible-core that the collection names, and with the newest there is.

The newest for the Python of .venv: ansible-core 2.20 and newer need Python 3.12. Needs the package index, and no lab.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.mark.parametrize("package", [f"ansible-core{OLDEST}", f"ansible-core{RANGE}"], ids=["oldest", "newest"])
def test_plugins_and_playbooks_work_with_the(package: str, tmp_path: Path) -> None:
    python = make_venv(tmp_path / "venv", package)
    show = [str(python), "-c", "import ansible; print(ansible.__version__, ansible.__file__)"]
    version, _, place = subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip().partition(" ")
    assert place.startswith(str(tmp_path))
    if "==" in package:
        assert package.endswith(f"=={version}")
    env = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    command = [str(python), "-m", "pytest", *PARTS, "-q", "-p", "no:cacheprovider", "-k", f"not {LEFT_OUT}",
               f"--basetemp={tmp_path}/temp"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, f"{version}: {done.stdout[-6000:]}"
    assert re.search(r"\d\d+ passed", done.stdout)
