"""The pod that writes to a volume claim for `gangplank data`, and the ConfigMaps that bring it its work."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import gangplank
from gangplank.backends.pod_template import CONTAINER_SECURITY, GPU_TOLERATION, MANAGED_BY, NO_MESH, POD_SECURITY
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.reader import BUCKET_MEMORY, CLAIM, READER_LIMITS
from gangplank.cluster.starting import IMAGE_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

COMPONENT = "app.kubernetes.io/component"  # a label, whose domain every team may use
CONTAINER = "data"
MOUNT, WORK = "/data", "/opt/gangplank/work"  # in the pod: the claim, and what it has to do
PROGRAM, REQUEST = "program.zip", "request.json"
# What runs there, as a program of its own: https://docs.python.org/3/library/zipapp.html
MODULES = ("errors.py", "cluster/contents.py", "cluster/landing.py", "cluster/origins.py", "cluster/receive.py")
MAIN = "import sys\n\nfrom gangplank.cluster.receive import run\n\nsys.exit(run(sys.argv[1:]))\n"
# With the pull of its image; then the kubelet ends the pod, should its command be gone
PUSH_S, PULL_S = IMAGE_S + 900, 6 * 3600
# Small too: Volcano compares a pod's limits with what the quota leaves, from which the pod is already subtracted.
PULL_LIMITS = {**READER_LIMITS, "memory": BUCKET_MEMORY}


@dataclass(frozen=True)
class Place:
    """A claim, and by which pods it is written to."""

    namespace: str
    claim: str
    image: str
    queue: str = ""  # "" where pods need none
    bound: bool = True  # whether its volume exists, which may be on a node of its own
    secrets: tuple[str, ...] = ()  # whose keys become variables, for buckets
    size: int = 0  # bytes that it has, or asks for until its volume exists; 0 where nobody says

    @property
    def mark(self) -> dict[str, str]:
        """The labels of everything that works for this claim."""
        return {**MANAGED_BY, COMPONENT: f"data-{hashlib.sha256(self.claim.encode()).hexdigest()[:16]}"}

    @property
    def pod_name(self) -> str:
        """One name, so that there is one such pod at a time."""
        return f"data-{self.claim}"[:253].rstrip("-.")


def program() -> bytes:
    """The program of the pod, the same bytes for the same sources."""
    root = Path(gangplank.__file__).parent
    files = {"__main__.py": MAIN, "gangplank/__init__.py": "", "gangplank/cluster/__init__.py": ""}
    files |= {f"gangplank/{name}": (root / name).read_text(encoding="utf-8") for name in MODULES}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return packed.getvalue()


def config_map(place: Place, name: str, content: dict[str, bytes]) -> Json:
    """A ConfigMap with some bytes."""
    meta: Json = {"name": name, "namespace": place.namespace, "labels": place.mark}
    data = {key: base64.b64encode(octets).decode() for key, octets in content.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True, "binaryData": data}


def work(place: Place, suffix: str, request: Json, pieces: Sequence[bytes]) -> list[Json]:
    """The ConfigMaps of one pod: its program and request, and a piece in each of the others."""
    about = {PROGRAM: program(), REQUEST: json.dumps(request, separators=(",", ":")).encode()}
    contents = [about, *({"piece": piece} for piece in pieces)]
    return [config_map(place, f"data-{suffix}-{number}", content) for number, content in enumerate(contents)]


def pod(place: Place, maps: Sequence[Json], *, pulls: bool) -> Json:
    """The pod; one that only writes is so small that a team's admission lets it run on GPU nodes too."""
    first, *pieces = (item["metadata"]["name"] for item in maps)
    items = [{"configMap": {"name": first}}]
    items += [{"configMap": {"name": name, "items": [{"key": "piece", "path": str(number)}]}}
              for number, name in enumerate(pieces)]
    own = [] if pulls else ["-S"]  # a bucket's client is a package of the image
    container: Json = {
        "name": CONTAINER,
        "image": place.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-I", *own, f"{WORK}/{PROGRAM}", f"{WORK}/{REQUEST}", WORK, MOUNT],
        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],  # no GPU, whatever the image asks for
        "resources": {
            "requests": {"cpu": "10m", "memory": "16Mi"}, "limits": dict(PULL_LIMITS if pulls else READER_LIMITS)
        },
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "claim", "mountPath": MOUNT}, {"name": "work", "mountPath": WORK, "readOnly": True}],
    }  # fmt: skip
    if place.secrets:
        container["envFrom"] = [{"secretRef": {"name": name}} for name in place.secrets]
    named = {"name": place.pod_name, "namespace": place.namespace}
    meta: Json = {**named, "labels": place.mark, "annotations": {**NO_MESH}}
    spec: Json = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": PULL_S if pulls else PUSH_S,
        "terminationGracePeriodSeconds": 1,  # what it has begun is continued
        "automountServiceAccountToken": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
        "volumes": [{"name": "claim", CLAIM: {"claimName": place.claim}},
                    {"name": "work", "projected": {"sources": items}}],
    }  # fmt: skip
    if tolerations := tolerated(place, pulls=pulls):
        spec["tolerations"] = tolerations
    if place.queue:  # a team's namespace accepts only pods of its own queues
        spec["schedulerName"] = QUEUE_SYSTEM.scheduler
        meta["annotations"][QUEUE_SYSTEM.annotations[0]] = place.queue
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def tolerated(place: Place, *, pulls: bool) -> list[Json]:
    """What it tolerates: it must run where the volume is; if it has none yet, any ordinary node will do."""
    if not place.bound:
        return []
    if not place.queue:
        return [{"operator": "Exists"}]
    return [] if pulls else [GPU_TOLERATION]
