"""The lab's context in the user's kubeconfig: added and removed by its name. The rest stays."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.host.files import write

LISTS = ("clusters", "users", "contexts")
FIX = "correct or move the file, then run it again"


class KubeconfigError(LabError):
    """A file that is not a valid kubeconfig; it is not changed."""


def user_file() -> Path:
    """The file that kubectl itself would change: the first of $KUBECONFIG, else ~/.kube/config."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else Path.home() / ".kube" / "config"


def read(path: Path) -> dict[str, Any]:
    """The file's content, or an empty kubeconfig without a file; raises KubeconfigError."""
    if not path.exists():
        return {"apiVersion": "v1", "kind": "Config", "preferences": {}, **{name: [] for name in LISTS}}
    try:
        content = yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        what = str(error).splitlines()[0]
        raise KubeconfigError(f"{path}: got {what}, expected YAML. Fix: {FIX}") from error
    if not isinstance(content, dict) or any(not isinstance(content.get(name) or [], list) for name in LISTS):
        raise KubeconfigError(f"{path}: got other YAML, expected a kubeconfig. Fix: {FIX}")
    return content


def entries(admin: Path, name: str) -> dict[str, dict[str, Any]]:
    """The lab's cluster, user and context under `name`, with their certificates, by list."""
    config = yaml.safe_load(admin.read_text())

    def data(path: str) -> str:
        return base64.b64encode(Path(path).read_bytes()).decode()

    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    certificates = {f"{key}-data": data(user[key]) for key in ("client-certificate", "client-key")}
    authority = data(cluster["certificate-authority"])
    return {
        "clusters": {"name": name, "cluster": {"server": cluster["server"], "certificate-authority-data": authority}},
        "users": {"name": name, "user": certificates},
        "contexts": {"name": name, "context": {"cluster": name, "user": name}},
    }


def merge(content: dict[str, Any], name: str, new: dict[str, dict[str, Any]] | None) -> dict[str, Any]:
    """The kubeconfig with the entries called `name` replaced by `new` or removed, and its other entries."""
    result = dict(content)
    for part in LISTS:
        kept = [entry for entry in content.get(part) or [] if entry.get("name") != name]
        before = [entry for entry in content.get(part) or [] if entry.get("name") == name]
        if new and before == [new[part]]:
            kept = list(content[part])
        elif new:
            kept.append(new[part])
        result[part] = kept
    if new and not content.get("current-context"):
        result["current-context"] = name  # only if the user has none: kubectl keeps its current cluster
    if not new and content.get("current-context") == name:
        result["current-context"] = ""
    return result


def ensure(path: Path, name: str, admin: Path | None, *, dry: bool) -> bool:
    """Add (with `admin`) or remove the context; return whether the file had to change. An emptied file is removed."""
    before = read(path)
    after = merge(before, name, entries(admin, name) if admin else None)
    if after == before or (not admin and not path.exists()):
        return False
    if dry:
        return True
    if not admin and not any(after.get(part) for part in LISTS):
        path.unlink()
    else:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write(path, yaml.safe_dump(after, sort_keys=False).encode(), 0o600)
    return True
