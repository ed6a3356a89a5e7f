"""Whether a chart's release is as requested, in a fraction of the second that Helm's own module takes."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.errors import GangplankError
from gangplank.wait import late, polls

FACTS = ("name", "version", "appVersion")


class ActionModule(ClusterAction):
    """Documented in plugins/modules/helm_released.py."""

    OPTIONS: ClassVar = {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "chart": {"type": "str", "required": True},
        "values": {"type": "dict", "default": {}},
        "timeout_s": {"type": "int", "default": 300},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Read and compare, when no Helm of this machine works on the release any more."""
        wait_for_helm(args["name"], args["namespace"], args["timeout_s"])
        namespace = f"/api/v1/namespaces/{args['namespace']}"
        selector = f"owner=helm,name={args['name']},status notin (superseded,uninstalled)"
        secrets = self.kube.get(f"{namespace}/secrets", {"labelSelector": selector}) or {"items": []}
        revisions = sorted(secrets["items"], key=lambda secret: int(secret["metadata"]["labels"]["version"]))
        statuses = {secret["metadata"]["name"]: secret["metadata"]["labels"]["status"] for secret in revisions}
        return {
            "changed": False,
            "namespace": self.kube.get(namespace) is not None,
            "pending": [name for name, status in statuses.items() if status.startswith("pending-")],
            "as_asked": bool(revisions) and as_asked(revisions[-1], Path(args["chart"]), args["values"]),
        }


def running_helm(name: str, namespace: str, processes: Path = Path("/proc")) -> str:
    """The process of this machine that changes the release, with its command; empty without one."""
    for entry in processes.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it ended meanwhile
            continue
        changes = Path(words[0]).name == "helm" and {"install", "upgrade", "uninstall", "rollback"} & set(words)
        if changes and name in words and {namespace, f"--namespace={namespace}", f"-n={namespace}"} & set(words):
            return f"process {entry.name} ({' '.join(words).strip()[:200]})"
    return ""


def wait_for_helm(name: str, namespace: str, limit_s: float) -> None:
    """Wait until no living Helm works on the release: its pending revision is not a dead run's."""
    process = ""
    for _ in polls(limit_s, 0.5):
        other = running_helm(name, namespace)
        if not other:
            return
        if other != process:
            Display().display(f"    release {namespace}/{name} is being changed by {other}: waiting for it")
        process = other
    fix = "wait for it or end it, then run it again"
    raise GangplankError(late(f"release {namespace}/{name}", process, "its end", limit_s, fix))


def as_asked(secret: dict[str, Any], chart: Path, values: dict[str, Any]) -> bool:
    """Whether a revision's Secret holds this chart with these values."""
    folder = chart.is_absolute() and (chart / "Chart.yaml").is_file()
    if secret["metadata"]["labels"]["status"] != "deployed" or not folder:
        return False
    # Helm's own base64, in the API's: https://github.com/helm/helm/blob/v3.18.0/pkg/storage/driver/util.go
    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    requested, installed = yaml.safe_load((chart / "Chart.yaml").read_text()), release["chart"]["metadata"]
    same = all(str(requested.get(fact) or "") == str(installed.get(fact) or "") for fact in FACTS)
    return same and (release.get("config") or {}) == values
