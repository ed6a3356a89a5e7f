"""Ensure the lab's certificate authorities, certificates and the service account key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.pki import Wanted, ensure


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_pki.py."""

    LEAF: ClassVar = {
        "name": {"type": "str", "required": True},
        "common_name": {"type": "str", "required": True},
        "organization": {"type": "str", "default": ""},
        "sans": {"type": "list", "elements": "str", "default": []},
        "ca": {"type": "str", "default": "ca"},
    }
    OPTIONS: ClassVar = {
        "folder": {"type": "path", "required": True},
        "authorities": {"type": "list", "elements": "str", "required": True},
        "certificates": {"type": "list", "elements": "dict", "required": True, "options": LEAF},
    }

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        folder = Path(given["folder"])
        wanted = [Wanted(**{**leaf, "sans": tuple(leaf["sans"])}) for leaf in given["certificates"]]
        if self.dry:
            names = [*given["authorities"], *(leaf.name for leaf in wanted)]
            return {"changed": any(not (folder / f"{name}.crt").exists() for name in names)}
        made = ensure(folder, given["authorities"], wanted)
        return {"changed": bool(made), "made": made}
