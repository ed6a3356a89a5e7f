"""What a run has to do about live objects, and what it reports about the consequences."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.teams.admission import paths, probe, probes
from gangplank.teams.drift import drift
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_teams
from gangplank.teams.plan import TeamsPlan, plan

if TYPE_CHECKING:
    from gangplank.backends.base import Path as AdmissionPath

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
STEPS = (
    "queues that give up something",
    "for all teams",
    "new namespaces",
    "queues that were closed",
    "in the namespaces",
    "access",
)
CAP: Json = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
SITE = {"site": {"priorities": {"high": 10}, "queues": [{"name": "research", "deserved": {"cpu": 8}}]}}


def rendered(**teams: Json) -> list[Json]:
    files = {
        f"{name}.yml": {"team": {"name": name, "members": [{"user": "ada"}], "cap": CAP} | fields}
        for name, fields in teams.items()
    }
    site, specs = parse_teams(files, SITE)
    return team_objects(specs, site)


def one(items: list[Json], kind: str, name: str = "") -> Json:
    return next(item for item in items if item["kind"] == kind and name in item["metadata"]["name"])


def names(items: tuple[Json, ...]) -> list[str]:
    return [f"{item['kind']} {item['metadata']['name']}" for item in items]


def test_nothing_to_do_if_all_is_as_desired() -> None:
    assert plan(rendered(a={}), rendered(a={})) == TeamsPlan()


def test_everything_is_created_on_an_empty_cluster() -> None:
    desired = rendered(a={}, b={})
    todo = plan(desired, [])
    assert len(todo.write) == len(desired)
    assert not todo.remove + todo.lower


@pytest.mark.parametrize(
    ("kind", "part", "change", "message"),
    [
        ("RoleBinding", "subjects", [{"kind": "User", "name": "eve"}], 'subjects[0].name: wanted "ada", live "eve"'),
        ("ResourceQuota", "spec", {"hard": {"requests.cpu": "99"}}, 'wanted "4", live "99"'),
        ("Queue", "spec", {"weight": 7}, "spec.weight: wanted 1, live 7"),
        ("NetworkPolicy", "spec", {"podSelector": {"matchLabels": {"a": "b"}}}, "spec.podSelector.matchLabels"),
    ],
)
def test_reports_a_manual_edit_with_its_path_and_corrects_it(kind: str, part: str, change: Any, message: str) -> None:
    live = rendered(a={})
    item = next(item for item in live if item["kind"] == kind and item.get(part) and "research" not in str(item))
    item[part] = change if isinstance(change, list) else {**item[part], **change}
    todo = plan(rendered(a={}), live)
    assert message in "\n".join(map(str, todo.differences))
    assert names(todo.write) == [f"{kind} {item['metadata']['name']}"]


def test_a_manual_addition_to_a_quota_is_removed() -> None:
    live = rendered(a={})
    one(live, "ResourceQuota")["spec"]["hard"]["services"] = "0"
    todo = plan(rendered(a={}), live)
    assert [item.path for item in drift(rendered(a={}), live)] == ["spec.hard.services"]
    assert len(todo.differences) == 1
    assert todo.write[0]["spec"]["hard"] == one(rendered(a={}), "ResourceQuota")["spec"]["hard"] | {"services": None}


def test_a_binding_to_another_role_is_replaced() -> None:
    live = rendered(a={})
    one(live, "RoleBinding", "viewer")["roleRef"]["name"] = "cluster-admin"
    todo = plan(rendered(a={}), live)
    assert names(todo.remove) == names(todo.write) == ["RoleBinding gangplank-team-viewer"]


def test_a_claim_grows_and_never_shrinks() -> None:
    small, large = (rendered(a={"claims": [{"name": "data", "size": size}]}) for size in ("1Gi", "2Gi"))
    assert plan(large, small).refused == ()
    assert "a claim only ever grows" in plan(small, large).refused[0]


def test_a_queue_that_left_the_file_is_removed_children_first() -> None:
    before, after = rendered(a={"queues": [{"name": "x"}]}), rendered(a={})
    assert names(plan(after, before).remove) == ["Queue a-x"]


def test_a_claim_that_left_the_file_stays() -> None:
    assert plan(rendered(a={}), rendered(a={"claims": [{"name": "d", "size": "1Gi"}]})).remove == ()


def test_a_team_without_a_file_stays_and_is_reported() -> None:
    todo = plan(rendered(a={}), rendered(a={}, b={}))
    assert not todo.changes
    (note,) = todo.notes
    assert note == "team b is no longer in the inventory. Nothing of it is removed until -e teams_remove=b names it"


def test_the_guards_of_a_team_stay_as_long_as_the_team_even_without_any_file() -> None:
    """An empty folder, or a wrong one, does not open a namespace."""
    assert plan([], rendered(a={}, b={})).remove == ()
    assert plan([], rendered(a={}, b={}), leaving=["a"]).remove == ()
    assert "ValidatingAdmissionPolicy gangplank-team-pods" in names(plan([], rendered(a={}), leaving=["a"]).remove)


def test_a_namespace_that_its_team_left_keeps_what_guards_it_and_nobody_has_access() -> None:
    """Jobs that repeat go on there: without a quota and NetworkPolicies they would have more than the cap."""
    todo = plan(rendered(a={"namespace": "new"}), rendered(a={"namespace": "old"}))
    assert names(todo.remove) == [f"RoleBinding gangplank-team-{role}" for role in ("viewer", "trainer", "lead")]
    (note,) = todo.notes
    assert note.startswith("team a left the namespace old, which stays with its jobs, quota and NetworkPolicies. ")


def test_moving_an_amount_takes_it_away_first() -> None:
    before = rendered(a={"deserved": {"cpu": 3}}, b={"deserved": {"cpu": 1}})
    after = rendered(a={"deserved": {"cpu": 1}}, b={"deserved": {"cpu": 3}})
    todo = plan(after, before)
    assert [(item["metadata"]["name"], item["spec"]["deserved"]) for item in todo.lower] == [("a", {"cpu": "1"})]
    assert {item["metadata"]["name"] for item in todo.write} == {"a", "b"}
    assert not (todo.lower[0]["spec"].keys() & {"guarantee"}), "the next run would take it away"


def tree(parent: str, **deserved: int) -> list[Json]:
    """Two parents with these CPUs, and a team that moves between them beside one that stays."""
    own = {name: {"cpu": count} for name, count in deserved.items()}
    site = {"site": {"queues": [{"name": name, "deserved": own[name]} for name in ("p1", "p2")]}}
    team = {"members": [{"user": "ada"}], "cap": CAP | {"cpu": 12}, "deserved": {"cpu": 12}}
    files = {name: {"team": team | {"name": name, "parent": above}} for name, above in (("a", "p1"), ("x", parent))}
    specs = parse_teams(files, site)
    return team_objects(specs[1], specs[0])


def test_a_queue_that_moves_with_its_amount_leaves_it_first() -> None:
    """While it is below its old parent, the webhook counts its amount there."""
    before, after = tree("p1", p1=24, p2=12), tree("p2", p1=12, p2=24)
    todo = plan(after, before)
    lowered = [(item["metadata"]["name"], item["spec"].get("deserved")) for item in todo.lower]
    assert lowered == [("x", None), ("p1", {"cpu": "12"})]
    assert [name for name in names(todo.write) if name.startswith("Queue")] == ["Queue p1", "Queue p2", "Queue x"]
    assert "queue x moves to another parent" in todo.notes[0]


@pytest.mark.parametrize(("before", "after"), [(24, 24), (36, 24)])
def test_a_queue_that_moves_from_a_parent_with_room_for_it_keeps_its_amount(before: int, after: int) -> None:
    todo = plan(tree("p2", p1=after, p2=24), tree("p1", p1=before, p2=12))
    assert [item["metadata"]["name"] for item in todo.lower] == (["p1"] if before > after else [])
    assert todo.notes == ()


def pair(one: str, other: str, *, new: bool = False) -> list[Json]:
    """Two full parents, and two teams with all of theirs; or a new team instead of the first."""
    site = {"site": {"queues": [{"name": name, "deserved": {"cpu": 2}} for name in ("p1", "p2", "p3")]}}
    team = {"members": [{"user": "ada"}], "cap": CAP, "deserved": {"cpu": 2}}
    places = {"a": one, "b": other} | ({"0": "p1"} if new else {})
    files = {name: {"team": team | {"name": f"t{name}", "parent": parent}} for name, parent in places.items()}
    specs = parse_teams(files, site)
    return team_objects(specs[1], specs[0])


@pytest.mark.parametrize(
    ("after", "leaves"),
    [
        (pair("p2", "p1"), ["ta", "tb"]),  # they change places
        (pair("p2", "p3"), ["tb"]),  # one gets the place of the other, which is written later
        (pair("p3", "p2", new=True), ["ta"]),  # a new team gets the place
        (pair("p3", "p2"), []),
    ],
)
def test_a_queue_leaves_first_if_its_place_goes_to_another(after: list[Json], leaves: list[str]) -> None:
    old = one(pair("p1", "p2"), "Queue", "ta")
    old["metadata"]["name"] = "old"  # is removed before any other is lowered
    todo = plan(after, [*pair("p1", "p2"), old])
    assert [(item["metadata"]["name"], item["spec"]["deserved"]) for item in todo.lower] == [
        (name, None) for name in leaves]  # fmt: skip


def nested(*queues: Json, parent: str, **fields: Any) -> list[Json]:
    """A team below one of these queues of the site, each with its parent."""
    site = {"site": {"queues": [{"deserved": {"cpu": 2}, **queue} for queue in queues]}}
    team = {"name": "a", "members": [{"user": "ada"}], "cap": CAP, "deserved": {"cpu": 2}, "parent": parent}
    specs = parse_teams({"a": {"team": team | fields}}, site)
    return team_objects(specs[1], specs[0])


def test_a_parent_that_leaves_the_inventory_is_removed_once_its_queues_have_moved() -> None:
    """Volcano lets no queue with children be deleted, and counts the amounts of one below a parent that stays."""
    top, low, lowest = {"name": "p"}, {"name": "q", "parent": "p"}, {"name": "r", "parent": "q"}
    todo = plan(nested(top, parent="p"), nested(top, low, lowest, parent="r"))
    assert todo.remove == ()
    assert names(todo.remove_last) == ["Queue r", "Queue q"]
    assert [(item["metadata"]["name"], item["spec"]["deserved"]) for item in todo.lower] == [
        ("a", None), ("r", None), ("q", None)]  # fmt: skip
    assert all(set(item) <= {"apiVersion", "kind", "metadata", "spec"} for item in todo.lower)
    assert [name for name in names(todo.write) if name.startswith("Queue")] == ["Queue a"]
    inner = plan(nested(top, parent="p", queues=[{"name": "x", "deserved": {"cpu": 2}}]),
                 nested(top, {"name": "q"}, parent="q", queues=[{"name": "x", "deserved": {"cpu": 2}}]))  # fmt: skip
    assert (inner.lower, names(inner.remove_last)) == ((), ["Queue q"]), "a queue with children keeps its amounts"
    idle: Json = low | {"deserved": {}}
    assert names(plan(nested(top, parent="p"), nested(top, idle, parent="p")).remove) == ["Queue q"]


def test_a_queue_without_a_spec_gets_one_or_is_removed() -> None:
    """An administrator may have cleared it: the API requires no field of it."""
    live, desired = rendered(a={"queues": [{"name": "x"}]}), rendered(a={})
    for queue in (item for item in live if item["kind"] == "Queue"):
        del queue["spec"]
    todo = plan(desired, live)
    queues = [item for item in desired if item["kind"] == "Queue"]
    assert [item for item in todo.write if item["kind"] == "Queue"] == queues
    assert names(todo.remove) == ["Queue a-x"]
    assert names(todo.lower) == ["Queue a"], "it had no limit"


def test_objects_are_written_in_an_order_that_the_cluster_accepts() -> None:
    claims = {"claims": [{"name": "data", "size": "1Gi"}]}
    live = rendered(a={"deserved": {"cpu": 3}}, b={"deserved": {"cpu": 1}})
    one(live, "Queue", "research")["status"] = {"state": "Closed"}
    todo = plan(rendered(a={"deserved": {"cpu": 1}}, b={"deserved": {"cpu": 3}} | claims, c={}), live)
    assert todo.changes
    steps = {step.name: names(step.objects) for step in todo.steps}
    assert tuple(steps) == STEPS
    assert steps["queues that give up something"] == ["Queue a"]
    assert {"Queue a", "Queue b", "Queue c"} <= {*steps["for all teams"]}
    assert steps["new namespaces"] == ["Namespace c"]
    assert steps["queues that were closed"] == ["Command gangplank-open-research"]
    assert steps["in the namespaces"][-1] == "PersistentVolumeClaim data", "after the quota that counts it"
    written = sum(len(objects) for objects in steps.values())
    assert written == len(todo.lower + todo.write)


def test_lowering_a_quota_below_use_reports_what_will_happen() -> None:
    live = rendered(a={})
    one(live, "ResourceQuota")["status"] = {"used": {"requests.cpu": "3"}}
    (note,) = plan(rendered(a={"cap": CAP | {"cpu": 2}}), live).notes
    start = "team a: requests.cpu becomes 2 while 3 is in use. Running work continues; nothing new starts"
    assert note.startswith(start)


@pytest.mark.parametrize("state", ["Closed", "Closing"])
def test_a_closed_queue_is_reported_and_opened_again(state: str) -> None:
    live = rendered(vision={"parent": "research"}, speech={})
    for name in ("vision", "research"):
        one(live, "Queue", name)["status"] = {"state": state, "running": 1}
    todo = plan(rendered(vision={"parent": "research"}, speech={}), live)
    assert [str(item) for item in todo.differences] == [
        f'Queue research: status.state: wanted "Open", live "{state}"',
        f'Queue vision: status.state: wanted "Open", live "{state}"',
    ]
    assert todo.changes
    assert [step.name for step in todo.steps] == ["queues that were closed"]
    assert [(item["kind"], item["action"], item["target"]["name"]) for item in todo.write] == [
        ("Command", "OpenQueue", "research"),
        ("Command", "OpenQueue", "vision"),
    ]


@pytest.mark.parametrize("status", [{}, {"state": "Open"}, {"state": ""}])
def test_an_open_queue_and_a_new_one_are_left_alone(status: Json) -> None:
    live = rendered(a={})
    one(live, "Queue")["status"] = status
    assert plan(rendered(a={}), live) == TeamsPlan()


def test_an_existing_namespace_without_a_team_is_not_taken_over() -> None:
    desired = rendered(a={"namespace": "monitoring"})
    (refused,) = plan(desired, [], namespaces=["default", "monitoring"]).refused
    assert refused.startswith('team a: namespace: got "monitoring", which exists and does not belong to a team, expec')
    assert "kubectl label namespace monitoring gangplank.dev/part=team gangplank.dev/team=a" in refused
    assert plan(desired, desired, namespaces=["default", "monitoring"]).refused == ()
    assert plan(desired, [], namespaces=["default"]).refused == ()


def test_a10_the_namespace_of_another_team_is_not_taken_over() -> None:
    """That team's file may be gone while its volume claims keep the namespace."""
    live = rendered(b={"namespace": "data"})
    (refused,) = plan(rendered(a={"namespace": "data"}), live, namespaces=["data"]).refused
    assert refused.startswith('team a: namespace: got "data", which exists and belongs to team b, expected a namespace')
    one(live, "Namespace")["metadata"]["labels"] = {"gangplank.dev/part": "teams"}
    assert "does not belong to a team" in plan(rendered(a={"namespace": "data"}), live).refused[0]


def test_a12_new_members_get_access_last_and_only_where_policies_have_been_probed() -> None:
    """Members of a namespace that was probed before lose and get access with the rest of its objects."""
    live, desired = rendered(a={}), rendered(a={"members": [{"user": "bob"}]}, b={})
    todo = plan(desired, live)
    bindings = {step.name: {item["metadata"]["namespace"] for item in step.objects if item["kind"] == "RoleBinding"}
                for step in todo.steps if any(item["kind"] == "RoleBinding" for item in step.objects)}  # fmt: skip
    assert bindings == {"in the namespaces": {"a"}, "access": {"b"}}
    assert todo.steps[-1].name == "access"
    assert todo.probe == ("b",)


def test_a12_an_interrupted_run_is_continued_by_one_that_probes_again() -> None:
    desired = rendered(a={}, b={})
    live = [item for item in desired if item["kind"] != "RoleBinding" or item["metadata"]["namespace"] == "a"]
    todo = plan(desired, live)
    assert [step.name for step in todo.steps] == ["access"]
    assert todo.probe == ("b",)


def test_a12_every_namespace_is_probed_if_policies_change() -> None:
    live = rendered(a={}, b={})
    one(live, "ValidatingAdmissionPolicy")["spec"]["failurePolicy"] = "Ignore"
    assert plan(rendered(a={}, b={}), live).probe == ("a", "b")
    assert plan(rendered(a={}, b={}), rendered(a={}, b={})).probe == ()


def test_a12_every_policy_is_asked_in_one_namespace_and_one_policy_in_each() -> None:
    asked = probes(["a", "b"], lambda item: item["kind"] != "TrainJob")
    assert [item["kind"] for item in asked if item["metadata"]["namespace"] == "b"] == ["Pod"]
    in_first = [(item["apiVersion"], item["kind"]) for item in asked if item["metadata"]["namespace"] == "a"]
    assert len(in_first) == len({*in_first}) == len(paths()) - 1, "a kind that the cluster lacks cannot be asked"
    assert probes([], lambda _: True) == []


@pytest.mark.parametrize("path", paths(), ids=lambda path: path.name)
def test_a12_the_probe_of_a_policy_is_of_a_kind_that_it_judges(path: AdmissionPath) -> None:
    item = probe(path, "a")
    assert item["apiVersion"].rpartition("/")[0] == path.group
    assert f"{item['kind'].lower()}s" in path.resources
    assert item["metadata"]["annotations"] == {"volcano.sh/preemptable": "false"}


def test_arguments_are_not_changed() -> None:
    desired, live = rendered(a={"deserved": {"cpu": 1}}), rendered(a={"deserved": {"cpu": 3}}, b={})
    before = copy.deepcopy((desired, live))
    plan(desired, live)
    assert (desired, live) == before


def test_a12_the_role_writes_access_after_the_probe() -> None:
    tasks = yaml.safe_load((ROOT / "roles/team/tasks/main.yml").read_text())
    steps = [*itertools.chain.from_iterable(task.get("vars", {}).get("__team_steps", []) for task in tasks)]
    assert {*STEPS} == {*steps, "new namespaces"}
    assert steps[-1] == "access"
    probe = next(index for index, task in enumerate(tasks) if "gangplank.gangplank.cluster_accepts" in task)
    access = next(index for index, task in enumerate(tasks) if "access" in task.get("vars", {}).get("__team_steps", []))
    assert probe < access
