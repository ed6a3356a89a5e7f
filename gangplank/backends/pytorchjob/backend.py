"""The Kubeflow training operator v1: a PyTorchJob, the one back-end whose number of workers may change."""

from __future__ import annotations

from gangplank.backends import gang
from gangplank.backends.admission import PROBE_POD
from gangplank.backends.base import Addition, Backend, Ends, JobKinds, Maker, Path, Retries, Wiring, always, never
from gangplank.backends.pytorchjob.block import no_gang, read_block
from gangplank.backends.pytorchjob.manifests import manifests
from gangplank.backends.pytorchjob.objects import FORM, JOB_NAME, objects
from gangplank.backends.pytorchjob.raw import (
    evidence_id,
    failures,
    pitfalls,
    queue,
    resumed,
    scale,
    templates,
    with_changes,
    without_queues,
)

OPERATOR = "the training operator"
WITH_GANG = f"{OPERATOR} with --gang-scheduler-name=volcano"
POLICY = "object.spec.?runPolicy.?schedulingPolicy"
REPLICAS = "object.spec.?pytorchReplicaSpecs.orValue({})"

BACKEND = Backend(
    name="pytorchjob",
    title="PyTorchJob",
    api_version="kubeflow.org/v1",
    kind="PyTorchJob",
    plural="pytorchjobs",
    form=FORM,
    is_job=always,
    wiring=Wiring(
        nnodes="PET_NNODES",  # WORLD_SIZE counts processes, RANK counts pods: only the PET_ names mean nodes
        rank="PET_NODE_RANK",
        addr="MASTER_ADDR",
        port="MASTER_PORT",
        pod="{job}-{role}-{index}",
        master="{job}-master-0",
        longest="{job}-{role}-{last}",
        longest_is="pod and Service name",
        job_name=JOB_NAME,
        index="",
        job_uid="",  # the operator gives its pods no uid
        unbuffered=True,
        mounts=(),
        prefixes=("training.kubeflow.org",),
    ),
    read_block=read_block,
    refuses={},
    no_claims=None,
    one_template=False,
    rules=(no_gang,),
    manifests=manifests,
    objects=objects,
    scale=scale,
    by_itself=resumed,
    with_changes=with_changes,
    pitfalls=pitfalls,
    templates=templates,
    adds=(
        Addition(r"\[PYTHONUNBUFFERED\]$", OPERATOR, "logs appear as they are written"),
        Addition(r"\[(PET_)?MASTER_(ADDR|PORT)\]$", OPERATOR, "where rank 0 is: the master's own Service"),
        Addition(r"\[WORLD_SIZE\]$", OPERATOR, "processes of the job, unlike RANK, which counts pods"),
        Addition(r"\[(RANK|PET_NODE_RANK)\]$", OPERATOR, "the pod's rank: the master's is 0"),
        Addition(r"\[PET_\w+\]$", OPERATOR, "what torchrun would otherwise take from its flags"),
        Addition(r"\[init-pytorch\]$", OPERATOR, "a worker waits until the master's name resolves"),
        Addition(r"\.restartPolicy$", OPERATOR, "the replica's own; of ExitCode it makes Never"),
        Addition(r"(group-name|task-spec|\.schedulerName)$", WITH_GANG, gang.WHY),
        Addition(r"\.metadata\.labels\.", OPERATOR, "what the pod is: its job, role and index"),
    ),
    makes={
        "PodGroup": Maker(WITH_GANG, gang.TOGETHER),
        "Service": Maker(OPERATOR, "so that the name of its pod resolves, once that is ready"),
        "HorizontalPodAutoscaler": Maker(OPERATOR, "elasticPolicy.metrics asks for it"),
    },
    ends=Ends(succeeded=frozenset({"Succeeded"}), failed=frozenset({"Failed"})),
    propagation="Background",
    retries=Retries("spec.runPolicy.backoffLimit", failures),
    overlooks=never,
    queue=queue,
    without_queues=without_queues,
    evidence_id=evidence_id,
    attempt="",
    beside=(),
    job_kinds=(JobKinds("kubeflow.org/v1", ("pytorchjobs",)),),
    admission=(
        Path(
            "pytorchjobs",
            "kubeflow.org",
            ("pytorchjobs",),
            # Without a gang it needs no queue; its pods then need a scheduler that the team was given.
            queues=f"[{POLICY}.?queue.orValue('')].filter(q, q != '' || variables.schedulers.size() == 1)",
            templates=f"{REPLICAS}.map(k, {REPLICAS}[k].template)",
            priorities=f"[{POLICY}.?priorityClass.orValue('')]",
            # The elastic policy makes an autoscaler, which changes the number of workers past this policy.
            replicas=f"[{REPLICAS}.map(k, {REPLICAS}[k].?replicas.orValue(1)).sum()]"
            " + ['minReplicas', 'maxReplicas'].map(k, object.spec.?elasticPolicy[?k].orValue(0))",
            amounts=f"[{POLICY}.?minResources.orValue({{}})]",
            probe={
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": {"spec": PROBE_POD}}}},
            },
        ),
    ),
)
