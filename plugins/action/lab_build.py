"""Build the requested parts of the lab on the controller, and report progress."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.build.parts import build


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_build.py."""

    OPTIONS: ClassVar = {"parts": {"type": "list", "elements": "str", "required": True}}

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert the arguments and call."""
        display = Display()
        try:
            result = build(arguments["parts"], lambda line: display.display(f"    {line}"), dry=self.dry)
        except KeyboardInterrupt:
            display.display("    interrupted; finished parts are kept. Run it again to continue")
            raise
        return result | {"changed": bool(result["built"])}
