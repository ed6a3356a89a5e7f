"""Volcano: a Job of its own kind, a gang by nature, wired by its plugins."""

from __future__ import annotations

from gangplank.backends import gang
from gangplank.backends.base import (
    Addition,
    Backend,
    Ends,
    JobKinds,
    Maker,
    Refusal,
    Retries,
    Wiring,
    always,
    no_way,
    resumed,
    unchanged,
)
from gangplank.backends.queueing import JOB_NAME
from gangplank.backends.volcano import admission, rules
from gangplank.backends.volcano.block import read_block
from gangplank.backends.volcano.manifests import manifests
from gangplank.backends.volcano.objects import FORM, objects
from gangplank.backends.volcano.plugins import SVC_MOUNT
from gangplank.backends.volcano.raw import evidence_id, failures, overlooks, pitfalls, queue, scale, templates

CONTROLLER, WEBHOOK = "Volcano's job controller", "Volcano's admission webhook"
SVC, PYTORCH, ENV, SSH = (f"Volcano's plugin {name}" for name in ("svc", "pytorch", "env", "ssh"))

BACKEND = Backend(
    name="volcano",
    title="Volcano Job",
    api_version="batch.volcano.sh/v1alpha1",
    kind="Job",
    plural="jobs",
    form=FORM,
    is_job=always,
    wiring=Wiring(
        nnodes="WORLD_SIZE",  # counts pods
        rank="RANK",
        addr="MASTER_ADDR",
        port="MASTER_PORT",
        pod="{job}-{role}-{index}",
        master="{job}-master-0.{job}",
        longest="{job}-{role}-{last}",
        longest_is="pod and host name",
        job_name=JOB_NAME,
        index="",  # it has one of the task, of which there may be several
        job_uid="metadata.annotations['scheduling.k8s.io/group-name']",  # <job>-<uid>
        unbuffered=False,
        mounts=(SVC_MOUNT,),
        prefixes=("volcano.sh",),
    ),
    read_block=read_block,
    refuses={
        "deadline_s": Refusal(
            "Volcano has no deadline for a job",
            "use the back-end pytorchjob or indexed, or a policy with a timeout under volcano.policies",
        ),
        "elastic": Refusal("a Volcano Job's WORLD_SIZE is fixed when its pods are made", "use pytorchjob"),
    },
    no_claims=None,
    one_template=False,
    rules=(rules.tasks, rules.plugins, rules.volumes),
    manifests=manifests,
    objects=objects,
    scale=scale,
    by_itself=resumed,
    with_changes=unchanged,
    pitfalls=pitfalls,
    templates=templates,
    adds=(
        Addition(r"\.minAvailable$", WEBHOOK, "a task counts in full unless it sets another number"),
        Addition(r"\[(MASTER_ADDR|MASTER_PORT|WORLD_SIZE)\]$", PYTORCH, "where rank 0 is; WORLD_SIZE counts pods"),
        Addition(r"\[RANK\]$", PYTORCH, "the pod's rank: the master's is 0"),
        Addition(r"\.ports(\[|$)", PYTORCH, "the port at which the ranks meet"),
        Addition(r"\[wait-for-master\]$", PYTORCH, "a worker waits until the master listens"),
        Addition(r"\[V[CK]_TASK_INDEX\]$", ENV, "the pod's index within its task"),
        Addition(r"\[VC_\w+\]$", SVC, "the hosts of each task, and how many they are"),
        Addition(r"\.(hostname|subdomain)$", SVC, "the name under which the others find the pod"),
        Addition(rf"(-svc|{SVC_MOUNT})\]$", SVC, "the same lists of hosts as files"),
        Addition(r"(-ssh|/\.ssh)\]$", SSH, "one key for all pods of the job"),
        Addition(r"scheduling\.k8s\.io/group-name$", CONTROLLER, gang.WHY),
        Addition(r"\.metadata\.(labels|annotations)\.", CONTROLLER, "what the pod is: its job, task, index and queue"),
        Addition(r"\.(schedulerName|priorityClassName)$", CONTROLLER, "as the job has it"),
        Addition(r"\.volume(s|Mounts)\[", CONTROLLER, "the job's own volumes (spec.volumes)"),
    ),
    makes={
        "PodGroup": Maker(CONTROLLER, gang.TOGETHER),
        "ConfigMap": Maker(SVC, f"the hosts of every task, mounted at {SVC_MOUNT}"),
        "Service": Maker(SVC, "so that the pods' names resolve, also before they are ready"),
        "NetworkPolicy": Maker(SVC, "only the job's own pods may connect to its pods"),
        "Secret": Maker(SSH, "one key for all pods of the job"),
        "PersistentVolumeClaim": Maker(CONTROLLER, "the job's own volumes (spec.volumes)"),
    },
    ends=Ends(succeeded=frozenset({"Completed"}), failed=frozenset({"Failed", "Aborted", "Terminated"})),
    # Deleted at once while its status is written, it stays in its controller's memory, which makes its pods again and
    # again, until it restarts: https://github.com/volcano-sh/volcano/issues/3357
    propagation="Foreground",
    retries=Retries("spec.maxRetry", failures),
    overlooks=overlooks,
    queue=queue,
    without_queues=no_way,
    evidence_id=evidence_id,
    attempt="volcano.sh/job-retry-count",
    beside=(),
    job_kinds=(
        JobKinds("batch.volcano.sh/v1alpha1", ("jobs", "cronjobs")),
        JobKinds("flow.volcano.sh/v1alpha1", ("jobflows", "jobtemplates")),  # Volcano's way to chain jobs
    ),
    admission=admission.PATHS,
)
