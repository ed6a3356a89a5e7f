"""The Kubeflow training operator v1: a PyTorchJob, the one back-end whose workers may come and go."""

from __future__ import annotations

from gangplank.backends import gang
from gangplank.backends.base import Added, Backend, Ends, JobKinds, Made, Path, Wiring, always
from gangplank.backends.pytorchjob.block import no_gang, read_block
from gangplank.backends.pytorchjob.manifests import manifests
from gangplank.backends.pytorchjob.objects import objects
from gangplank.backends.pytorchjob.raw import evidence_id, pitfalls, queue, scale, templates, without_queues

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
        job_uid="",  # the operator tells its pods no uid
        unbuffered=True,
        mounts=(),
        prefixes=("training.kubeflow.org",),
    ),
    read_block=read_block,
    refuses={},
    one_template=False,
    rules=(no_gang,),
    manifests=manifests,
    objects=objects,
    scale=scale,
    pitfalls=pitfalls,
    templates=templates,
    adds=(
        Added(r"\[PYTHONUNBUFFERED\]$", OPERATOR, "logs come as they are written"),
        Added(r"\[(PET_)?MASTER_(ADDR|PORT)\]$", OPERATOR, "where rank 0 is: the master's own Service"),
        Added(r"\[WORLD_SIZE\]$", OPERATOR, "processes of the job, unlike RANK, which counts pods"),
        Added(r"\[(RANK|PET_NODE_RANK)\]$", OPERATOR, "the pod's rank: the master's is 0"),
        Added(r"\[PET_\w+\]$", OPERATOR, "what torchrun would otherwise be told by its flags"),
        Added(r"\[init-pytorch\]$", OPERATOR, "a worker waits until the master's name resolves"),
        Added(r"\.restartPolicy$", OPERATOR, "the replica's own; of ExitCode it makes Never"),
        Added(r"(group-name|task-spec)$", WITH_GANG, gang.WHY),
        Added(r"\.metadata\.labels\.", OPERATOR, "what the pod is: its job, role and index"),
    ),
    makes={
        "PodGroup": Made(WITH_GANG, gang.TOGETHER),
        "Service": Made(OPERATOR, "under it the pod of the same name is found, once it is ready"),
        "HorizontalPodAutoscaler": Made(OPERATOR, "elasticPolicy.metrics asks for it"),
    },
    ends=Ends(succeeded=frozenset({"Succeeded"}), failed=frozenset({"Failed"})),
    queue=queue,
    without_queues=without_queues,
    evidence_id=evidence_id,
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
            order=60,
        ),
    ),
)
