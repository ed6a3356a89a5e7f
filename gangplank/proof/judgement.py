"""The outcome of judging one claim, as every claim's function returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

Judgement = tuple[bool | None, str]  # None: the claim cannot be asked


def judged(problems: Sequence[str], detail: str, *, proven: bool = True) -> Judgement:
    """A claim holds without problems, if any record shows it.

    >>> judged([], "2 steps"), judged(["rank 1 is idle"], "2 steps"), judged([], "0 steps", proven=False)
    ((True, '2 steps'), (False, 'rank 1 is idle'), (False, 'no record shows it'))
    """
    return proven and not problems, listed(problems) or (detail if proven else "no record shows it")
