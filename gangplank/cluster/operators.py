"""Whether anybody will look at a job: its kind may outlive its operator, whose CRDs stay when it is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import queues
from gangplank.cluster.client import FORBIDDEN
from gangplank.cluster.deployed import DEPLOYMENTS
from gangplank.errors import KubeError, Problem
from gangplank.site.components import COMPONENTS
from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube
    from gangplank.site.components import Component
    from gangplank.spec import Json


def needed(job: Json) -> Iterator[Component]:
    """The components without which a job of this kind, in its queue, does not run."""
    backend = backend_of(job)
    kinds = {f"{BACKENDS[backend].plural}.{job['apiVersion'].partition('/')[0]}"} if backend else set()
    if queues.queue_of(job).name:
        kinds.add(f"{QUEUE_SYSTEM.queue.plural}.{QUEUE_SYSTEM.queue.group}")
    for component in COMPONENTS.values():
        if kinds & {name for name, _ in component.crds}:
            yield component


def absent(kube: Kube, job: Json) -> list[Problem]:
    """The programs of an operator that no deployment runs; none without the right to list deployments.

    It refuses nothing: an operator may be built under another name, or come back.
    """
    components = list(needed(job))
    try:
        deployments = (kube.get(DEPLOYMENTS) if components else None) or {}
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return []
    if "items" not in deployments:
        return []
    ready = [item for item in deployments["items"] if (item.get("status") or {}).get("readyReplicas")]
    images = [container["image"] for item in ready for container in item["spec"]["template"]["spec"]["containers"]]
    problems = []
    for component in components:
        if missing := [name.strip("/") for name in component.programs if not any(name in image for image in images)]:
            meta = job["metadata"]
            fix = f"install or repair {component.title} (site.yml); gangplank why {meta['name']} -n {meta['namespace']}"
            got, expected = f"no ready pod of {listed(missing)}", "one of each, or the job waits"
            problems.append(Problem(f"{job['kind']} {meta['namespace']}/{meta['name']}", got, expected, fix))
    return problems
