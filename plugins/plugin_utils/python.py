"""The check that Ansible's Python has the library; plugin_utils/base.py imports this before the library."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from ansible.errors import AnsibleError

ROOT = Path(__file__).resolve().parents[2]  # the checkout, also through the link in .collections
NEEDED = ("gangplank", "kubernetes")


def require(module: str, other: str = "") -> None:
    """Refuse a Python without this module, in one line before the first task."""
    if find_spec(module) is None:
        fix = f"run `make setup` in {ROOT}, then start {ROOT}/.venv/bin/ansible-playbook{other}"
        raise AnsibleError(f"{sys.executable}: got no Python module {module}, expected one with Gangplank. Fix: {fix}")


for name in NEEDED:
    require(name, f"; or {sys.executable} -m pip install '{ROOT}[cluster,report]'")
