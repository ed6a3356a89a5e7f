"""The facts that every back-end states, and small helpers that all of them share."""

from __future__ import annotations

import functools
import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from gangplank.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.backends.queueing import Queue
    from gangplank.reading.fields import Fields, Problems
    from gangplank.spec import JobSpec, Json

    Bad = Callable[..., None]  # path, got, expected and, if there is one, the fix
    Rule = Callable[[JobSpec, Bad], None]

UID = "<uid>"  # stands for what the API server decides
SOURCE_LIMIT = 120  # characters of the line that names the object of an error
RANDOM = "<random>"  # stands for a random part chosen by a controller


@dataclass(frozen=True)
class Site:
    """What the objects of a manifest depend on, apart from the manifest."""

    uid: str = UID
    gang: bool = True  # the training operator runs with --gang-scheduler-name=volcano
    init_image: str = "alpine:3.10"  # its --pytorch-init-container-image
    init_tries: int = 100  # its --pytorch-init-container-max-tries
    init_template: str = ""  # its --pytorch-init-container-template-file; "": upstream's own
    priorities: Mapping[str, int] = field(default_factory=dict)  # PriorityClasses that exist: their values
    scheduler: str = "volcano"  # of Volcano Jobs that name none: the first --scheduler-name of Volcano's webhooks
    queues: Mapping[str, str] = field(default_factory=dict)  # by namespace, of PodGroups that name none
    groups: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # by namespace: queue_webhooks.ResourceGroup
    others: tuple[Any, ...] = ()  # further manifests: Trainer's runtimes
    at_once: bool = False  # only the pods that exist together, of those that a Job makes one after another


class Expand(Protocol):
    """What a back-end's objects() is."""

    def __call__(self, manifest: Json, site: Site | None = None) -> list[Json]:
        """Everything that the controllers make of a manifest."""


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """How the ranks of a job find each other; templates take {job}, {role}, {index} and {rank}."""

    nnodes: str  # the container's variable with the number of nodes
    rank: str  # the one with the rank of the node
    addr: str  # the one with the address of rank 0
    port: str  # the one with its port
    pod: str  # a pod's name; for batch Jobs its host name, the part before the random end
    master: str  # the name under which every replica finds rank 0
    longest: str  # the longest name that is derived from a job's, of {job}, {role}, {last} and {world}
    longest_is: str  # what that names
    job_name: str  # the label by which its controller says whose pods they are: the job's name
    index: str  # the annotation with a pod's rank, where its environment does not have it; "" if none has it
    job_uid: str  # the pod's field that identifies its run of the job; "" if none does
    unbuffered: bool  # the controller itself sets PYTHONUNBUFFERED
    mounts: tuple[str, ...]  # where the controller mounts files of the wiring
    prefixes: tuple[str, ...]  # of the labels that its controllers put on pods: no job may set one


@dataclass(frozen=True)
class Path:
    """One kind that reaches beyond its namespace: where it names queues, pods and all else that admission judges.

    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
    How a kind names its queue: docs/teams.md, "Every way to a queue".
    """

    name: str
    group: str
    resources: tuple[str, ...]
    queues: str = "[]"  # CEL: a list of text; '' is a queue that is not given
    templates: str = "[]"  # CEL: a list of pods or pod templates
    patches: str = "[]"  # CEL: a list of lists of parts of pod templates, completed and judged elsewhere
    inner: str = "[]"  # CEL: a list of lists of further objects with metadata that controllers copy
    priorities: str = "[]"  # CEL: a list of text, in addition to those of the templates
    schedulers: str = "[]"  # CEL: a list of text, in addition to those of the templates
    images: str = "[]"  # CEL: a list of text, in addition to those of the templates
    secrets: str = "[]"  # CEL: a list of text, in addition to those of the templates
    variables: str = "[]"  # CEL: a list of text: names of environment variables that pods take from the object
    targets: str = "[]"  # CEL: a list of text: API version and kind of what a command is for
    exposures: str = "[]"  # CEL: a list of text: how a Service is reached, as field: value
    replicas: str = "[]"  # CEL: a list of numbers: how many pods a controller makes of it
    amounts: str = "[]"  # CEL: a list of maps of resources, in addition to those of containers
    names: str = "[]"  # CEL: a list of text: a name under which a job's controller would write and remove
    devices: str = "[]"  # CEL: a list of text: the device classes of which it asks for devices
    unread: str = "[]"  # CEL: a list of text: its kind, if no webhook reads it before it is stored
    probe: Mapping[str, Any] = field(default_factory=dict)  # an object that the API server takes: what asks the policy


class ApiKind(NamedTuple):
    """A kind as the API server has it."""

    api_version: str
    kind: str
    plural: str

    @property
    def group(self) -> str:
        """The API group alone."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, kw_only=True)
class Ends:
    """The phases or condition types of a kind that mean a job has ended; with any other it is still running."""

    succeeded: frozenset[str]
    failed: frozenset[str]
    early: Mapping[str, str] = field(default_factory=dict)  # of these, one that comes before another: {one: other}


class JobKinds(NamedTuple):
    """Kinds of one API group that are jobs, or repeat and chain them: what a team's members may read and write."""

    api_version: str
    plurals: tuple[str, ...]

    @property
    def group(self) -> str:
        """The API group alone."""
        return self.api_version.rpartition("/")[0]


class Refusal(NamedTuple):
    """Why a back-end cannot honour a portable field, and what to do instead."""

    reason: str
    fix: str


class Addition(NamedTuple):
    """A part that a controller or webhook adds to the job; the first row whose pattern matches the path counts."""

    path: str  # a regular expression
    by: str
    why: str


class Retries(NamedTuple):
    """What limits the retries of a job, and how to see that they are used up."""

    field: str  # of the manifest
    failures: Callable[[Json, int], int]  # of a live job, of its restarts: how often it failed; 0 if retries are left


class Maker(NamedTuple):
    """Who makes a kind of object in addition to the job's own pods, and why."""

    by: str
    why: str


class Template(NamedTuple):
    """A part of a job that holds a pod template, and the label that all pods of it carry."""

    holder: Json
    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class Backend:
    """All facts about a back-end. No field has a default: mypy refuses a back-end that leaves one out."""

    name: str
    title: str  # what messages call a manifest of it
    api_version: str  # of the kind that is submitted
    kind: str
    plural: str
    form: Mapping[str, Any]  # of its manifests, ours and third-party: gangplank.k8s.manifest.check
    is_job: Callable[[Json], bool]  # whether an object of that kind is a training job
    wiring: Wiring
    read_block: Callable[[Fields], object]  # its own fields in a job file, as JobSpec.block
    refuses: Mapping[str, Refusal]  # by portable field: a job that sets one is refused
    no_claims: Refusal | None  # why its pods cannot claim devices; None if they can
    one_template: bool  # all replicas are alike: nothing can be the master's alone
    rules: tuple[Rule, ...]  # contradictions that only it has
    manifests: Callable[[JobSpec], list[Json]]  # what is submitted, the job last
    objects: Expand  # what the controllers make of any manifest, ours or third-party
    scale: Callable[[Json, int], Json]  # the merge patch that gives a live job so many workers, or SpecError
    by_itself: Callable[[Json], Json]  # a manifest whose pods are known without its cluster: they are not held back
    with_changes: Callable[[Json, Json], Json]  # a manifest with what scaling and resuming changed in the live job
    pitfalls: Callable[[Json], Iterator[str]]  # what a raw manifest does that its author hardly intends
    templates: Callable[[Json, Site], tuple[Json, list[Template]]]  # the job as it is admitted, its pod templates
    adds: tuple[Addition, ...]  # who adds what to the job and its pods, and why
    makes: Mapping[str, Maker]  # by kind: what is made in addition to the pods of the templates
    ends: Ends
    propagation: str  # of its deletion; Foreground keeps the job until its pods are gone
    retries: Retries
    overlooks: Callable[[Json], bool]  # whether this live job restarts for a failed pod, but not if it failed unseen
    queue: Callable[[Json], Queue]  # where a manifest names its queue, NO_QUEUE where it goes to none
    without_queues: Callable[[Json], str]  # how to run a job that names the queue system's scheduler without it, or ""
    evidence_id: Callable[[Json], str | None]  # the id in the evidence of a live job; None if it cannot be known
    attempt: str  # annotation or label of a pod: how often all were replaced before it, "" where none says so
    beside: tuple[tuple[str, str], ...]  # apiVersion and kind of what is submitted with the job, under its name
    job_kinds: tuple[JobKinds, ...]
    admission: tuple[Path, ...]  # where these kinds name what a team's admission judges


def always(_item: Json) -> bool:
    """True: every object of the kind is a training job."""
    return True


def never(_item: Json) -> bool:
    """False: the controller looks at pods as they are, also after it was down."""
    return False


def failed_for(live: Json, words: str) -> bool:
    """Whether a condition of a job that holds has these words, as its reason or in its message.

    >>> failed_for({"status": {"conditions": [{"status": "True", "reason": "Gone"}]}}, "Gone")
    True
    """
    conditions = [one for one in (live.get("status") or {}).get("conditions") or () if one.get("status") == "True"]
    return any(words in f"{one.get('reason')}: {one.get('message')}" for one in conditions)


def unchanged(manifest: Json, _live: Json) -> Json:
    """The manifest: nobody changes a live job of the kind."""
    return manifest


def resumed(manifest: Json) -> Json:
    """A manifest with which its controllers make pods at once.

    >>> resumed({"spec": {"suspend": True, "completions": 2}})
    {'spec': {'completions': 2}}
    """
    return {**manifest, "spec": {key: value for key, value in manifest["spec"].items() if key != "suspend"}}


def no_way(_item: Json) -> str:
    """For a back-end whose pods name no scheduler, or whose kind comes with the queue system."""
    return ""


T = TypeVar("T")


def block(spec: JobSpec, kind: type[T]) -> T:
    """A job's block of one back-end; its defaults where the job has none."""
    return spec.block if isinstance(spec.block, kind) else kind()


def unscalable(job: Json, workers: int, expected: str, fix: str) -> SpecError:
    """Why a live job cannot be given so many workers."""
    return SpecError([Problem("workers", str(workers), expected, fix)], job["metadata"]["name"])


RESUBMIT = "submit the job again with other workers: gangplank delete, then gangplank submit"  # where ranks are fixed


def acyclic(work: Expand) -> Expand:
    """Pause the cyclic garbage collector while plain JSON is built: JSON has no cycles, and time stays linear."""

    @functools.wraps(work)
    def paused(manifest: Json, site: Site | None = None) -> list[Json]:
        was = gc.isenabled()
        gc.disable()
        try:
            return work(manifest, site)
        finally:
            if was:
                gc.enable()

    return paused


def refuse(problems: Problems, manifest: Mapping[str, Any]) -> None:
    """Raise the problems of a manifest, if it has any."""
    if problems:
        meta = manifest.get("metadata")
        name = meta.get("name") if isinstance(meta, Mapping) else None
        source = f"{manifest.get('kind', 'object')} {name or 'without a name'}"
        raise SpecError(problems, source if len(source) <= SOURCE_LIMIT else f"{source[: SOURCE_LIMIT - 1]}…")


def problem(path: str, got: str, expected: str, fix: str = "") -> Problem:
    """One thing that is wrong with a manifest."""
    return Problem(path, got, expected, fix)
