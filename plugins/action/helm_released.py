"""Whether a chart's release is as requested, in a fraction of the second that Helm's own module takes; its objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import yaml
from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction, title

from gangplank.cluster.releases import MARK, Release, digest, same_version, unpacked
from gangplank.errors import GangplankError
from gangplank.wait import late, polls

WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet")


class ActionModule(ClusterAction):
    """Documented in plugins/modules/helm_released.py."""

    OPTIONS: ClassVar = {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "chart": {"type": "str", "required": True},
        "values": {"type": "dict", "default": {}},
        "installed": {"type": "bool", "default": False},
        "timeout_s": {"type": "int", "default": 300},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Read and compare, when no Helm of this machine works on the release any more; repair its objects."""
        name, chart = args["name"], Path(args["chart"])
        wait_for_helm(name, args["namespace"], args["timeout_s"])
        namespace = f"/api/v1/namespaces/{args['namespace']}"
        selector = f"owner=helm,name={name},status notin (superseded,uninstalled)"
        secrets = self.kube.get(f"{namespace}/secrets", {"labelSelector": selector}) or {"items": []}
        revisions = sorted(secrets["items"], key=lambda secret: int(secret["metadata"]["labels"]["version"]))
        statuses = {secret["metadata"]["name"]: secret["metadata"]["labels"]["status"] for secret in revisions}
        pending = [name for name, status in statuses.items() if status.startswith("pending-")]
        complete = [secret for secret in revisions if secret["metadata"]["name"] not in pending]
        newest = complete[-1] if complete else {"metadata": {"labels": {"status": ""}}}
        status = newest["metadata"]["labels"]["status"]
        release = unpacked(newest) or {}
        folder = chart.is_absolute() and (chart / "Chart.yaml").is_file()
        content = digest(chart) if folder and release else ""
        same = bool(content) and same_version(release, chart, args["values"])
        if args["installed"] and same and status == "deployed":
            self.mark(newest, content)
        marked = newest["metadata"].get("annotations", {}).get(MARK) == content
        as_asked = same and status == "deployed" and marked and not pending
        repaired = []
        if status == "deployed" and release and (as_asked or args["installed"]):
            repaired = Release(self.kube, name, args["namespace"], release["manifest"]).repair(dry_run=self.dry)
        return {
            "changed": bool(repaired),
            "diff": [difference(before, after) for before, after in repaired if after["kind"] != "Secret"],
            "namespace": self.kube.get(namespace) is not None,
            "pending": pending,
            "uninstalling": status == "uninstalling",
            "as_asked": as_asked,
            "again": same and not as_asked and status in ("deployed", "failed"),
            "environment": self.helm_environment(),
            "workloads": [self.kube.where(after) for _before, after in repaired if after["kind"] in WORKLOADS],
        }

    def helm_environment(self) -> dict[str, str]:
        """The variables with which the program helm takes the same cluster."""
        chosen = {"KUBECONFIG": self.kubeconfig, "HELM_KUBECONTEXT": self.environment.get("K8S_AUTH_CONTEXT")}
        return {name: value for name, value in chosen.items() if value}

    def mark(self, secret: dict[str, Any], content: str) -> None:
        """Note in a revision's Secret of which content of the chart it is."""
        annotations = secret["metadata"].setdefault("annotations", {})
        if annotations.get(MARK) == content or self.dry:
            return
        annotations[MARK] = content
        meta = {key: secret["metadata"][key] for key in ("name", "namespace")}
        self.kube.merge({"apiVersion": "v1", "kind": "Secret", "metadata": {**meta, "annotations": {MARK: content}}})


def difference(before: dict[str, Any] | None, after: dict[str, Any]) -> dict[str, str]:
    """What --diff shows of an object."""
    texts = ["" if item is None else yaml.safe_dump(item) for item in (before, after)]
    return {"before": texts[0], "after": texts[1], "before_header": title(after), "after_header": title(after)}


def running_helm(name: str, namespace: str, processes: Path = Path("/proc")) -> str:
    """The process of this machine that changes the release, with its command; empty without one."""
    for entry in processes.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it ended meanwhile
            continue
        changes = Path(words[0]).name == "helm" and {"install", "upgrade", "uninstall", "rollback"} & set(words)
        if changes and name in words and {namespace, f"--namespace={namespace}", f"-n={namespace}"} & set(words):
            return f"process {entry.name} ({' '.join(words).strip()[:200]})"
    return ""


def wait_for_helm(name: str, namespace: str, limit_s: float) -> None:
    """Wait until no living Helm works on the release: its pending revision is not a dead run's."""
    process = ""
    for _attempt in polls(limit_s, 0.5):
        other = running_helm(name, namespace)
        if not other:
            return
        if other != process:
            Display().display(f"    release {namespace}/{name} is being changed by {other}: waiting for it")
        process = other
    fix = "wait for it or end it, then run it again"
    raise GangplankError(late(f"release {namespace}/{name}", process, "its end", limit_s, fix))
