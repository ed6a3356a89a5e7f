"""Small parts from which the objects of a job are put together, alike for all back-ends."""

from __future__ import annotations

import functools
import gc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gangplank.errors import Problem, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

UID = "<uid>"  # stands for what the API server decides
SOURCE_LIMIT = 120  # characters of the line that says what an error is about
RANDOM = "<random>"  # stands for what a controller draws


@dataclass(frozen=True)
class Site:
    """What the objects of a manifest depend on beside the manifest itself."""

    uid: str = UID
    gang: bool = True  # the training operator runs with --gang-scheduler-name=volcano
    init_image: str = "alpine:3.10"  # its --pytorch-init-container-image
    init_tries: int = 100  # its --pytorch-init-container-max-tries
    init_template: str = ""  # its --pytorch-init-container-template-file; "": upstream's own
    priorities: Mapping[str, int] = field(default_factory=dict)  # PriorityClasses that exist: their values
    others: tuple[Any, ...] = ()  # further manifests: Trainer's runtimes


class Expand(Protocol):
    """What a back-end's objects() is."""

    def __call__(self, manifest: Json, site: Site | None = None) -> list[Json]:
        """All that the controllers make of a manifest."""


def acyclic(work: Expand) -> Expand:
    """Pause the search for cyclic garbage while plain JSON is built: it has none, and time stays linear in the pods."""

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


def clone(value: Any) -> Any:
    """A deep copy of JSON, some ten times as fast as copy.deepcopy, which matters for 10,000 pods."""
    if type(value) is dict:
        found = value.copy()  # keeps a dict small, unlike filling a new one
        for key, item in found.items():
            if type(item) is dict or type(item) is list:
                found[key] = clone(item)
        return found
    if type(value) is list:
        return [clone(item) if type(item) is dict or type(item) is list else item for item in value]
    return value


def refuse(problems: Problems, given: Mapping[str, Any]) -> None:
    """Raise what is wrong with a manifest, if anything is."""
    if problems:
        meta = given.get("metadata")
        name = meta.get("name") if isinstance(meta, Mapping) else None
        source = f"{given.get('kind', 'object')} {name or 'without a name'}"
        raise SpecError(problems, source if len(source) <= SOURCE_LIMIT else f"{source[: SOURCE_LIMIT - 1]}…")


def problem(path: str, got: str, expected: str, cure: str = "") -> Problem:
    """One thing that is wrong with a manifest."""
    return Problem(path, got, expected, cure)


def owner(manifest: Json, uid: str) -> list[Json]:
    """The reference by which an object belongs to its job and goes with it."""
    return [
        {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "name": manifest["metadata"]["name"],
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def namespace(manifest: Json) -> str:
    """The namespace of a manifest, which is default when it names none."""
    found: str = manifest["metadata"].get("namespace") or "default"
    return found


def containers(pod: Json, *, init: bool = False) -> Iterator[Json]:
    """The containers of a pod's spec, and its init containers if asked for."""
    yield from pod.get("containers", [])
    if init:
        yield from pod.get("initContainers", [])


def add_env(container: Json, variables: Iterable[Json]) -> None:
    """Append variables to a container, in place."""
    container.setdefault("env", []).extend(clone(list(variables)))


def set_env(container: Json, variables: Iterable[Json]) -> None:
    """Set variables of a container by name, in place: an equal name is replaced where it stands."""
    env = container.setdefault("env", [])
    at = {variable["name"]: index for index, variable in enumerate(env)}
    for variable in variables:
        if variable["name"] in at:
            env[at[variable["name"]]] = clone(variable)
        else:
            env.append(clone(variable))


def add_mount(container: Json, mount: Json) -> None:
    """Append a mount to a container, in place."""
    container.setdefault("volumeMounts", []).append(dict(mount))


def value(name: str, text: object) -> Json:
    """An environment variable with a value."""
    return {"name": name, "value": str(text)}
