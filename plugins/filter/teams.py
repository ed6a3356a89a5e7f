"""Filters over gangplank/teams/load.py: a site's folder of teams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.teams.load import teams_folder

if TYPE_CHECKING:
    from collections.abc import Callable


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {"teams_folder": teams_folder}
