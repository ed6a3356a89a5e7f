"""What a job asks for beyond what its team's file grants, found before anything is submitted.

The admission refuses the same on the cluster (rules.py), where it judges all fields of all kinds; these are the grants.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.base import Site
from gangplank.backends.device_claims import claimed, is_template
from gangplank.backends.pod_template import GPU_TOLERATION, TEAM_LABEL
from gangplank.errors import Problem, SpecError, shown
from gangplank.k8s.nodes import AWAY
from gangplank.teams.conditions import DOMAINS, KEYS, NODE_LABELS
from gangplank.teams.metadata import SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gangplank.spec import JobSpec, Json
    from gangplank.teams.spec import TeamSpec

DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(frozen=True)
class Wish:
    """A value that only a team with a grant may have."""

    path: str
    value: str
    grant: str  # the field of a team's file


def is_listed(value: str, granted: Sequence[str]) -> bool:
    """Whether a list has the value."""
    return value in granted


def key_or_pair(value: str, granted: Sequence[str]) -> bool:
    """Whether a list has key=value or its key.

    >>> key_or_pair("a=b", ["a"]), key_or_pair("a=b", ["a=c"])
    (True, False)
    """
    return value in granted or value.partition("=")[0] in granted


def image_matches(value: str, patterns: Sequence[str]) -> bool:
    """Whether an image matches a pattern, of which an empty list has any.

    >>> image_matches("a.b/c:1", ["a.b/*"]), image_matches("axb/c:1", ["a.b/*"])
    (True, False)
    """
    texts = (re.escape(pattern).replace(r"\*", ".*") for pattern in patterns)
    return not patterns or any(re.fullmatch(text, value, re.DOTALL) for text in texts)


def in_domain(key: str, domains: Sequence[str]) -> bool:
    """Whether a key of an annotation or label is of a domain or a subdomain.

    >>> in_domain("x.a.b/c", ["a.b"]), in_domain("xa.b/c", ["a.b"])
    (True, False)
    """
    return any(f".{key.partition('/')[0]}".endswith(f".{domain}") for domain in domains)


# By field of a team's file: what a value is, which the team has, and whether a value is among them
GRANTS: dict[str, tuple[str, Callable[[TeamSpec], tuple[str, ...]], Callable[[str, Sequence[str]], bool]]] = {
    "queues": ("a queue", lambda team: team.leaves, is_listed),
    "schedulers": (
        "a scheduler",
        lambda team: (SCHEDULER, *team.schedulers),
        is_listed,
    ),
    "priorities": ("a PriorityClass", lambda team: team.priorities, is_listed),
    "service_accounts": (
        "a service account",
        lambda team: ("default", *team.service_accounts),
        is_listed,
    ),
    "images": ("an image", lambda team: team.images, image_matches),
    "tolerations": ("a taint", lambda team: team.tolerations, key_or_pair),
    "node_labels": ("a label of nodes", lambda team: (*NODE_LABELS, *team.node_labels), key_or_pair),
    "runtime_classes": ("a RuntimeClass", lambda team: team.runtime_classes, is_listed),
    "secrets": ("a Secret", lambda team: team.secrets, is_listed),
    "cap": ("a device class", lambda team: team.device_classes, is_listed),
    "annotation_domains": ("a key of a domain", lambda team: (*DOMAINS, *team.annotation_domains), in_domain),
}


def problems(wishes: Iterable[Wish], team: TeamSpec) -> list[Problem]:
    """What the team's file does not grant, each value once."""
    lines: dict[tuple[str, str], Problem] = {}
    for wish in wishes:
        what, own, granted = GRANTS[wish.grant]
        if not granted(wish.value, own(team)):
            some = ", ".join(own(team)) or "none"
            expected = f"{what} that the file of team {team.name} grants under team_{wish.grant} ({some})"
            fix = f"leave it out, or have team_{wish.grant} in {team.source} grant it"
            lines.setdefault((wish.grant, wish.value), Problem(wish.path, shown(wish.value), expected, fix))
    return list(lines.values())


def taints(path: str, tolerations: Iterable[Mapping[str, object]], *, gpus: bool) -> Iterator[Wish]:
    """The taints that tolerations name, but for those that every pod may tolerate."""
    for number, item in enumerate(tolerations):
        key, value = str(item.get("key") or ""), str(item.get("value") or "")
        node_lost = key in AWAY and item.get("effect") == "NoExecute"
        if not node_lost and not (gpus and key == GPU_TOLERATION["key"]):
            yield Wish(f"{path}[{number}]", (key or "*") + (f"={value}" if value else ""), "tolerations")


def foreign_keys(path: str, pairs: Mapping[str, object]) -> Iterator[Wish]:
    """The keys of annotations or labels that have a domain, so that something outside the team may read them."""
    return (Wish(f"{path}.{key}", key, "annotation_domains") for key in pairs if "/" in key and key not in KEYS)


def of_job(spec: JobSpec) -> Iterator[Wish]:
    """What a job file asks for."""
    path = "training_job."
    gpus = any(spec.resources_of(role).gpus for role in ("master", "worker"))
    yield Wish(f"{path}image", spec.image, "images")
    for part, replica in (("resources", spec.resources), ("master_resources", spec.master_resources)):
        if replica and (of_class := claimed(replica)):
            yield Wish(f"{path}{part}.gpus", of_class, "cap")
    if spec.priority:
        yield Wish(f"{path}priority", spec.priority, "priorities")
    yield from (Wish(f"{path}secrets[{number}]", name, "secrets") for number, name in enumerate(spec.secrets))
    yield from taints(f"{path}tolerations", spec.tolerations, gpus=gpus)
    yield from taints(f"{path}gpu_tolerations", spec.gpu_tolerations if gpus else (), gpus=gpus)
    for key, value in spec.node_selector.items():
        yield Wish(f"{path}node_selector.{key}", f"{key}={value}", "node_labels")
    yield from foreign_keys(f"{path}annotations", spec.annotations)
    yield from foreign_keys(f"{path}labels", spec.labels)
    job = BACKENDS[spec.backend].manifests(spec)[-1]
    if queue := BACKENDS[spec.backend].queue(job).name:
        yield Wish(f"{path}queue", queue, "queues")
    yield from (Wish(f"{path}backend", name, "schedulers") for _, name in schedulers(job))


def of_manifest(manifest: Json) -> Iterator[Wish]:
    """What a raw manifest asks for: its queue, and what its pods name."""
    if is_template(manifest):
        for number, request in enumerate(parts(part(manifest, "spec", "spec", "devices"), "requests")):
            of_class = str(part(request, "exactly").get("deviceClassName") or "")
            yield Wish(f"spec.spec.devices.requests[{number}].exactly.deviceClassName", of_class, "cap")
    backend = backend_of(manifest)
    queue = BACKENDS[backend].queue(manifest) if backend else None
    if queue and queue.name:
        yield Wish(queue.path, queue.name, "queues")
    yield from (Wish(f"{path}.schedulerName", name, "schedulers") for path, name in schedulers(manifest))
    for path, pod in pod_specs(manifest):
        yield from of_pod(path, pod)


def schedulers(manifest: Json) -> Iterator[tuple[str, str]]:
    """The schedulers of its pods; a controller chooses that of pods which go to a queue, or come from a runtime."""
    backend = BACKENDS.get(backend_of(manifest) or "")
    chosen = backend and (backend.queue(manifest).name or not backend.templates(manifest, Site())[1])
    for path, pod in pod_specs(manifest):
        if pod.get("schedulerName") or not chosen:
            yield path, str(pod.get("schedulerName") or DEFAULT_SCHEDULER)


def of_pod(path: str, pod: Json) -> Iterator[Wish]:
    """What the spec of a pod asks for."""
    containers = [(f"{path}.{kind}[{number}]", item) for kind in ("initContainers", "containers")
                  for number, item in enumerate(parts(pod, kind))]  # fmt: skip
    gpus = bool(pod.get("resourceClaims")) or any(
        str(name).startswith("nvidia.com/") and str(amount) != "0"
        for _, item in containers
        for name, amount in part(item, "resources", "limits").items()
    )
    for field, grant in (
        ("priorityClassName", "priorities"),
        ("serviceAccountName", "service_accounts"),
        ("runtimeClassName", "runtime_classes"),
    ):
        if pod.get(field):
            yield Wish(f"{path}.{field}", str(pod[field]), grant)
    yield from taints(f"{path}.tolerations", parts(pod, "tolerations"), gpus=gpus)
    for key, value in part(pod, "nodeSelector").items():
        yield Wish(f"{path}.nodeSelector.{key}", f"{key}={value}", "node_labels")
    for place, item in containers:
        if item.get("image"):
            yield Wish(f"{place}.image", str(item["image"]), "images")
        sources = [part(source, "secretRef") for source in parts(item, "envFrom")]
        sources += [part(entry, "valueFrom", "secretKeyRef") for entry in parts(item, "env")]
        yield from (Wish(f"{place}.env", str(source.get("name")), "secrets") for source in sources if source)
    for number, volume in enumerate(parts(pod, "volumes")):
        if name := part(volume, "secret").get("secretName"):
            yield Wish(f"{path}.volumes[{number}]", str(name), "secrets")


def part(value: object, *keys: str) -> Json:
    """A mapping inside another; empty if it is missing, or something else, which the API server refuses."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def parts(value: Json, key: str) -> list[Json]:
    """The items of a list in a mapping, each as `part` returns it."""
    items = value.get(key)
    return [part(item) for item in items] if isinstance(items, list) else []


def pod_specs(value: object, path: str = "") -> Iterator[tuple[str, Json]]:
    """The specs of pods in a manifest, with their places."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list) and path.endswith("spec"):
            yield path, value
            return
        for key, item in value.items():
            yield from pod_specs(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from pod_specs(item, f"{path}[{number}]")


def check_job(spec: JobSpec, teams: Sequence[TeamSpec], source: str) -> None:
    """Refuse a job file that asks for what its team's file does not grant."""
    refuse([(of_job(spec), team) for team in teams if team.name == spec.team], source)


def check_manifests(
    manifests: Iterable[Json], teams: Sequence[TeamSpec], source: str, namespace: Callable[[], str] = str
) -> None:
    """Refuse raw manifests that ask for what the team of their namespace does not have; others are left alone.

    `namespace` returns that of manifests that name none. If it is "", their label names their team.
    """
    pairs = []
    for manifest in manifests:
        meta = manifest.get("metadata") or {}
        space, label = meta.get("namespace") or namespace(), (meta.get("labels") or {}).get(TEAM_LABEL)
        team = next((team for team in teams if team.namespace == space or (not space and team.name == label)), None)
        if team:
            pairs.append((of_manifest(manifest), team))
    refuse(pairs, source)


def refuse(pairs: Iterable[tuple[Iterable[Wish], TeamSpec]], source: str) -> None:
    """A SpecError with all problems, if there are any."""
    if lines := [problem for wishes, team in pairs for problem in problems(wishes, team)]:
        raise SpecError(lines, source)
