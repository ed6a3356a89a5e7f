"""Queue systems: what lets the pods of many jobs start in turn.

A queue system is not part of a back-end: several back-ends use the same one, and some use none. A back-end only
states where its manifest names a queue. Everything else uses QUEUE_SYSTEM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gangplank.backends.base import ApiKind, Path


@dataclass(frozen=True, kw_only=True)
class QueueSystem:
    """One scheduler with queues, and how work names its queue."""

    title: str  # what messages call it
    queue: ApiKind
    pod_group: ApiKind  # its record of a gang, which has the gang's queue
    command: ApiKind  # aborts and resumes jobs, opens and closes queues
    sync: str  # action of a command: the job's controller compares the job with what exists
    scheduler: str  # schedulerName of the pods that it places
    program: str  # its scheduler's, and the end of the name of its image
    sessions: str  # metric of its scheduler: how often it has looked at everything
    settings: tuple[str, ...]  # flags of its scheduler in a copy of the site; see gangplank/shadow
    uncounted: tuple[str, ...]  # provisioners whose volumes its scheduler never counts
    ignoring: str  # flag of its scheduler: more of these
    elsewhere: tuple[str, ...]  # plugins of its scheduler that ask a server of the site
    groups: tuple[str, ...]  # API groups of what its scheduler reads beside Kubernetes' own kinds
    configuration: str  # the ConfigMap with its scheduler's configuration, under the chart's usual release name
    built_in: str  # what its scheduler does without one (DefaultSchedulerConf in pkg/scheduler/util.go of 1.15)
    namespaces: str  # a regular expression: where it is installed
    default: str  # the queue of work that names none
    root: str  # the queue above all others, which takes no work
    annotations: tuple[str, ...]  # by which a pod names its queue; the first one counts
    group: str  # annotation: the group that a pod belongs to, which has the queue
    marks: tuple[str, ...]  # annotations and labels with which a job keeps what others deserve, or gets ahead in line
    commanded: str  # API version and kind of the jobs that a member may send a command
    ssh_keys: str  # CEL: the Secret that it makes for the job of a pod o
    ssh_suffix: str  # of the names of these Secrets
    admission: tuple[Path, ...]  # where its own kinds name what a team's admission judges


JOB_NAME = "volcano.sh/job-name"  # label and annotation of the pods of Volcano's Jobs
SSH = "-ssh"  # ends the name of the Secret that Volcano's plugin ssh makes
VOLCANO = QueueSystem(
    title="Volcano",
    queue=ApiKind("scheduling.volcano.sh/v1beta1", "Queue", "queues"),
    pod_group=ApiKind("scheduling.volcano.sh/v1beta1", "PodGroup", "podgroups"),
    command=ApiKind("bus.volcano.sh/v1alpha1", "Command", "commands"),
    sync="SyncJob",
    scheduler="volcano",
    program="vc-scheduler",
    sessions="volcano_e2e_scheduling_latency_milliseconds_count",
    settings=("--enable-metrics=true", "--enable-healthz=false", "--schedule-period=300ms", "--cache-dumper=false"),
    uncounted=("rancher.io/local-path", "hostpath.csi.k8s.io"),
    ignoring="ignored-provisioners",
    elsewhere=("extender", "usage"),
    groups=("scheduling.volcano.sh", "topology.volcano.sh", "nodeinfo.volcano.sh", "shard.volcano.sh"),
    configuration="volcano-scheduler-configmap",
    built_in="""
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: overcommit}, {name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
""",
    namespaces="volcano-.*",
    default="default",
    root="root",
    annotations=("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name"),
    group="scheduling.k8s.io/group-name",
    marks=(
        "volcano.sh/preemptable",
        "volcano.sh/cooldown-time",
        "volcano.sh/revocable-zone",
        "volcano.sh/jdb-min-available",
        "volcano.sh/jdb-max-unavailable",
        "volcano.sh/sla-waiting-time",  # of a PodGroup, which takes it from its job; for the plugin sla
        "sla-waiting-time",
    ),
    commanded="batch.volcano.sh/v1alpha1 Job",
    ssh_keys=f"o.?metadata.?labels[?'{JOB_NAME}'].orValue('') + '{SSH}'",
    ssh_suffix=SSH,
    admission=(
        Path(
            "podgroups",
            "scheduling.volcano.sh",
            ("podgroups",),
            queues="[object.spec.?queue.orValue('')]",
            priorities="[object.spec.?priorityClassName.orValue('')]",
            amounts="[object.spec.?minResources.orValue({})]",
            probe={"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "spec": {"minMember": 1}},
        ),
        Path(  # the controller of its queues takes a Command from any namespace
            "commands",
            "bus.volcano.sh",
            ("commands",),
            targets="[object.?target.?apiVersion.orValue('') + ' ' + object.?target.?kind.orValue('')]",
            probe={
                "apiVersion": "bus.volcano.sh/v1alpha1",
                "kind": "Command",
                "action": "AbortJob",
                "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "probe", "uid": ""},
            },
        ),
    ),
)
QUEUE_SYSTEM = VOLCANO  # the one that the roles install


class Queue(NamedTuple):
    """Where a manifest names a queue, and which."""

    path: str
    name: str


NO_QUEUE = Queue("", "")  # of a manifest that goes to no queue
