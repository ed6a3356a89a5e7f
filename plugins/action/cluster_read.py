"""Read objects of the cluster, several kinds at once: a module would start a Python for each."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.cluster.client import POLL_S
from gangplank.errors import KubeError
from gangplank.k8s.conditions import unmet
from gangplank.wait import late, polls


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_read.py."""

    OPTIONS: ClassVar = {
        "paths": {"type": "list", "elements": "str", "required": True},
        "conditions": {"type": "list", "elements": "str", "default": []},
        "timeout_s": {"type": "float", "default": 0},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Read, until each object has one of the conditions if any are named."""
        paths, conditions = args["paths"], args["conditions"]
        problem = ""
        for _attempt in polls(args["timeout_s"], POLL_S):
            objects = [self.objects(path) for path in paths]
            problem = self.missing(paths, objects, conditions, args["timeout_s"]) if conditions else ""
            if not problem:
                return {"changed": False, "found": objects}
        raise KubeError(problem)

    def objects(self, path: str) -> list[Any]:
        """The objects at a path; none if the cluster does not know its kind or name."""
        answer = self.answer(path)
        if answer is None:
            return []
        return list(answer["items"]) if "items" in answer else [answer]

    def missing(self, paths: list[str], objects: list[list[Any]], conditions: list[str], limit_s: float) -> str:
        """What the first object without one of the conditions has instead."""
        expected = f"the condition {' or '.join(conditions)}"
        for path, items in zip(paths, objects, strict=True):
            if not items:
                return late(path, "no object", f"one with {expected}", limit_s)
            for item in items:
                if report := unmet(item, conditions):
                    fix = f"see kubectl get --raw '{path}', or raise the time limit if it only needs longer"
                    return late(f"{path} ({item['metadata']['name']})", report, expected, limit_s, fix)
        return ""
