"""Kubeflow Trainer v2: a TrainJob, which refers to one of the platform's runtimes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.base import (
    RESUBMIT,
    Backend,
    Ends,
    JobKinds,
    Maker,
    Path,
    Refusal,
    Retries,
    Site,
    Template,
    Wiring,
    always,
    failed_for,
    never,
    no_way,
    resumed,
    unchanged,
    unscalable,
)
from gangplank.backends.queueing import NO_QUEUE, VOLCANO, Queue
from gangplank.backends.trainjob.block import PORT, read_block, something_to_run
from gangplank.backends.trainjob.jobset import JOBSET_NAME
from gangplank.backends.trainjob.manifests import manifests
from gangplank.backends.trainjob.objects import FORM, TORCH_DISTRIBUTED, objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.spec import Json

RUNTIME = "it belongs to the runtime, which a TrainJob only refers to"

RUNTIME_PATCHES = "object.spec.?runtimePatches.orValue([])"  # Trainer 2.3; before it, the TrainJob's own annotations
NAMED = f"?annotations[?'{VOLCANO.annotations[0]}'].orValue('')"
PATCHED = "p.?trainingRuntimeSpec.?template"
PATCHED_JOBS = f"{PATCHED}.?spec.?replicatedJobs.orValue([])"


def failures(live: Json, restarts: int) -> int:
    """A TrainJob has the conditions of its JobSet."""
    return restarts + 1 if failed_for(live, "ReachedMaxRestarts") else 0


def queue(_: Json) -> Queue:
    """None of its own: the runtime has it."""
    return NO_QUEUE


def evidence_id(_: Json) -> str | None:
    """Its pods know the uid of a Job that JobSet made for it: the TrainJob does not have it."""
    return None


def by_itself(manifest: Json) -> Json:
    """A manifest of which Trainer makes pods at once, on upstream's runtime instead of one that is the cluster's.

    The job itself has to say how many pods it has.
    """
    spec, usual = manifest["spec"], TORCH_DISTRIBUTED
    parts = spec.get("runtimeRef"), spec.get("trainer")
    if not (all(isinstance(part, dict) for part in parts) and parts[0].get("name") and parts[1].get("numNodes")):
        return resumed(manifest)
    reference = {"kind": usual["kind"], "name": usual["metadata"]["name"]}
    return resumed({**manifest, "spec": {**spec, "runtimeRef": reference}})


def scale(job: Json, workers: int) -> Json:
    """No TrainJob can be scaled."""
    expected = "no scaling on trainjob (a TrainJob's nodes are fixed when its pods are made)"
    raise unscalable(job, workers, expected, RESUBMIT)


def pitfalls(manifest: Json) -> Iterator[str]:
    """What Trainer accepts although its author hardly intends it."""
    if manifest["spec"].get("trainer") is None:
        yield "there is no trainer stanza, so nothing is wired: no PET_ variable is set"


def templates(manifest: Json, _: Site) -> tuple[Json, list[Template]]:
    """The job as it is: it has no template, its pods come from the runtime."""
    return manifest, []


BACKEND = Backend(
    name="trainjob",
    title="TrainJob",
    api_version="trainer.kubeflow.org/v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    form=FORM,
    is_job=always,
    wiring=Wiring(  # Trainer sets nothing but PET_ names
        nnodes="PET_NNODES",
        rank="PET_NODE_RANK",
        addr="PET_MASTER_ADDR",
        port="PET_MASTER_PORT",
        pod="{job}-node-0-{rank}",  # and five random characters: this is the host name
        master="{job}-node-0-0.{job}",
        longest="{job}-node-0-{world}-12345",  # with its five random characters
        longest_is="pod name",
        job_name=JOBSET_NAME,
        index="",  # initializers have one, too
        job_uid="metadata.labels['batch.kubernetes.io/controller-uid']",
        unbuffered=False,
        mounts=(),
        prefixes=("batch.kubernetes.io", "jobset.sigs.k8s.io"),
    ),
    read_block=read_block,
    refuses={
        "elastic": Refusal("elasticPolicy is accepted and ignored upstream, so it is refused", "use pytorchjob"),
        "max_retries": Refusal(RUNTIME, "set failurePolicy.maxRestarts in the runtime"),
        "ttl_s": Refusal(RUNTIME, "set ttlSecondsAfterFinished in the runtime"),
        "priority": Refusal(RUNTIME, "set priorityClassName in the runtime's pod template"),
        "queue": Refusal(RUNTIME, f"annotate the runtime with {VOLCANO.annotations[0]}"),
        "min_available": Refusal("the runtime's podGroupPolicy takes all pods or none", "leave it out"),
        "image_pull_policy": Refusal(RUNTIME, "set imagePullPolicy in the runtime's container node"),
        "secrets": Refusal(RUNTIME, "add envFrom to the runtime's container node"),
        "port": Refusal(f"Trainer v2 always uses {PORT}", "leave it out"),
        "master_resources": Refusal("all nodes share one template", "give every replica the same resources"),
    },
    no_claims=Refusal(
        "a TrainJob cannot add a claim to its runtime's pods: runtimePatches has no resourceClaims, and the API server"
        " would drop it",
        "use volcano, pytorchjob or indexed",
    ),
    one_template=True,
    rules=(something_to_run,),
    manifests=manifests,
    objects=objects,
    scale=scale,
    by_itself=by_itself,
    with_changes=unchanged,
    pitfalls=pitfalls,
    templates=templates,
    adds=(),
    makes={
        "ConfigMap": Maker("Trainer", "the runtime as it was when the job was submitted"),
        "PodGroup": Maker("Trainer's plugin volcano", "the runtime's podGroupPolicy asks for a gang"),
        "JobSet": Maker("Trainer", "the runtime's template, patched and wired by the job"),
        "Service": Maker("JobSet", "so that the pods' names resolve, also before they are ready"),
        "Job": Maker("JobSet", "one for each replicatedJob"),
        "Pod": Maker("Kubernetes' Job controller", "one for each node; only its index differs"),
    },
    ends=Ends(succeeded=frozenset({"Complete"}), failed=frozenset({"Failed"})),
    propagation="Background",
    retries=Retries("failurePolicy.maxRestarts", failures),  # of its runtime
    overlooks=never,
    queue=queue,
    without_queues=no_way,
    evidence_id=evidence_id,
    attempt="jobset.sigs.k8s.io/restart-attempt",
    beside=(),
    job_kinds=(JobKinds("trainer.kubeflow.org/v1alpha1", ("trainjobs",)),),
    admission=(
        Path(  # a TrainJob need not name a queue, since its runtime does: its PodGroup is judged
            "trainjobs",
            "trainer.kubeflow.org",
            ("trainjobs",),
            queues=f"([object.metadata, object.spec].map(m, m.{NAMED})"
            f" + {RUNTIME_PATCHES}.map(p, {PATCHED}.?metadata.{NAMED})).filter(q, q != '')",
            patches=f"{RUNTIME_PATCHES}.map(p, {PATCHED_JOBS}.map(j, j.?template.?spec.?template.orValue({{}})))",
            inner=f"{RUNTIME_PATCHES}.map(p, [{PATCHED}.orValue({{}})]"
            f" + {PATCHED_JOBS}.map(j, j.?template.orValue({{}})))",
            images="[object.spec.?trainer.?image.orValue('')].filter(i, i != '')",
            replicas="[object.spec.?trainer.?numNodes.orValue(1)]",
            amounts="['limits', 'requests'].map(k, object.spec.?trainer.?resourcesPerNode[?k].orValue({}))",
            probe={
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "spec": {"runtimeRef": {"name": "probe"}},
            },
            secrets="['dataset', 'model'].map(k, object.spec.?initializer[?k].?secretRef.?name.orValue(''))",
        ),
    ),
)
