"""What a run has to do about live objects, and what it says will come of it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_teams
from gangplank.teams.plan import TeamsPlan, plan

Json = dict[str, Any]
SITE = {"site": {"priorities": {"high": 10}, "queues": [{"name": "research", "deserved": {"cpu": 8}}]}}


def rendered(**teams: Json) -> list[Json]:
    given = {
        f"{name}.yml": {"team": {"name": name, "members": [{"user": "ada"}], "cap": {"cpu": 4}} | fields}
        for name, fields in teams.items()
    }
    site, specs = parse_teams(given, SITE)
    return team_objects(specs, site)


def one(items: list[Json], kind: str, name: str = "") -> Json:
    return next(item for item in items if item["kind"] == kind and name in item["metadata"]["name"])


def names(items: tuple[Json, ...]) -> list[str]:
    return [f"{item['kind']} {item['metadata']['name']}" for item in items]


def test_nothing_to_do_when_all_is_as_wanted() -> None:
    assert plan(rendered(a={}), rendered(a={})) == TeamsPlan()


def test_everything_is_made_on_an_empty_cluster() -> None:
    wanted = rendered(a={}, b={})
    found = plan(wanted, [])
    assert len(found.write) == len(wanted)
    assert not found.remove + found.lower


@pytest.mark.parametrize(
    ("kind", "part", "change", "told"),
    [
        ("RoleBinding", "subjects", [{"kind": "User", "name": "eve"}], 'subjects[0].name: wanted "ada", live "eve"'),
        ("ResourceQuota", "spec", {"hard": {"requests.cpu": "99"}}, 'wanted "4", live "99"'),
        ("Queue", "spec", {"weight": 7}, "spec.weight: wanted 1, live 7"),
        ("NetworkPolicy", "spec", {"podSelector": {"matchLabels": {"a": "b"}}}, "spec.podSelector.matchLabels"),
    ],
)
def test_tells_a_hand_edit_with_its_path_and_mends_it(kind: str, part: str, change: Any, told: str) -> None:
    live = rendered(a={})
    item = next(item for item in live if item["kind"] == kind and item.get(part) and "research" not in str(item))
    item[part] = change if isinstance(change, list) else {**item[part], **change}
    found = plan(rendered(a={}), live)
    assert told in "\n".join(map(str, found.differences))
    assert names(found.write) == [f"{kind} {item['metadata']['name']}"]


def test_what_a_hand_added_to_a_quota_goes_too() -> None:
    live = rendered(a={})
    one(live, "ResourceQuota")["spec"]["hard"]["pods"] = "0"
    found = plan(rendered(a={}), live)
    assert [item.path for item in found.differences] == ["spec.hard.pods"]
    assert found.write[0]["spec"]["hard"] == one(rendered(a={}), "ResourceQuota")["spec"]["hard"] | {"pods": None}


def test_a_binding_to_another_role_is_made_anew() -> None:
    live = rendered(a={})
    one(live, "RoleBinding", "viewer")["roleRef"]["name"] = "cluster-admin"
    found = plan(rendered(a={}), live)
    assert names(found.remove) == names(found.write) == ["RoleBinding gangplank-team-viewer"]


def test_a_claim_grows_and_never_shrinks() -> None:
    small, large = (rendered(a={"claims": [{"name": "data", "size": size}]}) for size in ("1Gi", "2Gi"))
    assert plan(large, small).refused == ()
    assert "a claim only ever grows" in plan(small, large).refused[0]


def test_a_queue_that_left_the_file_is_removed_children_first() -> None:
    before, after = rendered(a={"queues": [{"name": "x"}]}), rendered(a={})
    assert names(plan(after, before).remove) == ["Queue a-x"]


def test_a_claim_that_left_the_file_stays() -> None:
    assert plan(rendered(a={}), rendered(a={"claims": [{"name": "d", "size": "1Gi"}]})).remove == ()


def test_a_team_without_a_file_stays_and_is_told() -> None:
    found = plan(rendered(a={}), rendered(a={}, b={}))
    assert not found.changes
    assert found.notes == ("team b has no file any more. Nothing of it is removed until -e teams_remove=b names it",)


def test_what_guards_a_team_stays_as_long_as_the_team_though_no_file_is_left() -> None:
    """An empty folder, or a wrong one, opens no namespace."""
    assert plan([], rendered(a={}, b={})).remove == ()
    assert plan([], rendered(a={}, b={}), leaving=["a"]).remove == ()
    assert "ValidatingAdmissionPolicy gangplank-team-pods" in names(plan([], rendered(a={}), leaving=["a"]).remove)


def test_moving_an_amount_takes_it_away_first() -> None:
    before = rendered(a={"deserved": {"cpu": 3}}, b={"deserved": {"cpu": 1}})
    after = rendered(a={"deserved": {"cpu": 1}}, b={"deserved": {"cpu": 3}})
    found = plan(after, before)
    assert [(item["metadata"]["name"], item["spec"]["deserved"]) for item in found.lower] == [("a", {"cpu": "1"})]
    assert {item["metadata"]["name"] for item in found.write} == {"a", "b"}


def test_what_is_written_comes_in_the_order_that_the_cluster_takes() -> None:
    claims = {"claims": [{"name": "data", "size": "1Gi"}]}
    live = rendered(a={"deserved": {"cpu": 3}}, b={"deserved": {"cpu": 1}})
    one(live, "Queue", "research")["status"] = {"state": "Closed"}
    todo = plan(rendered(a={"deserved": {"cpu": 1}}, b={"deserved": {"cpu": 3}} | claims, c={}), live)
    assert todo.changes
    steps = {step.name: names(step.objects) for step in todo.steps}
    assert list(steps) == [
        "queues that give up something",
        "for all teams",
        "queues that were closed",
        "in the namespaces",
    ]
    assert steps["queues that give up something"] == ["Queue a"]
    assert {"Queue a", "Queue b", "Queue c", "Namespace c"} <= {*steps["for all teams"]}
    assert steps["queues that were closed"] == ["Command gangplank-open-research"]
    assert steps["in the namespaces"][-1] == "PersistentVolumeClaim data", "after the quota that counts it"
    written = sum(len(objects) for objects in steps.values())
    assert written == len(todo.lower + todo.write + todo.reopen)


def test_lowering_a_quota_below_use_says_what_will_happen() -> None:
    live = rendered(a={})
    one(live, "ResourceQuota")["status"] = {"used": {"requests.cpu": "3"}}
    (note,) = plan(rendered(a={"cap": {"cpu": 2}}), live).notes
    assert note.startswith("team a: requests.cpu becomes 2 while 3 is in use. What runs goes on; nothing new starts")


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_closed_queue_is_reported_and_opened_again(state: str) -> None:
    live = rendered(vision={"parent": "research"}, speech={})
    for name in ("vision", "research"):
        one(live, "Queue", name)["status"] = {"state": state, "running": 1}
    found = plan(rendered(vision={"parent": "research"}, speech={}), live)
    assert [str(item) for item in found.differences] == [
        f'Queue research: status.state: wanted "Open", live "{state}"',
        f'Queue vision: status.state: wanted "Open", live "{state}"',
    ]
    assert found.changes
    assert names(found.write) == []
    assert [(item["action"], item["target"]["name"]) for item in found.reopen] == [
        ("OpenQueue", "research"),
        ("OpenQueue", "vision"),
    ]


@pytest.mark.parametrize("status", [{}, {"state": "Open"}, {"state": ""}])
def test_an_open_queue_and_one_that_was_just_made_are_left_alone(status: Json) -> None:
    live = rendered(a={})
    one(live, "Queue")["status"] = status
    assert plan(rendered(a={}), live) == TeamsPlan()


def test_a_namespace_that_is_there_and_no_team_s_is_not_taken_over() -> None:
    wanted = rendered(a={"namespace": "monitoring"})
    (refused,) = plan(wanted, [], spaces=["default", "monitoring"]).refused
    assert refused.startswith('team a: namespace "monitoring" is there and belongs to no team.')
    assert "kubectl label namespace monitoring gangplank.dev/part=team gangplank.dev/team=a" in refused
    assert plan(wanted, wanted, spaces=["default", "monitoring"]).refused == ()
    assert plan(wanted, [], spaces=["default"]).refused == ()


def test_nothing_that_is_given_is_changed() -> None:
    wanted, live = rendered(a={"deserved": {"cpu": 1}}), rendered(a={"deserved": {"cpu": 3}}, b={})
    before = copy.deepcopy((wanted, live))
    plan(wanted, live)
    assert (wanted, live) == before
