"""What site.yml can install, as far as a check of a cluster must know it: programs, CRDs and what they need."""

from __future__ import annotations

from dataclasses import dataclass

from gangplank.site.storage import LOCAL_PATH_RELEASE

# Kinds of objects, as plural and group
RBAC, HOOKS = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
RELEASE = ("namespaces", "secrets", "serviceaccounts", "configmaps")  # Helm keeps each release in a Secret
CLUSTER_WIDE = (f"clusterroles.{RBAC}", f"clusterrolebindings.{RBAC}")
PROGRAM = ("services", "deployments.apps", f"roles.{RBAC}", f"rolebindings.{RBAC}", *CLUSTER_WIDE)
CRDS = ("customresourcedefinitions.apiextensions.k8s.io", f"validatingwebhookconfigurations.{HOOKS}")
MUTATING = f"mutatingwebhookconfigurations.{HOOKS}"
PROTECTED = ("networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy")
POLICIES = (f"validatingadmissionpolicies.{HOOKS}", f"validatingadmissionpolicybindings.{HOOKS}")
# Of these, webhooks see only what their namespaceSelector chooses: of a namespace by its own labels
NAMESPACED = {*RELEASE, *PROGRAM, *PROTECTED, "daemonsets.apps", "replicasets.apps", "jobs.batch", "pods",
              "persistentvolumeclaims", "pytorchjobs.kubeflow.org"} - {*CLUSTER_WIDE}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Component:
    """A component of site.yml."""

    title: str
    release: str  # Helm release and namespace by default
    namespace: str
    inputs: tuple[str, ...] = ("release", "namespace")  # those that an input of the role can change
    kinds: tuple[str, ...]  # of the objects that its chart and its role write
    programs: tuple[str, ...] = ()  # a part of the image of each program, without which it does not work
    rivals: tuple[str, ...] = ()  # the same of other programs that do its work, and not beside it
    crds: tuple[tuple[str, str], ...] = ()  # the CRDs that trainings use, each with the version that we use
    helm_crds: bool = False  # whether they are part of the release, so that Helm refuses third-party CRDs
    pods: int = 0  # what it adds to a cluster: pods with their requests; of `storage`, its releases say that
    cpu_millis: int = 0
    memory_mib: int = 0


COMPONENTS = {
    "volcano": Component(
        title="Volcano",
        release="volcano",
        namespace="volcano-system",
        kinds=(*RELEASE, *PROGRAM, *CRDS, MUTATING, "jobs.batch"),
        programs=("vc-scheduler", "vc-controller-manager", "vc-webhook-manager"),
        crds=(
            ("jobs.batch.volcano.sh", "v1alpha1"),
            ("podgroups.scheduling.volcano.sh", "v1beta1"),
            ("queues.scheduling.volcano.sh", "v1beta1"),
        ),
        helm_crds=True,
        pods=4,  # one of them for a moment, for the certificate
    ),
    "gpu_device_plugin": Component(
        title="a GPU device plugin",
        release="nvidia-device-plugin",
        namespace="gpu-device-plugin",
        inputs=("namespace",),
        kinds=(*RELEASE, *CLUSTER_WIDE, "daemonsets.apps", "runtimeclasses.node.k8s.io"),
        programs=("k8s-device-plugin",),
        rivals=("nvidia-gpu-device-plugin",),  # Google's, which GKE puts on its nodes
    ),
    "gpu_dra_driver": Component(
        title="a driver of GPUs by claim",
        release="dra-example-driver",
        namespace="gpu-dra-driver",
        inputs=("namespace",),
        kinds=(*RELEASE, *CLUSTER_WIDE, *POLICIES, "services", "daemonsets.apps", "deviceclasses.resource.k8s.io"),
        programs=("dra-example-driver",),
        rivals=("k8s-dra-driver-gpu", "dra-driver-nvidia-gpu"),  # NVIDIA's, as published by NVIDIA and by Kubernetes
    ),
    "storage": Component(
        title="storage classes",
        release=LOCAL_PATH_RELEASE.name,  # by default; its classes decide which releases it has
        namespace=LOCAL_PATH_RELEASE.namespace,
        inputs=(),
        kinds=(*RELEASE, *PROGRAM, "storageclasses.storage.k8s.io"),
    ),
    "training_operator": Component(
        title="the training operator",
        release="training-operator",
        namespace="kubeflow",
        kinds=(*RELEASE, *PROGRAM, *CRDS, *PROTECTED, "pytorchjobs.kubeflow.org"),
        programs=("/training-operator",),
        rivals=("odh-training-operator-rhel8", "odh-training-operator-rhel9", "odh-training-operator"),  # Red Hat's
        crds=(("pytorchjobs.kubeflow.org", "v1"),),
        pods=2,  # one of them for a moment, to verify it
        cpu_millis=50,
        memory_mib=64,
    ),
    "trainer_v2": Component(
        title="Trainer v2",
        release="kubeflow-trainer",
        namespace="kubeflow-system",
        kinds=(*RELEASE, *PROGRAM, *CRDS, MUTATING, "clustertrainingruntimes.trainer.kubeflow.org"),
        programs=("trainer-controller-manager",),
        crds=(("trainjobs.trainer.kubeflow.org", "v1alpha1"), ("jobsets.jobset.x-k8s.io", "v1alpha2")),
        pods=2,
        cpu_millis=100,
        memory_mib=256,
    ),
}
USUAL = ("volcano", "storage")  # what a site has if it asks for nothing else
