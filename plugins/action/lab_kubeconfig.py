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

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        path = kubeconfig.user_file()
        admin = Path(arguments["admin"]) if arguments["state"] == "present" else None
        if self.dry and admin and not admin.exists():
            return {"changed": True, "path": str(path)}
        return {"changed": kubeconfig.ensure(path, arguments["context"], admin, dry=self.dry), "path": str(path)}
