"""What lies on a volume claim of the lab, read from the node that has the volume."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab


class Files:
    """The files of a claim; none as long as it has no volume."""

    def __init__(self, lab: Lab, namespace: str, claim: str) -> None:
        self.lab, self.path = lab, ""
        volume = lab.get("persistentvolumeclaim", claim, "-n", namespace)["spec"].get("volumeName")
        if not volume:
            return
        spec = lab.get("persistentvolume", volume)["spec"]
        self.path = (spec.get("hostPath") or spec["local"])["path"]
        terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
        nodes = [value for term in terms for rule in term["matchExpressions"] for value in rule["values"]]
        self.node = nodes[0] if nodes else min(lab.ready())  # a shared folder is on every node

    def hashes(self) -> dict[str, str]:
        """Each with its SHA-256, but for one that is removed meanwhile."""
        if not self.path:
            return {}
        text = self.lab.inside(self.node, "sh", "-c", f"cd {self.path} && find . -type f -exec sha256sum -z {{}} ';'")
        return {line[68:]: line[:64] for line in text.split("\0") if line}

    def content(self, name: str) -> bytes:
        """The bytes of one."""
        return base64.b64decode(self.lab.inside(self.node, "base64", f"{self.path}/{name}"))
