"""Ensure that the lab's supervisord runs and follows its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host import supervisor


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_supervisor.py."""

    OPTIONS: ClassVar = {name: {"type": "path", "required": True} for name in ("config", "socket", "logs")}

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        socket = Path(arguments["socket"])
        if self.dry:
            return {"changed": not supervisor.answers(socket)}
        Path(arguments["logs"]).mkdir(parents=True, exist_ok=True)
        started_before = (Path(arguments["config"]).parent / supervisor.OUTPUT).exists()
        started, programs = supervisor.ensure(Path(arguments["config"]), socket)
        healed = supervisor.healed(programs["revived"], lost=started_before and started)
        for line in healed:
            Display().display(f"    {line}")
        return {"changed": started or any(programs.values()), "programs": programs, "healed": healed}
