"""Ensure that nodes have labels and taints, or no longer have them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.cluster.client import CONFLICT, NOT_FOUND, POLL_S
from gangplank.errors import KubeError, Problem
from gangplank.k8s.nodes import node_patch
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.spec import Json

RETRIES_S = 10.0


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_nodes.py."""

    OPTIONS: ClassVar = {
        "names": {"type": "list", "elements": "str", "required": True},
        "labels": {"type": "dict", "default": {}},
        "taints": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "key": {"type": "str", "required": True},
                "value": {"type": "str", "default": ""},
                "effect": {
                    "type": "str",
                    "required": True,
                    "choices": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
            },
        },
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "owner": {"type": "str", "default": ""},
        "owner_labels": {"type": "list", "elements": "str", "default": []},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Look for all nodes before the first is changed."""
        present = args["state"] == "present"
        note = f"gangplank.dev/set-by-{args['owner']}" if args["owner"] else ""
        labels = {key: str(value) for key, value in args["labels"].items()}
        paths = [f"/api/v1/nodes/{name}" for name in args["names"]]
        for name, path in zip(args["names"], paths, strict=True):
            if present and self.kube.get(path) is None:
                fix = "kubectl get nodes lists their names"
                raise KubeError(str(Problem("names", name, "the name of a node of this cluster", fix)))
        wanted = dict.fromkeys(paths, (labels, args["taints"]))
        nodes = (self.kube.get("/api/v1/nodes") or {}).get("items", []) if note else []
        left = [node["metadata"]["name"] for node in nodes if note in (node["metadata"].get("annotations") or {})]
        own_keys = {*labels, *args["owner_labels"], *(taint["key"] for taint in args["taints"])}
        diff = []
        for path in dict.fromkeys([*paths, *(f"/api/v1/nodes/{name}" for name in left)]):
            own_labels, own_taints = wanted.get(path, ({}, []))
            patch_of = functools.partial(
                node_patch, labels=own_labels, taints=own_taints, present=present, note=note, own_keys=own_keys
            )
            before, after = self.change(path, patch_of, note)
            if before != after:
                texts = [yaml.safe_dump(part) for part in (before, after)]
                diff.append({"before": texts[0], "after": texts[1], "before_header": path, "after_header": path})
        return {"changed": bool(diff), "diff": diff}

    def change(self, path: str, patch_of: Callable[[Json], Json], note: str) -> tuple[Json, Json]:
        """What `scheduling` shows before and after, empty if nothing changes; a node that is gone loses nothing."""
        query = {"dryRun": "All"} if self.dry else {}
        conflict = KubeError("")
        for _attempt in polls(RETRIES_S, POLL_S):
            node = self.kube.get(path)
            patch = patch_of(node) if node else {}
            if node is None or not patch:
                return {}, {}
            try:
                return scheduling(node, note), scheduling(self.kube.call("PATCH", path, patch, query), note)
            except KubeError as error:
                if error.status == NOT_FOUND:
                    return {}, {}
                if error.status != CONFLICT:
                    raise KubeError(f"{path}: {error}", error.status) from None
                conflict = error
        raise KubeError(f"{path}: {conflict}", CONFLICT)


def scheduling(node: Json, note: str) -> Json:
    """A node's labels and taints, and the annotation `note`."""
    meta = node["metadata"]
    annotations = {key: text for key, text in (meta.get("annotations") or {}).items() if key == note}
    taints = (node.get("spec") or {}).get("taints") or []
    return {"labels": meta.get("labels") or {}, "annotations": annotations, "taints": taints}
