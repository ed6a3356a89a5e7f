"""Every way in which work reaches a queue: what a team may post where, and each such object changed to break a rule."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.lease import HOLDER
from gangplank.teams.admission import paths
from gangplank.teams.census import Field, load
from gangplank.teams.conditions import BY_TYPE, HANDLERS, OTHER_VARIABLES
from tests.support.teams_fields import CLAIM, IN_PODS, IN_TEMPLATES, NO, OWNER, hostile_pods, replaced
from tests.support.teams_live import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]


def template(queue: str | None) -> Json:
    """A pod template whose pods go to a queue."""
    manifest = pod("x", "vision", queue or "")
    if queue is None:
        del manifest["metadata"]["annotations"]
    meta = {key: value for key, value in manifest["metadata"].items() if key == "annotations"}
    return {"metadata": meta | {"labels": {"a": "b"}}, "spec": manifest["spec"]}


def volcano(queue: str | None) -> Json:
    """A Volcano job's spec."""
    pods = template("vision")
    del pods["metadata"]
    body: Json = {"schedulerName": "volcano", "tasks": [{"name": "w", "replicas": 1, "template": pods}]}
    return body | ({"queue": queue} if queue else {})


def obj(api_version: str, kind: str, spec: Json, annotations: Json | None = None) -> Json:
    """An object in the team's namespace."""
    meta: Json = {"name": "probe", "namespace": "vision", "labels": {"a": "b"}}  # else those of its template
    meta |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def workload(kind: str) -> Callable[[str | None], Json]:
    """A builder of one of the kinds of the API group apps that create pods."""
    selector = {"selector": {"matchLabels": {"a": "b"}}}

    def build(queue: str | None) -> Json:
        body: Json = {**selector, "template": template(queue)}
        body["template"]["spec"]["restartPolicy"] = "Always"
        return obj("apps/v1", kind, body | ({"serviceName": "x"} if kind == "StatefulSet" else {}))

    return build


def job_flow(queue: str | None) -> Json:
    patch = {"jobSpec": volcano(queue)}
    return obj("flow.volcano.sh/v1alpha1", "JobFlow", {"flows": [{"name": "a", "patch": patch}]})


def pytorch(queue: str | None) -> Json:
    policy = {"schedulingPolicy": {"queue": queue}} if queue else {}
    pods = template("vision")
    pods["spec"]["containers"][0]["name"] = "pytorch"
    replicas = {"Master": {"replicas": 1, "template": pods}}
    return obj("kubeflow.org/v1", "PyTorchJob", {"runPolicy": policy, "pytorchReplicaSpecs": replicas})


def trainjob(queue: str | None) -> Json:
    notes = {"scheduling.volcano.sh/queue-name": queue} if queue else None
    return obj("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch-distributed"}}, notes)


def patched(queue: str | None) -> Json:
    manifest = trainjob(None)
    if queue:
        meta = {"annotations": {"scheduling.volcano.sh/queue-name": queue}}
        patch = {"manager": "gangplank.dev/probe", "trainingRuntimeSpec": {"template": {"metadata": meta}}}
        manifest["spec"]["runtimePatches"] = [patch]
    return manifest


def patched_pods(queue: str | None) -> Json:
    """A TrainJob that patches the pods of its runtime."""
    meta = {"annotations": {"scheduling.volcano.sh/queue-name": queue}} if queue else {}
    patch: Json = {"metadata": meta, "spec": {"containers": [{"name": "node"}]}}
    job = {"name": "node", "template": {"spec": {"template": patch}}}
    runtime = {"template": {"spec": {"replicatedJobs": [job]}}}
    manifest = trainjob(None)
    manifest["spec"]["runtimePatches"] = [{"manager": "gangplank.dev/probe", "trainingRuntimeSpec": runtime}]
    return manifest


def annotated_pod(key: str) -> Callable[[str | None], Json]:
    def build(queue: str | None) -> Json:
        manifest = pod("probe", "vision", "")
        manifest["metadata"]["annotations"] = {key: queue} if queue else {}
        return manifest

    return build


def pod_group(queue: str | None) -> Json:
    return obj("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 1} | ({"queue": queue} if queue else {}))


def cronjob(queue: str | None) -> Json:
    body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template(queue)}}}
    return obj("batch/v1", "CronJob", body)


BATCH = "batch.volcano.sh/v1alpha1"
# (way, where it is posted, builder, the queue in the refusal of an object that names none; "allowed": not refused)
WAYS: tuple[tuple[str, str, Callable[[str | None], Json], str], ...] = (
    ("Volcano Job", f"/apis/{BATCH}/namespaces/vision/jobs", lambda q: obj(BATCH, "Job", volcano(q)), "default"),
    (
        "Volcano CronJob",
        f"/apis/{BATCH}/namespaces/vision/cronjobs",
        lambda q: obj(BATCH, "CronJob", {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": volcano(q)}}),
        "default",
    ),
    (
        "JobTemplate",
        "/apis/flow.volcano.sh/v1alpha1/namespaces/vision/jobtemplates",
        lambda q: obj("flow.volcano.sh/v1alpha1", "JobTemplate", volcano(q)),
        "default",
    ),
    ("JobFlow", "/apis/flow.volcano.sh/v1alpha1/namespaces/vision/jobflows", job_flow, "default"),
    ("PodGroup", "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups", pod_group, "default"),
    ("pod", "/api/v1/namespaces/vision/pods", annotated_pod("scheduling.volcano.sh/queue-name"), ""),
    ("pod by job key", "/api/v1/namespaces/vision/pods", annotated_pod("volcano.sh/queue-name"), ""),
    (
        "batch Job",
        "/apis/batch/v1/namespaces/vision/jobs",
        lambda q: obj("batch/v1", "Job", {"template": template(q)}),
        "",
    ),
    ("batch CronJob", "/apis/batch/v1/namespaces/vision/cronjobs", cronjob, ""),
    ("Deployment", "/apis/apps/v1/namespaces/vision/deployments", workload("Deployment"), ""),
    ("ReplicaSet", "/apis/apps/v1/namespaces/vision/replicasets", workload("ReplicaSet"), ""),
    ("StatefulSet", "/apis/apps/v1/namespaces/vision/statefulsets", workload("StatefulSet"), ""),
    ("DaemonSet", "/apis/apps/v1/namespaces/vision/daemonsets", workload("DaemonSet"), ""),
    ("PyTorchJob", "/apis/kubeflow.org/v1/namespaces/vision/pytorchjobs", pytorch, ""),
    ("TrainJob", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/vision/trainjobs", trainjob, "allowed"),
    ("TrainJob by a patch", "/apis/trainer.kubeflow.org/v1alpha1/namespaces/vision/trainjobs", patched, "allowed"),
)
WHERE = {name: where for name, where, _, _ in WAYS}
COMMANDS = "/apis/bus.volcano.sh/v1alpha1/namespaces/vision/commands"
SERVICES = "/api/v1/namespaces/vision/services"
QUEUE_API = "scheduling.volcano.sh/v1beta1"


def command(api_version: str, kind: str, name: str, action: str) -> Json:
    """A Command to one of Volcano's controllers."""
    target = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "x"}
    head = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
    return {**head, "metadata": {"name": "probe", "namespace": "vision"}, "action": action, "target": target}


def service(**spec: object) -> Json:
    return obj("v1", "Service", {"selector": {"a": "b"}, "ports": [{"port": 80}]} | spec)


# Fields that a Service must not set: each lets traffic in from outside the cluster, or takes over a foreign address
EXPOSURES: tuple[Json, ...] = (
    {"type": "NodePort"},
    {"type": "LoadBalancer"},
    {"type": "ExternalName", "externalName": "api.example.com"},
    {"externalName": "api.example.com"},
    {"loadBalancerIP": "198.18.0.1"},
)
# The lab's API server refuses these itself, before any policy, so only tests/golden/teams covers the policy's rule.
EXTERNAL_IPS = {"externalIPs": ["198.18.0.1"]}
EXTERNAL_IPS_DENIED = "Use of external IPs is denied by admission control"


def exposure(fields: Json) -> str:
    """An exposure as the refusal names it."""
    field, value = next(iter(fields.items()))
    return f"{field}: {value[0] if isinstance(value, list) else value}"


@dataclass(frozen=True)
class Violation:
    """An object that a rule of a policy must refuse."""

    name: str
    rule: str  # the name of a rule of gangplank/teams/rules.py
    where: str
    manifest: Json
    message: str  # part of the expected refusal
    field: str = ""  # of the census, where the rule alone does not say which
    of_member: bool = False  # refused to members, not to administrators and controllers

    @property
    def poster(self) -> str:
        """The member of vision to whom it is refused: a lead where only leads may write; empty for everybody."""
        return "" if not self.of_member else "ada" if self.where == SECRETS else "bob"

    @property
    def policy(self) -> str:
        """The name of its path in gangplank/teams/admission.py."""
        group, _, plural = self.where.removeprefix("/api/v1/").removeprefix("/apis/").rpartition("/")
        group = "" if self.where.startswith("/api/") else group.partition("/")[0]
        return next(path.name for path in paths() if path.group == group and plural in path.resources)


EVIL = "docker.io/evil/miner:1"
# (rule, field of a pod's spec, a value that no team of the lab has, the plural in the message)
POD_FIELDS = (
    ("scheduler", "schedulerName", "default-scheduler", "schedulers"),
    ("priority", "priorityClassName", "urgent", "priorities"),
    ("service account", "serviceAccountName", "admin", "accounts"),
    ("node", "nodeName", "node-0", "nodes"),
    ("image", "image", EVIL, "images"),
)
VOLUME = {"name": "evil", "image": {"reference": EVIL}}
# Their definitions are older than image volumes: the API server drops the field before it can be judged or run.
NO_IMAGE_VOLUMES = ("PyTorchJob",)
NO_PODS = ("JobFlow", "PodGroup", "TrainJob")  # a JobFlow's patch creates Jobs, which are judged themselves


def pod_spec(value: object) -> Json | None:
    """The first pod's spec in a manifest."""
    if isinstance(value, dict) and "containers" in value:
        return value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((spec for item in inside if (spec := pod_spec(item)) is not None), None)


def job_spec(manifest: Json) -> Json | None:
    """The part of Volcano's own kinds that names a priority and a scheduler for all pods."""
    body: Json = manifest["spec"]
    if manifest["kind"] == "JobFlow":
        spec: Json = body["flows"][0]["patch"]["jobSpec"]
        return spec
    inner = body.get("jobTemplate", {}).get("spec", {})
    return body if "tasks" in body else inner if "tasks" in inner else None


def mark_violations(name: str, where: str, build: Callable[[str | None], Json]) -> Iterator[Violation]:
    """One way with a mark that keeps borrowed resources, on the object and on its pods; a pod with every such mark."""
    marks = QUEUE_SYSTEM.marks if name == "pod" else QUEUE_SYSTEM.marks[:1]
    for part, mark in product(("annotations", "labels"), marks):
        message = f'mark "{mark}" is not one of its marks (none)'
        manifest = build("vision")
        manifest["metadata"].setdefault(part, {})[mark] = "false"
        yield Violation(f"{name}: {mark} in {part}", "mark", where, manifest, message)
        inside = next((item for item in templates(manifest["spec"]) if "metadata" in item), None)
        if inside is not None:
            manifest = build("vision")
            next(templates(manifest["spec"]))["metadata"].setdefault(part, {})[mark] = "false"
            yield Violation(f"{name}: {mark} in {part} of its pods", "mark", where, manifest, message)


def templates(value: object) -> Iterator[Json]:
    """The pod templates in a manifest."""
    if isinstance(value, dict) and "containers" in value.get("spec", {}):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from templates(item)


# Ways that are open to a member; the last is not among WAYS, because its queue is judged in its pods
MEMBERS = tuple(way[0] for way in WAYS if not way[1].startswith("/apis/apps/") and way[0] != "PodGroup")
CONFIG_MAPS, SECRETS = "/api/v1/namespaces/vision/configmaps", "/api/v1/namespaces/vision/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vision/leases"
CALICO = "cni.projectcalico.org/ipAddrs"
PATCHED = ("TrainJob by a patch of pods", WHERE["TrainJob"], patched_pods)


def field_violations(name: str, where: str, build: Callable[[str | None], Json]) -> Iterator[Violation]:
    """One way with pods that have what no pod of the team may have."""
    for rule, path, value, message in IN_TEMPLATES:
        manifest = build("vision")
        inside = next(templates(manifest["spec"] if manifest["kind"] != "Pod" else manifest), None)
        schema_lacks = name == PATCHED[0] and rule in LACKING
        if inside is not None and not schema_lacks:
            inside["spec"] = replaced(inside["spec"], path, value)
            yield Violation(f"{name}: {rule} in its pods", rule, where, manifest, message)


LACKING = {"resource", "environment variable", "secret", "runtime class"}  # of a TrainJob's patches


def member_violations(name: str, where: str, build: Callable[[str | None], Json]) -> Iterator[Violation]:
    """One way with metadata that only a controller may write."""
    rows = (
        ("annotation or label", ("annotations", CALICO), "[]", CALICO),
        ("annotation or label", ("labels", "volcano.sh/job-name"), "digits", "volcano.sh/job-name"),
        ("label", ("labels", "gangplank.dev/job"), "digits", "gangplank.dev/job=digits"),
        ("finalizer", ("finalizers",), ["a.b/c"], "a.b/c"),
        ("owner", ("ownerReferences",), [OWNER], "Job digits"),
    )
    for rule, path, value, text in rows:
        message = f'{rule} "{text}" {NO}'
        manifest = replaced(build("vision"), ("metadata", *path), value)
        yield Violation(f"{name}: {rule} {text} {path[0]}", rule, where, manifest, message, of_member=True)
        manifest = build("vision")
        inside = next(templates(manifest["spec"]), None)
        if inside is not None and rule != "owner":
            inside |= replaced(inside, ("metadata", *path), value)
            of_pods = f"{name}: {rule} {text} {path[0]} of its pods"
            yield Violation(of_pods, rule, where, manifest, message, of_member=True)


def lease_of_job(_queue: str | None = None) -> Json:
    """The lock of a job."""
    return obj("coordination.k8s.io/v1", "Lease", {"holderIdentity": "bob"}, {HOLDER: "{}"})


def lease_violations() -> Iterator[Violation]:
    """Locks of jobs with metadata that is read outside the team."""
    rows = (
        ("annotation or label", ("annotations", CALICO), "[]", CALICO),
        ("annotation or label", ("labels", "volcano.sh/job-name"), "digits", "volcano.sh/job-name"),
        ("label", ("labels", "gangplank.dev/team"), "speech", "gangplank.dev/team=speech"),
        ("finalizer", ("finalizers",), ["a.b/c"], "a.b/c"),
        ("owner", ("ownerReferences",), [OWNER], "Job digits"),
    )
    for rule, path, value, text in rows:
        manifest = replaced(lease_of_job(), ("metadata", *path), value)
        name = f"Lease: {rule} {text} {path[0]}"
        yield Violation(name, rule, LEASES, manifest, f'{rule} "{text}" {NO}', of_member=True)
    yield from mark_violations("Lease", LEASES, lease_of_job)


def other_violations() -> Iterator[Violation]:
    """Hostile objects of the kinds that have no pods, and what jobs have beside their pods."""
    for kind, part, where in (
        ("ConfigMap", "data", CONFIG_MAPS),
        ("Secret", "data", SECRETS),
        ("Secret", "stringData", SECRETS),
    ):
        head: Json = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "probe", "namespace": "vision"}}
        field = f"{kind}.{part}"
        for name in ("NVIDIA_VISIBLE_DEVICES", OTHER_VARIABLES[0]):
            message = f'environment variable "{name}" {NO} variables'
            manifest = head | {part: {name: "YWxs"}}
            yield Violation(f"{field}: {name}: variable", "environment variable", where, manifest, message, field)
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "finalizers": ["a.b/c"]}}
    yield Violation("ConfigMap: finalizer", "finalizer", CONFIG_MAPS, kept, f'finalizer "a.b/c" {NO}', of_member=True)
    taken = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "deploy-ssh", "namespace": "vision"}}
    yield Violation("Secret: name", "name", SECRETS, taken, f'name "deploy-ssh" {NO} names (none)', of_member=True)
    yield from lease_violations()
    yield from size_violations()
    for way in ("JobFlow", "JobTemplate"):
        build = next(build for name, _, build, _ in WAYS if name == way)
        message = f'kind "{way}" {NO} kinds (none)'
        field = f"Volcano{way}.kind"
        yield Violation(f"{way}: kind", "kind", WHERE[way], build("vision"), message, field, of_member=True)
    for place in ("dataset", "model"):
        manifest = replaced(trainjob(None), ("spec", "initializer", place, "secretRef"), {"name": "deploy-key"})
        message = f'secret "deploy-key" {NO} secrets'
        yield Violation(f"TrainJob: secret of {place}", "secret", WHERE["TrainJob"], manifest, message)
    for probe in ("httpGetList", "tcpSocketList"):
        flow = job_flow("vision")
        item = {"port": 80, "taskName": "x"} | ({"path": "/"} if probe == "httpGetList" else {})
        flow["spec"]["flows"][0]["dependsOn"] = {"targets": ["b"], "probe": {probe: [item]}}
        field, message = f"FlowProbe.{probe}", f'field "FlowProbe.{probe}" {NO} fields'
        yield Violation(f"JobFlow: {probe}", "field", WHERE["JobFlow"], flow, message, field)
    for way, inner in (("Volcano Job", ()), ("Volcano CronJob", ("jobTemplate", "spec"))):
        build = next(build for name, _, build, _ in WAYS if name == way)
        manifest = replaced(build("vision"), ("spec", *inner, "volumes"), [{"mountPath": "/x", "volumeClaim": CLAIM}])
        field = "VolcanoVolume.volumeClaim"
        yield Violation(f"{way}: {field}", "field", WHERE[way], manifest, f'field "{field}" {NO} fields', field)
    yield from claim_violations()
    yield from host_violations()
    yield from volume_violations()
    for path in (("template",), ("template", "spec", "replicatedJobs", 0, "template")):
        manifest = patched_pods("vision")
        at = ("spec", "runtimePatches", 0, "trainingRuntimeSpec", *path, "metadata", "annotations", CALICO)
        manifest = replaced(manifest, at, "[]")
        message = f'annotation or label "{CALICO}" {NO} domains'
        name = f"TrainJob: copied metadata {len(path)}"
        yield Violation(name, "annotation or label", WHERE["TrainJob"], manifest, message, of_member=True)
    for way in ("Volcano CronJob", "batch CronJob"):
        build = next(build for name, _, build, _ in WAYS if name == way)
        manifest = replaced(build("vision"), ("spec", "jobTemplate", "metadata", "annotations", CALICO), "[]")
        message = f'annotation or label "{CALICO}" {NO} domains'
        yield Violation(f"{way}: copied metadata", "annotation or label", WHERE[way], manifest, message, of_member=True)
    for field, value in (("clusterIP", {"clusterIP": FREE}), ("clusterIPs", {"clusterIP": FREE, "clusterIPs": [FREE]})):
        message = f'exposure "clusterIP: {FREE}" {NO} exposures (type: ClusterIP)'
        yield Violation(f"Service: {field}", "exposure", SERVICES, service(**value), message, f"ServiceSpec.{field}")
    unowned = replaced(service(clusterIP=FREE), ("metadata", "managedFields"), [UNREADABLE])
    yield Violation("Service: clusterIP without owners", "exposure", SERVICES, unowned, message)
    for field, value, message in API_SERVERS:
        row = "ServicePort.nodePort" if field == "ports" else f"ServiceSpec.{field}"
        yield Violation(f"Service: {field}", "API server", SERVICES, service(**value), message, row)


def host_violations() -> Iterator[Violation]:
    """Jobs whose pods have the kubelet connect elsewhere. Pod Security does not judge jobs, nor hosts before 1.34."""
    build = next(build for name, _, build, _ in WAYS if name == "Volcano Job")
    for handler, (action, field) in product(HANDLERS, (("httpGet", "HTTPGet"), ("tcpSocket", "TCPSocket"))):
        place: tuple[str | int, ...] = (*TASK, "template", "spec", "containers", 0, *handler.split(".?"), action)
        manifest = replaced(build("vision"), ("spec", *place), {"host": "198.18.0.1", "port": 80})
        message = f'field "{field}Action.host" {NO} fields (none)'
        name = f"Volcano Job: {handler} {action}: {field}Action.host"
        yield Violation(name, "field", WHERE["Volcano Job"], manifest, message, f"{field}Action.host")


def volume_violations() -> Iterator[Violation]:
    """Jobs whose pods have volumes of other systems. Pod Security does not judge jobs."""
    build = next(build for name, _, build, _ in WAYS if name == "Volcano Job")
    for item in IN_PODS:
        field = Field(*item.field.split("."))
        if field in load().with_verdict(BY_TYPE):
            manifest = replaced(build("vision"), ("spec", *TASK, "template", *item.path), item.value)
            message = f'volume type "{field.name}" {NO} volumeTypes (configMap, '
            yield Violation(f"Volcano Job: {field}", "volume type", WHERE["Volcano Job"], manifest, message, item.field)


CLAIMS, TEMPLATES = (f"/apis/resource.k8s.io/v1/namespaces/vision/resourceclaim{end}" for end in ("s", "templates"))
OF_CLASS, ANOTHER = "gpu.example.com", "other.example.com"  # the team has the first
DEVICE: Json = {"deviceClassName": OF_CLASS}


def claim_template(request: Json, **of_claim: Any) -> Json:
    """A template whose claims ask for one thing."""
    spec = {"devices": {"requests": [{"name": "gpus", **request}]}}
    return obj("resource.k8s.io/v1", "ResourceClaimTemplate", {"spec": spec, **of_claim})


# What the team cannot ask of a device class: the field of the census, the request, the rule, and what is refused
REQUESTS: tuple[tuple[str, Json, str, str], ...] = (
    ("ExactDeviceRequest.deviceClassName", {"exactly": {"deviceClassName": ANOTHER}}, "device class", ANOTHER),
    (
        "ExactDeviceRequest.allocationMode",
        {"exactly": DEVICE | {"allocationMode": "All"}},
        "device class",
        f"all of {OF_CLASS}",
    ),
    (
        "DeviceRequest.firstAvailable",
        {"firstAvailable": [DEVICE | {"name": "a"}]},
        "field",
        "DeviceRequest.firstAvailable",
    ),
)


ADMIN_ACCESS = claim_template({"exactly": DEVICE | {"adminAccess": True}})


def claim_violations() -> Iterator[Violation]:
    """Templates of claims, and claims, of devices that the team does not have or that no quota would count."""
    for field, request, rule, value in REQUESTS:
        allowed = "fields (none)" if rule == "field" else f"deviceClasses ({OF_CLASS})"
        message = f'{rule} "{value}" {NO} {allowed}'
        template_of = claim_template(request)
        yield Violation(f"claims: {field} in a template", rule, TEMPLATES, template_of, message, field)
        claim = obj("resource.k8s.io/v1", "ResourceClaim", template_of["spec"]["spec"])
        yield Violation(f"claims: {field}", rule, CLAIMS, claim, message, field)
    # The API server refuses it too, where an administrator has not labelled the namespace: test_admission.py does.
    field, message = "ExactDeviceRequest.adminAccess", "admin access to devices requires"
    yield Violation(f"claims: {field}", "API server", TEMPLATES, ADMIN_ACCESS, message, field)
    copied = claim_template({"exactly": DEVICE}, metadata={"annotations": {CALICO: "[]"}})
    message = f'annotation or label "{CALICO}" {NO} domains'
    yield Violation("claims: copied metadata", "annotation or label", TEMPLATES, copied, message, of_member=True)


TASK = ("tasks", 0)
REPLICAS = ("spec", "pytorchReplicaSpecs", "Master")
TRAINER = ("spec", "trainer")
LESS, HUGE = "-1", 2**31 - 1
# Where each way says how many pods there are, and where it has a container. The API server looks at its own kinds.
SIZES: tuple[tuple[str, tuple[str | int, ...], tuple[str | int, ...]], ...] = (
    ("Volcano Job", ("spec", *TASK, "replicas"), ("spec", *TASK)),
    ("Volcano CronJob", ("spec", "jobTemplate", "spec", *TASK, "replicas"), ("spec", "jobTemplate", "spec", *TASK)),
    ("JobTemplate", ("spec", *TASK, "replicas"), ("spec", *TASK)),
    ("JobFlow", ("spec", "flows", 0, "patch", "jobSpec", *TASK, "replicas"), ()),
    ("PyTorchJob", (*REPLICAS, "replicas"), REPLICAS),
    ("PyTorchJob", ("spec", "elasticPolicy", "minReplicas"), ()),
    ("PyTorchJob", ("spec", "elasticPolicy", "maxReplicas"), ()),
    ("TrainJob", (*TRAINER, "numNodes"), ()),
)
AMOUNTS: tuple[tuple[str, tuple[str | int, ...]], ...] = (
    ("PodGroup", ("spec", "minResources")),
    ("PyTorchJob", ("spec", "runPolicy", "schedulingPolicy", "minResources")),
    *(("TrainJob", (*TRAINER, "resourcesPerNode", part)) for part in ("limits", "requests")),
)
# The resource, its amount and what is wrong with it: the last one is -9146744073709551616 in 64 bits
WRONG = (("cpu", LESS, "below 0"), ("memory", "9300P", "above 8P"))


def size_violations() -> Iterator[Violation]:
    """Numbers of pods and amounts that bring down a controller or the scheduler, which all teams share."""
    builders = {name: (where, build) for name, where, build, _ in WAYS}
    for name, count, holder in SIZES:
        where, build = builders[name]
        message = f'pod count "{HUGE}" {NO} podCounts (60 or less)'
        manifest = replaced(build("vision"), count, HUGE)
        yield Violation(f"{name}: {count[-1]}", "pod count", where, manifest, message)
        for part, (resource, amount, what) in product(("limits", "requests") if holder else (), WRONG):
            place = (*holder, "template", "spec", "containers", 0, "resources", part, resource)
            message = f'amount "{resource}: {amount}" {NO} amounts (0 to 8P)'
            manifest = replaced(build("vision"), place, amount)
            yield Violation(f"{name}: {part} {what} in its pods", "amount", where, manifest, message)
    for (name, place), (resource, amount, what) in product(AMOUNTS, WRONG):
        where, build = builders[name]
        message = f'amount "{resource}: {amount}" {NO} amounts (0 to 8P)'
        manifest = replaced(build("vision"), (*place, resource), amount)
        yield Violation(f"{name}: {place[-1]} {what}", "amount", where, manifest, message)


FREE = "198.19.0.77"  # of the lab's Services, and of none yet
# The API server cannot convert to this version, and stores no owner of any field
UNREADABLE = {"manager": "x", "operation": "Update", "apiVersion": "a/b/c", "fieldsType": "FieldsV1", "fieldsV1": {}}
API_SERVERS: tuple[tuple[str, Json, str], ...] = (
    ("allocateLoadBalancerNodePorts", {"allocateLoadBalancerNodePorts": True}, "may only be used when `type` is"),
    ("externalTrafficPolicy", {"externalTrafficPolicy": "Local"}, "may only be set for externally-accessible services"),
    ("healthCheckNodePort", {"healthCheckNodePort": 30000}, "may only be set when"),
    ("loadBalancerClass", {"loadBalancerClass": "a.b/c"}, "may only be used when `type` is"),
    ("ports", {"ports": [{"port": 80, "nodePort": 30000}]}, "may not be used when `type` is"),
    ("loadBalancerSourceRanges", {"loadBalancerSourceRanges": ["0.0.0.0/0"]}, "may only be used when `type` is"),
)


def violations() -> Iterator[Violation]:
    """Every way, once for each rule that it can break."""
    for name, where, build in (*((name, where, build) for name, where, build, _ in WAYS), PATCHED):
        yield from field_violations(name, where, build)
        if name in MEMBERS or name == PATCHED[0]:
            yield from member_violations(name, where, build)
    for number, (item, manifest) in enumerate(hostile_pods()):
        name = f"pod {number}: {item.field}"
        yield Violation(name, item.rule, WHERE["pod"], manifest, item.message, item.field, of_member=True)
    yield from other_violations()
    for name, where, build, _ in WAYS:
        message = 'queue "speech" is not one of its queues (vision)'
        yield Violation(f"{name}: queue", "queue", where, build("speech"), message)
        for rule, field, value, allowed in POD_FIELDS:
            message = f'{rule} "{value}" is not one of its {allowed}'
            manifest = build("vision")
            body = None if manifest["kind"] in NO_PODS else pod_spec(manifest)
            if body is not None:
                (body["containers"][0] if field == "image" else body)[field] = value
                yield Violation(f"{name}: {rule}", rule, where, manifest, message)
            manifest = build("vision")
            body = job_spec(manifest)
            if body is not None and rule in {"scheduler", "priority"}:
                body[field] = value
                yield Violation(f"{name}: {rule} of the job", rule, where, manifest, message)
        message = f'image "{EVIL}" is not one of its images'
        manifest = build("vision")
        body = None if manifest["kind"] in (*NO_PODS, *NO_IMAGE_VOLUMES) else pod_spec(manifest)
        if body is not None:
            body["volumes"] = [VOLUME]
            yield Violation(f"{name}: image of a volume", "image", where, manifest, message)
        yield from mark_violations(name, where, build)
    manifest = trainjob("vision")
    manifest["spec"]["trainer"] = {"image": EVIL}
    yield Violation("TrainJob: image", "image", WHERE["TrainJob"], manifest, f'image "{EVIL}" is not one of its images')
    for kind, api_version in (("Queue", QUEUE_API), ("Job", "batch/v1"), ("Queue", BATCH)):
        message = f'target "{api_version} {kind}" is not one of its targets ({BATCH} Job)'
        manifest = command(api_version, kind, "speech", "CloseQueue")
        yield Violation(f"Command: {api_version} {kind}", "target", COMMANDS, manifest, message)
    manifest = command(BATCH, "Job", "digits", "AbortJob")
    del manifest["target"]
    message = f'target " " is not one of its targets ({BATCH} Job)'
    yield Violation("Command: no target", "target", COMMANDS, manifest, message)
    for fields in EXPOSURES:
        text = exposure(fields)
        message = f'exposure "{text}" is not one of its exposures (type: ClusterIP)'
        yield Violation(f"Service: {text}", "exposure", SERVICES, service(**fields), message)
    manifest, field = service(**EXTERNAL_IPS), "ServiceSpec.externalIPs"
    yield Violation("Service: externalIPs", "API server", SERVICES, manifest, EXTERNAL_IPS_DENIED, field)
    manifest = pod("probe", "vision", "vision")
    manifest["spec"]["initContainers"] = [{**manifest["spec"]["containers"][0], "name": "first", "image": EVIL}]
    message = f'image "{EVIL}" is not one of its images'
    yield Violation("pod: image of an init container", "image", WHERE["pod"], manifest, message)
    where, message = WHERE["PodGroup"], 'priority "urgent" is not one of its priorities'
    manifest = pod_group("vision")
    manifest["spec"]["priorityClassName"] = "urgent"
    yield Violation("PodGroup: priority", "priority", where, manifest, message)
    manifest = pytorch("vision")
    manifest["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"] = "urgent"
    yield Violation("PyTorchJob: priority of the job", "priority", WHERE["PyTorchJob"], manifest, message)
