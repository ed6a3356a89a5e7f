"""Wait until the lab's API answers and its nodes are Ready."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.ready import wait


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_wait.py."""

    OPTIONS: ClassVar = {
        "kubeconfig": {"type": "path", "required": True},
        "nodes": {"type": "list", "elements": "str", "required": True},
        "timeout_s": {"type": "int", "required": True},
        "logs": {"type": "path", "required": True},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call; nothing is changed."""
        kubeconfig, logs = Path(arguments["kubeconfig"]), Path(arguments["logs"])
        waited_s = wait(kubeconfig, arguments["nodes"], arguments["timeout_s"], logs)
        return {"changed": False, "waited_s": waited_s}
