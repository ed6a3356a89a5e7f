"""Which portable field which back-end cannot honour, and why: refused by name when a job sets it."""

from __future__ import annotations

RUNTIME = "it belongs to the runtime, which a TrainJob only refers to"

# (back-end, field): (why, what to do instead)
REFUSED: dict[tuple[str, str], tuple[str, str]] = {
    ("volcano", "deadline_s"): (
        "Volcano has no deadline for a job",
        "use the back-end pytorchjob or indexed, or a policy with a timeout under volcano.policies",
    ),
    ("volcano", "elastic"): ("a Volcano Job's WORLD_SIZE is fixed when its pods are made", "use pytorchjob"),
    ("trainjob", "elastic"): ("elasticPolicy is accepted and ignored upstream, so it is refused", "use pytorchjob"),
    ("indexed", "elastic"): ("a Job's WORLD_SIZE is fixed when its pods are made", "use pytorchjob"),
    ("trainjob", "max_retries"): (RUNTIME, "set failurePolicy.maxRestarts in the runtime"),
    ("trainjob", "ttl_s"): (RUNTIME, "set ttlSecondsAfterFinished in the runtime"),
    ("trainjob", "priority"): (RUNTIME, "set priorityClassName in the runtime's pod template"),
    ("trainjob", "queue"): (RUNTIME, "annotate the runtime with scheduling.volcano.sh/queue-name"),
    ("trainjob", "min_available"): ("the runtime's podGroupPolicy takes all pods or none", "leave it out"),
    ("trainjob", "image_pull_policy"): (RUNTIME, "set imagePullPolicy in the runtime's container node"),
    ("trainjob", "secrets"): (RUNTIME, "add envFrom to the runtime's container node"),
    ("trainjob", "port"): ("Trainer v2 always uses 29500", "leave it out"),
    ("trainjob", "master_resources"): ("all nodes share one template", "give every replica the same resources"),
    ("indexed", "master_resources"): ("all pods share one template", "give every replica the same resources"),
    ("indexed", "min_available"): ("plain Jobs know no gang", "leave it out, or use volcano or pytorchjob"),
    ("indexed", "queue"): ("plain Jobs know no queue", "leave it out, or use volcano or pytorchjob"),
}
ONE_TEMPLATE = ("trainjob", "indexed")  # all replicas are alike: nothing can be the master's alone
