"""`ansible-test sanity` on the collection that `make dist` builds: `python -m tools.sanity`, or `make sanity`.

ansible-test makes a virtual environment for each of its tests, of the packages that its version pins: it needs the
package index. tests/sanity/ lists what it may not complain about, with reasons. Words that follow are its arguments.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path
from types import SimpleNamespace

from ansible_test._internal.python_requirements import get_venv_packages

from lab.build.unpack import unpack
from lab.errors import PartError
from tools.dist import ROOT, DistError, collection, exported

# Instead of the get-pip.py that ansible-test would download. It also adds the packages of this Python to each
# environment, behind its own: without the library and the client of Kubernetes no action can be imported.
BOOTSTRAP = """\
import pathlib, subprocess, sys, sysconfig
packages = [word for word in sys.argv[1:] if not word.startswith("--no-")]
subprocess.run([{python!r}, "-m", "pip", "--python", sys.executable, "install", "--quiet", *packages], check=True)
pathlib.Path(sysconfig.get_path("purelib"), "library.pth").write_text("import site; site.addsitedir({packages!r})\\n")
"""


def home(folder: Path) -> Path:
    """Make a home for ansible-test, where it finds our BOOTSTRAP in its cache."""
    pip = get_venv_packages(SimpleNamespace(version=sysconfig.get_python_version()))["pip"]
    cache = folder / ".ansible/test/cache"
    cache.mkdir(parents=True)
    text = BOOTSTRAP.format(python=sys.executable, packages=sysconfig.get_path("purelib"))
    (cache / f"get_pip_{pip.replace('.', '_')}.py").write_text(text)
    return folder


def unpacked(root: Path, scratch: Path) -> Path:
    """The built collection, in the folders that ansible-test expects."""
    archive = collection(exported(root, scratch / "commit"), scratch)
    folder = scratch / "ansible_collections/gangplank/gangplank"
    with tarfile.open(archive) as packed:
        unpack(packed, folder)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)  # it asks git which files are its own
    (folder / ".git/info/exclude").write_text("tests/output/\n")
    return folder


def main(words: list[str]) -> int:
    """Run it; its exit status."""
    with tempfile.TemporaryDirectory(prefix="gangplank-sanity-") as scratch:
        try:
            folder = unpacked(ROOT, Path(scratch))
        except (DistError, PartError) as error:
            print(error, file=sys.stderr)
            return 1
        env = {**os.environ, "HOME": str(home(Path(scratch, "home"))), "LC_ALL": "C.UTF-8"}
        program, version = Path(sys.executable).with_name("ansible-test"), sysconfig.get_python_version()
        command = [str(program), "sanity", "--python", version, "--truncate", "0", *words]
        return subprocess.run(command, cwd=folder, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
