"""What a cluster's own controllers are set to, as far as the objects that they make of a job depend on it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gangplank.backends.base import Site
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.errors import Problem, SpecError, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

OPERATOR = "training-operator"  # the name of its Deployment, upstream's and that of charts/training-operator
GANG = "gang-scheduler-name"
INIT_IMAGE = "pytorch-init-container-image"
INIT_TRIES = "pytorch-init-container-max-tries"
INIT_TEMPLATE = "pytorch-init-container-template-file"
FLAGS = (GANG, INIT_IMAGE, INIT_TRIES, INIT_TEMPLATE)  # each has a value
NUMBER = re.compile(r"0|[1-9][0-9]*|0x[0-9a-fA-F]+")  # of Go's forms, those that Python reads alike
TEMPLATE = "/etc/config/initContainer.yaml"  # where the operator looks unless a flag says otherwise
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TRAINER = "trainer.kubeflow.org/v1alpha1"


def site_of(kube: Kube, others: tuple[Json, ...] = ()) -> Site:
    """The settings of the training operator, the PriorityClasses and Trainer's runtimes; `others` come before these."""
    values = priorities_of(everywhere(kube, PRIORITIES))
    runtimes = tuple(
        {"apiVersion": TRAINER, "kind": kind, **item}
        for kind in RUNTIMES
        for item in everywhere(kube, f"/apis/{TRAINER}/{kind.lower()}s")
    )
    usual = Site(priorities=values, others=(*others, *runtimes))
    deployment = next(operators(kube), None)
    if deployment is None:
        return usual
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    words = [*container.get("command", ()), *container.get("args", ())]
    flags = flags_of(words, str(deployment["metadata"]["namespace"]))
    place = PurePosixPath(flags.get(INIT_TEMPLATE, TEMPLATE))
    return Site(
        gang=flags.get(GANG) == QUEUE_SYSTEM.scheduler,
        init_image=flags.get(INIT_IMAGE, usual.init_image),
        init_tries=int(flags.get(INIT_TRIES, str(usual.init_tries)), 0),
        init_template=mounted(kube, deployment["metadata"]["namespace"], pod, place),
        priorities=usual.priorities,
        others=usual.others,
    )


def priorities_of(classes: Iterable[Json]) -> dict[str, int]:
    """The values of PriorityClasses by name."""
    return {item["metadata"]["name"]: int(item.get("value", 0)) for item in classes}


def flags_of(words: Sequence[str], namespace: str) -> dict[str, str]:
    """Those of the operator's flags that matter here, as Go reads them: `--flag=value`, or `--flag value` in two words.

    >>> flags_of(["/manager", "--leader-elect", "-gang-scheduler-name", "volcano"], "kubeflow")
    {'gang-scheduler-name': 'volcano'}
    """
    flags, problems = {}, []
    rest = iter(words)
    for word in rest:
        name, has_value, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-") or name not in FLAGS:
            continue
        value = text if has_value else next(rest, None)
        if value is None or (name == INIT_TRIES and not NUMBER.fullmatch(value)):
            expected = "a whole number" if name == INIT_TRIES else "a value"
            problems.append(Problem(f"--{name}", shown(value), expected, "correct the arguments of its container"))
        else:
            flags[name] = value
    if problems:
        raise SpecError(problems, f"Deployment {namespace}/{OPERATOR}")
    return flags


def operators(kube: Kube) -> Iterator[Json]:
    """The Deployments of training operators."""
    return (item for item in everywhere(kube, "/apis/apps/v1/deployments") if item["metadata"]["name"] == OPERATOR)


def everywhere(kube: Kube, where: str) -> list[Json]:
    """All objects of a kind, in every namespace; none if the cluster does not have the kind."""
    items: list[Json] = (kube.get(where) or {}).get("items", [])
    return items


def mounted(kube: Kube, namespace: str, pod: Json, place: PurePosixPath) -> str:
    """The text of a file that a pod's first container has from a ConfigMap; "" if it has none there."""
    for mount in pod["containers"][0].get("volumeMounts", ()):
        volume: Json = next((item for item in pod.get("volumes", ()) if item["name"] == mount["name"]), {})
        if "configMap" not in volume or PurePosixPath(mount["mountPath"]) not in (place, place.parent):
            continue
        source = volume["configMap"]
        keys = {item["path"]: item["key"] for item in source.get("items", ())}
        held = kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{source['name']}") or {}
        key = mount.get("subPath", place.name)
        text = (held.get("data") or {}).get(keys.get(key, key))
        if text:
            return str(text)
    return ""
