"""Whether a chart's release is as requested, in a fraction of the second that Helm's own module takes; its objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction, title

from gangplank.cluster import releases
from gangplank.cluster.helm_processes import Note, Place, running
from gangplank.cluster.lab_route import BENCHMARK, of_lab
from gangplank.cluster.releases import MARK, Release, contents, digest, same_version, third_party, unpacked
from gangplank.errors import GangplankError
from gangplank.k8s.age import age_s
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Callable

PENDING = "pending-"  # begins a revision's status while Helm works on it, and stays if that is killed
HELM = "helm"  # the name with which it writes
REMOVING = "uninstalling"  # the status of a revision that was complete before
LIVING_S = 600  # after so long, or the release's own time limit, a Helm elsewhere counts as dead
# With these, Helm takes another cluster, or its module opens the files `a:b` of K8S_AUTH_KUBECONFIG as one.
OVERRIDES = ("K8S_AUTH_KUBECONFIG", "HELM_KUBECONTEXT", "HELM_KUBEAPISERVER", "HELM_KUBETOKEN")


class ActionModule(ClusterAction):
    """Documented in plugins/modules/helm_released.py."""

    OPTIONS: ClassVar = {
        "name": {"type": "str", "required": True},
        "namespace": {"type": "str", "required": True},
        "chart": {"type": "str", "required": True},
        "values": {"type": "dict", "default": {}},
        "installed": {"type": "bool", "default": False},
        "ended": {"type": "bool", "default": False},
        "timeout_s": {"type": "int", "default": 300},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Read and compare, when no Helm works on the release any more; repair its objects."""
        name, chart = args["name"], Path(args["chart"])
        place = Place(self.kube.api.configuration.host, args["namespace"], name)
        note = Note(place, self.environment)
        if args["ended"]:
            # In check mode Helm changed nothing. What an earlier run left, or a removal that failed, is still ours.
            left = [] if self.dry else self.revisions(place)
            if not self.dry and not any(status_of(secret) == REMOVING for secret in left):
                note.forget()
            if not (self.dry or left):
                releases.unsign(self.kube, name, args["namespace"])
            return {"changed": False}
        wait_for_helm(place, args["timeout_s"])
        if not self.dry:
            wait_for_others(place, args["timeout_s"], lambda: self.living(place, note, args["timeout_s"]))
        namespace = f"/api/v1/namespaces/{args['namespace']}"
        revisions = self.revisions(place)
        pending = [secret["metadata"]["name"] for secret in revisions if status_of(secret).startswith(PENDING)]
        complete = [secret for secret in revisions if secret["metadata"]["name"] not in pending]
        newest = complete[-1] if complete else {"metadata": {"labels": {"status": ""}}}
        status = newest["metadata"]["labels"]["status"]
        release = unpacked(newest) or {}
        files = contents(chart) if chart.is_absolute() and release else {}
        content = digest(files) if "Chart.yaml" in files else ""
        same = bool(content) and same_version(release, files, args["values"])
        if args["installed"] and same and status == "deployed":
            self.mark(newest, content)
        marked = newest["metadata"].get("annotations", {}).get(MARK) == content
        as_asked = same and status == "deployed" and marked and not pending
        live = self.kube.get(namespace)
        foreign = third_party(self.kube, name, args["namespace"], live)
        if live and args["chart"] and not (self.dry or foreign):  # before Helm is called
            releases.sign(self.kube, name, live)
        if not self.dry and (as_asked or args["installed"]):
            note.forget()
        elif not (self.dry or foreign):  # Helm is called next
            names = {secret["metadata"]["name"] for secret in revisions}
            note.write(names - set(pending))
        repaired = []
        if status == "deployed" and release and (as_asked or args["installed"]):
            repaired = Release(self.kube, name, args["namespace"], release["manifest"]).repair(dry_run=self.dry)
        return {
            "changed": bool(repaired),
            "diff": [difference(before, after) for before, after in repaired if after["kind"] != "Secret"],
            "third_party": str(foreign or ""),
            "namespace": live is not None,
            "pending": pending,
            "uninstalling": status == REMOVING,
            "as_asked": as_asked,
            "again": status == "failed" or (same and not as_asked and status == "deployed"),
            "unkept": Release(self.kube, name, args["namespace"], release["manifest"]).unkept() if release else [],
            "environment": self.helm_environment(),
            "deployments": [self.kube.where(after) for _before, after in repaired if after["kind"] == "Deployment"],
        }

    def revisions(self, place: Place) -> list[dict[str, Any]]:
        """The Secrets of the release's revisions that count, the oldest first."""
        selector = f"owner=helm,name={place.name},status notin (superseded,uninstalled)"
        where = f"/api/v1/namespaces/{place.namespace}/secrets"
        secrets = (self.kube.get(where, {"labelSelector": selector}) or {"items": []})["items"]
        return sorted(secrets, key=lambda secret: int(secret["metadata"]["labels"]["version"]))

    def living(self, place: Place, note: Note, timeout_s: float) -> list[dict[str, Any]]:
        """The revisions that a Helm elsewhere may be at work on: begun lately, and not left by this machine's."""
        revisions = {secret["metadata"]["name"]: secret for secret in self.revisions(place)}
        removals = {name: modified(secret) for name, secret in revisions.items() if status_of(secret) == REMOVING}
        pending = [name for name, secret in revisions.items() if status_of(secret).startswith(PENDING)]
        now, oldest_s = self.kube.now(), max(LIVING_S, timeout_s)
        ages_s = {name: age_s(begun(revisions[name]), now) for name in (*pending, *removals)}
        ours = {*note.left({name: ages_s[name] for name in pending}), *note.removed(removals)}
        return [revisions[name] for name, age in ages_s.items() if age < oldest_s and name not in ours]

    def helm_environment(self) -> dict[str, str]:
        """The variables with which the program helm takes the same cluster."""
        context, files = self.environment.get("K8S_AUTH_CONTEXT"), (self.kubeconfig or "").split(os.pathsep)
        chosen = {"KUBECONFIG": os.pathsep.join(map(os.path.expanduser, files)), "HELM_KUBECONTEXT": context}
        if of_lab(self.kube.api.configuration.host):  # a proxy cannot reach this machine's own lab
            others = self.environment.get("no_proxy") or self.environment.get("NO_PROXY")
            chosen |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, (others, str(BENCHMARK)))))
        return dict.fromkeys(OVERRIDES, "") | {name: value for name, value in chosen.items() if value}

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


def wait_for_helm(place: Place, limit_s: float) -> None:
    """Wait until no living Helm of this machine works on the release: its pending revision is not a dead run's."""
    process = ""
    for _attempt in polls(limit_s, 0.5):
        other = running(place)
        if not other:
            return
        if other != process:
            Display().display(f"    release {title_of(place)} is being changed by {other}: waiting for it")
        process = other
    fix = "wait for it or end it, then run it again"
    raise GangplankError(late(f"release {title_of(place)}", process, "its end", limit_s, fix))


def title_of(place: Place) -> str:
    """What a message calls a release."""
    return f"{place.namespace}/{place.name}"


def status_of(secret: dict[str, Any]) -> str:
    """The status of a revision."""
    return str(secret["metadata"]["labels"]["status"])


def begun(secret: dict[str, Any]) -> str:
    """When Helm began what a revision's status says, by the API server's clock: its own write, or the creation."""
    meta, times = secret["metadata"], list[str]()
    if status_of(secret) == REMOVING:
        entries = meta.get("managedFields", [])
        times = [entry["time"] for entry in entries if entry.get("manager") == HELM and "time" in entry]
    return str(max([meta["creationTimestamp"], *times]))


def modified(secret: dict[str, Any]) -> float:
    """When Helm last changed a revision, by the clock of its machine, in seconds since 1970; 0 if it does not say."""
    text = str(secret["metadata"]["labels"].get("modifiedAt", ""))
    return float(text) if text.isdecimal() and len(text) < 15 else 0.0


def wait_for_others(place: Place, limit_s: float, living: Callable[[], list[dict[str, Any]]]) -> None:
    """Wait until no revision has a status that says that a Helm on another machine may be at work on it."""
    waits = False
    for _attempt in polls(limit_s, 2.0):
        if not (others := living()):
            return
        meta, removing = others[-1]["metadata"], status_of(others[-1]) == REMOVING
        got = f"revision {meta['labels']['version']} {status_of(others[-1])} since {begun(others[-1])}"
        if not waits:
            line = f"{got}, by a Helm that does not run here: waiting up to {limit_s:.0f} s for it"
            Display().display(f"    release {title_of(place)}: {line}")
        waits = True
    then = f"wait until {max(LIVING_S, limit_s) / 60:.0f} minutes after that time" if removing else (
        f"remove what it left (kubectl delete secret -n {place.namespace} {meta['name']})"
    )
    fix = f"wait until that Helm has ended, or if it was interrupted, {then}, then run it again"
    raise GangplankError(late(f"release {title_of(place)}", got, "its end", limit_s, fix))
