"""How a message shows tables, long lists and third-party text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def table(rows: Sequence[Sequence[str]], *, colour: bool = False) -> str:
    """Rows under their headings, each column as wide as its widest cell; columns without any value are left out.

    >>> print(table([["A", "B", "C"], ["one", "2", ""]]))
    A    B
    one  2
    """
    rows = [[plain(cell) for cell in row] for row in rows]  # a pod's text may be in any cell
    used = [at for at in range(len(rows[0])) if any(row[at] for row in rows[1:])]
    widths = [max(len(row[at]) for row in rows) for at in used]
    lines = ["  ".join(row[at].ljust(width) for at, width in zip(used, widths, strict=True)).rstrip() for row in rows]
    if colour and lines:
        lines[0] = f"{BOLD}{lines[0]}{PLAIN}"
    return "\n".join(lines)


# Control characters but the tab, halves of UTF-16, and what changes the order in which a terminal shows a line
UNSEEN = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""A third-party line without anything that a terminal would obey.

    >>> plain("\x1b[2J 10%\r")
    '\\x1b[2J 10%\\r'
    >>> plain("\u202eNEVORP")
    '\\u202eNEVORP'
    """
    return UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def plain_lines(text: str) -> str:
    r"""Third-party lines without anything that a terminal would obey.

    >>> print(plain_lines("one\n\x1b[2Jtwo"))
    one
    \x1b[2Jtwo
    """
    return "\n".join(map(plain, text.split("\n")))


def listed(items: Sequence[object], limit: int = 6) -> str:
    """The first few of many, for a message.

    >>> listed([1, 2, 3], limit=2)
    '1, 2 and 1 more'
    """
    text = ", ".join(str(item) for item in items[:limit])
    return text + (f" and {len(items) - limit} more" if len(items) > limit else "")


def counted(number: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "pod"), counted(2, "pod")
    ('1 pod', '2 pods')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def others(number: int, what: str) -> list[str]:
    """Jobs or pods of other namespaces, which no message names.

    >>> others(2, "pod"), others(0, "pod")
    (['2 pods of other namespaces'], [])
    """
    return [f"{counted(number, what)} of other namespaces"] if number else []
