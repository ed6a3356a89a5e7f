"""Ensure that the lab's supervisord runs and follows its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host import supervisor


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_supervisor.py."""

    OPTIONS: ClassVar = {name: {"type": "path", "required": True} for name in ("config", "socket", "logs")}

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        socket = Path(given["socket"])
        running = supervisor.answers(socket)
        if self.dry:
            return {"changed": not running}
        Path(given["logs"]).mkdir(parents=True, exist_ok=True)
        done = supervisor.ensure(Path(given["config"]), socket)
        return {"changed": not running or any(done.values()), "programs": done}
