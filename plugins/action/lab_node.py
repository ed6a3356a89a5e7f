"""Ensure the nodes of the lab, remove one, or remove the whole lab."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from gangplank.disk import discard
from lab.host import node
from lab.host.mounts import Bind
from lab.host.network import SWITCH


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_node.py."""

    BIND: ClassVar = {
        "source": {"type": "str", "required": True},
        "target": {"type": "path", "required": True},
        "writable": {"type": "bool", "default": False},
    }
    NODE: ClassVar = {
        "name": {"type": "str", "required": True},
        "folder": {"type": "path", "required": True},
        "address": {"type": "str", "required": True},
        "pods": {"type": "str", "required": True},
        "binds": {"type": "list", "elements": "dict", "default": [], "options": BIND},
    }
    OPTIONS: ClassVar = {
        "state": {"type": "str", "choices": ["present", "absent", "no_lab"], "default": "present"},
        "nodes": {"type": "list", "elements": "dict", "options": NODE},
        "tree": {"type": "path"},
        "host_address": {"type": "str"},
        "services": {"type": "str"},
        "name": {"type": "str"},
        "folder": {"type": "path"},
        "keep": {"type": "bool", "default": False},
    }
    REQUIRED_IF: ClassVar = [
        ("state", "present", ["nodes", "tree", "host_address", "services"]),
        ("state", "absent", ["name", "folder"]),
        ("state", "no_lab", ["folder"]),
    ]

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        if arguments["state"] != "present" and not arguments["keep"]:
            node.refuse_mounts(Path(arguments["folder"]))
        if arguments["state"] == "no_lab":
            remove = node.lab_exists if self.dry else node.remove_lab
            return {"changed": remove(Path(arguments["folder"]), keep=arguments["keep"])}
        if arguments["state"] == "absent":
            name, folder = arguments["name"], Path(arguments["folder"])
            if self.dry:
                return {"changed": name in node.lab_nodes() or (folder.exists() and not arguments["keep"])}
            existed = node.remove_node(name)
            # No half of its images is left to a node of its name.
            return {"changed": (not arguments["keep"] and discard(folder)) or existed}
        if self.dry:
            return {"changed": not {item["name"] for item in arguments["nodes"]} <= set(node.lab_nodes())}
        return self.ensure(arguments)

    @staticmethod
    def ensure(arguments: dict[str, Any]) -> dict[str, Any]:
        """Ensure all nodes, and say what those that are not new lacked."""
        nodes = [
            node.Node(**{**item, "folder": Path(item["folder"]), "binds": [*map(bind_of, item["binds"])]})
            for item in arguments["nodes"]
        ]
        new = {item.name for item in nodes if not (item.folder / node.STAMP).exists()}
        if len(new) == len(nodes):
            new.add(SWITCH)
        reasons = node.ensure_nodes(nodes, arguments["tree"], arguments["host_address"], arguments["services"])
        healed = [f"{name}: {line}" for name, lines in reasons.items() if name not in new for line in lines]
        for line in healed:
            Display().display(f"    {line}; it is made again")
        return {"changed": any(reasons.values()), "healed": healed}


def bind_of(bind: dict[str, Any]) -> Bind:
    """A bind with its target as the kernel names it: with a slash at its end, its mount would never be seen."""
    return Bind(**{**bind, "target": os.path.normpath(bind["target"])})
