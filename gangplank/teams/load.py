"""The site and the teams that the variables of an inventory describe; a problem names the variable and its file."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError, shown
from gangplank.reading.fields import plain
from gangplank.teams.inventory import PREFIX, Inventory, load_inventory, strict_errors
from gangplank.teams.parse import TeamsError, parse_teams

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from fractions import Fraction

    from gangplank.teams.parse import Teams

SITE = "team_site_"  # before the variables that all teams share
FIELD = re.compile(r"(team|site)\.(\w+)")


def load(place: str, capacity: Mapping[str, Fraction] | None = None) -> Teams:
    """The site and teams of an inventory; `capacity` is what the cluster has, used if the site does not set it."""
    return teams_of(load_inventory(place), capacity)


def teams_of(inventory: Inventory, capacity: Mapping[str, Fraction] | None = None) -> Teams:
    """The site and teams of an inventory that has been read; TeamsError with every problem of every file."""
    errors = strict_errors(inventory)
    if errors:  # a word that was read differently may be wrong in more ways than one
        raise TeamsError(errors)
    errors += inventory.errors
    site: dict[str, Any] = {}
    files: dict[str, Any] = {}
    team_of_file: dict[str, str] = {}
    for team, values in inventory.values.items():
        home = inventory.home(team)
        own = {name.removeprefix(PREFIX): value for name, value in values.items() if not name.startswith(SITE)}
        if "name" in own:
            expected = f"no such variable: the team is called {team} as its host"
            errors.append(SpecError([Problem("team_name", shown(own["name"]), expected, "remove it")], home))
        files[home] = {"team": {**own, "name": team}}
        team_of_file[home] = team
        for name, value in values.items():
            key = name.removeprefix(SITE)
            if name.startswith(SITE) and plain(site.setdefault(key, value)) != plain(value):
                expected = f"the value that the other teams have ({shown(site[key])}), as it is the site's"
                fix = f"set it in group_vars/{inventory.group}.yml alone"
                place = inventory.places(team).get(name, home)
                errors.append(SpecError([Problem(name, shown(value), expected, fix)], place))
    places = [inventory.places(team) for team in inventory.values]
    of_site = (path for part in places for name, path in part.items() if name.startswith(SITE))
    shared = next(of_site, f"group_vars/{inventory.group}.yml")
    try:
        teams = parse_teams(files, {"site": site} if site else None, shared, capacity)
    except TeamsError as error:
        for part in error.errors:
            errors += by_place(part, inventory, team_of_file.get(part.source, next(iter(inventory.values), "")))
    if errors:
        raise TeamsError(merged(errors))
    return teams


def merged(errors: Iterable[SpecError]) -> list[SpecError]:
    """One error for each file, with each problem once: a value of a group is wrong for each of its teams."""
    problems: dict[str, list[Problem]] = {}
    for error in errors:
        problems.setdefault(error.source, []).extend(error.problems)
    return [SpecError(dict.fromkeys(inner), place) for place, inner in problems.items()]


def by_place(error: SpecError, inventory: Inventory, team: str) -> list[SpecError]:
    """The problems of a team as those of its variables, each under the file that sets the variable."""
    places = inventory.places(team)
    problems: dict[str, list[Problem]] = {}
    for problem in error.problems:
        path, fix = variable(problem.path), problem.fix
        if "." not in path:  # the name that was probably meant is a variable's
            fix = re.sub(r"^Did you mean (?=\w+\?$)", rf"\g<0>{PREFIX}", fix)
        name = re.split(r"[.\[]", path)[0]
        changed = replace(problem, path="inventory_hostname" if path == "team_name" else path, fix=variable(fix))
        problems.setdefault(places.get(name, error.source), []).append(changed)
    return [SpecError(inner, place) for place, inner in problems.items()]


def variable(text: str) -> str:
    """A text that names fields by the variables that they are in an inventory.

    >>> variable("team.cap.cpu"), variable("add it to site.queues")
    ('team_cap.cpu', 'add it to team_site_queues')
    """
    return FIELD.sub(lambda match: f"{PREFIX if match[1] == 'team' else SITE}{match[2]}", text)
