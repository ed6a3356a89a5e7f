"""Add the lab's context to the user's kubeconfig, or remove it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host import kubeconfig


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_kubeconfig.py."""

    OPTIONS: ClassVar = {
        "context": {"type": "str", "required": True},
        "admin": {"type": "path"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    }
    REQUIRED_IF: ClassVar = [("state", "present", ["admin"])]

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        path = kubeconfig.user_file()
        admin = Path(given["admin"]) if given["state"] == "present" else None
        if self.dry and admin and not admin.exists():
            return {"changed": True, "path": str(path)}
        return {"changed": kubeconfig.ensure(path, given["context"], admin, dry=self.dry), "path": str(path)}
