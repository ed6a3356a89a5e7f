"""A checkout like a fresh clone of this one, with what is not committed yet."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(sys.base_prefix, f"bin/python{sys.version_info.major}.{sys.version_info.minor}")  # that of .venv


def git(folder: Path, *words: str) -> str:
    """Run git without a configuration of its own."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


def copy_checkout(folder: Path) -> Path:
    """Copy the files that git knows, or would add, to a repository of their own."""
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return folder
