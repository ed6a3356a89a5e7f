"""What a live cluster makes of manifests, as plain JSON; waits by watching, with a deadline."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from gangplank.cluster.client import Kube
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
SHARED_CLAIM: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "shared"},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "local-shared",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
DEADLINE_S = 600
NOWHERE = {"gangplank.dev/nowhere": "true"}  # no node has it: the pods are made but never run
PLURALS = {
    "Pod": "/api/v1/namespaces/{ns}/pods",
    "Service": "/api/v1/namespaces/{ns}/services",
    "ConfigMap": "/api/v1/namespaces/{ns}/configmaps",
    "Secret": "/api/v1/namespaces/{ns}/secrets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{ns}/persistentvolumeclaims",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{ns}/networkpolicies",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{ns}/horizontalpodautoscalers",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{ns}/jobsets",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaims",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{ns}/resourceclaimtemplates",
    "batch/v1 Job": "/apis/batch/v1/namespaces/{ns}/jobs",
    "batch.volcano.sh/v1alpha1 Job": "/apis/batch.volcano.sh/v1alpha1/namespaces/{ns}/jobs",
    "PyTorchJob": "/apis/kubeflow.org/v1/namespaces/{ns}/pytorchjobs",
    "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{ns}/trainjobs",
}


class Cluster:
    """One namespace of one cluster."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.namespace, self.kube = namespace, Kube(kubeconfig).patient()
        self.call = self.kube.call

    def path(self, kind: str, api_version: str = "") -> str:
        """Where the objects of a kind are."""
        return PLURALS.get(kind) or PLURALS[f"{api_version} {kind}"]

    def items(self, kind: str, api_version: str = "") -> list[Json]:
        """All objects of a kind in our namespace; none when the cluster does not know the kind."""
        try:
            objects: list[Json] = self.call("GET", self.path(kind, api_version).format(ns=self.namespace))["items"]
        except KubeError as error:
            if error.status == 404:
                return []
            raise
        return objects

    def create(self, manifest: Json) -> Json:
        """Submit a manifest into our namespace."""
        path = self.path(manifest["kind"], manifest["apiVersion"]).format(ns=self.namespace)
        return self.kube.post(path, manifest)

    def open(self) -> None:
        """Make the namespace; jobs of every kind may be tried there."""
        labels = {"pod-security.kubernetes.io/enforce": "privileged"}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels}}
        self.call("POST", "/api/v1/namespaces", body)
        priority = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": self.namespace},
            "value": 7,
        }
        self.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
        self.wait(
            lambda: bool(self.call("GET", f"/api/v1/namespaces/{self.namespace}/serviceaccounts")["items"]), "Pod"
        )

    def close(self) -> None:
        """Remove everything that was made, also pods that a finalizer of a test's own would keep."""
        self.call("DELETE", self.path("Job", "batch/v1").format(ns=self.namespace), {"propagationPolicy": "Background"})
        for pod in self.items("Pod"):
            if "example.com/f" in pod["metadata"].get("finalizers", []):
                path = f"{self.path('Pod').format(ns=self.namespace)}/{pod['metadata']['name']}"
                self.call("PATCH", path, {"metadata": {"finalizers": None}})
        self.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{self.namespace}")
        self.call("DELETE", f"/api/v1/namespaces/{self.namespace}")

    def enqueue(self) -> None:
        """Let every gang in, as a scheduler with enough room would: no PodGroup stays without its pods."""
        for group in self.items("PodGroup"):
            if group.get("status", {}).get("phase", "Pending") == "Pending":
                path = f"{self.path('PodGroup').format(ns=self.namespace)}/{group['metadata']['name']}"
                patch = {"status": {"phase": "Inqueue"}}
                self.call("PATCH", path, patch)

    def wait(self, done: Callable[[], bool], kind: str) -> None:
        """Return when something holds, looking again whenever an object of a kind changes."""
        end = time.monotonic() + DEADLINE_S
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {DEADLINE_S} s: {kind} in {self.namespace}")
            where = self.path(kind).format(ns=self.namespace)
            version = self.call("GET", where)["metadata"]["resourceVersion"]
            if not done():
                self.change(where, version)

    def change(self, path: str, version: str) -> None:
        """Wait for the next change below a path, at most two seconds."""
        answer = self.kube.open("GET", path, query={"watch": "true", "resourceVersion": version, "timeoutSeconds": "2"})
        next(iter(answer.stream(amt=64)), None)
        answer.release_conn()


@contextlib.contextmanager
def opened(kubeconfig: str, purpose: str) -> Iterator[Cluster]:
    """A namespace of its own, removed at the end."""
    cluster = Cluster(kubeconfig, f"gangplank-{purpose}-{uuid.uuid4().hex[:8]}")
    cluster.open()
    try:
        yield cluster
    finally:
        cluster.close()
