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
        "folder": {"type": "path", "required": True},
        "admin": {"type": "path"},
        "server": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent", "free"], "default": "present"},
    }
    REQUIRED_IF: ClassVar = [("state", "present", ["admin"]), ("state", "free", ["server"])]

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        path, name, lab = kubeconfig.user_file().absolute(), arguments["context"], Path(arguments["folder"])
        if arguments["state"] == "free":
            kubeconfig.refuse_other(path, name, arguments["server"], lab=lab)
            return {"changed": False, "path": str(path)}
        if arguments["state"] == "absent":
            return {"changed": kubeconfig.remove(name, lab, dry=self.dry), "path": str(path)}
        admin = Path(arguments["admin"])
        changed = (self.dry and not admin.exists()) or kubeconfig.ensure(path, name, admin, lab=lab, dry=self.dry)
        return {"changed": changed, "path": str(path)}
