"""Who adds what to a job, and why: the rows from which explained.py takes its comments."""

from __future__ import annotations

import re

CONTROLLER, WEBHOOK = "Volcano's job controller", "Volcano's admission webhook"
SVC, PYTORCH, ENV, SSH = (f"Volcano's plugin {name}" for name in ("svc", "pytorch", "env", "ssh"))
OPERATOR, API, JOBS = "the training operator", "the API server", "Kubernetes' Job controller"
GANG = "the gang that the pod belongs to: none of it starts before all of it fits"

# (back-end, colon, path; who adds what is there; why). The first row that fits counts.
_ROWS: tuple[tuple[str, str, str], ...] = (
    (r"^volcano:.*\.minAvailable$", WEBHOOK, "a task counts whole where it does not say otherwise"),
    (r"^volcano:.*\[(MASTER_ADDR|MASTER_PORT|WORLD_SIZE)\]$", PYTORCH, "where rank 0 is; WORLD_SIZE counts pods"),
    (r"^volcano:.*\[RANK\]$", PYTORCH, "the pod's rank: the master's is 0"),
    (r"^volcano:.*\.ports(\[|$)", PYTORCH, "the port at which the ranks meet"),
    (r"^volcano:.*\[wait-for-master\]$", PYTORCH, "a worker waits until the master listens"),
    (r"^volcano:.*\[VC_TASK_INDEX\]$|^volcano:.*\[VK_TASK_INDEX\]$", ENV, "the pod's index within its task"),
    (r"^volcano:.*\[VC_\w+\]$", SVC, "the hosts of each task, and how many they are"),
    (r"^volcano:.*\.(hostname|subdomain)$", SVC, "the name under which the others find the pod"),
    (r"^volcano:.*(-svc|/etc/volcano)\]$", SVC, "the same lists of hosts as files"),
    (r"^volcano:.*(-ssh|/\.ssh)\]$", SSH, "one key for all pods of the job"),
    (r"^volcano:.*scheduling\.k8s\.io/group-name$", CONTROLLER, GANG),
    (r"^volcano:.*\.metadata\.(labels|annotations)\.", CONTROLLER, "what the pod is: its job, task, index and queue"),
    (r"^volcano:.*\.(schedulerName|priorityClassName)$", CONTROLLER, "as the job has it"),
    (r"^volcano:.*\.volume(s|Mounts)\[", CONTROLLER, "the job's own volumes (spec.volumes)"),
    (r"^pytorchjob:.*\[PYTHONUNBUFFERED\]$", OPERATOR, "logs come as they are written"),
    (r"^pytorchjob:.*\[(PET_)?MASTER_(ADDR|PORT)\]$", OPERATOR, "where rank 0 is: the master's own Service"),
    (r"^pytorchjob:.*\[WORLD_SIZE\]$", OPERATOR, "processes of the job, unlike RANK, which counts pods"),
    (r"^pytorchjob:.*\[(RANK|PET_NODE_RANK)\]$", OPERATOR, "the pod's rank: the master's is 0"),
    (r"^pytorchjob:.*\[PET_\w+\]$", OPERATOR, "what torchrun would otherwise be told by its flags"),
    (r"^pytorchjob:.*\[init-pytorch\]$", OPERATOR, "a worker waits until the master's name resolves"),
    (r"^pytorchjob:.*\.restartPolicy$", OPERATOR, "the replica's own; of ExitCode it makes Never"),
    (r"^pytorchjob:.*(group-name|task-spec)$", f"{OPERATOR} with --gang-scheduler-name=volcano", GANG),
    (r"^pytorchjob:.*\.metadata\.labels\.", OPERATOR, "what the pod is: its job, role and index"),
    (r"^indexed:.*\[JOB_COMPLETION_INDEX\]$", JOBS, "the pod's index, which RANK above takes from its annotation"),
    (r"^indexed:.*job-(completion-index|index-failure-count)$", JOBS, "the pod's index"),
    (r"^indexed:.*(job-name|controller-uid)$", API, "what the pod is: its job"),
    (r"^indexed:.*\.hostname$", JOBS, "the name under which the others find the pod"),
    (r"^indexed:.*\.finalizers(\[|$)", JOBS, "no pod goes before it has been counted"),
)
PARTS = tuple((re.compile(pattern), by, why) for pattern, by, why in _ROWS)

# (back-end, kind): who makes such an object beside the job, and why.
OBJECTS: dict[tuple[str, str], tuple[str, str]] = {
    ("volcano", "PodGroup"): (CONTROLLER, "what the scheduler must place together, or not at all"),
    ("volcano", "ConfigMap"): (SVC, "the hosts of every task, mounted at /etc/volcano"),
    ("volcano", "Service"): (SVC, "under it the pods' names resolve, also before they are ready"),
    ("volcano", "NetworkPolicy"): (SVC, "only the job's own pods may connect to its pods"),
    ("volcano", "Secret"): (SSH, "one key for all pods of the job"),
    ("volcano", "PersistentVolumeClaim"): (CONTROLLER, "the job's own volumes (spec.volumes)"),
    ("pytorchjob", "PodGroup"): (
        f"{OPERATOR} with --gang-scheduler-name=volcano",
        "what the scheduler must place together, or not at all",
    ),
    ("pytorchjob", "Service"): (OPERATOR, "under it the pod of the same name is found, once it is ready"),
    ("pytorchjob", "HorizontalPodAutoscaler"): (OPERATOR, "elasticPolicy.metrics asks for it"),
    ("trainjob", "ConfigMap"): ("Trainer", "the runtime as it was when the job came"),
    ("trainjob", "PodGroup"): ("Trainer's plugin volcano", "the runtime's podGroupPolicy asks for a gang"),
    ("trainjob", "JobSet"): ("Trainer", "the runtime's template, patched and wired by the job"),
    ("trainjob", "Service"): ("JobSet", "under it the pods' names resolve, also before they are ready"),
    ("trainjob", "Job"): ("JobSet", "one for each replicatedJob"),
    ("trainjob", "Pod"): (JOBS, "one for each node; only its index differs"),
}
