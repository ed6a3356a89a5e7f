"""What a cluster's own controllers are set to, as far as the objects that they make of a job depend on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gangplank.backends.base import Site
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import queue_site
from gangplank.cluster.deployed import DEPLOYMENTS, container_of, everywhere, flags_of, mounted, title
from gangplank.errors import Problem, SpecError
from gangplank.k8s.build import namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

OPERATOR = "training-operator"  # the name of its Deployment, upstream's and our chart's, and of its image
OPERATED = "kubeflow.org/v1"  # the API version of its kinds
GANG = "gang-scheduler-name"
KINDS = "enable-scheme"
NAMESPACE = "namespace"
INIT_IMAGE = "pytorch-init-container-image"
INIT_TRIES = "pytorch-init-container-max-tries"
INIT_TEMPLATE = "pytorch-init-container-template-file"
FLAGS = (GANG, KINDS, NAMESPACE, INIT_IMAGE, INIT_TRIES, INIT_TEMPLATE)  # each has a value
TEMPLATE = "/etc/config/initContainer.yaml"  # where the operator looks unless a flag says otherwise
NO_GANG = ("", "None")  # for any other name but Volcano's the operator makes the PodGroups of the scheduler plugins
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TRAINER = "trainer.kubeflow.org/v1alpha1"


def site_of(kube: Kube, others: tuple[Json, ...] = (), jobs: Sequence[Json] = ()) -> Site:
    """The settings of the training operator, Volcano and Trainer, and the PriorityClasses; `others` come before these.

    With jobs: also what depends on their namespaces. Raises SpecError if the objects of one of
    them depend on a setting that the library does not know.
    """
    values = priorities_of(everywhere(kube, PRIORITIES))
    runtimes = tuple(
        {"apiVersion": TRAINER, "kind": kind, **item}
        for kind in RUNTIMES
        for item in everywhere(kube, f"/apis/{TRAINER}/{kind.lower()}s")
    )
    site = Site(priorities=values, others=(*others, *runtimes))
    deployments = everywhere(kube, DEPLOYMENTS)
    operator = next((item for item in deployments if item["metadata"]["name"] == OPERATOR), None)
    if operator:
        site = with_operator(kube, operator, site, [job for job in jobs if job["apiVersion"] == OPERATED])
    return queue_site.with_queue_system(kube, deployments, site, jobs)


def priorities_of(classes: Iterable[Json]) -> dict[str, int]:
    """The values of PriorityClasses by name."""
    return {item["metadata"]["name"]: int(item.get("value", 0)) for item in classes}


def with_operator(kube: Kube, operator: Json, site: Site, jobs: Sequence[Json]) -> Site:
    """The site with the settings of its training operator."""
    pairs = flags_of(operator, OPERATOR, FLAGS, numbers=[INIT_TRIES])
    flags, kinds = dict(pairs), [value.lower() for name, value in pairs if name == KINDS]
    template = PurePosixPath(flags.get(INIT_TEMPLATE, TEMPLATE))
    if problems := [problem for job in jobs for problem in unlike(job, flags, kinds)]:
        raise SpecError(list(dict.fromkeys(problems)), title(operator))
    return replace(
        site,
        gang=flags.get(GANG, "").lower() == QUEUE_SYSTEM.scheduler,
        init_image=flags.get(INIT_IMAGE, site.init_image),
        init_tries=int(flags.get(INIT_TRIES, str(site.init_tries)), 0),
        init_template=mounted(kube, operator, container_of(operator, OPERATOR), template),
    )


def unlike(job: Json, flags: dict[str, str], kinds: Sequence[str]) -> Iterator[Problem]:
    """The settings with which the operator makes other objects of a job than the library knows, or none."""
    gang = flags.get(GANG, "")
    if gang.lower() != QUEUE_SYSTEM.scheduler and gang not in NO_GANG:
        expected = f"{QUEUE_SYSTEM.scheduler} or none: expand does not know the objects of another one"
        yield Problem(f"--{GANG}", gang, expected, queue_site.WITHOUT)
    if kinds and job["kind"].lower() not in kinds:
        expected = f"{job['kind'].lower()} among them, or the operator ignores the job"
        yield Problem(f"--{KINDS}", ", ".join(kinds), expected, queue_site.WITHOUT)
    if flags.get(NAMESPACE, namespace(job)) not in ("", namespace(job)):
        expected = f"{namespace(job)}, or the operator ignores {job['metadata']['name']}"
        yield Problem(f"--{NAMESPACE}", flags[NAMESPACE], expected, queue_site.WITHOUT)
