"""Reads a site's folder of teams: every file but _site.yml is one team."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import SpecError
from gangplank.files import Unreadable, read
from gangplank.reading import documents
from gangplank.teams.parse import TeamsError, parse_teams

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from gangplank.teams.parse import Teams

SITE = "_site.yml"


def load(folder: str, capacity: Mapping[str, Fraction] | None = None) -> Teams:
    """The site and teams of a folder; `capacity` is what the cluster has where the site does not say."""
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
