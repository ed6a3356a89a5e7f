"""What a run refuses because of what is in the cluster and not in the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import group_path
from gangplank.teams.compare import plan_teams
from gangplank.teams.inventory import Inventory
from gangplank.teams.metadata import PART_LABEL, TEAM_PART, team_of
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_teams
from gangplank.teams.read_cluster import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gangplank.teams.plan import TeamsPlan

Json = dict[str, Any]
CAP: Json = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
SITE: Json = {"priorities": {"high": 10}, "queues": [{"name": "research"}]}
CI: Json = {"members": [{"user": "ada"}, {"service_account": "old/ci", "role": "lead"}]}


class Cluster:
    """An API server that lists objects, and knows no others."""

    def __init__(self, *objects: Json) -> None:
        groups = QUEUE_SYSTEM.pod_group
        kinds = (*KINDS, (groups.api_version, "PodGroup", groups.plural))
        paths = {kind: f"{group_path(api_version)}/{plural}" for api_version, kind, plural in kinds}
        self.items = [(paths[item["kind"]], item) for item in objects]

    def call(self, _: str, where: str, query: Mapping[str, str] | None = None) -> Json:
        wanted = {PART_LABEL: True, f"!{PART_LABEL}": False}.get((query or {}).get("labelSelector", ""))
        items = [item for path, item in self.items if where in (path, namespaced(path, item))]
        return {"items": [item for item in items if wanted in (None, PART_LABEL in item["metadata"].get("labels", {}))]}

    def get(self, where: str) -> Json | None:
        return self.call("GET", where)

    def serves(self, _: Json) -> bool:
        return True


def namespaced(path: str, item: Json) -> str:
    """The path of all objects of a kind in an object's namespace."""
    group, _, plural = path.rpartition("/")
    return f"{group}/namespaces/{item['metadata'].get('namespace')}/{plural}"


def planned(*live: Json, remove: Sequence[str] = (), claims: Sequence[str] = (), **values: Any) -> TeamsPlan:
    variables = {"team_cap": CAP, "team_members": [{"user": "ada"}], "team_site_priorities": SITE["priorities"],
                 "team_site_queues": SITE["queues"]}  # fmt: skip
    own = variables | {f"team_{name}": value for name, value in values.items()}
    kube: Any = Cluster(*live)
    return plan_teams(kube, Inventory({"vision": own}), remove, claims)


def refused(*live: Json, **values: Any) -> str:
    return "\n".join(planned(*live, **values).refused)


def of_team(name: str, **fields: Any) -> list[Json]:
    file: Json = {"team": {"name": name, "members": [{"user": "eve"}], "cap": CAP} | fields}
    site, teams = parse_teams({f"{name}.yml": file}, {"site": SITE})
    return team_objects(teams, site)


def labels(team: str) -> dict[str, str]:
    return TEAM_PART | {TEAM_LABEL: team}


def queue(name: str, **own: str) -> Json:
    return {"kind": "Queue", "metadata": {"name": name, "labels": own}, "spec": {}}


def test_a9_refuses_a_member_that_pods_of_a_team_that_left_the_inventory_can_run_as() -> None:
    """Its namespace and its members' access stay until teams_remove names it."""
    text = refused(*of_team("old"), **CI)
    assert text.startswith('host_vars/vision.yml: team_members[1].service_account: got "old/ci", expected an account')
    assert "every trainer of team old can run a pod as this one" in text
    assert refused(*of_team("other"), **CI) == ""


@pytest.mark.parametrize("name", ["vision", "vision-x", "research"])
def test_a_queue_of_an_administrator_is_not_taken_over(name: str) -> None:
    """The run would change whose jobs it takes, and the removal of the team would delete it."""
    text = refused(queue(name), queues=[{"name": "x"}])
    who = "all teams: queue" if name == "research" else "team vision: queue"
    assert text.startswith(f'{who}: got "{name}", which exists and does not belong to ')
    hand_over = f"kubectl label queues.scheduling.volcano.sh {name} gangplank.dev/part="
    assert hand_over + ("teams" if name == "research" else "team gangplank.dev/team=vision") in text
    assert refused(queue("another"), queues=[{"name": "x"}]) == ""


def test_a_queue_of_a_team_that_left_the_inventory_is_not_taken_over() -> None:
    text = refused(*of_team("old", queues=[{"name": "x"}]), queue("vision-x", **labels("old")), queues=[{"name": "x"}])
    assert text.startswith('team vision: queue: got "vision-x", which exists and belongs to team old, expected a queue')
    assert "kubectl label --overwrite queues.scheduling.volcano.sh vision-x" in text
    assert refused(queue("vision-x", **labels("vision")), queues=[{"name": "x"}]) == ""


def test_a_parent_that_leaves_the_inventory_while_a_queue_stays_below_it_is_refused() -> None:
    """Volcano would refuse to delete it, in the middle of the run."""
    parent = queue("labs", **TEAM_PART)
    below = queue("speech", **labels("speech")) | {"spec": {"parent": "labs"}}
    text = refused(parent, below)
    assert text.startswith("queue labs leaves the inventory and is the parent of queue speech, which stays below it.")
    assert "its team speech in --limit or in teams_remove" in text
    assert refused(parent, queue("vision", **labels("vision")) | {"spec": {"parent": "labs"}}) == ""
    assert planned(parent, below, remove=["speech"]).refused == ()


def test_a_queue_with_work_gets_no_first_child() -> None:
    """Volcano would refuse it in the middle of the run, or start none of its work any more."""
    own, child = (queue(name, **labels("vision")) for name in ("vision", "vision-x"))
    child["spec"] = {"parent": "vision"}
    group = {"kind": "PodGroup", "metadata": {"name": "g", "namespace": "vision"}, "spec": {"queue": "vision"}}
    text = refused(own, group, queues=[{"name": "x"}])
    assert text.startswith("queue vision gets its first child queue, so that no job can use it any more, and has ")
    assert "work: vision/g. Fix: wait for it, or leave it without child queues" in text
    assert refused(own, child, group, queues=[{"name": "x"}, {"name": "y"}]) == "", "it has had children before"
    assert refused(own, group) == ""


def test_a_priority_of_an_administrator_is_not_taken_over() -> None:
    text = refused({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10})
    assert text.startswith('all teams: PriorityClass: got "high", which exists and does not belong to the teams')
    assert "choose another name, or hand it over: kubectl label priorityclass high gangplank.dev/part=teams" in text


@pytest.mark.parametrize("names", [[""], ["old", ""], [" old "], ["vision-queue", ""]])
def test_a_name_to_remove_that_is_empty_removes_nothing_of_what_all_teams_share(names: list[str]) -> None:
    live = [*of_team("vision"), *of_team("old")]
    todo = planned(*live, remove=names)
    assert {team_of(item) for item in todo.remove} == ({"old"} if "old" in "".join(names) else set())


def test_a_name_to_remove_that_no_team_has_is_said() -> None:
    assert "teams_remove: nothing in the cluster is of a team visoin" in planned(remove=["visoin"]).notes


def test_a_claim_of_a_team_that_is_not_removed_is_refused() -> None:
    todo = planned(*of_team("old"), claims=["old/data"])
    assert [line.partition(". Fix: ")[0] for line in todo.refused] == [
        "teams_remove_claims: got old/data, expected claims of a team that teams_remove names"
    ]


def test_check_mode_reports_each_object_of_a_team_that_is_removed() -> None:
    todo = planned(*of_team("old"), claim("old", "data"), remove=["old"], claims=["old/data"])
    lines = {str(line) for line in todo.differences}
    wanted = ("Namespace old", "Queue old", "PersistentVolumeClaim old/data", "RoleBinding old/gangplank-team-trainer")
    assert [name for name in wanted if not any(line.startswith(f"{name}:") for line in lines)] == []


def claim(namespace: str, name: str, size: str = "2Gi", **labels: str) -> Json:
    meta = {"name": name, "namespace": namespace, "labels": labels}
    return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"resources": {"requests": {"storage": size}}}}


@pytest.mark.parametrize("own", [{}, labels("vision")], ids=["an administrator's", "of an earlier inventory"])
def test_a_claim_that_stays_leaves_room_in_the_quota_for_a_new_one(own: dict[str, str]) -> None:
    todo = planned(claim("vision", "old", **own))
    quota = next(item for item in todo.write if item["kind"] == "ResourceQuota")["spec"]["hard"]
    assert (quota["persistentvolumeclaims"], quota["requests.storage"]) == ("1", "2Gi")


def test_a_service_account_of_an_administrator_is_allowed_and_not_taken_over() -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "spark", "namespace": "vision"}}
    for live, count in (((), 1), ((account,), 0)):
        todo = planned(*live, service_accounts=["spark"])
        assert sum(item["kind"] == "ServiceAccount" for item in todo.write) == count
        namespace = next(item for item in todo.write if item["kind"] == "Namespace")
        assert namespace["metadata"]["annotations"]["gangplank.dev/service-accounts"] == "default,spark"
