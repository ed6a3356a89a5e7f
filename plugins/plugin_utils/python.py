"""The check that Ansible's Python has the library; plugin_utils/base.py imports this before the library."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

from ansible.errors import AnsibleError

ROOT = Path(__file__).resolve().parents[2]  # the checkout, also through the link in .collections; or what was installed
MANIFEST = ROOT / "MANIFEST.json"  # ansible-galaxy writes it, so a checkout has none
VERSION: str | None = json.loads(MANIFEST.read_text())["collection_info"]["version"] if MANIFEST.exists() else None
NEEDED = ("gangplank", "kubernetes")
EXTRAS = "[cluster,report]"


def refuse(what: str, other: str = "") -> None:
    """Refuse this Python in one line before the first task."""
    if VERSION:
        wheel = f"gangplank-{VERSION}-py3-none-any.whl"
        expected = f"the wheel of the collection {ROOT}"
        fix = f"{sys.executable} -m pip install './{wheel}{EXTRAS}' where {wheel} is; it comes with the collection"
    else:
        expected = "one with Gangplank"
        fix = f"run `make setup` in {ROOT}, then start {ROOT}/.venv/bin/ansible-playbook{other}"
    raise AnsibleError(f"{sys.executable}: got {what}, expected {expected}. Fix: {fix}")


def require(module: str, other: str = "") -> None:
    """Refuse a Python without this module."""
    if find_spec(module) is None:
        refuse(f"no Python module {module}", other)


for name in NEEDED:
    require(name, f"; or {sys.executable} -m pip install '{ROOT}{EXTRAS}'")
if VERSION:
    from gangplank import __version__

    if __version__ != VERSION:
        refuse(f"gangplank {__version__}")
