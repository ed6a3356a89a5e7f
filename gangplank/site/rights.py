"""Which rights a run needs in the whole cluster: what the roles install, change and remove. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.site.components import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NODES = ("gpu_device_plugin", "gpu_dra_driver")  # components that label and taint nodes
ELECTING = ("training_operator", "trainer_v2")  # components whose programs leave a Lease of their election
# What a run looks for, besides jobs, before it removes CRDs and namespaces. A namespace of which it may not list every
# kind stays (cluster/namespace.py).
KEEPING = ("pods", "cronjobs.batch", "jobsets.jobset.x-k8s.io")
WRITE = ("create", "patch", "delete")  # an upgrade also removes what the new version does not have
# What keeps two runs apart takes (cluster/lease.py), in the namespace default or that of a job. No playbook asks for it
# before: a run without these rights says so and continues. Members of teams have them in their namespace.
LEASES = ("coordination.k8s.io", "leases")
LOCK_VERBS = ("get", "create", "patch", "delete")
LOCK = tuple(f"{verb} {'.'.join(reversed(LEASES))}" for verb in LOCK_VERBS)


def installation(components: Iterable[str]) -> tuple[str, ...]:
    """What site.yml does; an account that may do all this may also read it."""
    names = list(components)
    more = ["create persistentvolumeclaims", "patch persistentvolumeclaims"] if "storage" in names else []
    return (*_on_each(WRITE, names), *more, *_beside(names))


def removal(components: Iterable[str], jobs: Iterable[str]) -> tuple[str, ...]:
    """What uninstall.yml does; it keeps volume claims, and namespaces with jobs of these resources."""
    names = list(components)
    more = ["delete resourceslices.resource.k8s.io"] if "gpu_dra_driver" in names else []
    more += [f"delete {'.'.join(reversed(LEASES))}"] if set(names) & set(ELECTING) else []
    more += ["list nodes"] if set(names) & set(NODES) else []  # which of them a role has noted something on
    more += [f"list {kind}" for kind in (*KEEPING, *jobs)] if names else []
    return (*_on_each(("delete",), names), *more, *_beside(names))


def _on_each(verbs: Iterable[str], names: Iterable[str]) -> Iterator[str]:
    kinds = dict.fromkeys(kind for name in names for kind in COMPONENTS[name].kinds)
    return (f"{verb} {kind}" for kind in kinds for verb in verbs)


def _beside(names: list[str]) -> Iterator[str]:
    if names:
        yield "update secrets"  # Helm's own records
    if set(names) & set(NODES):
        yield "patch nodes"
