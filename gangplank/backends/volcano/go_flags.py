"""Go's `flag` package, as Volcano's plugins use it: what an argument list really sets.

https://pkg.go.dev/flag; parsing stops at the first word that is not a flag, and at the first error, which is logged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Value = str | int | bool
LARGEST = 2**63 - 1
TRUE, FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


@dataclass(frozen=True)
class Parsed:
    """What the flags are set to, and why parsing ended early, if it did."""

    values: dict[str, Value]
    trouble: str = ""


def integer(text: str) -> int | None:
    """A Go integer literal of any base, cut to 64 bits, or None.

    >>> integer("23456"), integer("0x10"), integer("010"), integer("abc")
    (23456, 16, 8, None)
    """
    sign, digits = (text[0], text[1:]) if text[:1] in {"+", "-"} else ("", text)
    if not digits.isascii() or not digits[:1].isdigit():
        return None
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in "xXoObB":
        digits = f"0o{digits[1:].removeprefix('_')}"
    try:
        value = int(sign + digits, 0)
    except ValueError:
        return None
    return min(max(value, -LARGEST - 1), LARGEST)


def parse(arguments: Sequence[str], defaults: Mapping[str, Value]) -> Parsed:
    """The values of flags after an argument list; an invalid number becomes 0, as in Go.

    >>> parse(["--port=abc", "--worker=w"], {"port": 23456, "worker": "worker"})
    Parsed(values={'port': 0, 'worker': 'worker'}, trouble='"abc" is not a value for --port')
    """
    values = dict(defaults)
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if len(word) < 2 or not word.startswith("-"):
            return Parsed(values, f'everything from "{word}" on is ignored: it is not a flag')
        if word == "--":
            return Parsed(values, 'everything after "--" is ignored' if rest else "")
        name = word[2:] if word.startswith("--") else word[1:]
        if not name or name[0] in "-=":
            return Parsed(values, f'"{word}" is not a flag')
        name, has_value, text = name.partition("=")
        if name not in values:
            return Parsed(values, f"--{name} is not a flag of the plugin; everything from it on is ignored")
        kind = type(defaults[name])
        if kind is bool and not has_value:
            values[name] = True
            continue
        if not has_value:
            if not rest:
                return Parsed(values, f"--{name} has no value")
            text = rest.pop(0)
        trouble = _set(values, name, text, kind)
        if trouble:
            return Parsed(values, trouble)
    return Parsed(values)


def _set(values: dict[str, Value], name: str, text: str, kind: type) -> str:
    """Set one flag; what is wrong with its value, or nothing."""
    if kind is str:
        values[name] = text
        return ""
    trouble = f'"{text}" is not a value for --{name}'
    if kind is bool:
        values[name] = text in TRUE
        return "" if text in TRUE + FALSE else trouble
    number = integer(text)
    values[name] = 0 if number is None else number
    return trouble if number is None or abs(number) >= LARGEST else ""
