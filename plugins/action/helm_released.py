"""Look at a release of a chart and whether it is as asked, which takes Helm's own module most of a second to find."""

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

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Read and compare."""
        namespace = f"/api/v1/namespaces/{given['namespace']}"
        selector = f"owner=helm,name={given['name']},status notin (superseded,uninstalled)"
        found = self.kube.get(f"{namespace}/secrets", {"labelSelector": selector}) or {"items": []}
        revisions = sorted(found["items"], key=lambda secret: int(secret["metadata"]["labels"]["version"]))
        statuses = {secret["metadata"]["name"]: secret["metadata"]["labels"]["status"] for secret in revisions}
        return {
            "changed": False,
            "namespace": self.kube.get(namespace) is not None,
            "pending": [name for name, status in statuses.items() if status.startswith("pending-")],
            "as_asked": bool(revisions) and as_asked(revisions[-1], Path(given["chart"]), given["values"]),
        }


def as_asked(secret: dict[str, Any], chart: Path, values: dict[str, Any]) -> bool:
    """Whether a revision's Secret tells of this chart with these values."""
    folder = chart.is_absolute() and (chart / "Chart.yaml").is_file()
    if secret["metadata"]["labels"]["status"] != "deployed" or not folder:
        return False
    # Helm's own base64, in the API's: https://github.com/helm/helm/blob/v3.18.0/pkg/storage/driver/util.go
    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    wanted, had = yaml.safe_load((chart / "Chart.yaml").read_text()), release["chart"]["metadata"]
    same = all(str(wanted.get(fact) or "") == str(had.get(fact) or "") for fact in FACTS)
    return same and (release.get("config") or {}) == values
