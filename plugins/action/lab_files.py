"""Write all files of one host of the lab in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.host.files import HostFile, ensure


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_files.py."""

    FILE: ClassVar = {
        "path": {"type": "path", "required": True},
        "mode": {"type": "str", "default": "0644"},
        "content": {"type": "str", "no_log": False},
        "copy": {"type": "path"},
    }
    OPTIONS: ClassVar = {"files": {"type": "list", "elements": "dict", "required": True, "options": FILE}}

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        files = [
            HostFile(Path(file["path"]), int(file["mode"], 8), file["content"], file["copy"] and Path(file["copy"]))
            for file in arguments["files"]
        ]
        changes = ensure(files, dry=self.dry)
        headers = [{"before_header": str(change.path), "after_header": str(change.path)} for change in changes]
        diff = [
            {"before": change.before, "after": change.after, **header}
            for change, header in zip(changes, headers, strict=True)
            if not change.secret
        ]
        return {"changed": bool(changes), "written": [str(change.path) for change in changes], "diff": diff}
