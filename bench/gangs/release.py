"""Volcano's release on the lab, with its own values or upstream's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.gangs.jobs import volcano_job
from bench.gangs.place import LIMIT_S
from bench.part import ROOT, STATE, BenchError, run
from bench.tuned import volcano
from gangplank.cluster.releases import MARK, contents, digest
from gangplank.errors import Problem
from gangplank.k8s.conditions import has_condition
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from bench.part import Setting
    from gangplank.cluster.client import Kube

Json = dict[str, Any]
RELEASE, SYSTEM = "volcano", "volcano-system"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
REVISIONS = f"/api/v1/namespaces/{SYSTEM}/secrets"
PROGRAMS, SCHEDULER = f"/api/v1/namespaces/{SYSTEM}/pods", {"labelSelector": "app=volcano-scheduler"}


def configuration(values: Json) -> Any:
    """That of the scheduler: it is in a ConfigMap, and no program starts again because that has changed."""
    return values.get("custom", {}).get("scheduler_config_override")


def others(custom: Json) -> list[str]:
    """Names of values that are not as the role sets them; of those with inputs of it, only whether they are set."""
    role = volcano()
    fixed = {name for name, value in role.items() if "{{" not in str(value)}
    return sorted((role.keys() ^ custom.keys()) | {name for name in fixed if custom.get(name) != role[name]})


class Volcano:
    """The release on the lab: its own values, and those of upstream."""

    def __init__(self, kube: Kube, setting: Setting) -> None:
        self.kube, self.folder, self.kubeconfig = kube, setting.folder, setting.kubeconfig
        built = json.loads((STATE / "parts.json").read_text())
        self.helm, self.chart = f"{built['bin']['helm']}/helm", built["charts"]["volcano"]
        self.own: Json = json.loads(self.ask("get", "values", RELEASE, "--output=json"))
        self.now = self.own
        if different := others(self.own["custom"]):
            got = f"other values ({', '.join(different)}), which an interrupted run has left"
            raise BenchError(str(Problem(f"release {RELEASE}", got, "those of the role", "run playbooks/site.yml")))

    @property
    def upstream(self) -> Json:
        """Upstream's values, with this site's images and storage."""
        custom = {"ignored_provisioners": self.own["custom"]["ignored_provisioners"]}
        return {"basic": self.own["basic"], "custom": custom}

    def ask(self, *words: str) -> str:
        """Run Helm."""
        return run(self.helm, *words, f"--namespace={SYSTEM}", f"--kubeconfig={self.kubeconfig}")

    def use(self, values: Json) -> bool:
        """Run Volcano with these values, and nothing of an earlier release; whether that changed anything."""
        if values == self.now:
            return False
        file = self.folder / "values.json"
        file.write_text(json.dumps(values))
        before, self.now = self.now, {}  # unknown, if this is interrupted
        self.ask("upgrade", RELEASE, self.chart, f"--values={file}", "--reset-values", "--wait",
                 f"--post-renderer={ROOT / 'roles/volcano/files/keep-crds'}")  # fmt: skip
        if configuration(values) != configuration(before):  # its program would read the new one a minute later
            self.kube.call("DELETE", PROGRAMS, query=SCHEDULER, repeat=True)
        self.ready()
        if values == self.own:
            self.mark()
        self.now = values
        return True

    def start_again(self) -> None:
        """Start each of its programs again."""
        self.kube.call("DELETE", PROGRAMS, repeat=True)
        self.ready()

    def ready(self) -> None:
        """Wait until its programs run and take jobs."""
        self.settle()
        self.kube.accepts(volcano_job("probe", 1), LIMIT_S)

    def mark(self) -> None:
        """Note the chart's content with the revision, as site.yml does: else its next run installs all of it again."""
        query = {"labelSelector": f"owner=helm,name={RELEASE},status=deployed"}
        for secret in self.kube.call("GET", REVISIONS, query=query)["items"]:
            change = {"metadata": {"annotations": {MARK: digest(contents(Path(self.chart)))}}}
            self.kube.call("PATCH", f"{REVISIONS}/{secret['metadata']['name']}", change)

    def settle(self) -> None:
        """Wait until the programs of this release run, and those of the earlier one have ended."""
        for _ in polls(LIMIT_S, 0.5):
            items = self.kube.call("GET", PROGRAMS)["items"]
            pods = [pod for pod in items if pod["status"]["phase"] in ("Running", "Pending")]
            new = [pod for pod in pods if has_condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]]
            wanted = len(self.kube.call("GET", DEPLOYMENTS)["items"])
            if len(pods) == len(new) == wanted:
                return
        got, expected = f"{len(pods)} pods, {len(new)} ready", f"{wanted}, all ready"
        raise BenchError(late(f"release {RELEASE}", got, expected, LIMIT_S))
