"""Classes and volume claims of an inventory, and those of a cluster."""

from __future__ import annotations

from typing import Any

from gangplank.k8s import helm
from gangplank.site.storage import CSI_RELEASE, DEFAULT, LOCAL_PATH, LOCAL_PATH_RELEASE, Release

LOCAL: dict[str, Any] = {"name": "local-path", "kind": "local", "folder": "/opt/local", "default": True}
SHARED: dict[str, Any] = {"name": "local-shared", "kind": "shared", "folder": "/mnt/shared"}
NFS: dict[str, Any] = {
    "name": "nfs",
    "kind": "csi",
    "provisioner": "nfs.csi.k8s.io",
    "access_modes": ["ReadWriteMany"],
    "expansion": True,
}
LOOPED: dict[str, Any] = {"name": "loop", "kind": "loop", "expansion": True}
CLASSES = [LOCAL, SHARED, NFS]


def live_class(name: str, provisioner: str = LOCAL_PATH, **more: Any) -> dict[str, Any]:
    default = more.pop("default", False)
    meta = {"name": name, "annotations": {DEFAULT: "true"} if default else {}}
    return {"metadata": meta, "provisioner": provisioner, "allowVolumeExpansion": True} | more


def live_claim(cls: str = "local-path", phase: str = "Bound", modes: list[str] | None = None) -> dict[str, Any]:
    spec = {
        "storageClassName": cls,
        "accessModes": modes or ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    return {"metadata": {"name": "data", "namespace": "a"}, "spec": spec, "status": {"phase": phase}}


def claim(**fields: Any) -> dict[str, Any]:
    return {"name": "data", "namespace": "a", "size": "10Gi", **fields}


def installed(live: dict[str, Any], release: Release = LOCAL_PATH_RELEASE) -> dict[str, Any]:
    """A live object as a Helm release installs it."""
    notes = {helm.RELEASE: release.name, helm.NAMESPACE: release.namespace}
    return live | {"metadata": {**live["metadata"], "annotations": live["metadata"]["annotations"] | notes}}


LIVE_CLASSES = [
    installed(live_class("local-path", default=True)),
    installed(live_class("nfs", "nfs.csi.k8s.io"), CSI_RELEASE),
    live_class("fixed", "x.csi", allowVolumeExpansion=False),
]
