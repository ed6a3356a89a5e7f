"""Hold the lab for this run of ansible-playbook, so that no other run changes it meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host import lock, supervisor


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_lock.py."""

    OPTIONS: ClassVar = {
        "folder": {"type": "path", "required": True},
        "state": {"type": "str", "choices": ["held", "free"], "default": "held"},
        "create": {"type": "bool", "default": True},
        "timeout_s": {"type": "int", "default": 900},
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        folder, record = Path(args["folder"]), self.record()
        if args["state"] == "free":
            lock.free(folder, record["pid"])
            return {"changed": False}
        lock.refuse_foreign(folder)
        if not self.dry:
            supervisor.refuse_other(folder)
        if not self.dry and (args["create"] or folder.exists()):
            lock.hold(folder, record, lambda line: Display().display(f"    {line}"), args["timeout_s"])
        return {"changed": False}
