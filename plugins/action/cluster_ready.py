"""Name the cluster that a run will change, wait for other runs, and refuse one that it cannot change to the end."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.cluster import KUBECONFIG, ClusterAction

from gangplank.backends import job_resources
from gangplank.cluster.choice import ORDER, other_cluster
from gangplank.cluster.network_trial import trial
from gangplank.cluster.preflight import preflight
from gangplank.errors import KubeError, Problem
from gangplank.jobs.site_gpus import ALLOCATIONS, Gpus
from gangplank.site.components import COMPONENTS
from gangplank.site.preflight import INSTALL, SHOWN, Wanted, tolerations_of
from gangplank.site.rights import removal
from gangplank.teams import read_cluster
from gangplank.text import listed
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

STARTING_S, POLL_S = 60.0, 1.0  # for what a cluster lacks only while it starts


class ActionModule(ClusterAction):
    """Documented in plugins/modules/cluster_ready.py."""

    OPTIONS: ClassVar = {
        "cluster": {"type": "str", "default": ""},
        "components": {"type": "dict", "default": {}},
        "storage_classes": {"type": "list", "elements": "dict", "default": []},
        "jobset": {"type": "bool", "default": Wanted.jobset},
        "gpu_allocation": {"type": "str", "choices": list(ALLOCATIONS), "default": Gpus.allocation},
        "programs": {"type": "list", "elements": "str", "default": []},
        "may": {"type": "list", "elements": "str", "default": []},
        "run": {"type": "str", "choices": ["teams", "uninstall"]},
        "removes": {"type": "list", "elements": "str", "choices": list(COMPONENTS), "default": []},
        "try_network": {"type": "str", "default": ""},
        "lock": {"type": "bool", "default": False},
        "lock_timeout_s": {"type": "int"},
        **KUBECONFIG,
    }

    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Look at this machine and ask the cluster."""
        missing = [*self.missing(args["programs"])]
        problems: list[str] = [*missing, *self.selected(args["run"])]
        held = False
        try:
            Display().display(f"    cluster: {self.present_kube}")
            held = not problems and args["lock"] and self.locked(args["cluster"], args["lock_timeout_s"])
            needs = bool(args["programs"]) and not missing  # else it is reported already
            problems += self.examined(args, needs) if args["components"] else self.answered(args)
        except KubeError as error:
            problems.append(f"{error} (playbooks take the kubeconfig of {ORDER})")
        if problems:
            if held:
                self.free()
            raise KubeError("\n".join(["Nothing was changed:", *(f"  {problem}" for problem in problems)]))
        return {"changed": False}

    def locked(self, cluster: str, timeout_s: int | None) -> bool:
        """Take the lock of the cluster that the inventory names; whether it was taken.

        First of all: what another run is just installing would look like a fault.
        """
        if self.dry:
            return False
        self.present_kube.call("GET", "/version")  # if it does not answer, there is nothing to wait for
        if cluster and any(other_cluster(self.present_kube, cluster)):
            return False
        self.hold(timeout_s)
        return True

    def answered(self, args: dict[str, Any]) -> list[str]:
        """What is wrong with the cluster for a run that installs nothing."""
        self.present_kube.call("GET", "/version")
        if args["cluster"] and (other := [str(line) for line in other_cluster(self.present_kube, args["cluster"])]):
            return other
        if args["try_network"]:
            self.say("trying whether its network enforces NetworkPolicies, with three pods")
            return [str(problem) for problem in trial(self.present_kube, args["try_network"]).problems]
        of_run = {"teams": read_cluster.rights(), "uninstall": removal(args["removes"], job_resources())}
        return [*self.forbidden([*args["may"], *of_run.get(args["run"], ())])]

    def examined(self, args: dict[str, Any], programs: bool) -> list[str]:
        """What is wrong with the cluster for these components, and perhaps with this machine's programs."""
        usual = {name: {"release": what.release, "namespace": what.namespace} for name, what in COMPONENTS.items()}
        places = {name: usual[name] | own for name, own in args["components"].items()}
        releases = {name: (str(place["release"]), str(place["namespace"])) for name, place in places.items()}
        tolerations = {name: tolerations_of(place.get("values")) for name, place in places.items()}
        by_claim = args["gpu_allocation"] == "dra"
        wanted = Wanted(releases, args["storage_classes"], args["jobset"], by_claim, tolerations)
        waits = False
        for _attempt in polls(STARTING_S, POLL_S):
            checks = preflight(self.present_kube, wanted, self.environment.get("PATH", ""), args["cluster"])
            wrong = [check for check in checks if check.problems and (check.name != "programs" or programs)]
            if not wrong or not all(check.starting for check in wrong):
                break
            if not waits:
                names = ", ".join(check.name for check in wrong)
                Display().display(f"    perhaps the cluster just started: waiting up to {STARTING_S:.0f} s for {names}")
            waits = True
        return [str(problem) for check in wrong for problem in check.problems]

    def missing(self, programs: Iterable[str]) -> Iterator[str]:
        """A line for each missing program."""
        path = self.environment.get("PATH", "")
        for name in programs:
            if not shutil.which(name, path=path):
                fix = f"{INSTALL[name]}, or add its folder to PATH in the inventory's site_environment"
                yield str(Problem(name, f"none on PATH ({path})", f"the program {name}", fix))

    def selected(self, run: str | None) -> Iterator[str]:
        """A line for tags by which a removal would remove nothing, or all the same: its components have none."""
        tags, skipped = (set(self.variables.get(f"ansible_{name}_tags") or ()) for name in ("run", "skip"))
        for option, names in (("--tags", tags - {"all"}), ("--skip-tags", skipped & COMPONENTS.keys())):
            if names and run == "uninstall":
                expected = "no tags, because uninstall.yml removes all of site_components"
                fix = """name what it shall remove, for example -e '{"site_components": ["volcano"]}'"""
                yield str(Problem(option, ",".join(sorted(names)), expected, fix))

    def forbidden(self, rights: Iterable[str]) -> Iterator[str]:
        """A line for the rights that the account lacks."""
        if lacking := self.present_kube.denied(rights):
            account = f"an account that may not {listed(lacking, SHOWN)}"
            fix = "name its kubeconfig in K8S_AUTH_KUBECONFIG"
            yield str(Problem(str(self.present_kube), account, "an administrator's", fix))
