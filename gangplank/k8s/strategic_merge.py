"""Kubernetes' strategic merge, for the parts of a JobSet that a TrainJob may patch.

https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from typing import Any

from gangplank.k8s.build import clone

# Lists that are merged item by item, by the key that identifies an item; all other lists are replaced.
KEYS = {
    "replicatedJobs": "name",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
}


def strategic(base: Any, patch: Any, field: str = "") -> Any:
    """A copy of base with patch merged in; neither is changed.

    >>> strategic({"a": 1, "env": [{"name": "X"}]}, {"a": None, "env": [{"name": "X", "value": "1"}]})
    {'env': [{'name': 'X', 'value': '1'}]}
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = clone(base)
        for key, item in patch.items():
            if item is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic(merged[key], item, key) if key in merged else clone(item)
        return merged
    if isinstance(base, list) and isinstance(patch, list) and field in KEYS:
        key = KEYS[field]
        merged = clone(base)
        at = {item.get(key): index for index, item in enumerate(merged) if isinstance(item, dict)}
        for item in patch:
            name = item.get(key) if isinstance(item, dict) else None
            if name in at:
                merged[at[name]] = strategic(merged[at[name]], item)
            else:
                merged.append(clone(item))
        return merged
    return clone(patch)
