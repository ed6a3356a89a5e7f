"""Reads the fields of a mapping one by one, converts each once, and collects what is wrong instead of stopping.

Values come from YAML (where `no` is false, `1_000` is 1000 and `12:30` is 750), from Ansible (where "8" may stand for
8) or from JSON. A number or a boolean is never turned into text: what the author wrote is already lost by then.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from gangplank.errors import GOT_LIMIT, Problem, shown
from gangplank.k8s import quantity

QUOTE = "quote it in YAML: a bare no, yes, on, off, date, time or number is not text"
Problems = list[Problem]
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HALF = re.compile("[\ud800-\udfff]")  # of a character: UTF-8 has none, so neither has a request
DEPTH = 64  # a job is never nested deeper


def plain(value: object, depth: int = 0) -> Any:
    """A deep copy made of dict, list, str, int, float, bool and None alone, whatever subclasses came in.

    >>> plain({"a": (1, "b")})
    {'a': [1, 'b']}
    """
    if depth > DEPTH:
        raise RecursionError("nested too deeply")
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return "".join(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {plain(key, depth + 1): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain(item, depth + 1) for item in value]
    return str(value)


def unwritable(value: object, path: str) -> Iterator[Problem]:
    r"""Texts within a value that no file in UTF-8 and no request can hold.

    >>> [str(problem) for problem in unwritable({"args": ["a", "\ud800"]}, "job")]
    ['job.args[1]: got "\\ud800", expected text of whole characters. Fix: write it as UTF-8']
    """
    if isinstance(value, str) and _HALF.search(value):
        got = json.dumps(value[:GOT_LIMIT])  # in ASCII
        yield Problem(path.strip("."), got, "text of whole characters", "write it as UTF-8")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from unwritable(key, f"a key of {path}")
            yield from unwritable(item, f"{path}.{key}" if isinstance(key, str) and not _HALF.search(key) else path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from unwritable(item, f"{path}[{index}]")


class Fields:
    """The fields of one mapping; every reader takes a name and a default and never raises."""

    def __init__(self, value: object, path: str, problems: Problems) -> None:
        self.path, self.problems = path, problems
        self.known: list[str] = []
        self.map: dict[str, Any] = {}
        if isinstance(value, Mapping):
            self.map = {key: item for key, item in value.items() if isinstance(key, str)}
            for key in value:
                if not isinstance(key, str):
                    self.problems.append(Problem(path or "job", f"the key {shown(key)}", "keys that are text", QUOTE))
        elif value is not None:
            self.bad("", value, "a mapping of fields")

    def at(self, name: str) -> str:
        """The full path of a field, as messages show it."""
        return f"{self.path}.{name}".strip(".")

    def bad(self, name: str, got: object, expected: str, fix: str = "") -> None:
        """Note that a field is not what it should be."""
        self.problems.append(Problem(self.at(name) or "job", shown(got), expected, fix))

    def raw(self, name: str) -> Any:
        """A field as it came; None if it is absent or null."""
        self.known.append(name)
        return self.map.get(name)

    def text(
        self, name: str, default: str = "", *, need: bool = False, what: str = "text", ok: re.Pattern[str] | None = None
    ) -> str:
        """A field of text, without control characters, that matches a pattern if one is given."""
        value = self.raw(name)
        if value is None:
            if need or name in self.map:
                self.bad(name, None, what, "give it a value" if need else "leave the line out to get the default")
            return default
        if not isinstance(value, str):
            self.bad(name, value, what, QUOTE if isinstance(value, bool | int | float) else "")
            return default
        if (need and not value) or _CONTROL.search(value) or (ok and value and not ok.fullmatch(value)):
            self.bad(name, value, what)
            return default
        return value

    def choice(self, name: str, default: str, options: Collection[str]) -> str:
        """A field that is one of a few words."""
        what = f"one of {', '.join(filter(None, options))}"
        value = self.text(name, default, what=what)
        if value not in options and value != default:
            self.bad(name, value, what, near(value, options))
            return default
        return value

    def integer(self, name: str, default: int, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
        """A whole number within bounds; text of digits counts, since Ansible makes such text of `-e workers=8`."""
        value = self.raw(name)
        expected = f"a whole number from {minimum} to {maximum}"
        if value is None:
            if name in self.map:
                self.bad(name, None, expected, "leave the line out to get the default")
            return default
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            self.bad(name, value, expected)
            return default
        return value

    def maybe(self, name: str, minimum: int = 0) -> int | None:
        """A whole number that may be left out."""
        if self.raw(name) is None:
            return None
        return self.integer(name, minimum, minimum)

    def number(self, name: str, default: float, minimum: float, maximum: float) -> float:
        """A finite number within bounds."""
        value = self.raw(name)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        usable = isinstance(value, int | float) and not isinstance(value, bool)
        if not usable or not minimum <= value <= maximum:  # NaN is never within bounds
            self.bad(name, value, f"a number from {minimum:g} to {maximum:g}")
            return default
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false; the words count too, since `-e suspend=true` makes text of them."""
        value = self.raw(name)
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            value = value.lower() == "true"
        if value is None and name not in self.map:
            return default
        if not isinstance(value, bool):
            self.bad(name, value, "true or false")
            return default
        return value

    def quantity(
        self, name: str, default: str = "", *, need: bool = False, what: str = "a Kubernetes quantity, e.g. 500m or 1Gi"
    ) -> str:
        """A quantity above zero; a bare number counts, as in Kubernetes."""
        value = self.raw(name)
        if value is None:
            if need or name in self.map:
                self.bad(name, None, what, "give it a value" if need else "leave the line out to get the default")
            return default
        try:
            if isinstance(value, int | float) and not isinstance(value, bool):
                value = str(value)  # fails for thousands of digits
            if isinstance(value, str) and quantity.parse(value) > 0:
                return value
        except ValueError:
            pass
        self.bad(name, value, what)
        return default

    def words(self, name: str) -> tuple[str, ...]:
        """A list of text."""
        words = []
        for index, item in enumerate(self.items(name)):
            if isinstance(item, str) and "\x00" not in item:
                words.append(item)
            else:
                fix = QUOTE if isinstance(item, bool | int | float) else ""
                self.bad(f"{name}[{index}]", item, "text", fix)
        return tuple(words)

    def items(self, name: str) -> list[Any]:
        """A list of anything."""
        value = self.raw(name)
        if value is None:
            return []
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            self.bad(name, value, "a list", "write it as a YAML list, one item a line after '- '")
            return []
        return list(value)

    def each(self, name: str) -> list[Fields]:
        """The fields of each mapping of a list; a bare on:, which YAML reads as true, is taken as it is written."""
        parts = []
        for index, raw in enumerate(self.items(name)):
            item = raw
            if isinstance(item, Mapping) and True in item and "on" not in item:
                item = {("on" if key is True else key): part for key, part in item.items()}
            parts.append(Fields(item, self.at(f"{name}[{index}]"), self.problems))
        return parts

    def mappings(self, name: str) -> tuple[dict[str, Any], ...]:
        """A list of mappings that go to Kubernetes as they are."""
        mappings = []
        for index, item in enumerate(self.items(name)):
            if isinstance(item, Mapping) and item and all(isinstance(key, str) for key in item):
                mappings.append(dict(item))
            else:
                self.bad(f"{name}[{index}]", item, "a mapping")
        return tuple(mappings)

    def pairs(self, name: str, check: Callable[[str, str], str] | None = None) -> dict[str, str]:
        """A mapping from text to text; check(key, value) is what was expected, or "" if the pair is fine."""
        inner = Fields(self.raw(name), self.at(name), self.problems)
        result = {}
        for key in inner.map:
            value = inner.map[key]
            if not isinstance(value, str):
                inner.bad(key, value, "text", QUOTE if isinstance(value, bool | int | float) else "")
            elif expected := (check(key, value) if check else ""):
                inner.bad(key, value, expected)
            else:
                result[key] = value
        return result

    def inner(self, name: str) -> Fields:
        """The fields of a nested mapping."""
        return Fields(self.raw(name), self.at(name), self.problems)

    def done(self) -> None:
        """Refuse every field that no reader asked for, naming the nearest known one."""
        for name in self.map:
            if name not in self.known:
                fix = near(name, self.known)
                expected = "one that exists" if fix else f"one of {', '.join(sorted(set(self.known)))}"
                self.problems.append(Problem(self.at(name), "an unknown field", expected, fix))


def near(word: str, options: Collection[str]) -> str:
    """The option that was probably meant, as a question.

    >>> near("worker", ["workers", "masters"])
    'Did you mean workers?'
    """
    meant = nearest(word, options)
    return f"Did you mean {meant}?" if meant else ""


def nearest(word: str, options: Collection[str]) -> str:
    """The option that was probably meant, or ""."""
    return next(iter(difflib.get_close_matches(word[:64], list(options), n=1)), "")
