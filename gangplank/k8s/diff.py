"""How a live value differs from a described one: one walk, for jobs that controllers add to and for our own objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest

from gangplank.k8s import quantity

AMOUNTS = frozenset({"limits", "requests", "sizeLimit"})  # of what the API server stores in its own spelling
Path = tuple[str | int, ...]  # keys and indices, from the outside in
Unlike = tuple[Path, object, object]  # where, described, live


def unlike(
    described: object, live: object, path: Path = (), *, exact: bool = False, entries: bool = False
) -> Iterator[Unlike]:
    """Every place where `live` is not as described; an empty list, mapping or text equals a missing one.

    `exact` also counts keys that only `live` has; without it they are what webhooks and controllers add.
    Lists of unequal length are one difference, or with `entries` one for each entry. Amounts are compared as numbers.

    >>> list(unlike({"a": [1, 2], "c": {}}, {"a": [1], "b": 3}))
    [(('a',), [1, 2], [1])]
    >>> list(unlike({"a": [1, 2], "c": {}}, {"a": [1], "b": 3}, exact=True, entries=True))
    [(('a', 1), 2, None), (('b',), None, 3)]
    """
    if isinstance(described, Mapping) and isinstance(live, Mapping):
        for key in dict.fromkeys((*described, *(live if exact else ()))):
            yield from unlike(described.get(key), live.get(key), (*path, str(key)), exact=exact, entries=entries)
    elif isinstance(described, list) and isinstance(live, list) and (entries or len(described) == len(live)):
        for index, (one, other) in enumerate(zip_longest(described, live)):
            yield from unlike(one, other, (*path, index), exact=exact, entries=entries)
    elif not (is_same(described, live) or (is_same_amount(described, live) and not AMOUNTS.isdisjoint(path))):
        yield path, described, live


def is_same(one: object, other: object) -> bool:
    """Whether two values are equal, or both of a kind that the API server may leave out."""
    return one == other or (is_empty(one) and is_empty(other))


def is_same_amount(one: object, other: object) -> bool:
    """Whether two values are the same quantity.

    >>> is_same_amount("1000m", 1), is_same_amount("1Gi", "1G"), is_same_amount("1", None)
    (True, False, False)
    """
    try:
        return quantity.parse(str(one)) == quantity.parse(str(other))
    except ValueError:
        return False


def is_empty(value: object) -> bool:
    """Whether the API server may leave a value out."""
    return value is None or value in ([], {}, "")


def spelled(path: Path, *, brackets: bool = True) -> str:
    """A path as a message shows it; `brackets` puts a key with dots or slashes into brackets.

    >>> spelled(("metadata", "labels", "a/b")), spelled(("spec", "tasks", 0, "a.b"), brackets=False)
    ('metadata.labels["a/b"]', 'spec.tasks[0].a.b')
    """
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif brackets and ("." in key or "/" in key):
            text += f'["{key}"]'
        else:
            text += f".{key}" if text else key
    return text


def differences(described: object, live: object) -> Iterator[str]:
    """Where `live` is not as described, a line each; what webhooks and controllers add does not count.

    >>> list(differences({"spec": {"tasks": [{"replicas": 2}]}}, {"spec": {"tasks": [{"replicas": 3, "extra": 3}]}}))
    ['spec.tasks[0].replicas: got 3, described 2']
    >>> list(differences({"a": [1, 2]}, {"a": [1], "b": 1}))
    ['a: got a list of 1, described a list of 2']
    >>> list(differences({"args": [], "command": ["a"]}, {"command": ["a"]}))
    []
    """
    for path, value, live_value in unlike(described, live):
        where = spelled(path, brackets=False)
        if isinstance(value, list) and isinstance(live_value, list):
            yield f"{where}: got a list of {len(live_value)}, described a list of {len(value)}"
        else:
            yield f"{where}: got {live_value!r}, described {value!r}"
