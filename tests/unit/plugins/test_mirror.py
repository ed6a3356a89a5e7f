"""playbooks/mirror.yml before it sends anything: a bundle whose programs do not start is refused with the fix."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def bundle(folder: Path, crane: str | None, mode: int) -> Path:
    """A bundle with one image, a Helm that starts, and this crane."""
    about = {"components": ["volcano"], "charts": [], "images": [
        {"path": "a", "tag": "1", "digest": "sha256:0", "layout": "images/a"}]}  # fmt: skip
    (folder / "bin").mkdir(parents=True)
    (folder / "bundle.json").write_text(json.dumps(about))
    (folder / "bin/helm").write_text("#!/bin/sh\n")
    (folder / "bin/helm").chmod(0o755)
    if crane is not None:
        (folder / "bin/crane").write_text(crane)
        (folder / "bin/crane").chmod(mode)
    digest = hashlib.sha256((folder / "bundle.json").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  bundle.json\n")
    return folder


@pytest.mark.parametrize(("crane", "mode"), [(None, 0), ("\x7fELF of another machine", 0o755)])
def test_programs_that_do_not_start_are_refused(tmp_path: Path, crane: str | None, mode: int) -> None:
    place = bundle(tmp_path / "bundle", crane, mode)
    values = [f"mirror_bundle={place}", "mirror_registry=registry.invalid", f"mirror_values={tmp_path}/sources.yml",
              f"ansible_python_interpreter={sys.executable}"]  # fmt: skip
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
               str(ROOT / "playbooks/mirror.yml"), *(word for value in values for word in ("-e", value))]  # fmt: skip
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "ANSIBLE_LOCAL_TEMP": str(tmp_path / "tmp")}
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | own, capture_output=True, text=True, check=False,
                          timeout=120)  # fmt: skip
    assert done.returncode != 0, done.stdout
    assert f"{place}/bin/crane: got " in done.stdout
    assert "Fix: unpack the bundle where programs may run" in done.stdout.replace("\n", " ")
    assert "Push |" not in done.stdout
    assert not (tmp_path / "sources.yml").exists()
