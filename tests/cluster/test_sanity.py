"""`ansible-test sanity` is clean for the collection that `make dist` builds. It needs the package index, and no lab."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.support.checkout import copy_checkout

if TYPE_CHECKING:
    from pathlib import Path


def sanity(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.sanity", *words]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=1800)


def test_ansible_test_sanity_is_clean(tmp_path: Path) -> None:
    done = sanity(copy_checkout(tmp_path / "checkout"))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert 'Running sanity test "validate-modules"' in done.stdout + done.stderr


def test_what_ansible_test_refuses_fails(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout / "roles/volcano/files/keep-crds").write_text("#!/usr/bin/env python3\n")
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "--all",
                    "--message", "b"], cwd=checkout, check=True)  # fmt: skip
    done = sanity(checkout, "--test", "shebang")
    assert done.returncode != 0
    assert "roles/volcano/files/keep-crds:1:1: unexpected non-module shebang" in done.stdout + done.stderr
