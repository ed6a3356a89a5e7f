"""What makes a pod a job's, which rank it has, and which of its containers is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of, wiring
from gangplank.k8s.conditions import failed_init

if TYPE_CHECKING:
    from gangplank.spec import Json

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # annotation of a pod


def pod_label(job: Json) -> str:
    """The label by which a job's controller says whose pods they are; "" if it adds none, as beside a manual selector.

    https://kubernetes.io/docs/concepts/workloads/controllers/job/#specifying-your-own-pod-selector
    """
    manual = (job.get("spec") or {}).get("manualSelector")
    return "" if manual else BACKENDS[str(backend_of(job))].wiring.job_name


def controller_of(item: Json) -> Json:
    """The reference to the object for which a controller made this one; empty if none did."""
    owners: list[Json] = item["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), {})


def may_own(job: Json, owner: Json) -> bool:
    """Whether the controller's owner of an object is a job, or something else, which the job may own."""
    other = (owner.get("apiVersion"), owner.get("kind")) != (job["apiVersion"], job["kind"])
    return bool(owner) and (other or bool(owner["uid"] == job["metadata"]["uid"]))


def rank_of(pod: Json) -> int | None:
    """The rank of a pod's node, None if nothing says it."""
    text = wiring.rank(pod)
    return int(text) if text.isdigit() else None


def default_container(pod: Json) -> str:
    """The container whose log is meant where none is named, as for kubectl; "" if the pod has one only.

    The API server does not choose one of several. After an init container has failed, only that one has a log.
    """
    for status in failed_init(pod):
        return str(status["name"])
    names = [one["name"] for one in (pod.get("spec") or {}).get("containers") or ()]
    marked: str = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER, "")
    return "" if len(names) < 2 else marked if marked in names else names[0]
