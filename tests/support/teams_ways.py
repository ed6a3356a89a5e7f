"""Every way by which work reaches a queue: what is posted where, as a team may, and edited so that it may not."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from gangplank.teams.admission import MARKS, paths
from tests.support.teams_live import pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]


def template(queue: str | None) -> Json:
    """A pod template whose pods go to a queue."""
    made = pod("x", "vision", queue or "")
    if queue is None:
        del made["metadata"]["annotations"]
    meta = {key: value for key, value in made["metadata"].items() if key == "annotations"}
    return {"metadata": meta | {"labels": {"a": "b"}}, "spec": made["spec"]}


def volcano(queue: str | None) -> Json:
    """A Volcano job's spec."""
    made = template("vision")
    del made["metadata"]
    body: Json = {"schedulerName": "volcano", "tasks": [{"name": "w", "replicas": 1, "template": made}]}
    return body | ({"queue": queue} if queue else {})


def obj(api_version: str, kind: str, spec: Json, annotations: Json | None = None) -> Json:
    """An object in the team's namespace."""
    meta: Json = {"name": "probe", "namespace": "vision", "labels": {"a": "b"}}  # one without gets its template's
    meta |= {"annotations": annotations} if annotations else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def workload(kind: str) -> Callable[[str | None], Json]:
    """What the apps group makes pods by."""
    selector = {"selector": {"matchLabels": {"a": "b"}}}

    def made(queue: str | None) -> Json:
        body: Json = {**selector, "template": template(queue)}
        body["template"]["spec"]["restartPolicy"] = "Always"
        return obj("apps/v1", kind, body | ({"serviceName": "x"} if kind == "StatefulSet" else {}))

    return made


def flow(queue: str | None) -> Json:
    patch = {"jobSpec": volcano(queue)}
    return obj("flow.volcano.sh/v1alpha1", "JobFlow", {"flows": [{"name": "a", "patch": patch}]})


def pytorch(queue: str | None) -> Json:
    policy = {"schedulingPolicy": {"queue": queue}} if queue else {}
    made = template("vision")
    made["spec"]["containers"][0]["name"] = "pytorch"
    replicas = {"Master": {"replicas": 1, "template": made}}
    return obj("kubeflow.org/v1", "PyTorchJob", {"runPolicy": policy, "pytorchReplicaSpecs": replicas})


def trainjob(queue: str | None) -> Json:
    notes = {"scheduling.volcano.sh/queue-name": queue} if queue else None
    return obj("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch-distributed"}}, notes)


def patched(queue: str | None) -> Json:
    made = trainjob(None)
    if queue:
        meta = {"annotations": {"scheduling.volcano.sh/queue-name": queue}}
        patch = {"manager": "gangplank.dev/probe", "trainingRuntimeSpec": {"template": {"metadata": meta}}}
        made["spec"]["runtimePatches"] = [patch]
    return made


def annotated(key: str) -> Callable[[str | None], Json]:
    def made(queue: str | None) -> Json:
        found = pod("probe", "vision", "")
        found["metadata"]["annotations"] = {key: queue} if queue else {}
        return found

    return made


def group(queue: str | None) -> Json:
    return obj("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 1} | ({"queue": queue} if queue else {}))


def nested(queue: str | None) -> Json:
    body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template(queue)}}}
    return obj("batch/v1", "CronJob", body)


BATCH = "batch.volcano.sh/v1alpha1"
# (way, where it is posted, what, what is refused when no queue is named: "" where that is decided later)
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
    ("JobFlow", "/apis/flow.volcano.sh/v1alpha1/namespaces/vision/jobflows", flow, "default"),
    ("PodGroup", "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups", group, "default"),
    ("pod", "/api/v1/namespaces/vision/pods", annotated("scheduling.volcano.sh/queue-name"), ""),
    ("pod by job key", "/api/v1/namespaces/vision/pods", annotated("volcano.sh/queue-name"), ""),
    (
        "batch Job",
        "/apis/batch/v1/namespaces/vision/jobs",
        lambda q: obj("batch/v1", "Job", {"template": template(q)}),
        "",
    ),
    ("batch CronJob", "/apis/batch/v1/namespaces/vision/cronjobs", nested, ""),
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
    """What tells one of Volcano's controllers to do something."""
    target = {"apiVersion": api_version, "kind": kind, "name": name, "uid": "x"}
    head = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command"}
    return {**head, "metadata": {"name": "probe", "namespace": "vision"}, "action": action, "target": target}


def service(**spec: object) -> Json:
    return obj("v1", "Service", {"selector": {"a": "b"}, "ports": [{"port": 80}]} | spec)


# What a Service may not say: each lets traffic in from outside the cluster, or takes an address that is not its own
EXPOSURES: tuple[Json, ...] = (
    {"type": "NodePort"},
    {"type": "LoadBalancer"},
    {"type": "ExternalName", "externalName": "api.example.com"},
    {"externalName": "api.example.com"},
    {"loadBalancerIP": "198.18.0.1"},
)


# The API server of the lab refuses these itself, before any policy: only tests/golden/teams sees the policy's rule.
EXTERNAL_IPS = {"externalIPs": ["198.18.0.1"]}
EXTERNAL_IPS_DENIED = "Use of external IPs is denied by admission control"


def exposure(fields: Json) -> str:
    """One of them as the refusal names it."""
    field, value = next(iter(fields.items()))
    return f"{field}: {value[0] if isinstance(value, list) else value}"


@dataclass(frozen=True)
class Subject:
    """One thing that has to be refused, by which rule of which policy."""

    name: str
    rule: str  # what is refused: the second column of admission.REFUSALS
    where: str
    manifest: Json
    told: str

    @property
    def policy(self) -> str:
        """The name of its path in gangplank/teams/admission.py."""
        group, _, plural = self.where.removeprefix("/api/v1/").removeprefix("/apis/").rpartition("/")
        group = "" if self.where.startswith("/api/") else group.partition("/")[0]
        return next(path.name for path in paths() if path.group == group and plural in path.resources)


EVIL = "docker.io/evil/miner:1"
# (rule, field of a pod's spec, what no team of the lab has, what that is told to be none of)
POD_FIELDS = (
    ("scheduler", "schedulerName", "default-scheduler", "schedulers"),
    ("priority", "priorityClassName", "urgent", "priorities"),
    ("service account", "serviceAccountName", "admin", "accounts"),
    ("node", "nodeName", "node-0", "nodes"),
    ("image", "image", EVIL, "images"),
)
VOLUME = {"name": "evil", "image": {"reference": EVIL}}
# Their definitions are older than image volumes: the API server drops the field before anything can judge it or run it.
NO_IMAGE_VOLUMES = ("PyTorchJob",)
NO_PODS = ("JobFlow", "PodGroup", "TrainJob")  # a JobFlow's patch makes Jobs, which are judged themselves


def pod_spec(value: object) -> Json | None:
    """The first pod's spec in a manifest."""
    if isinstance(value, dict) and "containers" in value:
        return value
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for item in inside if (found := pod_spec(item)) is not None), None)


def job_spec(manifest: Json) -> Json | None:
    """Where Volcano's own kinds name a priority and a scheduler for all pods."""
    body: Json = manifest["spec"]
    if manifest["kind"] == "JobFlow":
        found: Json = body["flows"][0]["patch"]["jobSpec"]
        return found
    inner = body.get("jobTemplate", {}).get("spec", {})
    return body if "tasks" in body else inner if "tasks" in inner else None


def marked(name: str, where: str, build: Callable[[str | None], Json]) -> Iterator[Subject]:
    """One way with marks that keep what was borrowed, of the object and of its pods; a pod with each of them."""
    for part, mark in product(("annotations", "labels"), MARKS if name == "pod" else MARKS[:1]):
        told = f'annotation or label "{mark}" is none of its marks (none)'
        manifest = build("vision")
        manifest["metadata"].setdefault(part, {})[mark] = "false"
        yield Subject(f"{name}: {mark} in {part}", "annotation or label", where, manifest, told)
        inside = next((item for item in templates(manifest["spec"]) if "metadata" in item), None)
        if inside is not None:
            manifest = build("vision")
            next(templates(manifest["spec"]))["metadata"].setdefault(part, {})[mark] = "false"
            yield Subject(f"{name}: {mark} in {part} of its pods", "annotation or label", where, manifest, told)


def templates(value: object) -> Iterator[Json]:
    """The pod templates in a manifest."""
    if isinstance(value, dict) and "containers" in value.get("spec", {}):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from templates(item)


def subjects() -> Iterator[Subject]:
    """Every way with every rule that it can break."""
    for name, where, made, _ in WAYS:
        told = 'queue "speech" is none of its queues (vision)'
        yield Subject(f"{name}: queue", "queue", where, made("speech"), told)
        for rule, field, value, allowed in POD_FIELDS:
            told = f'{rule} "{value}" is none of its {allowed}'
            manifest = made("vision")
            body = None if manifest["kind"] in NO_PODS else pod_spec(manifest)
            if body is not None:
                (body["containers"][0] if field == "image" else body)[field] = value
                yield Subject(f"{name}: {rule}", rule, where, manifest, told)
            manifest = made("vision")
            body = job_spec(manifest)
            if body is not None and rule in {"scheduler", "priority"}:
                body[field] = value
                yield Subject(f"{name}: {rule} of the job", rule, where, manifest, told)
        told = f'image "{EVIL}" is none of its images'
        manifest = made("vision")
        body = None if manifest["kind"] in (*NO_PODS, *NO_IMAGE_VOLUMES) else pod_spec(manifest)
        if body is not None:
            body["volumes"] = [VOLUME]
            yield Subject(f"{name}: image of a volume", "image", where, manifest, told)
        yield from marked(name, where, made)
    manifest = trainjob("vision")
    manifest["spec"]["trainer"] = {"image": EVIL}
    yield Subject("TrainJob: image", "image", WHERE["TrainJob"], manifest, f'image "{EVIL}" is none of its images')
    for kind, api_version in (("Queue", QUEUE_API), ("Job", "batch/v1"), ("Queue", BATCH)):
        told = f'target "{api_version} {kind}" is none of its targets ({BATCH} Job)'
        manifest = command(api_version, kind, "speech", "CloseQueue")
        yield Subject(f"Command: {api_version} {kind}", "target", COMMANDS, manifest, told)
    manifest = command(BATCH, "Job", "digits", "AbortJob")
    del manifest["target"]
    told = f'target " " is none of its targets ({BATCH} Job)'
    yield Subject("Command: no target", "target", COMMANDS, manifest, told)
    for fields in EXPOSURES:
        text = exposure(fields)
        told = f'exposure "{text}" is none of its exposures (type: ClusterIP)'
        yield Subject(f"Service: {text}", "exposure", SERVICES, service(**fields), told)
    yield Subject("Service: externalIPs", "the API server's", SERVICES, service(**EXTERNAL_IPS), EXTERNAL_IPS_DENIED)
    manifest = pod("probe", "vision", "vision")
    manifest["spec"]["initContainers"] = [{**manifest["spec"]["containers"][0], "name": "first", "image": EVIL}]
    told = f'image "{EVIL}" is none of its images'
    yield Subject("pod: image of an init container", "image", WHERE["pod"], manifest, told)
    where, told = WHERE["PodGroup"], 'priority "urgent" is none of its priorities'
    manifest = group("vision")
    manifest["spec"]["priorityClassName"] = "urgent"
    yield Subject("PodGroup: priority", "priority", where, manifest, told)
    manifest = pytorch("vision")
    manifest["spec"]["runPolicy"]["schedulingPolicy"]["priorityClass"] = "urgent"
    yield Subject("PyTorchJob: priority of the job", "priority", WHERE["PyTorchJob"], manifest, told)
