"""A training job as typed values: parse_job makes it, every back-end reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]  # a Kubernetes object or a part of one


@dataclass(frozen=True)
class Amount:
    """How much of a resource a replica is given, as Kubernetes quantities; empty means not set."""

    request: str = ""
    limit: str = ""


@dataclass(frozen=True)
class Resources:
    """What one replica asks for and may use."""

    cpu: Amount = Amount("500m")
    memory: Amount = Amount("1Gi")
    gpus: int = 0  # whole devices per replica; request and limit are the same number
    gpu_resource: str = "nvidia.com/gpu"


@dataclass(frozen=True)
class Volume:
    """A claim that exists in the job's namespace, mounted into replicas."""

    claim: str
    mount: str
    on: str = "all"  # or "master"
    read_only: bool = False
    access: str = ""  # ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod; empty: not stated


@dataclass(frozen=True)
class Script:
    """A Python file that a job starts: one of the image, or one that travels in a ConfigMap, alone or with a folder."""

    path: str  # where it is in the container
    text: str | None = None  # its content when it travels
    origin: str = ""  # the file it was read from
    folder: Mapping[str, str] = field(default_factory=dict)  # the files that travel with it, itself among them, by name
    requirements: str = ""  # the one of these files that lists packages, locked by hashes


@dataclass(frozen=True)
class Elastic:
    """Bounds between which the number of workers may move, and what moves it by itself."""

    minimum: int
    maximum: int
    metrics: tuple[Json, ...] = ()  # of Kubernetes' autoscaling/v2; empty: no autoscaler


@dataclass(frozen=True)
class JobSpec:
    """One training job, complete: every default is filled in."""

    name: str
    image: str
    namespace: str = "default"
    team: str = ""
    backend: str = field(kw_only=True)
    image_pull_policy: str = "IfNotPresent"
    script: Script | None = None
    code: str = ""  # the folder that travels with the script
    requirements: str = ""  # a file of that folder: packages to install in the pods, locked by hashes
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    observe: bool = True  # evidence of a script that writes none itself
    collective: str = "gloo"
    collective_fallback: str = ""  # "gloo": what an nccl job may use where the site's GPUs run no CUDA
    masters: int = 1
    workers: int = 2
    processes_per_node: int = 1
    port: int = 23456
    resources: Resources = Resources()
    master_resources: Resources | None = None  # None: as every replica
    volumes: tuple[Volume, ...] = ()
    min_available: int | None = None  # None: the strongest gang the back-end has
    queue: str = ""
    priority: str = ""
    max_retries: int = 3
    deadline_s: int | None = None
    ttl_s: int | None = None
    elastic: Elastic | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    pull_secrets: tuple[str, ...] = ()  # Secrets of the namespace with which nodes pull the image
    secrets: tuple[str, ...] = ()  # Secrets of the namespace whose keys become environment variables
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Json, ...] = ()
    gpu_tolerations: tuple[Json, ...] = ()  # for replicas with GPUs; empty: the usual one of backends/pod_template.py
    node_selector: Mapping[str, str] = field(default_factory=dict)
    shm_size: str = ""  # a quantity; empty: no /dev/shm of its own
    hyperparameters: Mapping[str, int | float | str] = field(default_factory=dict)
    output: str = ""
    block: object = None  # what only its back-end has, as the back-end's read_block makes it; None: the defaults

    @property
    def replicas(self) -> int:
        """Pods of the job."""
        return self.masters + self.workers

    @property
    def world_size(self) -> int:
        """Processes of the job: what the trainer sees as WORLD_SIZE."""
        return self.replicas * self.processes_per_node

    def resources_of(self, role: str) -> Resources:
        """What one replica of a role ("master" or "worker") asks for."""
        return self.master_resources if role == "master" and self.master_resources else self.resources
