"""Reads a site's folder of teams: every file but _site.yml is one team."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import SpecError, Unreadable
from gangplank.reading.files import read
from gangplank.reading.strict_yaml import documents
from gangplank.teams.parse import TeamsError, parse_teams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from gangplank.teams.parse import Teams

SITE = "_site.yml"
TEAMS = "teams"  # of a site's folder


def beside(sources: Iterable[str]) -> str:
    """The folder of teams beside the hosts of the last inventory source that has one; "" where none has.

    A source is a file of hosts or the folder of one, as `-i` takes both.
    """
    folders = [path if path.is_dir() else path.parent for source in sources if (path := Path(source)).exists()]
    return next((str(folder / TEAMS) for folder in reversed(folders) if (folder / TEAMS).is_dir()), "")


def load(folder: str, capacity: Mapping[str, Fraction] | None = None) -> Teams:
    """The site and teams of a folder; `capacity` is what the cluster has where the site does not say."""
    if not folder:
        raise Unreadable(f"no folder {TEAMS}/ is beside the inventory's hosts; make one as inventories/example has it")
    place = Path(folder)
    if not place.is_dir():
        raise Unreadable(f"{folder}: no such folder; give a site's folder of teams, e.g. inventories/example/teams")
    found: dict[str, Any] = {}
    bad = []
    for path in sorted(place.glob("*.y*ml")):
        try:
            parts = documents(read(str(path)), str(path), strict=True)
            found[str(path)] = parts[0] if len(parts) == 1 else parts or None
        except SpecError as error:
            bad.append(error)
    if bad:
        raise TeamsError(bad)
    site = str(place / SITE)
    return parse_teams({name: value for name, value in found.items() if name != site}, found.get(site), site, capacity)
