"""Whether a chart's release is as requested, in a fraction of the second that Helm's own module takes."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

FACTS = ("name", "version", "appVersion")


class ActionModule(ClusterAction):
    """Documented in plugins/modules/helm_released.py."""

    OPTIONS: ClassVar = {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "chart": {"type": "str", "required": True},
        "values": {"type": "dict", "default": {}},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Read and compare."""
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
