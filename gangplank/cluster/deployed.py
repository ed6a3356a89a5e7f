"""The Deployments of controllers: their flags, and the files that ConfigMaps give them."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gangplank.errors import Problem, SpecError, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

DEPLOYMENTS = "/apis/apps/v1/deployments"
NUMBER = re.compile(r"0|[1-9][0-9]*|0x[0-9a-fA-F]+")  # of Go's forms, those that Python reads alike


def everywhere(kube: Kube, where: str) -> list[Json]:
    """All objects of a kind, in every namespace; none if the cluster does not have the kind."""
    items: list[Json] = (kube.get(where) or {}).get("items", [])
    return items


def title(deployment: Json) -> str:
    """How messages call it."""
    return f"Deployment {deployment['metadata']['namespace']}/{deployment['metadata']['name']}"


def container_of(deployment: Json, program: str) -> Json:
    """The one with an image of this program; the first if none names it."""
    containers: list[Json] = deployment["spec"]["template"]["spec"]["containers"]
    return next((one for _, one in running([deployment], program)), containers[0])


def words_of(container: Json) -> list[str]:
    """Its command line."""
    return [*(container.get("command") or ()), *(container.get("args") or ())]


def flags_of(
    deployment: Json, program: str, names: Collection[str], numbers: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Those flags of its program, in their order; raises SpecError for a value that the program cannot read."""
    flags, problems = [], []
    for name, value in flags_in(words_of(container_of(deployment, program)), names):
        if value is None or (name in numbers and not NUMBER.fullmatch(value)):
            expected = "a whole number" if name in numbers else "a value"
            problems.append(Problem(f"--{name}", shown(value), expected, "correct the arguments of its container"))
        else:
            flags.append((name, value))
    if problems:
        raise SpecError(problems, title(deployment))
    return flags


def flags_in(words: Sequence[str], names: Collection[str]) -> list[tuple[str, str | None]]:
    """Flags that have a value, as Go reads them: `--flag=value`, or `--flag value` in two words.

    >>> flags_in(["/manager", "--leader-elect", "-gang-scheduler-name", "volcano"], ["gang-scheduler-name"])
    [('gang-scheduler-name', 'volcano')]
    """
    flags = []
    rest = iter(words)
    for word in rest:
        name, has_value, text = word.removeprefix("-").removeprefix("-").partition("=")
        if word.startswith("-") and name in names:
            flags.append((name, text if has_value else next(rest, None)))
    return flags


def in_one_word(words: Iterable[str]) -> list[str]:
    """All flags, each with the value that follows it.

    >>> in_one_word(["/vc-scheduler", "--v=3", "--scheduler-name", "batch", "--leader-elect"])
    ['--v=3', '--scheduler-name=batch', '--leader-elect']
    """
    flags = list[str]()
    for word in words:
        if word.startswith("-"):
            flags.append(word)
        elif flags and "=" not in flags[-1]:
            flags[-1] += f"={word}"
    return flags


def running(deployments: Iterable[Json], program: str) -> Iterator[tuple[Json, Json]]:
    """Those with an image of this program, each with the container that runs it."""
    for item in deployments:
        for container in item["spec"]["template"]["spec"]["containers"]:
            if program in str(container.get("image")):
                yield item, container


def mounted(kube: Kube, deployment: Json, container: Json, place: PurePosixPath) -> str:
    """The text of a file that one of its containers has from a ConfigMap; "" if it has none there."""
    pod, namespace = deployment["spec"]["template"]["spec"], deployment["metadata"]["namespace"]
    for mount in container.get("volumeMounts") or ():
        volume: Json = next((item for item in pod.get("volumes") or () if item["name"] == mount["name"]), {})
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
