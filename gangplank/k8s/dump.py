"""Objects as text: YAML that kubectl takes, JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gangplank.spec import Json


# What Go's YAML reader, and so kubectl, takes for a number, a boolean or a date, as far as PyYAML does not.
# It passes over underscores, so they are to be removed first.
NOT_TEXT = re.compile(
    r"[-+]*(\.\d+|\d+(\.\d*)?)([eE][-+]*\d+)?|[-+]*0[bBoOxX][\da-fA-F]+|[yYnN]|\d{4}-\d{1,2}-\d{1,2}.*", re.ASCII
)


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # either of two base classes
    """Writes equal parts in full, and text of several lines as a readable block."""

    def ignore_aliases(self, _data: object) -> bool:
        """Never refer to an equal part elsewhere."""
        return True


def _text(dumper: Any, text: str) -> Any:
    """Text of several lines as a block, what others take for a number in quotes, other text as YAML likes it."""
    if "\n" in text:
        style = None if any(line.endswith((" ", "\t")) for line in text.splitlines()) else "|"
    else:
        style = "'" if NOT_TEXT.fullmatch(text.replace("_", "")) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _text)


def as_yaml(objects: Iterable[Json]) -> str:
    r"""Objects as YAML documents, in the order and with the key order they have.

    >>> as_yaml([{"kind": "Pod", "a": "1"}])
    "kind: Pod\na: '1'\n"
    """
    text: str = yaml.dump_all(objects, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text


def as_json(objects: Iterable[Json]) -> str:
    """Objects as one List, which kubectl takes too."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=2, ensure_ascii=False) + "\n"
