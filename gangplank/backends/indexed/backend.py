"""Kubernetes' own Indexed Job: no operator is needed, and there is no gang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.admission import PROBE_POD, of_template
from gangplank.backends.base import (
    RESUBMIT,
    Addition,
    Backend,
    Ends,
    JobKinds,
    Refusal,
    Retries,
    Site,
    Template,
    Wiring,
    failed_for,
    never,
    no_way,
    resumed,
    unchanged,
    unscalable,
)
from gangplank.backends.indexed.block import read_block
from gangplank.backends.indexed.manifests import manifests
from gangplank.backends.indexed.objects import FORM, admitted, objects
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.backends.queueing import NO_QUEUE, Queue
from gangplank.k8s.build import COMPLETION_INDEX, JOB_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.spec import Json

JOBS = "Kubernetes' Job controller"
NO_GANG = "leave it out, or use volcano or pytorchjob"
COUNTS = ("parallelism", "completions")


def queue(_: Json) -> Queue:
    """None: a plain Job has no queue."""
    return NO_QUEUE


def failures(live: Json, _: int) -> int:
    """As its limit has them: where containers restart in place, all of them count, and every rank of ours restarts."""
    spec = live["spec"]
    most = spec.get("backoffLimit") or 0
    if not most or not failed_for(live, "BackoffLimitExceeded"):
        return 0
    if spec["template"]["spec"].get("restartPolicy") != "OnFailure":
        return int(live["status"].get("failed") or 0)
    together = spec.get("parallelism") or 1 if JOB_LABEL in (live["metadata"].get("labels") or {}) else 1
    return int(-(-most // together))


def evidence_id(live: Json) -> str | None:
    """The uid that the API server gave the job."""
    meta = live["metadata"]
    return str(meta["uid"]) if "uid" in meta else None


def scale(job: Json, workers: int) -> Json:
    """No Indexed Job can be scaled."""
    expected = "no scaling on indexed (WORLD_SIZE of an Indexed Job's pods is fixed when they are made)"
    raise unscalable(job, workers, expected, RESUBMIT)


def pitfalls(manifest: Json) -> Iterator[str]:
    """What Kubernetes accepts although its author hardly intends it."""
    together, size = (1 if manifest["spec"].get(key) is None else manifest["spec"][key] for key in COUNTS)
    if together < size:
        yield "parallelism is less than completions, so ranks that wait for each other never all run"


def templates(manifest: Json, site: Site) -> tuple[Json, list[Template]]:
    """The job as the API server stores it, and its one template."""
    job = admitted(manifest, site)
    return job, [Template(job["spec"], "job-name", job["metadata"]["name"])]


def is_indexed(job: Json) -> bool:
    """Whether a batch Job gives its pods ranks."""
    return bool(job["spec"].get("completionMode") == "Indexed")


PROBE_JOB = {"template": {"spec": PROBE_POD}}
BACKEND = Backend(
    name="indexed",
    title="Indexed Job",
    api_version="batch/v1",
    kind="Job",
    plural="jobs",
    form=FORM,
    is_job=is_indexed,
    wiring=Wiring(
        nnodes="WORLD_SIZE",  # our own manifest sets them, with Volcano's meaning
        rank="RANK",
        addr="MASTER_ADDR",
        port="MASTER_PORT",
        pod="{job}-{rank}",  # and five random characters: this is the host name
        master="{job}-0.{job}",
        longest="{job}-{world}",
        longest_is="host name",
        job_name=JOB_NAME,
        index=COMPLETION_INDEX,
        job_uid="metadata.labels['batch.kubernetes.io/controller-uid']",
        unbuffered=False,
        mounts=(),
        prefixes=("batch.kubernetes.io",),
    ),
    read_block=read_block,
    refuses={
        "elastic": Refusal("a Job's WORLD_SIZE is fixed when its pods are made", "use pytorchjob"),
        "master_resources": Refusal("all pods share one template", "give every replica the same resources"),
        "min_available": Refusal("a plain Job has no gang", NO_GANG),
        "queue": Refusal("a plain Job has no queue", NO_GANG),
    },
    no_claims=None,
    one_template=True,
    rules=(),
    manifests=manifests,
    objects=objects,
    scale=scale,
    by_itself=resumed,
    with_changes=unchanged,
    pitfalls=pitfalls,
    templates=templates,
    adds=(
        Addition(r"\[JOB_COMPLETION_INDEX\]$", JOBS, "the pod's index, which RANK above takes from its annotation"),
        Addition(r"job-(completion-index|index-failure-count)$", JOBS, "the pod's index"),
        Addition(r"(job-name|controller-uid)$", "the API server", "what the pod is: its job"),
        Addition(r"\.hostname$", JOBS, "the name under which the others find the pod"),
        Addition(r"\.finalizers(\[|$)", JOBS, "no pod is removed before it has been counted"),
    ),
    makes={},
    # SuccessCriteriaMet comes first: all indexes have ended, their pods may still be terminating.
    ends=Ends(succeeded=frozenset({"Complete", "SuccessCriteriaMet"}), failed=frozenset({"Failed"}),
              early={"SuccessCriteriaMet": "Complete"}),
    propagation="Background",
    retries=Retries("spec.backoffLimit", failures),
    overlooks=never,
    queue=queue,
    without_queues=no_way,
    evidence_id=evidence_id,
    attempt="",
    beside=(("v1", "Service"),),  # under it the pods find each other
    job_kinds=(JobKinds("batch/v1", ("jobs", "cronjobs")),),
    admission=(
        of_template("jobs", "batch", "jobs", probe={"apiVersion": "batch/v1", "kind": "Job", "spec": PROBE_JOB}),
        of_template(
            "cronjobs",
            "batch",
            "cronjobs",
            template="object.spec.jobTemplate.spec.template",
            inner="[[object.spec.jobTemplate]]",
            probe={
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": PROBE_JOB}},
            },
        ),
    ),
)
