"""Ensure or remove a node of the lab, or the whole lab."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host import node
from lab.host.mounts import Bind
from lab.host.network import Network


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_node.py."""

    BIND: ClassVar = {
        "source": {"type": "path", "required": True},
        "target": {"type": "path", "required": True},
        "writable": {"type": "bool", "default": False},
    }
    OPTIONS: ClassVar = {
        "name": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent", "no_lab"], "default": "present"},
        "keep": {"type": "bool", "default": False},
        "folder": {"type": "path", "required": True},
        "tree": {"type": "path"},
        "address": {"type": "str"},
        "host_address": {"type": "str"},
        "routes": {"type": "dict", "default": {}},
        "binds": {"type": "list", "elements": "dict", "default": [], "options": BIND},
    }
    REQUIRED_IF: ClassVar = [
        ("state", "present", ["name", "tree", "address", "host_address"]),
        ("state", "absent", ["name"]),
    ]

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        name, folder = arguments["name"], Path(arguments["folder"])
        if arguments["state"] == "no_lab":
            remove = node.lab_exists if self.dry else node.remove_lab
            return {"changed": remove(folder, keep=arguments["keep"])}
        if self.dry:
            return {"changed": (name in node.lab_nodes()) != (arguments["state"] == "present")}
        if arguments["state"] == "absent":
            return {"changed": node.remove_node(name)}
        binds = [Bind(**bind) for bind in arguments["binds"]]
        network = Network(arguments["address"], arguments["host_address"], arguments["routes"])
        new = not (folder / node.STAMP).exists()
        reasons = node.ensure_node(name, folder, arguments["tree"], network, binds)
        healed = [] if new else reasons
        for line in healed:
            Display().display(f"    {name}: {line}; it is made again")
        return {"changed": bool(reasons), "healed": healed}
