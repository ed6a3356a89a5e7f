"""Actions that talk to a cluster, in Ansible's own process and through gangplank/cluster/client.py."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, ClassVar

# Half a second of imports, once: every task is a fork of the process that has loaded its action by then.
import kubernetes.client  # pylint: disable=unused-import
import kubernetes.config  # noqa: F401  gangplank.cluster.client uses it; pylint: disable=unused-import
from ansible.utils.display import Display
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction

from gangplank.cluster import lease_keeper
from gangplank.cluster.choice import chosen
from gangplank.cluster.client import Kube
from gangplank.cluster.lease import PATIENCE_S, Lock
from gangplank.errors import KubeError, Problem

# With these, as AWX sets them, kubernetes.core's module of Helm takes another cluster or account than the kubeconfig's.
ELSEWHERE = ("K8S_AUTH_HOST", "K8S_AUTH_API_KEY")
KUBECONFIG: dict[str, Any] = {"kubeconfig": {"type": "path"}}


def title(item: dict[str, Any]) -> str:
    """What a message calls an object, such as `Pod default/digits-master-0`."""
    meta = item["metadata"]
    return f"{item['kind']} {'/'.join(part for part in (meta.get('namespace'), meta['name']) if part)}"


class ClusterAction(LibraryAction):
    """An action with a cluster, `kube`: from the argument kubeconfig, else chosen as kubernetes.core's modules do.

    They take K8S_AUTH_KUBECONFIG, else KUBECONFIG, else the file in the home, each with the context K8S_AUTH_CONTEXT if
    set. The play's `environment` has precedence over that of ansible-playbook.
    """

    OPTIONS: ClassVar[dict[str, Any]] = KUBECONFIG

    @cached_property
    def environment(self) -> dict[str, str]:
        """The environment that modules get: a play's may have numbers and booleans."""
        of_play: dict[str, Any] = {}
        self._compute_environment_string(of_play)
        # Of this task's process, a fork: for what is fetched through a proxy, and for programs that a kubeconfig calls.
        os.environ.update({name: str(value) for name, value in of_play.items()})
        return dict(os.environ)

    def answer(self, path: str) -> dict[str, Any] | None:
        """What the API has at a path, as `kubectl get --raw` takes it: an object, a list of them, or None."""
        where, _mark, query = path.partition("?")
        return self.kube.get(where, dict(part.split("=", 1) for part in query.split("&") if part))

    @cached_property
    def kube(self) -> Kube:
        """The cluster, which may restart meanwhile; KubeError if its kubeconfig cannot be used."""
        return self.present_kube.patient(self.say)

    @cached_property
    def present_kube(self) -> Kube:
        """The cluster as the first task of a play asks it: one that is not there is reported at once."""
        return Kube(*self.choice)

    @staticmethod
    def say(line: str) -> None:
        """Print a line of progress while the task runs."""
        Display().display(f"    {line}")

    @property
    def kubeconfig(self) -> str | None:
        """The kubeconfig that was chosen; None for the file in the home."""
        return self.choice[0]

    @property
    def choice(self) -> tuple[str | None, str | None]:
        """The kubeconfig and its context; None stands for the file in the home, and for its current context."""
        if others := [name for name in ELSEWHERE if self.environment.get(name)]:
            expected = "none, because Helm would change another cluster than that of the kubeconfig"
            fix = "write address and token into a kubeconfig, name it in K8S_AUTH_KUBECONFIG, and unset these"
            raise KubeError(Problem(", ".join(others), "a value in the environment", expected, fix))
        return chosen(self._task.args.get("kubeconfig"), None, self.environment)

    def hold(self, timeout_s: float | None, job: str = "", namespace: str = "") -> None:
        """Take the lock of the cluster, or of one job, for this run; a process beside the run keeps it."""
        lock, record = Lock(self.kube, job, namespace), self.record()
        if lock.hold(record, self.say, PATIENCE_S if timeout_s is None else timeout_s):
            lease_keeper.start(lock, record, self.choice, self.environment, (job, namespace))

    def wait_for_cluster(self, timeout_s: float | None) -> None:
        """Wait while another run changes the cluster."""
        Lock(self.kube).wait(self.record(), self.say, PATIENCE_S if timeout_s is None else timeout_s)

    def free(self, job: str = "", namespace: str = "") -> None:
        """Free the lock before this run ends."""
        lock, record = Lock(self.kube, job, namespace), self.record()
        try:
            lock.free(record)
        except KubeError as error:
            self.say(f"{lock.title}: its lock is freed when this run has ended, or expires ({error})")
        else:
            lease_keeper.end(lock, record)
