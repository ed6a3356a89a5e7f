"""Which admission webhooks see what site.yml writes, as far as their rules and selectors say."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from gangplank.k8s.selectors import chosen
from gangplank.site.components import COMPONENTS, NAMESPACED
from gangplank.site.rights import installation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gangplank.spec import Json

NAME = "kubernetes.io/metadata.name"  # the label that the API server gives every namespace
OPERATIONS = {"create": "CREATE", "patch": "UPDATE", "update": "UPDATE", "delete": "DELETE"}
OF_CONTROLLERS = ("create replicasets.apps", "create pods")  # what they make of what the roles write


def requests(components: Collection[str]) -> list[tuple[str, str]]:
    """What is written for these components, as operations and kinds, such as CREATE and deployments.apps."""
    own = [f"create {kind}" for name in components for kind, _ in COMPONENTS[name].crds]
    pairs = (text.split(" ", 1) for text in (*installation(components), *OF_CONTROLLERS, *own))
    return [(OPERATIONS[verb], kind) for verb, kind in pairs]


def labels_of(names: Iterable[str], namespaces: Iterable[Json]) -> list[Mapping[str, str]]:
    """The labels of namespaces; one that does not exist yet gets its name as one."""
    live = {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in namespaces}
    return [live.get(name, {NAME: name}) for name in names]


def sees(hook: Json, written: Iterable[tuple[str, str]], spaces: Sequence[Mapping[str, str]] | None) -> bool:
    """Whether a webhook may see one of these requests, to namespaces with these labels; None: they are not known.

    Objects of the site have no label that another product selects. Conditions in CEL are not computed: they may hold.
    """
    if not chosen(hook.get("objectSelector") or {}, {}):
        return False
    selector = hook.get("namespaceSelector") or {}
    inside = spaces is None or any(chosen(selector, labels) for labels in spaces)
    kinds = [(operation, kind) for operation, kind in written if inside or kind not in NAMESPACED]
    return any(_covers(rule, *request) for rule, request in product(hook.get("rules") or (), kinds))


def _covers(rule: Json, operation: str, kind: str) -> bool:
    """Whether a rule names an operation on a kind."""
    plural, _, group = kind.partition(".")
    named = (("operations", {operation, "*"}), ("apiGroups", {group, "*"}), ("resources", {plural, "*", "*/*"}))
    return all(words.intersection(rule.get(key) or ()) for key, words in named)
