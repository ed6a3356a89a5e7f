"""Wait for a submitted training job, showing how far it is; return its ranks and their evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gangplank.chains import complete, read_records, select
from gangplank.cluster import JobWatch, follow
from gangplank.kube import KubeError
from gangplank.watch import table


class ActionModule(ActionBase):
    """Arguments: manifest, job (as gangplank_job returns it), timeout_s, kubeconfig.

    Returns rows, table, evidence and complete.
    """

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
        except KubeError as error:
            return result | {"failed": True, "msg": str(error)}
        if end is None or end.failed:
            what = f"did not end within {given['timeout_s']:.0f} s" if end is None else f"{end.name} {end.reason}"
            cure = "mend what these lines name; a job that has failed is run anew with -e training_job_replace=true"
            return result | {"failed": True, "msg": f"job {watch.name}: {what}\n{watch.trouble()}\nCure: {cure}"}
        rows = watch.progress().rows
        evidence = [line for line in watch.text().splitlines() if line.startswith('{"event":"evidence"')]
        whole = complete(select(read_records("\n".join(evidence))), given["job"]["world_size"])
        shown = table(rows).splitlines() if rows else []
        # Workers' pods, and their logs, may be gone: then rank 0 has left everybody's evidence on the claim.
        found = {"rows": rows, "table": shown, "evidence": evidence, "complete": whole, "job_uid": watch.job_uid}
        return result | found | {"changed": False}
