"""A folder of teams becomes these objects, and no others; rewrite on purpose with GANGPLANK_GOLDEN=write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from gangplank.teams.load import load
from gangplank.teams.objects import team_objects

CASES = sorted((Path(__file__).parent / "teams").glob("*/teams"))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.parent.name)
def test_a_folder_of_teams_is_rendered_as_reviewed(folder: Path) -> None:
    site, teams = load(str(folder))
    text = yaml.safe_dump_all(team_objects(teams, site), sort_keys=False, width=2**20)
    golden = folder.parent / "objects.yml"
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        golden.write_text(text)
    assert golden.read_text() == text
