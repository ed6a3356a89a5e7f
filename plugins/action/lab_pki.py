"""Ensure the lab's certificate authorities, certificates and the service account key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.pki import Leaf, authority, ensure

NEW_KEY = (
    "ca: got a new key, so pods that use the API trust the authority before until they are restarted. Fix: "
    "kubectl rollout restart deployment -n NAMESPACE, for kube-system, volcano-system and others with such pods"
)


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
        "data": {"type": "path"},
        "authorities": {"type": "list", "elements": "str", "required": True},
        "certificates": {"type": "list", "elements": "dict", "required": True, "options": LEAF},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        folder = Path(arguments["folder"])
        leaves = [Leaf(**{**leaf, "sans": tuple(leaf["sans"])}) for leaf in arguments["certificates"]]
        new, before = not folder.exists(), authority(folder)
        data = arguments["data"] and Path(arguments["data"])
        reasons = ensure(folder, arguments["authorities"], leaves, data, dry=self.dry)
        healed = [] if new else [f"{name}: {reason}" for name, reason in reasons.items()]
        for line in healed:
            Display().display(f"    {folder}: {line}; {'it would be' if self.dry else 'it is'} made again")
        if healed and before and authority(folder) not in {before, b""}:
            Display().display(f"    {NEW_KEY}")
        return {"changed": bool(reasons), "made": list(reasons), "healed": healed}
