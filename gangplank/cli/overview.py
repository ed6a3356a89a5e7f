"""`gangplank status` without a job: a site on one screen, as JSON, or as a page. It changes nothing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.cli import terminal
from gangplank.cluster.overview import overview
from gangplank.errors import Problem, Unreadable
from gangplank.reading import files
from gangplank.scheduling import amounts
from gangplank.text import plain, table
from gangplank.wait import polls

if TYPE_CHECKING:
    import argparse

    from gangplank.cluster.client import Kube
    from gangplank.cluster.overview import Overview, Section
    from gangplank.spec import Json

EVERY_S = 2.0  # --watch
MOST = 30  # rows of a table on a screen
CLEAR = "\x1b[H\x1b[2J"


def site(kube: Kube, args: argparse.Namespace) -> int:
    """Show the site, once or again and again."""
    for _ in polls(math.inf, EVERY_S):
        now = overview(kube, args.namespace or "")
        if args.html:
            write(Path(args.html), page(now))
        if args.output == "json":
            print(json.dumps(fields(now), indent=None if args.watch else 2), flush=True)
        elif not args.html or args.watch:
            colour = terminal.coloured(sys.stdout)
            print((CLEAR if colour and args.watch else "") + text(now, colour=colour), flush=True)
        if not args.watch:
            break
    return terminal.OK


def text(now: Overview, *, colour: bool = False) -> str:
    """All tables, one below the other."""
    head = plain(f"{now.cluster}: Kubernetes {now.version}")
    parts = [head, *(shown_table(one, colour=colour) for one in now.sections)]
    lines = [plain(f"cannot tell: {line}") for line in now.missing]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else [])])


def shown_table(section: Section, *, colour: bool) -> str:
    """One table, or that there is nothing in it."""
    if not section.rows:
        return "no GPUs" if section.name == "gpus" else f"no {section.name}"
    rows = [[shown(row[column]) for column in section.columns] for row in section.rows[:MOST]]
    lines = table([[column.upper() for column in section.columns], *rows], colour=colour)
    more = len(section.rows) - MOST
    return f"{lines}\nand {more} more: -o json or --html FILE has all of them" if more > 0 else lines


def shown(value: Any) -> str:
    """A value of a table.

    >>> shown({"cpu": 1500, "nvidia.com/gpu": 2000}), shown({}), shown(90.4), shown(7200.0), shown(None)
    ('1500m cpu, 2 nvidia.com/gpu', 'nothing', '1 min 30 s', '2 h', '')
    """
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return amounts.listed(value) or "nothing"
    if isinstance(value, float):
        minutes, seconds = divmod(round(value), 60)
        hours, minutes = divmod(minutes, 60)
        units = [(hours, "h"), (minutes, "min"), (seconds if not hours else 0, "s")]
        return " ".join(f"{number} {unit}" for number, unit in units if number) or "0 s"
    return str(value)


def fields(now: Overview) -> Json:
    """The same as JSON; amounts are quantities as Kubernetes writes them, times are seconds."""

    def plain_value(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: amounts.exact(name, amount) for name, amount in sorted(value.items())}
        return round(value, 1) if isinstance(value, float) else value

    tables = {
        section.name: [{column: plain_value(row[column]) for column in section.columns} for row in section.rows]
        for section in now.sections
    }
    return {"cluster": now.cluster, "version": now.version, **tables, "cannot_tell": list(now.missing)}


def page(now: Overview) -> str:
    """The same as a page that needs no other file."""
    from gangplank.proof.report.page import environment

    source = resources.files(__package__).joinpath("overview.html.j2").read_text("utf-8")
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    html: str = environment().from_string(source).render(vars(now), time=when, shown=shown)
    return html


def write(file: Path, html: str) -> None:
    """Write the page."""
    try:
        files.write(file, html)
    except OSError as error:
        problem = Problem(str(file), error.strerror or str(error), "a file that can be written", "name another")
        raise Unreadable(str(problem)) from None
    terminal.note(f"{file} written")
