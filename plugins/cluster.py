"""Actions that talk to a cluster, in Ansible's own process and through gangplank/kube.py."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

# Half a second of imports, once: every task is a fork of the process that has loaded its action by then.
import kubernetes.client
import kubernetes.config  # noqa: F401  gangplank.kube uses it

from gangplank.kube import Kube
from plugins.glue import Glue

KUBECONFIG: dict[str, Any] = {"kubeconfig": {"type": "path"}}


class Asking(Glue):
    """An action with a cluster: `kube`, of the argument kubeconfig, else of the environment that its play sets."""

    OPTIONS: ClassVar[dict[str, Any]] = KUBECONFIG

    @cached_property
    def kube(self) -> Kube:
        """The cluster; KubeError where it cannot be found."""
        environment: dict[str, str] = {}
        self._compute_environment_string(environment)
        return Kube(self._task.args.get("kubeconfig") or environment.get("K8S_AUTH_KUBECONFIG"))
