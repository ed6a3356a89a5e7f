"""One hostile pod for each field of pods that the census does not call harmless, as a member posts it."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from gangplank.backends.pod_template import GPU_TOLERATION
from gangplank.cluster.reader import READER_LIMITS
from tests.support.teams_live import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
Path = tuple[str | int, ...]
NO = "is not one of its"
SECURITY = 'violates PodSecurity "restricted:latest"'
CONTAINER: Path = ("spec", "containers", 0)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "digits", "uid": "x"}
OTHERS = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}


RUNTIME_CLASS = "probe"  # exists: Kubernetes itself refuses one that does not


class Hostile(NamedTuple):
    """A change that makes an ordinary pod hostile."""

    field: str  # of the census
    rule: str
    path: Path
    value: object
    message: str  # part of the expected refusal
    more: tuple[tuple[Path, object], ...] = ()  # what the API server asks for beside it


def replaced(manifest: Json, path: Path, value: object) -> Json:
    """A copy of a manifest with a value at a path; what is on the way there is made."""
    changed = copy.deepcopy(manifest)
    place: Any = changed
    for key, following in itertools.pairwise(path):
        if isinstance(place, dict):
            place = place.setdefault(key, [{}] if isinstance(following, int) else {})
        else:
            place = place[key]
    place[path[-1]] = value
    return changed


def of_volume(kind: str, source: Json) -> Hostile:
    """A volume that Pod Security refuses."""
    return Hostile(f"Volume.{kind}", "pod security", ("spec", "volumes"), [{"name": "x", kind: source}], SECURITY)


def security(field: str, path: Path, value: object, *more: tuple[Path, object]) -> Hostile:
    """A setting that Pod Security refuses."""
    return Hostile(field, "pod security", path, value, SECURITY, more)


# What every pod template can set: (rule, path below the pod's spec, value, part of the refusal)
IN_TEMPLATES: tuple[tuple[str, Path, object, str], ...] = (
    ("toleration", ("tolerations",), [{"operator": "Exists"}], f'toleration "*" {NO} tolerations (none)'),
    ("node label", ("nodeSelector",), {"team": "speech"}, f'node label "team=speech" {NO} nodeLabels'),
    ("runtime class", ("runtimeClassName",), RUNTIME_CLASS, f'"{RUNTIME_CLASS}" {NO} runtimeClasses (none)'),
    (
        "environment variable",
        ("containers", 0, "env"),
        [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
        f'environment variable "NVIDIA_VISIBLE_DEVICES" {NO} variables (none)',
    ),
    (
        "secret",
        ("containers", 0, "envFrom"),
        [{"secretRef": {"name": "deploy-key"}}],
        f'secret "deploy-key" {NO} secrets (none)',
    ),
    (
        "resource",
        ("containers", 0, "resources", "limits"),
        {"nvidia.com/mig-1g.5gb": 1},
        f'resource "nvidia.com/mig-1g.5gb" {NO} resources',
    ),
    ("grace period", ("terminationGracePeriodSeconds",), 3600, f'grace period "3600" {NO} gracePeriods (30 or less)'),
    (
        "field",
        ("affinity",),
        {"podAntiAffinity": {REQUIRED: [OTHERS | {"namespaceSelector": {}}]}},
        'field "PodAffinityTerm.namespaceSelector"',
    ),
)


def affinity(**expression: object) -> Json:
    """A wish for a node."""
    term = {"matchExpressions": [expression]}
    return {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term}]}}


CLAIM: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
PROC: Path = (*CONTAINER, "securityContext", "procMount")
CORDONED = "node.kubernetes.io/unschedulable"
VARIABLE = "environment variable"
NO_GPUS = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
IN_PODS: tuple[Hostile, ...] = (
    Hostile(
        "ObjectMeta.annotations",
        "annotation or label",
        ("metadata", "annotations", "cni.projectcalico.org/ipAddrs"),
        '["198.18.0.1"]',
        f'annotation or label "cni.projectcalico.org/ipAddrs" {NO} domains (app.kubernetes.io,',
    ),
    Hostile(
        "ObjectMeta.annotations",
        "annotation or label",
        ("metadata", "annotations", "cdi.k8s.io/gpus"),
        "nvidia.com/gpu=all",
        f'annotation or label "cdi.k8s.io/gpus" {NO} domains',
    ),
    Hostile(
        "ObjectMeta.labels",
        "annotation or label",
        ("metadata", "labels", "volcano.sh/job-name"),
        "digits",
        f'annotation or label "volcano.sh/job-name" {NO} domains',
    ),
    Hostile(
        "ObjectMeta.labels",
        "label",
        ("metadata", "labels", "gangplank.dev/job"),
        "probe",
        f'label "gangplank.dev/job=probe" {NO} labels (none)',
    ),
    Hostile(
        "ObjectMeta.labels",
        "label",
        ("metadata", "labels", "gangplank.dev/team"),
        "speech",
        f'label "gangplank.dev/team=speech" {NO} labels (none)',
    ),
    Hostile("ObjectMeta.finalizers", "finalizer", ("metadata", "finalizers"), ["a.b/c"], f'finalizer "a.b/c" {NO}'),
    *(
        Hostile(
            f"OwnerReference.{field}",
            "owner",
            ("metadata", "ownerReferences"),
            [OWNER | extra],
            f'owner "Job digits" {NO} owners (none)',
        )
        for field, extra in (
            *((field, {}) for field in OWNER),
            ("controller", {"controller": True}),
            ("blockOwnerDeletion", {"blockOwnerDeletion": True}),
        )
    ),
    Hostile("PodSpec.nodeName", "node", ("spec", "nodeName"), "node-0", f'node "node-0" {NO} nodes (none)'),
    *(
        Hostile(f"PodSpec.{field}", "service account", ("spec", field), "admin", f'account "admin" {NO} accounts')
        for field in ("serviceAccount", "serviceAccountName")
    ),
    *(
        Hostile(f"Toleration.{field}", "toleration", ("spec", "tolerations"), [value], f'toleration "{text}" {NO}')
        for field, value, text in (
            ("key", {"key": CORDONED, "operator": "Exists"}, CORDONED),
            ("value", {"key": "team", "value": "speech", "effect": "NoSchedule"}, "team=speech"),
            ("operator", {"operator": "Exists"}, "*"),
            ("effect", {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}, "node.kubernetes.io/not-ready"),
            ("key", {"key": "nvidia.com/gpu", "operator": "Exists"}, "nvidia.com/gpu"),  # without a GPU
        )
    ),
    *(
        Hostile(
            "Toleration.key",
            "toleration",
            ("spec", "tolerations"),
            [GPU_TOLERATION],
            f'toleration "nvidia.com/gpu" {NO} tolerations',
            (((*CONTAINER, "env"), env), ((*CONTAINER, "resources", "limits"), limits)),
        )
        for env, limits in (  # only the pod that reads evidence may: a small one without GPUs
            ([NO_GPUS], {"cpu": "100m", "memory": "65Mi"}),
            ([NO_GPUS], {"cpu": "101m", "memory": "64Mi"}),
            ([], READER_LIMITS),
            ([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}], READER_LIMITS),
        )
    ),
    Hostile(
        "EnvVar.name",
        VARIABLE,
        (*CONTAINER, "env"),
        [NO_GPUS, NO_GPUS | {"value": "all"}],  # the last one counts
        f'{VARIABLE} "NVIDIA_VISIBLE_DEVICES" {NO} variables',
    ),
    Hostile(
        "PodSpec.terminationGracePeriodSeconds",
        "grace period",
        ("spec", "terminationGracePeriodSeconds"),
        31,
        f'grace period "31" {NO} gracePeriods (30 or less)',
    ),
    *(
        Hostile(
            "Probe.terminationGracePeriodSeconds",
            "grace period",
            (*CONTAINER, f"{probe}Probe"),
            {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 86400},
            f'grace period "86400" {NO} gracePeriods (30 or less)',
        )
        for probe in ("liveness", "startup")  # the API server takes none for readiness
    ),
    Hostile("PodSpec.nodeSelector", "node label", ("spec", "nodeSelector"), {"a": "b"}, f'node label "a=b" {NO}'),
    *(
        Hostile(
            f"NodeSelectorRequirement.{field}", "node label", ("spec", "affinity"), value, f'node label "{text}" {NO}'
        )
        for field, value, text in (
            ("key", affinity(key="team", operator="Exists"), "team"),
            ("operator", affinity(key="team", operator="NotIn", values=["vision"]), "team"),
            ("values", affinity(key="team", operator="In", values=["speech"]), "team"),
            (
                "key",
                {
                    "nodeAffinity": {
                        REQUIRED: {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
                            ]
                        }
                    }
                },
                "metadata.name",
            ),
        )
    ),
    Hostile(
        "PodSpec.runtimeClassName",
        "runtime class",
        ("spec", "runtimeClassName"),
        RUNTIME_CLASS,
        f'runtime class "{RUNTIME_CLASS}" {NO} runtimeClasses',
    ),
    Hostile(
        "EnvVar.name",
        VARIABLE,
        (*CONTAINER, "env"),
        [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "all"}],
        f'{VARIABLE} "NVIDIA_DRIVER_CAPABILITIES" {NO} variables',
    ),
    Hostile(
        "EnvVar.name",
        VARIABLE,
        (*CONTAINER, "env"),
        [{"name": "HABANA_VISIBLE_DEVICES", "value": "all"}],
        f'{VARIABLE} "HABANA_VISIBLE_DEVICES" {NO} variables',
    ),
    *(
        Hostile(
            "EnvFromSource.prefix",
            VARIABLE,
            (*CONTAINER, "envFrom"),
            [{"prefix": prefix, "configMapRef": {"name": "x"}}],
            f'{VARIABLE} "{prefix}" {NO} variables',
        )
        for prefix in ("NVID", "NVIDIA_V", "HABANA_")
    ),
    Hostile(
        "SecretEnvSource.name",
        "secret",
        (*CONTAINER, "envFrom"),
        [{"secretRef": {"name": "deploy-key"}}],
        f'secret "deploy-key" {NO}',
    ),
    Hostile(
        "SecretKeySelector.name",
        "secret",
        (*CONTAINER, "env"),
        [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "deploy-key", "key": "a"}}}],
        f'secret "deploy-key" {NO}',
    ),
    Hostile(
        "SecretVolumeSource.secretName",
        "secret",
        ("spec", "volumes"),
        [{"name": "x", "secret": {"secretName": "deploy-key"}}],
        f'secret "deploy-key" {NO}',
    ),
    Hostile(
        "SecretProjection.name",
        "secret",
        ("spec", "volumes"),
        [{"name": "x", "projected": {"sources": [{"secret": {"name": "deploy-key"}}]}}],
        f'secret "deploy-key" {NO}',
    ),
    *(
        Hostile(
            f"ResourceRequirements.{part}",
            "resource",
            (*CONTAINER, "resources"),
            {"limits": {"example.com/fpga": "1"}, "requests": {"example.com/fpga": "1"}},
            f'resource "example.com/fpga" {NO} resources',
        )
        for part in ("limits", "requests")
    ),
    *(
        Hostile(
            f"PodAffinityTerm.{field}",
            "field",
            ("spec", "affinity", part),
            {when: [{"weight": 1, "podAffinityTerm": OTHERS | {field: value}} if when == PREFERRED
                    else OTHERS | {field: value}]},
            f'field "PodAffinityTerm.{field}"',
        )
        for field, value in (("namespaceSelector", {}), ("namespaces", ["speech"]))
        for part in ("podAffinity", "podAntiAffinity")
        for when in (REQUIRED, PREFERRED)
    ),
    Hostile(
        "PodSpec.resources",
        "field",
        ("spec", "resources"),
        {"requests": {"cpu": "1"}},
        'field "PodSpec.resources"',
    ),
    Hostile(
        "Volume.csi", "field", ("spec", "volumes"), [{"name": "x", "csi": {"driver": "a.b"}}], 'field "Volume.csi"'
    ),
    Hostile(
        "Volume.ephemeral",
        "field",
        ("spec", "volumes"),
        [{"name": "x", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}],
        'field "Volume.ephemeral"',
    ),
    Hostile("PodSpec.overhead", "API server", ("spec", "overhead"), {"cpu": "1"}, "Pod Overhead set without"),
    Hostile(
        "PodSpec.preemptionPolicy",
        "API server",
        ("spec", "preemptionPolicy"),
        "Never",
        "PreemptionPolicy (Never) must not be provided",
    ),
    Hostile("PodSpec.priority", "API server", ("spec", "priority"), 2000, "the integer value of priority (2000)"),
    Hostile("ObjectMeta.namespace", "API server", ("metadata", "namespace"), "speech", "does not match the namespace"),
    Hostile(
        "VolumeMount.mountPropagation",
        "API server",
        ("spec", "volumes"),
        [{"name": "x", "emptyDir": {}}],
        "Bidirectional mount propagation is available only to privileged containers",
        (((*CONTAINER, "volumeMounts"), [{"name": "x", "mountPath": "/x", "mountPropagation": "Bidirectional"}]),),
    ),
    security("PodSpec.hostIPC", ("spec", "hostIPC"), True),
    security("PodSpec.hostNetwork", ("spec", "hostNetwork"), True),
    security("PodSpec.hostPID", ("spec", "hostPID"), True),
    security("PodSecurityContext.runAsNonRoot", ("spec", "securityContext", "runAsNonRoot"), False),
    security("PodSecurityContext.runAsUser", ("spec", "securityContext", "runAsUser"), 0),
    security("Sysctl.name", ("spec", "securityContext", "sysctls"), [{"name": "kernel.msgmax", "value": "1"}]),
    security(
        "WindowsSecurityContextOptions.hostProcess",
        ("spec", "securityContext", "windowsOptions"),
        {"hostProcess": True},
        (("spec", "hostNetwork"), True),
    ),
    security("SELinuxOptions.user", ("spec", "securityContext", "seLinuxOptions"), {"user": "a"}),
    security("SELinuxOptions.role", ("spec", "securityContext", "seLinuxOptions"), {"role": "a"}),
    security("SELinuxOptions.type", ("spec", "securityContext", "seLinuxOptions"), {"type": "spc_t"}),
    security("SeccompProfile.type", ("spec", "securityContext", "seccompProfile"), {"type": "Unconfined"}),
    security("AppArmorProfile.type", ("spec", "securityContext", "appArmorProfile"), {"type": "Unconfined"}),
    security("Capabilities.add", (*CONTAINER, "securityContext", "capabilities", "add"), ["SYS_ADMIN"]),
    security("ContainerPort.hostPort", (*CONTAINER, "ports"), [{"containerPort": 80, "hostPort": 80}]),
    security(
        "SecurityContext.allowPrivilegeEscalation", (*CONTAINER, "securityContext", "allowPrivilegeEscalation"), True
    ),
    security(
        "SecurityContext.privileged",
        (*CONTAINER, "securityContext"),
        {"privileged": True},
    ),
    security("SecurityContext.procMount", PROC, "Unmasked", (("spec", "hostUsers"), False)),
    security("SecurityContext.runAsNonRoot", (*CONTAINER, "securityContext", "runAsNonRoot"), False),
    security("SecurityContext.runAsUser", (*CONTAINER, "securityContext", "runAsUser"), 0),
    of_volume("awsElasticBlockStore", {"volumeID": "x"}),
    of_volume("azureDisk", {"diskName": "x", "diskURI": "/subscriptions/x", "kind": "Managed"}),
    of_volume("azureFile", {"secretName": "x", "shareName": "x"}),
    of_volume("cephfs", {"monitors": ["x"]}),
    of_volume("cinder", {"volumeID": "x"}),
    of_volume("fc", {"targetWWNs": ["x"], "lun": 1}),
    of_volume("flexVolume", {"driver": "a/b"}),
    of_volume("flocker", {"datasetName": "x"}),
    of_volume("gcePersistentDisk", {"pdName": "x"}),
    of_volume("gitRepo", {"repository": "x"}),
    of_volume("glusterfs", {"endpoints": "x", "path": "x"}),
    of_volume("hostPath", {"path": "/"}),
    of_volume("iscsi", {"targetPortal": "198.18.0.1", "iqn": "iqn.2020-01.com.example:x", "lun": 0}),
    of_volume("nfs", {"server": "198.18.0.1", "path": "/"}),
    of_volume("photonPersistentDisk", {"pdID": "x"}),
    of_volume("portworxVolume", {"volumeID": "x"}),
    of_volume("quobyte", {"registry": "198.18.0.1:1", "volume": "x"}),
    of_volume("rbd", {"monitors": ["x"], "image": "x"}),
    of_volume("scaleIO", {"gateway": "https://x", "system": "x", "volumeName": "x", "secretRef": {"name": "x"}}),
    of_volume("storageos", {"volumeName": "x"}),
    of_volume("vsphereVolume", {"volumePath": "x"}),
)
# Refused, but not for a pod that can be posted here
ELSEWHERE = {
    "PodSpec.schedulingGroup": "this version of Kubernetes drops it",
    "ExactDeviceRequest.tolerations": "the lab's API server drops it: its feature gate DRADeviceTaints is off",
    "PodSpec.workloadRef": "this version of Kubernetes drops it",
    "VolumeProjection.podCertificate": "this version of Kubernetes drops it",
    "EphemeralContainer.image": "no member may write pods/ephemeralcontainers",
}


def hostile_pods() -> Iterator[tuple[Hostile, Json]]:
    """Each hostile pod, with what makes it so."""
    for item in IN_PODS:
        manifest = pod("probe", "vision", "vision")
        for path, value in ((item.path, item.value), *item.more):
            manifest = replaced(manifest, path, value)
        yield item, manifest
