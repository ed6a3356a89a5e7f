"""A pod that reads what a job left: on its volume claim, mounted read-only, or in its bucket. It ends by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.pod_template import (
    CONTAINER_SECURITY,
    GPU_TOLERATION,
    MANAGED_BY,
    NO_MESH,
    POD_SECURITY,
    TEAM_LABEL,
)
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import FORBIDDEN, path
from gangplank.cluster.queues import queue_of
from gangplank.cluster.starting import IMAGE_S
from gangplank.errors import KubeError
from gangplank.proof import expected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

READER = "reader"  # its last container
READER_LIMITS = {"cpu": "100m", "memory": "64Mi"}  # the teams' admission asks for it (conditions.py)
BUCKET_MEMORY = "256Mi"  # for a client of a bucket
DEADLINE_S = IMAGE_S + 900  # with the pull of its image; then the kubelet ends the pod, should its command be gone
CLAIM = "persistentVolumeClaim"
ACCESS = ("AWS_", "GOOGLE_", "GCS_", "FSSPEC_")  # variables by which a bucket is reached
ANY = "[a-z]+"  # whatever a reader is for
NAME = "-{what}-[0-9a-f]{{6}}"


@dataclass(frozen=True)
class Output:
    """Where a job leaves its result."""

    place: str  # a folder in rank 0's container, or the address of a bucket
    claim: str = ""  # the volume claim that has the folder, "" for a bucket

    def __str__(self) -> str:
        return f"claim {self.claim}, {self.place}" if self.claim else self.place


def output_of(manifest: Json) -> Output | None:
    """Where a job leaves its result; None if nothing of it outlives its pods."""
    pods = expected.pods(manifest)
    place = expected.flag(expected.words(pods[0]), "output") if pods else None
    if not place:
        return None
    if "://" in place:
        return Output(place)
    spec = pods[0]["spec"]
    claims = {volume["name"]: volume[CLAIM]["claimName"] for volume in spec.get("volumes", []) if CLAIM in volume}
    mounts = [mount for mount in spec["containers"][0].get("volumeMounts", []) if inside(place, mount["mountPath"])]
    nearest = max(mounts, key=lambda mount: len(mount["mountPath"].rstrip("/")), default={"name": ""})
    return Output(place, claims[nearest["name"]]) if nearest["name"] in claims else None


def inside(folder: str, mount: str) -> bool:
    """Whether a folder is a mount, or below it."""
    return f"{folder}/".startswith(f"{mount.rstrip('/')}/")


def reader(manifest: Json, what: str, suffix: str, commands: Sequence[Sequence[str]]) -> Json | None:
    """A pod that runs some commands one after the other where a job's output is; None if it leaves none.

    Each container but the last is an init container: they start in turn, each has a log of its own, and the pod asks
    for no more than one of them does.
    """
    output = output_of(manifest)
    if output is None:
        return None
    meta = manifest["metadata"]
    pod = expected.pods(manifest)[0]["spec"]
    source = pod["containers"][0]
    volumes = [volume for volume in pod.get("volumes", []) if CLAIM in volume and output.claim]
    names = {volume["name"] for volume in volumes}
    mounts = [{**mount, "readOnly": True} for mount in source.get("volumeMounts", []) if mount["name"] in names]
    limits = READER_LIMITS if output.claim else {**READER_LIMITS, "memory": BUCKET_MEMORY}
    container: Json = {
        "image": source["image"],
        "imagePullPolicy": source.get("imagePullPolicy", "IfNotPresent"),
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],  # no GPU, whatever the image asks for
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": dict(limits)},
        "securityContext": CONTAINER_SECURITY,
        **({"volumeMounts": mounts} if mounts else {}),
    }
    if not output.claim:
        container["env"] += [item for item in source.get("env", []) if item["name"].startswith(ACCESS)]
        container |= {"envFrom": source["envFrom"]} if "envFrom" in source else {}
    same = {key: pod[key] for key in ("imagePullSecrets", "nodeSelector") if key in pod}
    queue = queue_of(manifest).name or QUEUE_SYSTEM.default
    if queue != QUEUE_SYSTEM.default:  # a team's namespace accepts only pods of its own queues
        same["schedulerName"] = QUEUE_SYSTEM.scheduler
    tolerations: list[Json] = [{"operator": "Exists"}]  # it must run where the claim is, whatever taints that node has
    if queue != QUEUE_SYSTEM.default or TEAM_LABEL in meta.get("labels", {}):  # a team tolerates what its file grants
        tolerations = pod.get("tolerations", [])
    if not output.claim:  # any node will do, and none for GPUs: the admission lets only the small pod of a claim there
        same.pop("nodeSelector", None)
        tolerations = [item for item in tolerations if item.get("key") != GPU_TOLERATION["key"]]
    last = len(commands) - 1
    containers = [
        {"name": f"{READER}-{number}" if number < last else READER, "command": [*command], **container}
        for number, command in enumerate(commands)
    ]
    spec = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE_S,
        "terminationGracePeriodSeconds": 1,  # it has nothing to finish
        "automountServiceAccountToken": False,
        "securityContext": pod.get("securityContext", POD_SECURITY),
        **same,
        "tolerations": tolerations,
        **({"initContainers": containers[:-1]} if last else {}),
        "containers": containers[-1:],
        **({"volumes": volumes} if volumes else {}),
    }
    named: Json = {"name": f"{meta['name']}-{what}{suffix}", "namespace": meta.get("namespace", "default"),
                   "annotations": {**NO_MESH}}  # fmt: skip
    if queue != QUEUE_SYSTEM.default:
        named["annotations"][QUEUE_SYSTEM.annotations[0]] = queue
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**named, "labels": MANAGED_BY}, "spec": spec}


def is_reader(pod: Json) -> bool:
    """Whether a pod is one of ours that reads, and not a pod of a job with such a name."""
    return [item.get("name") for item in pod["spec"]["containers"]] == [READER]


def remove_ended(kube: Kube, job: Json, what: str = ANY, *, also_running: bool = False) -> None:
    """Remove the ended readers of commands that were killed before they could; those that run go with their job."""
    meta = job["metadata"]
    pattern = re.escape(meta["name"]) + NAME.format(what=what)
    selector = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())
    for pod in kube.items("v1", "Pod", meta["namespace"], selector):
        ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        own = pod["metadata"]
        if (ended or also_running) and re.fullmatch(pattern, own["name"]) and is_reader(pod):
            try:
                kube.delete_at(path("v1", "Pod", own["namespace"], own["name"]), own["uid"])
            except KubeError as error:
                if error.status != FORBIDDEN:  # a viewer's next request says what matters
                    raise
