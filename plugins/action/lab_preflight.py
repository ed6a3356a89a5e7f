"""Say all that keeps the lab from this machine, before anything is changed."""

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

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Gather, judge, report; nothing is changed."""
        needs = preflight.Needs(tuple(given["networks"]), *(given[name] for name in self.SIZES))
        host = gather(given["cache"], given["state"])
        if found := preflight.problems(host, needs):
            count = f"{len(found)} problems" if len(found) > 1 else "one problem"
            text = "\n".join(f"- {line}" for line in found)
            return {"failed": True, "msg": f"the lab cannot live on this machine yet, {count}:\n{text}"}
        return {"changed": False, "notes": preflight.notes(host)}
