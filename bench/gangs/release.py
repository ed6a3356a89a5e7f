"""Volcano's release on the lab, with its own values or upstream's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.gangs.jobs import volcano_job
from bench.gangs.place import LIMIT_S
from bench.part import ROOT, STATE, BenchError, run
from gangplank.errors import Problem
from gangplank.wait import polls

if TYPE_CHECKING:
    from bench.part import Setting
    from gangplank.cluster.client import Kube

Json = dict[str, Any]
RELEASE, SYSTEM = "volcano", "volcano-system"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"


class Volcano:
    """The release on the lab: its own values, and those of upstream."""

    def __init__(self, kube: Kube, setting: Setting) -> None:
        self.kube, self.folder, self.kubeconfig = kube, setting.folder, setting.kubeconfig
        built = json.loads((STATE / "parts.json").read_text())
        self.helm, self.chart = f"{built['bin']['helm']}/helm", built["charts"]["volcano"]
        self.own: Json = json.loads(self.ask("get", "values", RELEASE, "--output=json"))
        self.now = self.own
        if self.own == self.upstream:
            got, fix = "upstream's values, which an interrupted run has left", "run playbooks/site.yml"
            raise BenchError(str(Problem(f"release {RELEASE}", got, "those of the role", fix)))

    @property
    def upstream(self) -> Json:
        """Upstream's values, with this site's images and storage."""
        custom = {"ignored_provisioners": self.own["custom"]["ignored_provisioners"]}
        return {"basic": self.own["basic"], "custom": custom}

    def ask(self, *words: str) -> str:
        """Run Helm."""
        return run(self.helm, *words, f"--namespace={SYSTEM}", f"--kubeconfig={self.kubeconfig}")

    def use(self, values: Json) -> None:
        """Run Volcano with these values, and nothing of an earlier release."""
        if values == self.now:
            return
        file = self.folder / "values.json"
        file.write_text(json.dumps(values))
        self.ask("upgrade", RELEASE, self.chart, f"--values={file}", "--reset-values", "--wait",
                 f"--post-renderer={ROOT / 'roles/volcano/files/keep-crds'}")  # fmt: skip
        self.now = values
        for _ in polls(LIMIT_S, 0.5):
            pods = self.kube.call("GET", f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
            wanted = len(self.kube.call("GET", DEPLOYMENTS)["items"])
            if sum(pod["status"]["phase"] in ("Running", "Pending") for pod in pods) == wanted:
                break  # those of the earlier release have ended
        job = volcano_job("probe", 1)
        self.kube.accepts(job, LIMIT_S)
