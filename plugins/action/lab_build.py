"""Build the wanted parts of the lab on the controller, and say how far it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from lab.build import build
from lab.errors import PartError


class ActionModule(ActionBase):
    """Arguments: parts (names of lab/versions.yml). Returns what lab.build.build returns."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Convert, call, translate the error."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec({"parts": {"type": "list", "elements": "str", "required": True}})
        display = Display()
        try:
            found = build(given["parts"], lambda line: display.display(f"    {line}"), dry=self._task.check_mode)
        except PartError as error:
            return result | {"failed": True, "msg": str(error)}
        except KeyboardInterrupt:
            display.display("    stopped; what was finished is kept, run it again to go on")
            raise
        return result | found | {"changed": bool(found["built"])}
