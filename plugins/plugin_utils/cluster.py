"""Actions that talk to a cluster, in Ansible's own process and through gangplank/cluster/client.py."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, ClassVar

# Half a second of imports, once: every task is a fork of the process that has loaded its action by then.
import kubernetes.client
import kubernetes.config  # noqa: F401  gangplank.cluster.client uses it
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction

from gangplank.cluster.client import Kube

KUBECONFIG: dict[str, Any] = {"kubeconfig": {"type": "path"}}


class ClusterAction(LibraryAction):
    """An action with a cluster: `kube`, of the argument kubeconfig, else the one that kubernetes.core's modules take.

    That is the one of K8S_AUTH_KUBECONFIG, else KUBECONFIG, else the home's, each with the context of K8S_AUTH_CONTEXT
    if there is one; the play's `environment` goes before that of whoever runs it.
    """

    OPTIONS: ClassVar[dict[str, Any]] = KUBECONFIG

    @cached_property
    def environment(self) -> dict[str, str]:
        """The environment that modules get."""
        own: dict[str, str] = {}
        self._compute_environment_string(own)
        return {**os.environ, **own}

    @cached_property
    def kube(self) -> Kube:
        """The cluster; KubeError where it cannot be found."""
        names = self.environment.get("K8S_AUTH_KUBECONFIG") or self.environment.get("KUBECONFIG")
        return Kube(self._task.args.get("kubeconfig") or names, self.environment.get("K8S_AUTH_CONTEXT") or None)
