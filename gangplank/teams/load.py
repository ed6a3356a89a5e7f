"""Reads a site's folder of teams: every file except _site.yml is one team."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError, Unreadable
from gangplank.reading.files import read
from gangplank.reading.strict_yaml import documents
from gangplank.teams.parse import TeamsError, parse_teams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from gangplank.teams.parse import Teams

SITE = "_site.yml"
TEAMS = "teams"  # of a site's folder


def teams_folder(sources: Iterable[str]) -> str:
    """The folder of teams beside the hosts of the last inventory source that has one; "" if none has.

    A source is a hosts file or its folder, since `-i` accepts both.
    """
    folders = [path if path.is_dir() else path.parent for source in sources if (path := Path(source)).exists()]
    return next((str(folder / TEAMS) for folder in reversed(folders) if (folder / TEAMS).is_dir()), "")


def load(folder: str, capacity: Mapping[str, Fraction] | None = None) -> Teams:
    """The site and teams of a folder; `capacity` is what the cluster has, used if the site does not set it."""
    if not folder:
        fix = "create one like inventories/example/teams"
        raise Unreadable(str(Problem(f"{TEAMS}/", "nothing", "this folder beside the inventory's hosts", fix)))
    place = Path(folder)
    if not place.is_dir():
        expected = "a site's folder of teams, e.g. inventories/example/teams"
        raise Unreadable(str(Problem(folder, "no such folder", expected, "name an existing one")))
    files: dict[str, Any] = {}
    errors = []
    for path in sorted(place.glob("*.y*ml")):
        try:
            parts = documents(read(str(path)), str(path), strict=True)
            files[str(path)] = parts[0] if len(parts) == 1 else parts or None
        except SpecError as error:
            errors.append(error)
    if errors:
        raise TeamsError(errors)
    site = str(place / SITE)
    return parse_teams({name: value for name, value in files.items() if name != site}, files.get(site), site, capacity)
