"""Build the wanted parts of the lab on the controller, and say how far it is."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.lab import LabAction

from lab.build.parts import build


class ActionModule(LabAction):
    """Documented in plugins/modules/lab_build.py."""

    OPTIONS: ClassVar = {"parts": {"type": "list", "elements": "str", "required": True}}

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        display = Display()
        try:
            found = build(given["parts"], lambda line: display.display(f"    {line}"), dry=self.dry)
        except KeyboardInterrupt:
            display.display("    stopped; what was finished is kept, run it again to go on")
            raise
        return found | {"changed": bool(found["built"])}
