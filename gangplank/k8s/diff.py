"""How a live object differs from what was described: only fields that the description sets count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def differences(wanted: object, live: object, path: str = "") -> Iterator[str]:
    """Where `live` is not as `wanted`, a line each; what webhooks and controllers add is no difference.

    >>> list(differences({"spec": {"tasks": [{"replicas": 2}]}}, {"spec": {"tasks": [{"replicas": 3, "extra": 3}]}}))
    ['spec.tasks[0].replicas: there is 3, described 2']
    >>> list(differences({"a": [1, 2]}, {"a": [1], "b": 1}))
    ['a: there are 1 entries, described 2']
    >>> list(differences({"args": [], "command": ["a"]}, {"command": ["a"]}))
    []
    """
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key, value in wanted.items():
            yield from differences(value, live.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list) and isinstance(live, list):
        if len(wanted) != len(live):
            yield f"{path}: there are {len(live)} entries, described {len(wanted)}"
            return
        for index, (one, other) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif wanted != live and not (live is None and wanted in ([], {}, "")):  # the API server keeps nothing that is empty
        yield f"{path}: there is {live!r}, described {wanted!r}"
