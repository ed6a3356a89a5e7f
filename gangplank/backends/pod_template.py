"""The pod template that all back-ends share: one container, restricted, spread over the nodes."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, code_pieces, device_claims, wiring
from gangplank.backends.lay_out import PACKAGES
from gangplank.k8s import quantity
from gangplank.k8s.nodes import AWAY

if TYPE_CHECKING:
    from gangplank.spec import JobSpec, Json, Resources, Script

JOB_LABEL = "gangplank.dev/job"
ROLE_LABEL = "gangplank.dev/role"
TEAM_LABEL = "gangplank.dev/team"
MANAGED_BY = {"app.kubernetes.io/managed-by": "gangplank"}
SCRIPT_FOLDER = "/opt/gangplank/script"  # where a carried script is mounted
SCRIPT_VOLUME = "script"  # the volume it is mounted from
SHM_FOLDER = "/dev/shm"  # noqa: S108  NCCL's and the data loaders' own place
KEY_LENGTH = 100  # characters of a file's name in its ConfigMap's key
DIGEST_LENGTH = 10  # hexadecimal digits of a script's digest in the name of its ConfigMap
USER_ID = 1000  # the image needs no such user: nothing looks it up
# The kind of what a field of a pod names: a field of the object below it, or its own text
NAMED_BY = {"configMap": "ConfigMap", "configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap",
            "resourceClaimTemplateName": device_claims.TEMPLATE, "subdomain": "Service"}  # fmt: skip
GPU_TOLERATION: Json = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
LOST_NODE_S = 30  # from "the node is not ready" to other pods elsewhere; without these, Kubernetes waits 300 s
UNREACHABLE_S = 20  # the same, of a node that has said nothing for 50 s: so long is --node-monitor-grace-period
LOST_NODE: tuple[Json, ...] = tuple(
    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    for key, seconds in zip(AWAY, (LOST_NODE_S, UNREACHABLE_S), strict=True)
)

NO_MESH = {"sidecar.istio.io/inject": "false"}  # a sidecar outlives the container, so the pod would never complete
POD_SECURITY: Json = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def labels(spec: JobSpec) -> dict[str, str]:
    """The labels of everything that belongs to a job."""
    team = {TEAM_LABEL: spec.team} if spec.team else {}
    return {**spec.labels, JOB_LABEL: spec.name, **team, **MANAGED_BY}


def metadata(spec: JobSpec, name: str = "") -> Json:
    """The metadata of an object that we submit."""
    meta: Json = {"name": name or spec.name, "namespace": spec.namespace, "labels": labels(spec)}
    if spec.annotations:
        meta["annotations"] = dict(spec.annotations)
    return meta


def resources(replica: Resources) -> Json:
    """A container's resources; GPUs are both requested and limited, or a gang's admission would not count them."""
    requests: Json = {"cpu": replica.cpu.request, "memory": replica.memory.request}
    limits: Json = {}
    for name, amount in (("cpu", replica.cpu), ("memory", replica.memory)):
        if amount.limit:
            limits[name] = amount.limit
    if device_claims.claimed(replica):
        return {
            "requests": requests,
            **({"limits": limits} if limits else {}),
            "claims": [{"name": device_claims.CLAIM}],
        }
    if replica.gpus:
        requests[replica.gpu_resource] = limits[replica.gpu_resource] = str(replica.gpus)
    return {"requests": requests, **({"limits": limits} if limits else {})}


def threads(spec: JobSpec, role: str) -> int:
    """Threads per process: the whole cores that a replica asks for, shared among its processes, at least one."""
    cores = math.floor(quantity.parse(spec.resources_of(role).cpu.request))
    return max(1, cores // spec.processes_per_node)


def field(name: str, path: str) -> Json:
    """An environment variable that takes its value from the pod itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def env(spec: JobSpec, role: str) -> list[Json]:
    """The environment that we give a container; a controller appends its wiring to it."""
    wired = BACKENDS[spec.backend].wiring
    ours: list[Json] = [
        field("GANGPLANK_POD", "metadata.name"),
        field("GANGPLANK_POD_UID", "metadata.uid"),
        field("GANGPLANK_NODE", "spec.nodeName"),
        field("GANGPLANK_JOB_UID", wired.job_uid)
        if wired.job_uid
        else {"name": "GANGPLANK_JOB_UID", "value": spec.name},
    ]
    if not spec.observe:
        ours.append({"name": "GANGPLANK_OBSERVE", "value": "0"})  # trainer/image/gangplank_observe.py reads it
    defaults = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads(spec, role))}
    if spec.code:
        defaults["PYTHONPATH"] = SCRIPT_FOLDER  # its packages, wherever in it the script is
    if spec.requirements:
        defaults["PYTHONPATH"] += f":{SCRIPT_FOLDER}/{PACKAGES}"
    if wired.unbuffered:
        del defaults["PYTHONUNBUFFERED"]  # the controller sets it, to the same value
    if spec.elastic:  # a node that joins later would wait for the address of a store that was made known before it came
        defaults["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    return ours + [{"name": name, "value": value} for name, value in {**defaults, **spec.env}.items()]


def flags(spec: JobSpec) -> list[str]:
    """The trainer's flags; one of your own that travels gets of them what its job names: hyperparameters, output.

    >>> from gangplank.spec import JobSpec, Script
    >>> settings = {"hyperparameters": {"batch_size": 64}, "output": "/out"}
    >>> flags(JobSpec("a", "img", backend="volcano", script=Script("/a.py"), **settings))
    ['--backend', 'gloo', '--batch-size', '64', '--output', '/out']
    """
    if not spec.script or not (spec.hyperparameters or spec.output):
        return []
    carried = spec.script.text is not None  # it may know no other flag than --output
    words = [] if carried and not spec.hyperparameters else ["--backend", spec.collective]
    for name, value in spec.hyperparameters.items():
        words += [f"--{name.replace('_', '-')}", repr(value) if isinstance(value, float) else str(value)]
    return words + (["--output", spec.output] if spec.output else [])


def process(spec: JobSpec) -> Json:
    """A container's command and args: a script starts through torchrun, a command goes as it is."""
    if spec.script:
        command, words = wiring.launch(spec), [*flags(spec), *spec.args]
        if code_pieces.in_pieces(spec.script):
            command = [*code_pieces.launcher(SCRIPT_FOLDER), *command]
    else:
        command, words = list(spec.command), list(spec.args)
    return {**({"command": command} if command else {}), **({"args": words} if words else {})}


def mounts(spec: JobSpec, role: str) -> tuple[list[Json], list[Json]]:
    """A replica's volumes and where its container sees them."""
    volumes: list[Json] = []
    where: list[Json] = []
    for index, volume in enumerate(spec.volumes):
        if volume.on == "all" or role == "master":
            source = {"claimName": volume.claim, **({"readOnly": True} if volume.read_only else {})}
            volumes.append({"name": f"claim-{index}", "persistentVolumeClaim": source})
            where.append({"name": f"claim-{index}", "mountPath": volume.mount})
            if volume.read_only:
                where[-1]["readOnly"] = True
    if spec.script and spec.script.text is not None:
        source = {"name": script_name(spec, spec.script)}
        place = SCRIPT_FOLDER
        if code_pieces.in_pieces(spec.script):
            place = code_pieces.INDEX_FOLDER
            volumes += code_pieces.volumes(spec.script)
            where += code_pieces.mounts(SCRIPT_FOLDER)
        elif spec.script.folder:
            keys = folder_keys(spec.script)
            source["items"] = [{"key": key, "path": name} for name, key in keys.items()]
        volumes.append({"name": SCRIPT_VOLUME, "configMap": source})
        where.append({"name": SCRIPT_VOLUME, "mountPath": place, "readOnly": True})
    if spec.shm_size:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": spec.shm_size}})
        where.append({"name": "shm", "mountPath": SHM_FOLDER})
    return volumes, where


def tolerations(spec: JobSpec, role: str) -> list[Json]:
    """The job's tolerations, those of the site's GPU nodes for a replica that asks for GPUs, and of a lost node.

    >>> from gangplank.spec import JobSpec
    >>> own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 600}
    >>> spec = JobSpec("digits", "img", backend="volcano", tolerations=(own,))
    >>> [item["tolerationSeconds"] for item in tolerations(spec, "worker")]
    [600, 30]
    """
    accepted = [dict(item) for item in spec.tolerations]
    if spec.resources_of(role).gpus:
        accepted += [dict(item) for item in spec.gpu_tolerations or (() if accepted else (GPU_TOLERATION,))]
    return accepted + [dict(taint) for taint in LOST_NODE if not any(covers(item, taint) for item in accepted)]


def covers(toleration: Json, lost: Json) -> bool:
    """Whether a job decides by itself how long it tolerates a lost node, as Kubernetes' own default asks it."""
    return toleration.get("key", "") in ("", lost["key"]) and toleration.get("effect", "") in ("", lost["effect"])


def spread(spec: JobSpec) -> Json:
    """A preference, not a requirement, for a job's pods to be on different nodes."""
    term = {"labelSelector": {"matchLabels": {JOB_LABEL: spec.name}}, "topologyKey": "kubernetes.io/hostname"}
    wish = {"weight": 100, "podAffinityTerm": term}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def template(spec: JobSpec, role: str, container: str, restart: str = "OnFailure") -> Json:
    """The pod template of one role.

    >>> from gangplank.spec import JobSpec
    >>> template(JobSpec("digits", "img", backend="volcano"), "worker", "worker")["spec"]["containers"][0]["image"]
    'img'
    """
    volumes, where = mounts(spec, role)
    body: Json = {
        "name": container,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        **process(spec),
        "env": env(spec, role),
        **({"envFrom": [{"secretRef": {"name": name}} for name in spec.secrets]} if spec.secrets else {}),
        "resources": resources(spec.resources_of(role)),
        "securityContext": {**CONTAINER_SECURITY, "capabilities": {"drop": ["ALL"]}},
        **({"volumeMounts": where} if where else {}),
    }
    pod: Json = {
        "restartPolicy": restart,
        "automountServiceAccountToken": False,  # the trainer never talks to the API
        "securityContext": {**POD_SECURITY, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": spread(spec),
        "containers": [body],
        **({"volumes": volumes} if volumes else {}),
    }
    if device_claims.claimed(replica := spec.resources_of(role)):
        name = device_claims.template_name(spec.name, spec.backend, replica)
        pod["resourceClaims"] = [{"name": device_claims.CLAIM, "resourceClaimTemplateName": name}]
    if tolerated := tolerations(spec, role):
        pod["tolerations"] = tolerated
    if spec.pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in spec.pull_secrets]
    if spec.node_selector:
        pod["nodeSelector"] = dict(spec.node_selector)
    meta: Json = {"labels": {**labels(spec), ROLE_LABEL: role}, "annotations": {**NO_MESH, **spec.annotations}}
    return {"metadata": meta, "spec": pod}


def beside(spec: JobSpec) -> list[Json]:
    """What is submitted before a job: the templates of its pods' claims, and the ConfigMaps that carry its script."""
    roles = ["worker"] if BACKENDS[spec.backend].one_template else ["master"] * spec.masters + ["worker"]
    templates = {}
    for replica in map(spec.resources_of, roles):
        if device_claims.claimed(replica):
            name = device_claims.template_name(spec.name, spec.backend, replica)
            templates[name] = device_claims.template(metadata(spec, name), replica)
    return [*templates.values(), *script_map(spec)]


def script_name(spec: JobSpec, script: Script) -> str:
    """The name of the ConfigMap that carries a script: another script has another, so an edited one is another job.

    A restarted pod never sees the bytes of a later submission, and jobs with one name on two back-ends share nothing.

    >>> from gangplank.spec import JobSpec, Script
    >>> script_name(JobSpec("digits", "img", backend="volcano"), Script("/opt/gangplank/script/a.py", "pass"))
    'digits-script-3b2e6bf120'
    """
    content = json.dumps(sorted(script.folder.items())) if script.folder else script.text or ""
    content += f"\n{script.requirements}" if script.requirements else ""
    started = script.path.removeprefix(f"{SCRIPT_FOLDER}/") if script.folder else file_of(script)
    identity = f"{spec.backend}\n{started}\n{content}"
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{spec.name}-script-{digest[:DIGEST_LENGTH]}"


def file_of(script: Script) -> str:
    """The file name of a script."""
    return script.path.rsplit("/", 1)[-1]


def carried_by(manifest: object, name: str) -> str:
    """The ConfigMap that carries the script of the job `name`, from a manifest or a live job; "" where none does."""
    if isinstance(manifest, Mapping):
        if manifest.get("name") == SCRIPT_VOLUME and isinstance(source := manifest.get("configMap"), Mapping):
            return str(source["name"]) if is_script_of(name, str(source.get("name"))) else ""
        manifest = list(manifest.values())
    parts = manifest if isinstance(manifest, list) else []
    return next((held for part in parts if (held := carried_by(part, name))), "")


def is_script_of(name: str, config_map: str) -> bool:
    """Whether a ConfigMap has the name of one that carries a script of the job `name`.

    >>> is_script_of("a", "a-script-0123456789"), is_script_of("a", "a-b-script-0123456789")
    (True, False)
    """
    return bool(re.fullmatch(f"{re.escape(name)}-script-[0-9a-f]{{{DIGEST_LENGTH}}}", config_map))


def named_in(manifest: object) -> set[tuple[str, str]]:
    """Kind and name of what a job's pods use.

    >>> sorted(named_in({"subdomain": "web", "volumes": [{"configMap": {"name": "script"}}]}))
    [('ConfigMap', 'script'), ('Service', 'web')]
    """
    if isinstance(manifest, dict):
        own = {(NAMED_BY[key], str(value.get("name") if isinstance(value, dict) else value))
               for key, value in manifest.items() if key in NAMED_BY}  # fmt: skip
        return own.union(*map(named_in, manifest.values()))
    return set().union(*map(named_in, manifest)) if isinstance(manifest, list) else set()


def script_map(spec: JobSpec) -> list[Json]:
    """The ConfigMaps that carry a job's script, if it has one to carry; the one that is the job's own is the last."""
    if not spec.script or spec.script.text is None:
        return []
    meta = metadata(spec, script_name(spec, spec.script))
    base: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "immutable": True}
    if code_pieces.in_pieces(spec.script):
        own = {**base, "data": code_pieces.index(spec.script)}
        return [*code_pieces.maps(spec.script, spec.namespace, MANAGED_BY), own]
    if not spec.script.folder:
        return [{**base, "data": {file_of(spec.script): spec.script.text}}]
    keys = folder_keys(spec.script)
    data, binary = {}, {}
    for name, text in spec.script.folder.items():
        octets = text.encode("utf-8", "surrogateescape")
        if is_text(octets):
            data[keys[name]] = text
        else:
            binary[keys[name]] = base64.b64encode(octets).decode()
    return [{**base, **({"data": data} if data else {}), **({"binaryData": binary} if binary else {})}]


def is_text(octets: bytes) -> bool:
    """Whether these bytes are text that YAML and JSON carry as it is."""
    try:
        return "\x00" not in octets.decode("utf-8")
    except UnicodeDecodeError:
        return False


def folder_keys(script: Script) -> dict[str, str]:
    """The key of each file of a folder in its ConfigMap: a key has no slash.

    >>> from gangplank.spec import Script
    >>> folder_keys(Script("/opt/gangplank/script/a.py", "", folder={"a.py": "", "lib/ü.py": ""}))
    {'a.py': '0-a.py', 'lib/ü.py': '1-_.py'}
    """
    bases = (name.rsplit("/", 1)[-1][-KEY_LENGTH:] for name in script.folder)
    safe = (re.sub(r"[^-\w.]", "_", base, flags=re.ASCII) for base in bases)
    return {name: f"{number}-{base}" for number, (name, base) in enumerate(zip(script.folder, safe, strict=True))}
