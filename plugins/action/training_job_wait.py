"""Wait for a submitted training job, showing how far it is; judge its evidence and return its ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gangplank.cluster import ClusterError, JobWatch, follow
from gangplank.proof import Expected, prove, read_records
from gangplank.watch import table


class ActionModule(ActionBase):
    """Arguments: manifest, job (as gangplank_job returns it), timeout_s, kubeconfig. Returns rows, table and proof."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Convert, call, translate the error."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = {
            "manifest": {"type": "dict", "required": True},
            "job": {"type": "dict", "required": True},
            "timeout_s": {"type": "float", "required": True},
            "kubeconfig": {"type": "path"},
        }
        _, given = self.validate_argument_spec(spec)
        display = Display()
        try:
            watch = JobWatch(given["manifest"], given["kubeconfig"])
            end = follow(watch, lambda line: display.display(f"    {line}"), given["timeout_s"])
        except ClusterError as error:
            return result | {"failed": True, "msg": str(error)}
        if end is None or end.failed:
            what = f"did not end within {given['timeout_s']:.0f} s" if end is None else f"{end.name} {end.reason}"
            cure = "mend what these lines name; a job that has failed is run anew with -e training_job_replace=true"
            return result | {"failed": True, "msg": f"job {watch.name}: {what}\n{watch.trouble()}\nCure: {cure}"}
        rows = watch.progress().rows
        records = read_records(watch.text())
        result |= {"changed": False, "rows": rows, "table": table(rows).splitlines() if rows else []}
        if records:
            expected = Expected(world_size=given["job"]["world_size"])
            verdict = prove(records, expected)
            result |= {"proven": verdict.passed, "proof": verdict.text().splitlines()}
        return result
