"""Report every reason why this machine cannot run the lab, before anything is changed."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host import preflight
from lab.host.facts import gather


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_preflight.py."""

    SIZES = ("disk_cold_gib", "disk_warm_gib", "memory_gib")
    OPTIONS: ClassVar = {
        **{name: {"type": "float", "required": True} for name in SIZES},
        **{name: {"type": "path", "required": True} for name in ("cache", "state")},
        "networks": {"type": "list", "elements": "str", "required": True},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Gather, judge, report; nothing is changed."""
        needs = preflight.Needs(tuple(arguments["networks"]), *(arguments[name] for name in self.SIZES))
        host = gather(arguments["cache"], arguments["state"])
        if problems := preflight.find_problems(host, needs):
            count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}"
            text = "\n".join(f"- {line}" for line in problems)
            return {"failed": True, "msg": f"This machine cannot run the lab yet; {count}:\n{text}"}
        return {"changed": False, "notes": preflight.notes(host)}
