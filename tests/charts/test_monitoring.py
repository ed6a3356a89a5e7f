"""The alert rules and the dashboards for `gangplank metrics`, by what promtool makes of samples that a lab gave.

tests/cluster/test_metrics.py recorded them, and asks the same of a run of its own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli.metrics import shipped
from gangplank.cluster.metrics import FAMILIES
from tests.support import known_events
from tests.support.recorded import FIXTURE, RULES, Recording, alerts, judged, queries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Json = dict[str, Any]
NAME = re.compile(r"\bgangplank_\w+")


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.load(FIXTURE).rebased()


def test_every_panel_and_every_alert_gives_the_known_answer(recording: Recording, tmp_path: Path) -> None:
    known_events.check(recording)
    assert judged(tmp_path, recording, known_events.answers(recording), known_events.firing(recording)) == ""


def dropped(name: str) -> Callable[[Json], None]:
    def change(test: Json) -> None:
        body = test["tests"][0]
        body["input_series"] = [one for one in body["input_series"] if not one["series"].startswith(name)]

    return change


def test_every_query_of_a_panel_has_something_to_show_at_some_moment(recording: Recording) -> None:
    answers = known_events.answers(recording).values()
    shown = {query for answer in answers for query, samples in answer.items() if samples}
    assert shown == {query for answer in answers for query in answer}


@pytest.mark.parametrize("name", sorted({name for _, query in queries() for name in NAME.findall(query)}))
def test_without_a_metric_that_a_panel_shows_its_answer_is_another(
    recording: Recording, tmp_path: Path, name: str
) -> None:
    assert judged(tmp_path, recording, known_events.answers(recording), {}, dropped(f"{name}{{"))


@pytest.mark.parametrize("name", alerts())
def test_an_alert_that_is_not_expected_is_reported(recording: Recording, tmp_path: Path, name: str) -> None:
    firing = known_events.firing(recording)
    mark = "silent" if name == "GangplankClusterSilent" else "known"
    assert firing[mark][name]
    assert f"alertname: {name}" in judged(tmp_path, recording, {}, {mark: {name: []}})


def test_rules_and_panels_ask_for_metrics_that_exist_and_each_metric_is_asked_for() -> None:
    names = {family.full_name for family in FAMILIES.values()}
    used = {name for _, query in queries() for name in NAME.findall(query)}
    assert set(NAME.findall(shipped()[RULES])) | used <= names
    assert names - used == {"gangplank_job_info"}  # the lists of namespaces and jobs come from it


def test_dashboards_have_their_own_ids_and_use_their_variables_only() -> None:
    boards = [json.loads(text) for name, text in shipped().items() if name.endswith(".json")]
    assert len({board["uid"] for board in boards}) == len(boards) == 2
    for board in boards:
        variables = {one["name"] for one in board["templating"]["list"]}
        used = set(re.findall(r"\$\{?(\w+)", json.dumps(board["panels"])))
        assert used == variables
        assert all(panel["description"] for panel in board["panels"])
