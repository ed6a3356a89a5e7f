"""Filters over Gangplank's library: the folder of a site's teams, and a training job with the defaults of its team."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleFilterError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # used by cloning it: nothing is installed

from gangplank.errors import GangplankError
from gangplank.teams.job_defaults import with_team
from gangplank.teams.load import beside, load

if TYPE_CHECKING:
    from collections.abc import Callable


def of_team(job: Any, folder: str) -> Any:
    """The job with its team's defaults, out of a folder of teams; without a folder the job as it is."""
    try:
        return with_team(job, load(folder)[1], "training_job") if folder else job
    except GangplankError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {"gangplank_of_team": of_team, "gangplank_teams_folder": beside}
