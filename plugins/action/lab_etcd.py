"""Ensure that the lab's etcd takes writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.etcd import Etcd, heal
from lab.host.namespaces import in_network


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_etcd.py."""

    OPTIONS: ClassVar = {
        "node": {"type": "str", "required": True},
        "pki": {"type": "path", "required": True},
        "timeout_s": {"type": "int", "required": True},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        etcd, timeout_s = Etcd(Path(arguments["pki"])), arguments["timeout_s"]
        line = in_network(arguments["node"], lambda: heal(etcd, timeout_s))
        if line:
            Display().display(f"    {line}")
        return {"changed": bool(line), "healed": line}
