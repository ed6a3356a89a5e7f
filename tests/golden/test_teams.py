"""The teams of an inventory become these objects, and no others; rewrite on purpose with GANGPLANK_GOLDEN=write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gangplank.teams.inventory import plain_inventory
from gangplank.teams.load import teams_of
from gangplank.teams.objects import team_objects

CASES = sorted((Path(__file__).parent / "teams").glob("*/hosts.yml"))


@pytest.mark.parametrize("hosts", CASES, ids=lambda hosts: hosts.parent.name)
def test_the_teams_of_an_inventory_are_rendered_as_reviewed(hosts: Path) -> None:
    site, teams = teams_of(plain_inventory(str(hosts)))
    text = yaml.safe_dump_all(team_objects(teams, site), sort_keys=False, width=2**20)
    golden = hosts.parent / "objects.yml"
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        golden.write_text(text)
    assert golden.read_text() == text
