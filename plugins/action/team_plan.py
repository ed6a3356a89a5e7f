"""Compare a site's teams with the cluster: what to do, step by step, and what will come of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gangplank.errors import SpecError
from gangplank.files import Unreadable
from gangplank.kube import Kube, KubeError
from gangplank.teams.work import Work, work


class ActionModule(ActionBase):
    """Arguments: folder, remove, remove_claims, kubeconfig.

    Returns remove, steps, notes, differences and probe; changes nothing, and says in check mode what would change.
    """

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Convert, call, translate the error."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = {
            "folder": {"type": "path", "required": True},
            "remove": {"type": "list", "elements": "str", "default": []},
            "remove_claims": {"type": "list", "elements": "str", "default": []},
            "kubeconfig": {"type": "path"},
        }
        _, given = self.validate_argument_spec(spec)
        try:
            found: Work = work(Kube(given["kubeconfig"]), given["folder"], given["remove"], given["remove_claims"])
        except (SpecError, KubeError, Unreadable) as error:
            return result | {"failed": True, "msg": str(error)}
        if found.refused:
            return result | {"failed": True, "msg": "\n".join(found.refused)}
        lines = [str(item) for item in found.differences]
        return result | {
            "changed": bool(self._task.check_mode and found.changes),
            "remove": list(found.remove),
            "steps": [{"name": step.name, "objects": list(step.objects)} for step in found.steps],
            "notes": list(found.notes),
            "differences": lines,
            "probe": found.probe,
            "diff": [{"before": "", "after": "".join(f"{line}\n" for line in lines), "after_header": "teams"}],
        }
