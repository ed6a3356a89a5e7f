"""Ensure the lab's certificate authorities, certificates and the service account key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.pki import Leaf, ensure


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

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        folder = Path(arguments["folder"])
        leaves = [Leaf(**{**leaf, "sans": tuple(leaf["sans"])}) for leaf in arguments["certificates"]]
        if self.dry:
            names = [*arguments["authorities"], *(leaf.name for leaf in leaves)]
            return {"changed": any(not (folder / f"{name}.crt").exists() for name in names)}
        renewed = ensure(folder, arguments["authorities"], leaves)
        return {"changed": bool(renewed), "made": renewed}
