"""Jobs and objects as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, wiring
from gangplank.k8s.build import namespace
from gangplank.text import counted, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

COLUMNS = ("POD", "RANK", "HOST", "MASTER", "WORLD_SIZE", "REQUESTS", "LIMITS", "VOLUMES")
SHORT = {"memory": "mem"}


def amounts(pod: Json, side: str) -> str:
    """A pod's requests or limits in one cell."""
    resources = [container.get("resources", {}).get(side, {}) for container in pod["spec"].get("containers", [])]
    return ", ".join(f"{SHORT.get(name, name)} {value}" for amount in resources for name, value in amount.items())


def mounts(pod: Json) -> str:
    """A pod's volume claims, ConfigMaps and memory, each with its path; the wiring's own mounts are left out."""
    paths = {
        mount["name"]: mount.get("mountPath", "")
        for container in pod["spec"].get("containers", [])
        for mount in container.get("volumeMounts", [])
    }
    wired = {path for backend in BACKENDS.values() for path in backend.wiring.mounts}
    cells = []
    for volume in pod["spec"].get("volumes", []):
        path = paths.get(volume["name"])
        if path is not None and path not in wired:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            source = claim or volume.get("configMap", {}).get("name")
            cells.append(f"{source}:{path}" if source else path)
    return ", ".join(cells)


def pod_row(pod: Json, claimed: str = "") -> list[str]:
    """One line of the table of pods; `claimed` is what the pod has by claim."""
    place, spec = wiring.pod_wiring(pod), pod["spec"]
    host = ".".join(part for part in (spec.get("hostname", ""), spec.get("subdomain", "")) if part)
    return [
        pod["metadata"]["name"],
        place["rank"],
        host,
        place["master"],
        place["world_size"],
        ", ".join(filter(None, (amounts(pod, "requests"), claimed))),
        amounts(pod, "limits"),
        mounts(pod),
    ]


def pods_table(objects: Sequence[Json], *, colour: bool = False) -> str:
    """The table of the pods among some objects."""
    claimed: dict[tuple[str, str], list[str]] = {}
    for item in objects:
        for owner in item["metadata"].get("ownerReferences", []) if item["kind"] == "ResourceClaim" else ():
            claimed.setdefault((namespace(item), owner["name"]), []).append(note(item))
    pods = [item for item in objects if item["kind"] == "Pod"]
    rows = [pod_row(pod, ", ".join(claimed.get((namespace(pod), pod["metadata"]["name"]), ()))) for pod in pods]
    return table([list(COLUMNS), *rows], colour=colour) if rows else "no pods"


def others_table(objects: Sequence[Json], *, colour: bool = False) -> str:
    """The table of the objects that are not pods."""
    rows = [[item["kind"], item["metadata"]["name"], note(item)] for item in objects if item["kind"] != "Pod"]
    return table([["KIND", "NAME", "WHAT"], *rows], colour=colour) if rows else ""


def note(item: Json) -> str:
    """What matters about an object, in a few words."""
    spec = item.get("spec", {})
    if item["kind"] == "PodGroup":
        resources = ", ".join(
            f"{name} {spec['minResources'][name]}" for name in spec.get("minResources", {}) if "." not in name
        )
        return f"{counted(spec['minMember'], 'pod')} or none, queue {spec.get('queue', 'default')}; {resources}"
    if item["kind"] == "Service":
        return "headless" + (", also for pods that are not ready" if spec.get("publishNotReadyAddresses") else "")
    if item["kind"] == "NetworkPolicy":
        return "only the job's own pods may connect"
    if item["kind"] == "ResourceClaim":
        wanted = [request.get("exactly", {}) for request in spec["devices"].get("requests", [])]
        return ", ".join(f"{one.get('count', 1)} of {one.get('deviceClassName', 'several classes')}" for one in wanted)
    return ", ".join(item.get("data", {}))


def heading(backend: str, manifest: Json, objects: Sequence[Json]) -> str:
    """The line above a job's pods: where it runs, how many there are, and how many must fit before any starts."""
    meta = manifest["metadata"]
    count = sum(item["kind"] == "Pod" for item in objects)
    group = next((item["spec"]["minMember"] for item in objects if item["kind"] == "PodGroup"), None)
    gang = "no gang: pods start one by one" if group is None else f"a gang of {group}"
    return f"{meta['name']} in {meta.get('namespace') or 'default'} on {backend}: {counted(count, 'pod')}, {gang}"
