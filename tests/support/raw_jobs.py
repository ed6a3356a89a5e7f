"""Jobs as people write them by hand: no field of theirs is the library's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: by-hand}
spec:
  pytorchReplicaSpecs:
    Master: &replica
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
          - name: pytorch
            image: gangplank.dev/trainer:0.1.0
            args: [--epochs, "2"]
            resources: {limits: {nvidia.com/gpu: 1}}
    Worker: *replica
"""
VOLCANO_JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: by-hand}
spec:
  minAvailable: 2
  schedulerName: volcano
  tasks:
  - name: trainer
    replicas: 2
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: gangplank.dev/trainer:0.1.0
          command: [sleep, "900"]
          resources: {requests: {cpu: 10m, memory: 32Mi}}
"""
INDEXED_JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: by-hand}
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: gangplank.dev/trainer:0.1.0
        command: [sleep, "900"]
        resources: {requests: {cpu: 10m, memory: 32Mi}}
"""
TRAINJOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: by-hand}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    image: gangplank.dev/trainer:0.1.0
    command: [sleep, "900"]
    numNodes: 2
    resourcesPerNode: {requests: {cpu: 10m, memory: 32Mi}}
"""


def by_hand(text: str, change: Callable[[Json], None] | None = None) -> Json:
    """One of these, changed."""
    manifest: Json = yaml.safe_load(text)
    if change:
        change(manifest)
    return manifest


def selecting(manifest: Json) -> None:
    """As people choose nodes for a TrainJob: a patch of its runtime."""
    template = {"spec": {"template": {"spec": {"nodeSelector": {"disk": "ssd"}}}}}
    patched = {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}}}
    manifest["spec"]["runtimePatches"] = [{"manager": "example.com/me", "trainingRuntimeSpec": patched}]
