"""Wait until the lab's API answers and its nodes are Ready."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.ready import wait
from lab.host.supervisor import start_times


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_wait.py."""

    OPTIONS: ClassVar = {
        "kubeconfig": {"type": "path", "required": True},
        "nodes": {"type": "list", "elements": "str", "required": True},
        "timeout_s": {"type": "int", "required": True},
        "logs": {"type": "path", "required": True},
        "socket": {"type": "path", "required": True},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call; nothing is changed."""
        kubeconfig, logs = Path(arguments["kubeconfig"]), Path(arguments["logs"])
        starts = partial(start_times, Path(arguments["socket"]), "kubelet")
        waited_s = wait(kubeconfig, arguments["nodes"], arguments["timeout_s"], logs, starts)
        return {"changed": False, "waited_s": waited_s}
