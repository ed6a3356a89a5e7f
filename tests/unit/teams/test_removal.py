"""A named team is removed and its volume claims stay; idle fields; kubeconfigs; unfinished work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.client import Kube
from gangplank.errors import SpecError
from gangplank.teams import kubeconfig, read_cluster
from gangplank.teams.idle_fields import idle_fields
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_teams
from gangplank.teams.plan import plan
from gangplank.teams.removal import ORDER, removal

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
ENDED = 2**22 + 1  # no process has this number
CAP: Json = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}


def live(**fields: object) -> list[Json]:
    team = {"name": "vision", "members": [{"user": "ada"}], "cap": CAP} | fields
    other = {"name": "speech", "members": [{"user": "zoe"}], "cap": CAP}
    site, teams = parse_teams({"a.yml": {"team": team}, "b.yml": {"team": other}})
    return team_objects(teams, site)


def names(items: tuple[Json, ...]) -> list[str]:
    return [f"{item['kind']} {item['metadata']['name']}" for item in items]


def test_access_is_removed_first_and_nothing_of_another_team() -> None:
    todo = removal(["vision"], ["speech"], live(), {}, {}, [])
    assert [item["kind"] for item in todo.remove][:3] == ["RoleBinding"] * 3
    last = ["Namespace vision", "ClusterRoleBinding gangplank-team-cluster-vision", "Queue vision"]
    assert names(todo.remove)[-3:] == last
    assert {item["metadata"].get("namespace", "vision") for item in todo.remove} == {"vision"}


def test_every_rendered_kind_is_read_and_can_be_removed() -> None:
    """One that is not read would be reported as missing forever; one without a place in the order stops a removal."""
    everything = live(claims=[{"name": "data", "size": "1Gi"}], service_accounts=["ci"])
    kinds = {(item["apiVersion"], item["kind"]) for item in everything}
    assert kinds <= {(api_version, kind) for api_version, kind, _ in read_cluster.KINDS}
    namespaced = {item["kind"] for item in everything if item["metadata"].get("namespace")}
    assert namespaced == {*ORDER}


def test_a11_a_removal_that_was_interrupted_after_the_namespace_removes_the_queue() -> None:
    left = [item for item in live() if item["kind"] == "Queue"]
    assert names(removal(["vision"], ["speech"], left, {}, {}, []).remove) == ["Queue vision"]


def test_a_child_queue_is_removed_before_its_parent() -> None:
    todo = removal(["vision"], ["speech"], live(queues=[{"name": "x"}]), {}, {}, [])
    assert names(todo.remove)[-2:] == ["Queue vision-x", "Queue vision"]


def test_volume_claims_keep_their_namespace_until_each_is_named() -> None:
    claims = {"vision": ["data", "more"]}
    todo = removal(["vision"], ["speech"], live(), {}, claims, ["vision/more"])
    assert "PersistentVolumeClaim more" in names(todo.remove)
    assert not {"PersistentVolumeClaim data", "Namespace vision"} & {*names(todo.remove)}
    assert "data and the namespace vision stay" in todo.notes[0]
    last = removal(["vision"], ["speech"], live(), {}, claims, ["vision/data", "vision/more"])
    assert "Namespace vision" in names(last.remove)


@pytest.mark.parametrize(
    ("with_file", "running", "going", "message"),
    [
        (["vision"], {}, [], "got vision, expected a team that left the inventory. Fix: take vision out of the group"),
        ([], {"vision": ["pods/x"]}, [], "team vision has work that has not ended: pods/x"),
        ([], {}, ["vision/dat"], "got vision/dat, expected one of vision/data"),
    ],
)
def test_refuses(with_file: list[str], running: dict[str, list[str]], going: list[str], message: str) -> None:
    todo = removal(["vision"], with_file, live(), running, {"vision": ["data"]}, going)
    assert message in todo.refused[0]
    assert not todo.remove


def test_the_last_team_is_removed_with_what_all_teams_shared() -> None:
    kinds = {item["kind"] for item in plan([], live(), ["vision", "speech"]).remove}
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert kinds == {"ClusterRole", *policies}


CAPACITY = (
    "{actions: 'allocate, gangreclaim, gangpreempt', tiers: [{plugins: [{name: capacity, enableHierarchy: true}]}]}"
)
PROPORTION = "{actions: allocate, tiers: [{plugins: [{name: proportion}]}]}"


@pytest.mark.parametrize(
    ("fields", "text", "ignored"),
    [
        ({"weight": 2}, CAPACITY, ["team_weight"]),
        ({"weight": 2}, PROPORTION, []),
        ({"deserved": {"cpu": 1}}, PROPORTION, ["team_deserved", "team_deserved"]),
        ({"deserved": {"cpu": 1}}, CAPACITY, []),
        ({"queues": [{"name": "x"}]}, PROPORTION, ["team_queues[0]"]),
        ({"queues": [{"name": "x"}]}, CAPACITY, []),
        ({"priorities": ["high"]}, PROPORTION, ["team_priorities"]),
        ({"guaranteed": {"cpu": 1}}, "", ["team_cap", "team_guaranteed", "team_deserved"]),
    ],
)
def test_reports_fields_that_the_scheduler_ignores(fields: Json, text: str, ignored: list[str]) -> None:
    team = {"name": "vision", "members": [{"user": "ada"}], "cap": CAP} | fields
    site, teams = parse_teams({"a.yml": {"team": team}}, {"site": {"priorities": {"high": 1}}})
    assert [line.replace(",", " ").split()[0] for line in idle_fields(teams, site, text)] == ignored


@pytest.mark.parametrize("text", ["9h", "5m", "8", "-1h", "", "8h30m", "1d"])
def test_a_kubeconfig_lasts_from_ten_minutes_to_eight_hours(text: str) -> None:
    with pytest.raises(SpecError, match="a time from 10m to 8h"):
        kubeconfig.seconds(text)


@pytest.mark.parametrize("member", ["a" * 65, "\u00e9" * 33])
def test_a_member_whose_name_no_certificate_can_have_is_refused_before_the_cluster_is_asked(member: str) -> None:
    with pytest.raises(SpecError, match="at most 64 bytes"):
        kubeconfig.make(Kube.__new__(Kube), "vision", member, 600)  # one that could ask nothing


@pytest.mark.parametrize("text", ["a: [", "[]", "contexts: [{name: zoe@vision}]", "contexts: [{name: a}, {}]"])
def test_a_file_that_is_not_this_members_is_not_replaced(tmp_path: Any, text: str) -> None:
    """Two names of members may be one name of a file."""
    place = tmp_path / "vision-ada.kubeconfig"
    place.write_text(text)
    with pytest.raises(SpecError, match=r"none, or an earlier kubeconfig of ada in team vision.*--output"):
        kubeconfig.refuse_another(str(place), "vision", "ada")
    for own in ("contexts: [{name: ada@vision}]", ""):
        place.write_text(own)
        kubeconfig.refuse_another(str(place), "vision", "ada")


def test_a_member_is_looked_for_in_the_namespace_that_the_team_has_now(api: Api) -> None:
    own = {"gangplank.dev/part": "team", "gangplank.dev/team": "vision"}
    for name in ("a-old", "vision"):
        api.objects[f"/api/v1/namespaces/{name}"] = {"metadata": {"name": name, "labels": own}}
    rights = "/apis/rbac.authorization.k8s.io/v1/namespaces"
    for name in ("a-old", "vision"):
        api.objects[f"{rights}/{name}/rolebindings/theirs"] = {"metadata": {"name": "theirs", "labels": {}}}
    api.objects[f"{rights}/vision/rolebindings/lead"] = {"metadata": {"name": "lead", "labels": own}}
    assert kubeconfig.namespace_of(Kube(), "vision") == "vision"


def test_a_kubeconfig_is_never_readable_by_others(tmp_path: Any) -> None:
    name = tmp_path / "x"
    name.write_text("old")
    name.chmod(0o644)
    left = tmp_path / f".gangplank-{ENDED}.writing"  # of a run that was killed
    left.write_text("an older secret")
    left.chmod(0o644)
    kubeconfig.write(str(name), "secret")
    assert (name.read_text(), name.stat().st_mode & 0o777) == ("secret", 0o600)
    assert list(tmp_path.iterdir()) == [name]


@pytest.mark.parametrize(
    ("group", "plural", "status", "ended"),
    [
        ("batch/v1", "jobs", {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, True),
        ("batch/v1", "jobs", {"conditions": [{"type": "Complete", "status": "False"}], "active": 1}, False),
        ("batch/v1", "cronjobs", {"active": [{"name": "x"}]}, False),
        ("batch.volcano.sh/v1alpha1", "jobs", {"state": {"phase": "Aborted"}}, True),
        ("batch.volcano.sh/v1alpha1", "jobs", {"state": {"phase": "Aborting"}}, False),
        ("flow.volcano.sh/v1alpha1", "jobflows", {}, False),
        ("kubeflow.org/v1", "pytorchjobs", {"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
        ("trainer.kubeflow.org/v1alpha1", "trainjobs", {"conditions": [{"type": "Failed", "status": "True"}]}, True),
    ],
)
def test_an_unfinished_job_of_any_kind_keeps_its_team(
    group: str, plural: str, status: Json, ended: bool
) -> None:
    class Cluster:
        def get(self, where: str) -> Json | None:
            return {"items": [{"metadata": {"name": "x"}, "status": status}]} if where == own else None

        def call(self, _method: str, _where: str) -> Json:
            return {"items": []}

    own, kube = f"/apis/{group}/namespaces/vision/{plural}", Cluster()
    left = [] if ended else [f"{plural}.{group.rpartition('/')[0]}/x"]
    assert read_cluster.unfinished(kube, "vision") == left  # type: ignore[arg-type]  # two methods of it are enough


def test_a_gang_without_a_spec_keeps_no_queue(api: Api) -> None:
    """Anyone may create one: the API requires no field of it."""
    where = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups/"
    ended = {"spec": {"queue": "vision"}, "status": {"phase": "Completed"}}
    for name, more in (("empty", {}), ("works", {"spec": {"queue": "vision"}}), ("ended", ended)):
        api.objects[where + name] = {"metadata": {"name": name, "namespace": "vision"}, **more}
    assert read_cluster.in_queues(Kube(), ["vision"]) == [("vision", "vision/works")]
