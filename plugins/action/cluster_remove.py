"""Remove named objects of the cluster, and wait until they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction, title

from gangplank.cluster.client import POLL_S
from gangplank.errors import KubeError, Problem, shown
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.spec import Json

SELECTORS = ("labelSelector=", "fieldSelector=")


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_remove.py."""

    OPTIONS: ClassVar = {
        "definition": {"type": "list", "elements": "dict", "default": []},
        "paths": {"type": "list", "elements": "str", "default": []},
        "propagation": {"type": "str", "choices": ["Background", "Foreground"], "default": "Background"},
        "timeout_s": {"type": "float", "default": 0},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Look for all of them before the first is deleted, so that a wrong argument changes nothing."""
        objects = [*self.defined(args["definition"])]
        for path in args["paths"]:
            objects += self.selected(path)
        removed = []
        for where, item in objects:
            if "deletionTimestamp" not in item["metadata"]:  # else the API server refuses some kinds a second time
                try:
                    self.kube.delete_at(where, item["metadata"]["uid"], args["propagation"], dry_run=self.dry)
                except KubeError as error:
                    raise KubeError(f"{title(item)}: {error}", error.status) from None
                removed.append(title(item))
            if args["timeout_s"] and not self.dry:
                self.wait(where, item, args["timeout_s"])
        diff = {"before": "".join(f"{name}\n" for name in removed), "after": ""}
        return {"changed": bool(removed), "removed": removed, "diff": diff}

    def defined(self, definitions: list[Json]) -> Iterator[tuple[str, Json]]:
        """The paths and objects of those definitions that exist."""
        for definition in definitions:
            name = definition.get("metadata", {}).get("name")
            if not (name and definition.get("apiVersion") and definition.get("kind")):
                expected = "apiVersion, kind and metadata.name"
                raise KubeError(str(Problem("definition", shown(definition), expected, "name the object to remove")))
            try:
                where = self.kube.where(definition)
            except KubeError as error:
                if error.status == 404:  # without the kind there is no object of it
                    continue
                raise
            if item := self.kube.get(where):
                yield where, item

    def selected(self, path: str) -> Iterator[tuple[str, Json]]:
        """The object at a path, or those of a collection that a selector picks."""
        answer = self.answer(path)
        where, _mark, query = path.partition("?")
        if answer is None:
            return
        if "items" not in answer:
            yield where, answer
            return
        if not any(part.startswith(SELECTORS) and part not in SELECTORS for part in query.split("&")):
            fix = "add a name to the path, or ?labelSelector=KEY=VALUE"
            raise KubeError(str(Problem(path, "all objects of a kind", "one object, or a selection", fix)))
        kind = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        for item in answer["items"]:
            yield self.kube.where(item | kind), item | kind

    def wait(self, where: str, item: Json, limit_s: float) -> None:
        """Wait until this object is gone; another one of its name is not it."""
        for _attempt in polls(limit_s, POLL_S):
            live = self.kube.get(where)
            if live is None or live["metadata"]["uid"] != item["metadata"]["uid"]:
                return
            item = live
        fix = "remove what its finalizers or its messages name, or raise the time limit if it only needs longer"
        raise KubeError(late(title(item), holders(item), "it removed", limit_s, fix))


def holders(item: Json) -> str:
    """What keeps an object whose deletion has been requested."""
    finalizers = [*(item["metadata"].get("finalizers") or []), *((item.get("spec") or {}).get("finalizers") or [])]
    conditions = (item.get("status") or {}).get("conditions") or []
    messages = [one["message"] for one in conditions if one.get("status") == "True" and one.get("message")]
    return f"an object with {'the finalizers ' + ', '.join(finalizers) if finalizers else 'no finalizer'}" + "".join(
        f" ({message})" for message in messages
    )
