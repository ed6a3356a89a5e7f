"""Read the logs of pods, several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.cluster.logs import GONE
from gangplank.errors import KubeError
from gangplank.text import plain

if TYPE_CHECKING:
    from gangplank.spec import Json


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_logs.py."""

    OPTIONS: ClassVar = {
        "pods": {"type": "list", "elements": "dict", "required": True},
        "lines": {"type": "int", "default": 0},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Convert and call."""
        logs = {pod["metadata"]["name"]: self.log(pod, args["lines"]) for pod in args["pods"]}
        return {"changed": False, "logs": {name: text for name, text in logs.items() if text is not None}}

    def log(self, pod: Json, lines: int) -> str | None:
        """The log of a pod's last container; None if it has none."""
        meta, container = pod["metadata"], pod["spec"]["containers"][-1]["name"]
        try:
            return "\n".join(map(plain, self.kube.log(pod, container, lines)))
        except KubeError as error:
            if error.status in GONE:
                return None
            raise KubeError(f"pod {meta['namespace']}/{meta['name']}: {error}", error.status) from None
