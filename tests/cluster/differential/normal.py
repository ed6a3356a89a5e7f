"""Makes live objects and predicted ones comparable: takes out what the API server adds and what nobody can predict."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from gangplank.backends.base import RANDOM
from gangplank.k8s import quantity

Json = dict[str, Any]

# What the API server writes into a pod that does not say otherwise: dropped from the live side where it is just that.
POD_DEFAULTS: Json = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "preemptionPolicy": "PreemptLowerPriority",
    "schedulerName": "default-scheduler",
}
CONTAINER_DEFAULTS: Json = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
DECIDED_LATER = ("nodeName", "priority")  # by the scheduler and by admission
SERVER_META = ("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink", "name")
OWNER_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid", "jobset.sigs.k8s.io/jobset-uid")
SERVICE_DEFAULTS: Json = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "ipFamilyPolicy": "SingleStack",
    "ipFamilies": ["IPv4"],
    "internalTrafficPolicy": "Cluster",
    "clusterIPs": ["None"],
}
FALSE_IS_ABSENT = ("readOnly", "publishNotReadyAddresses", "hostNetwork", "optional")
ADDED_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def tidy(value: Any) -> Any:
    """Without what Go leaves out when it writes JSON: empty texts, lists, mappings, and some falsehoods."""
    if isinstance(value, dict):
        tidied = {key: tidy(item) for key, item in value.items()}
        return {
            key: item
            for key, item in tidied.items()
            if item not in ("", [], {}, None) and not (item is False and key in FALSE_IS_ABSENT)
        }
    return [tidy(item) for item in value] if isinstance(value, list) else value


def drop(mapping: Json, defaults: Json) -> None:
    """Take defaults out, in place."""
    for key, value in defaults.items():
        if mapping.get(key) == value:
            del mapping[key]


def ordered(items: list[Any]) -> list[Any]:
    """A list whose order means nothing, in one order."""
    return sorted(items, key=lambda item: json.dumps(item, sort_keys=True))


def by_name(env: list[Json]) -> Json:
    """An environment by name; each name has all its values, as the last of several is the one that counts."""
    values: Json = {}
    for variable in env:
        entry = {key: value for key, value in variable.items() if key != "name" and value != ""}
        values.setdefault(variable["name"], []).append(entry or "empty")
    return values


def amounts(resources: Json) -> Json:
    """Resources as exact numbers, requests filled from limits as the API server does."""
    sides = {side: dict(resources.get(side, {})) for side in ("requests", "limits")}
    sides["requests"] = {**sides["limits"], **sides["requests"]}
    return {side: numbers(values) for side, values in sides.items() if values}


def numbers(values: Json) -> Json:
    """Quantities as exact numbers."""
    return {name: str(quantity.parse(str(value))) for name, value in values.items()}


def container(body: Json, *, host_network: bool) -> Json:
    """A container in comparable form."""
    drop(body, CONTAINER_DEFAULTS)
    if "image" in body:
        last = body["image"].rsplit("/", 1)[-1]
        latest = "@" not in last and (":" not in last or last.endswith(":latest"))
        drop(body, {"imagePullPolicy": "Always" if latest else "IfNotPresent"})
    for variable in body.get("env", []):
        variable.get("valueFrom", {}).get("fieldRef", {}).pop("apiVersion", None)
    for port in body.get("ports", []):
        drop(port, {"protocol": "TCP"})
        if host_network:
            drop(port, {"hostPort": port.get("containerPort")})
    mounts = [mount for mount in body.get("volumeMounts", []) if not mount["name"].startswith("kube-api-access-")]
    body["volumeMounts"] = ordered(mounts)
    body["ports"] = ordered(body.get("ports", []))
    body["env"] = by_name(body.get("env", []))
    body["resources"] = amounts(body.get("resources", {}))
    if body.get("name") == "wait-for-master":  # the order of Volcano's plugins is random: it has these or not
        body["env"], body["volumeMounts"] = {}, []
    return body


def pod_spec(spec: Json) -> Json:
    """A pod's spec in comparable form."""
    for volume in spec.get("volumes", []):
        for kind in ("configMap", "secret"):
            drop(volume.get(kind, {}), {"defaultMode": 420})
        if "sizeLimit" in volume.get("emptyDir", {}):
            volume["emptyDir"] |= numbers({"sizeLimit": volume["emptyDir"]["sizeLimit"]})
    drop(spec, POD_DEFAULTS)
    for key in DECIDED_LATER:
        spec.pop(key, None)
    network = bool(spec.get("hostNetwork"))
    for key in ("containers", "initContainers"):
        spec[key] = [container(item, host_network=network) for item in spec.get(key, [])]
    volumes = [item for item in spec.get("volumes", []) if not item["name"].startswith("kube-api-access-")]
    spec["volumes"] = ordered(volumes)
    kept = [item for item in spec.get("tolerations", []) if item.get("key") not in ADDED_TOLERATIONS]
    spec["tolerations"] = kept
    return spec


def named(text: str, job: str) -> str:
    """A name with the random parts of Volcano's claims and of generated names made alike."""
    text = re.sub(rf"^({re.escape(job)}-pvc-)[0-9a-z]{{12}}$", r"\1RANDOM", text)
    return re.sub(rf"^({re.escape(job)}-pvc-){re.escape(RANDOM)}\d+$", r"\1RANDOM", text)


def unrandom(value: Any, job: str, claims: dict[str, str]) -> Any:
    """All names of a pod with random parts made alike: volumes are called after their claim."""
    if isinstance(value, dict):
        return {key: unrandom(item, job, claims) for key, item in value.items()}
    if isinstance(value, list):
        return [unrandom(item, job, claims) for item in value]
    return named(claims.get(value, value), job) if isinstance(value, str) else value


def claim_names(spec: Json, job: str) -> dict[str, str]:
    """Volumes with random names, called after their claims."""
    names = {}
    for volume in spec.get("volumes", []):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and re.fullmatch(rf"{re.escape(job)}-([0-9a-z]{{12}}|{re.escape(RANDOM)}\d+)", volume["name"]):
            names[volume["name"]] = f"claim {named(claim, job)}"
    return names


def normal(item: Json, job: str) -> Json:
    """An object in comparable form, be it live or predicted."""
    kind, copy = item["kind"], json.loads(json.dumps(item))
    copy.pop("status", None)
    copy.pop("apiVersion", None)
    meta = copy["metadata"]
    for key in SERVER_META:
        meta.pop(key, None)
    for reference in meta.get("ownerReferences", []):
        reference.pop("uid", None)  # the owner was found by it; of a JobSet's it cannot be predicted
    for part in ("labels", "annotations"):
        for mark in OWNER_UIDS:
            meta.get(part, {}).pop(mark, None)
    spec = copy.get("spec", {})
    if kind == "Pod":
        spec = unrandom(spec, job, claim_names(spec, job))
        copy["spec"] = pod_spec(spec)
    elif kind == "Service":
        drop(spec, SERVICE_DEFAULTS)
        for port in spec.get("ports", []):
            drop(port, {"protocol": "TCP"})
            drop(port, {"targetPort": port.get("port")})
        spec["ports"] = ordered(spec.get("ports", []))
    elif kind == "PodGroup":
        spec["minResources"] = numbers(spec.get("minResources", {}))
        spec.setdefault("queue", "default")
    elif kind == "Secret":
        copy.pop("type", None)
        config = base64.b64decode(copy["data"]["config"]).decode()
        copy["data"] = {key: config if key == "config" else "secret" for key in copy["data"]}
    elif kind == "PersistentVolumeClaim":
        drop(spec, {"volumeMode": "Filesystem"})
        spec.pop("storageClassName", None)  # the cluster's default
        meta.pop("finalizers", None)
        meta.pop("annotations", None)
    elif kind == "ConfigMap" and "runtime" in copy.get("data", {}):
        copy["data"] = {"runtime": RANDOM}
    tidied: Json = tidy(copy)
    return tidied


def key(item: Json, job: str) -> str:
    """What an object is matched by: kind and name, the random part left out."""
    meta = item["metadata"]
    return f"{item['kind']} {named(meta.get('generateName') or meta['name'], job)}"
