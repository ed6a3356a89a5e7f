"""The command when: when a job would start, and end. It changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cli.overview import shown
from gangplank.cli.why import Unread, meant
from gangplank.cluster.when import Answer, answer
from gangplank.scheduling.when import Outlook
from gangplank.text import listed, plain_lines

if TYPE_CHECKING:
    import argparse

    from gangplank.scheduling.when import Interval
    from gangplank.spec import Json


def when(args: argparse.Namespace) -> int:
    """Say when a job would start, and end."""
    kube = cluster_of(args)
    chosen = meant(kube, args)
    if isinstance(chosen, Unread):
        return chosen.said(args, fields(Answer(chosen.name, "unknown", Outlook(why=chosen.reason), (chosen.reason,))))
    said = answer(kube, chosen.job, live=chosen.live, others=chosen.others)
    print(json.dumps(fields(said), indent=2) if args.output == "json" else plain_lines(text(said)))
    return terminal.OK if said.known else terminal.CANNOT_TELL


def text(said: Answer) -> str:
    """The answer as text."""
    one, name = said.outlook, said.name
    if said.ended:
        lines = [f"{name}: {one.why}"]
    elif said.running:
        unsure = f"{name}: cannot tell when it ends: {one.why}"
        lines = [f"{name} runs, and would end {words(one.end)}" if one.end else unsure]
    elif one.start is None:
        lines = [f"{name}: cannot tell when it starts: {one.why}"]
    else:
        after = f", after {listed(one.after)}" if one.after else ""
        now = not after and not one.start.low
        lines = [f"{name} would start {'now: its pods would run ' if now else ''}{words(one.start)}{after}"]
        guess = f"it would end {words(one.end)}, if it takes as long as one like it" if one.end else ""
        lines.append(guess or "when it ends can be said once its ranks report steps")
    return "\n".join([*lines, *(f"cannot tell: {line}" for line in said.missing)])


def words(one: Interval) -> str:
    """An interval as text.

    >>> from gangplank.scheduling.when import Interval
    >>> words(Interval(50, 65, 130))
    'in about 1 min 5 s (50 s to 2 min 10 s)'
    """
    low, likely, high = (shown(float(seconds)) for seconds in one.cases)
    return f"in about {likely} ({low} to {high})"


def fields(said: Answer) -> Json:
    """The answer as JSON; times are seconds from now."""

    def interval(one: Interval | None) -> Json | None:
        return None if one is None else {"low": one.low, "likely": one.likely, "high": one.high}

    one = said.outlook
    return {
        "job": said.name, "state": said.state, "start": interval(one.start), "end": interval(one.end),
        "after": list(one.after), "why": one.why, "cannot_tell": list(said.missing),
    }  # fmt: skip
