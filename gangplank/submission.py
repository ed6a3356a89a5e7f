"""Submit the job that is described, whatever is there already: look, say all that speaks against it, then do it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank import queues, storage
from gangplank.kube import KubeError
from gangplank.live import differences
from gangplank.watch import phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gangplank.kube import Kube
    from gangplank.spec import Json

GONE_S = 120  # seconds that a job may take to go with its pods
POLL_S = 0.5
CLAIM = ("v1", "PersistentVolumeClaim")


@dataclass(frozen=True)
class Plan:
    """What makes a cluster run the job: nothing where `refused` says why not, else first remove, then submit."""

    refused: str = ""
    remove: Json | None = None
    submit: tuple[Json, ...] = ()
    differences: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether there is something to do."""
        return bool(self.remove or self.submit)


def title(item: Json) -> str:
    """What a message calls an object."""
    meta = item["metadata"]
    return f"{item['kind']} {meta['namespace']}/{meta['name']}"


def plan(kube: Kube, manifests: Sequence[Json], volumes: Sequence[Mapping[str, Any]] = (), *, replace: bool) -> Plan:
    """Compare what would be submitted, the job last, with what is there; `volumes` as gangplank.spec.Volume has them.

    A job that is there as described is left alone: what webhooks filled in is no difference, and no controller takes
    an update. With `replace`, one that differs or has failed is removed first.
    """
    *beside, job = manifests
    live = there(kube, job)
    differs = tuple(differences(job, live)) if live else ()
    if differs and not replace:
        return Plan(refused=refusal(job, differs), differences=differs)
    again = live if live and (differs or (replace and phase(live).failed)) else None
    submit = [item for item in beside if (old := there(kube, item)) is None or [*differences(item, old)]]
    if again or not live:
        known = kube.queues() if queues.asked(job)[1] else None  # None too for who may not see them: Volcano tells
        problems = queues.problems(job, known) if known is not None else []
        if volumes:
            problems += storage.mount_problems(volumes, kube.items(*CLAIM, job["metadata"]["namespace"]))
        if problems:
            return Plan(refused="\n  ".join([f"{title(job)} cannot be submitted:", *map(str, problems)]))
        submit.append(job)
    return Plan("", again, tuple(submit), differs)


def there(kube: Kube, item: Json) -> Json | None:
    """The live object of a manifest."""
    meta = item["metadata"]
    return kube.find(meta["namespace"], meta["name"], [(item["apiVersion"], item["kind"])])


def refusal(job: Json, differs: Sequence[str]) -> str:
    """Why a job that is there stays as it is."""
    head = f"{title(job)} is there and differs from this description:"
    cure = (
        "Its controller refuses such updates. Cure: -e training_job_replace=true deletes that job (its claims stay)\n"
        "and runs this one; or give this one another name."
    )
    return "\n".join([head, *(f"  {line}" for line in differs), cure])


def carry_out(kube: Kube, todo: Plan, *, dry_run: bool) -> None:
    """Do what the plan says; a dry run asks the server, except for a job whose name is still taken."""
    if todo.remove and not dry_run:
        kube.delete(todo.remove, "Foreground")
        gone(kube, todo.remove)
    for item in todo.submit:
        if not (dry_run and todo.remove and item is todo.submit[-1]):
            make(kube, item, dry_run=dry_run)


def gone(kube: Kube, job: Json) -> None:
    """Wait until a job that was removed is gone with its pods."""
    deadline = time.monotonic() + GONE_S
    while there(kube, job):
        if time.monotonic() > deadline:
            raise KubeError(f"{title(job)} was removed and is there after {GONE_S} s; look at its pods' finalizers")
        time.sleep(POLL_S)


def make(kube: Kube, item: Json, *, dry_run: bool) -> str:
    """Submit one object; what was done, or KubeError with the cure."""
    try:
        return kube.create(item, dry_run=dry_run)
    except KubeError as error:
        if error.status == 404 and "namespaces" not in str(error):
            cure = "install its operator, or choose another back-end with --backend (gangplank expand --help)"
            raise KubeError(f"the cluster knows no {item['kind']} of {item['apiVersion']}; {cure}", 404) from None
        raise
