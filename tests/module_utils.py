"""Ansible finds plugins/module_utils as ansible.module_utils; tests find them so, too."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

FOLDER = Path(__file__).resolve().parents[1] / "plugins/module_utils"


def load(name: str) -> ModuleType:
    """Return ansible.module_utils.<name> of this project."""
    import ansible.module_utils

    if str(FOLDER) not in ansible.module_utils.__path__:
        ansible.module_utils.__path__.append(str(FOLDER))
    return importlib.import_module(f"ansible.module_utils.{name}")
