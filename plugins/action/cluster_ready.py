"""Name the cluster that a run will change, and refuse one that it cannot change to the end."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.errors import KubeError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIX = {"helm": "install Helm 3 (https://helm.sh/docs/intro/install)"}


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_ready.py."""

    OPTIONS: ClassVar = {
        "programs": {"type": "list", "elements": "str", "default": []},
        "may": {"type": "list", "elements": "str", "default": []},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Look at this machine and ask the cluster."""
        problems = [*self.missing(args["programs"])]
        try:
            Display().display(f"    cluster: {self.present_kube}")
            self.present_kube.call("GET", "/version")
            problems += self.forbidden(args["may"])
        except KubeError as error:
            problems.append(f"{error} (playbooks read K8S_AUTH_KUBECONFIG and K8S_AUTH_CONTEXT first)")
        if problems:
            raise KubeError("\n".join(["Nothing was changed:", *(f"  {problem}" for problem in problems)]))
        return {"changed": False}

    def missing(self, programs: Iterable[str]) -> Iterator[str]:
        """A line for each missing program."""
        path = self.environment.get("PATH", "")
        for name in programs:
            if not shutil.which(name, path=path):
                fix = f"{FIX.get(name, 'install it')}, or add its folder to PATH in the inventory's site_environment"
                yield str(Problem(name, f"none on PATH ({path})", f"the program {name}", fix))

    def forbidden(self, rights: Iterable[str]) -> Iterator[str]:
        """A line for the rights that the account lacks."""
        if lacking := [right for right in rights if not self.present_kube.may(*right.split(" ", 1))]:
            account = f"an account that may not {', '.join(lacking)}"
            fix = "name its kubeconfig in K8S_AUTH_KUBECONFIG"
            yield str(Problem(str(self.present_kube), account, "an administrator's", fix))
