"""Manual changes are reported and reverted, changes of files take effect, and nothing else happens. These run last."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.inventories import LAB, fields_of, variables
from tests.support.teams_live import answer, edited_copy, gangplank, pod, teams, until
from tests.support.teams_ways import QUEUE_API, command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
BINDING = "/apis/rbac.authorization.k8s.io/v1/namespaces/vision/rolebindings/gangplank-team-trainer"
QUOTA = "/api/v1/namespaces/vision/resourcequotas/gangplank-team"
POLICY = "/apis/networking.k8s.io/v1/namespaces/vision/networkpolicies/gangplank-nothing"
QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/{}"
GUARD = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/gangplank-team-pods"


@pytest.fixture
def restore() -> Iterator[None]:
    """Restore the lab's own teams after the test."""
    yield
    done = teams()
    assert done.returncode == 0, done.stdout + done.stderr


def recap(text: str) -> dict[str, int]:
    """The counts of a playbook's last lines, of all hosts together."""
    counts: Counter[str] = Counter()
    for name, value in re.findall(r"(\w+)=(\d+)", text[text.index("PLAY RECAP") :]):
        counts[name] += int(value)
    return counts


def edit(kube: Kube, where: str, apply: Callable[[Json], object]) -> None:
    """Change a live object; try again if a controller wrote to it in between."""

    def written() -> bool:
        item = kube.call("GET", where)
        apply(item)
        reply = answer(kube, "PUT", where, item)
        assert not reply or "has been modified" in reply, reply
        return not reply

    until(written, where)


def test_a_manual_change_is_reported_with_its_path_and_reverted_by_the_next_run(kube: Kube) -> None:
    stranger = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    edit(kube, BINDING, lambda item: item["subjects"].append(stranger))
    edit(kube, QUOTA, lambda item: item["spec"]["hard"].update({"requests.cpu": "99", "services": "0"}))
    edit(kube, QUEUE.format("vision"), lambda item: item["spec"].update({"weight": 7}))
    edit(kube, "/api/v1/namespaces/vision", lambda item: item["metadata"]["annotations"].update({
        "gangplank.dev/queues": "vision,speech"}))  # fmt: skip
    kube.call("DELETE", POLICY)
    kube.call("DELETE", GUARD)
    drift = gangplank("drift", str(LAB))
    assert drift.returncode == 1
    assert drift.stdout.splitlines() == [
        "ValidatingAdmissionPolicyBinding gangplank-team-pods: missing",
        "Queue vision: spec.weight: wanted 1, live 7",
        'Namespace vision: metadata.annotations["gangplank.dev/queues"]: wanted "vision", live "vision,speech"',
        'ResourceQuota vision/gangplank-team: spec.hard["requests.cpu"]: wanted "2", live "99"',
        'ResourceQuota vision/gangplank-team: spec.hard.services: wanted nothing, live "0"',
        "NetworkPolicy vision/gangplank-nothing: missing",
        (
            "RoleBinding vision/gangplank-team-trainer: subjects[1]: wanted nothing, live "
            '{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}'
        ),
    ]
    preview = teams(check=True)
    assert "spec.weight: wanted 1, live 7" in " ".join(preview.stdout.split())
    assert gangplank("drift", str(LAB)).returncode == 1, "check mode changes nothing"
    assert recap(teams().stdout)["changed"] == 2, "what all teams share, and what is in the namespaces"
    assert gangplank("drift", str(LAB)).stdout.startswith("no drift")


def test_a_closed_queue_is_reported_and_open_after_the_next_run(kube: Kube) -> None:
    """Closing a queue closes all below it: vision is a child of research."""

    def states() -> set[str]:
        return {kube.call("GET", QUEUE.format(name))["status"].get("state", "") for name in ("research", "vision")}

    where = "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands"
    body = command(QUEUE_API, "Queue", "research", "CloseQueue")
    kube.call("POST", where, body | {"metadata": {"name": "probe"}})
    until(lambda: states() <= {"Closed", "Closing"}, "both queues are closed")
    drift = gangplank("drift", str(LAB))
    assert drift.returncode == 1
    assert re.fullmatch(
        r'Queue research: status.state: wanted "Open", live "Clos(ed|ing)"\n'
        r'Queue vision: status.state: wanted "Open", live "Clos(ed|ing)"\n',
        drift.stdout,
    ), drift.stdout
    done = teams()
    assert recap(done.stdout)["changed"] == 1, done.stdout
    assert states() == {"Open"}
    assert gangplank("drift", str(LAB)).stdout.startswith("no drift")


def test_an_existing_namespace_without_a_team_is_not_taken_over(kube: Kube, tmp_path: Path) -> None:
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": "teams-probe"}})
    try:
        done = teams(edited_copy(tmp_path, speech={"namespace": "teams-probe"}), check=True)
        text = " ".join((done.stdout + done.stderr).split())
        assert done.returncode != 0
        assert 'team speech: namespace: got "teams-probe", which exists and does not belong to a team' in text
    finally:
        kube.call("DELETE", "/api/v1/namespaces/teams-probe")


@pytest.mark.usefixtures("restore")
def test_a_removed_member_loses_access_with_the_next_run_despite_a_valid_certificate(
    kubeconfigs: Callable[[str, str], str], as_member: Callable[[str, str], Kube], tmp_path: Path
) -> None:
    kubeconfigs("vision", "eve")
    eve = as_member("vision", "eve")
    assert answer(eve, "GET", "/api/v1/namespaces/vision/pods") == ""
    done = teams(edited_copy(tmp_path, vision={"members": [{"user": "ada", "role": "lead"}]}))
    assert done.returncode == 0, done.stdout
    refused = 'pods is forbidden: User "eve"'
    until(lambda: refused in answer(eve, "GET", "/api/v1/namespaces/vision/pods"), refused)  # RBAC is read by a watch


def test_running_work_keeps_its_team_and_a_lower_cap_is_explained(
    serve: Callable[[Json], str], kube: Kube, tmp_path: Path
) -> None:
    serve(pod("worker", "speech", "speech", "python3", "-c", "import time; time.sleep(600)", cpu="100m"))
    (tmp_path / "lower").mkdir()
    (tmp_path / "gone").mkdir()
    cap = {"cpu": "50m", "memory": "2Gi", "ephemeral_storage": "20Gi"}
    low = teams(edited_copy(tmp_path / "lower", speech={"cap": cap}), check=True).stdout
    note = "team speech: requests.cpu becomes 50m while 100m is in use. Running work continues; nothing new starts"
    assert note in " ".join(low.split())
    gone = edited_copy(tmp_path / "gone", drop=("speech",))
    left = gangplank("drift", str(gone))
    assert "team speech is no longer in the inventory. Nothing of it is removed" in left.stderr
    assert left.returncode == 0, "a team that is not named is not drift"
    refused = teams(gone, teams_remove="speech")
    assert refused.returncode != 0
    assert "team speech has work that has not ended" in refused.stdout + refused.stderr
    assert answer(kube, "GET", QUEUE.format("speech")) == ""


@pytest.mark.usefixtures("restore")
def test_a_named_team_is_removed_and_its_volume_claims_stay_until_they_are_named(kube: Kube, tmp_path: Path) -> None:
    refused = teams(teams_remove="vision")
    text = " ".join((refused.stdout + refused.stderr).split())
    assert "teams_remove: got vision, expected a team that left the inventory" in text
    gone = edited_copy(tmp_path, drop=("vision",))
    done = teams(gone, teams_remove="vision")
    assert done.returncode == 0, done.stdout
    assert "data and the namespace vision stay, and no member has access" in " ".join(done.stdout.split())
    assert "not found" in answer(kube, "GET", QUEUE.format("vision"))
    assert "not found" in answer(kube, "GET", BINDING)
    assert answer(kube, "GET", "/api/v1/namespaces/vision/persistentvolumeclaims/data") == ""
    assert answer(kube, "GET", QUEUE.format("speech")) == "", "nothing of another team"
    assert recap(teams(gone, teams_remove="vision").stdout)["changed"] == 0
    last = teams(gone, teams_remove="vision", teams_remove_claims="vision/data")
    assert last.returncode == 0, last.stdout
    assert "not found" in answer(kube, "GET", "/api/v1/namespaces/vision")


@pytest.mark.usefixtures("restore")
def test_a_limit_changes_one_team_and_all_teams_are_checked(kube: Kube, tmp_path: Path) -> None:
    weights: dict[str, Any] = {name: {"weight": 3} for name in ("speech", "vision")}
    changed = edited_copy(tmp_path / "changed", **weights)
    done = teams(changed, "--limit", "vision", "-e", "team_queue_priority=4")
    assert done.returncode == 0, done.stdout
    specs = {name: kube.call("GET", QUEUE.format(name))["spec"] for name in weights}
    assert (specs["vision"]["weight"], specs["vision"]["priority"]) == (3, 4)
    assert (specs["speech"]["weight"], specs["speech"].get("priority", 0)) == (1, 0)
    assert recap(teams(changed, "--limit", "vision", "-e", "team_queue_priority=4").stdout)["changed"] == 0
    moved = edited_copy(tmp_path / "moved", speech={"guaranteed": {"cpu": "100"}})
    refused = teams(moved, "--limit", "vision")
    assert refused.returncode != 0
    assert "speech.yml: 1 problem" in refused.stdout + refused.stderr, "a team outside of the limit is checked"
    cap = {"cpu": "500m", "memory": "1Gi", "ephemeral_storage": "10Gi"}
    owed = teams(edited_copy(tmp_path / "owed", speech={"cap": cap}, vision={"weight": 5}), "--limit", "vision")
    assert owed.returncode != 0
    text = " ".join((owed.stdout + owed.stderr).split())
    assert "got a team without speech, whose queues give up something" in text
    assert "--limit speech,vision" in text


@pytest.mark.usefixtures("restore")
def test_a_queue_moves_with_its_amounts_to_a_new_parent_and_back_when_that_leaves(kube: Kube, tmp_path: Path) -> None:
    """Volcano's webhook counts them below the old parent until the queue has left it, and lets no parent be deleted."""
    file = fields_of(LAB / "host_vars/vision.yml")
    amounts = {name: file[name] for name in ("guaranteed", "deserved")}
    speech = {"parent": "research", "deserved": {"cpu": "1"}}  # it gets the room, and is written first
    site = edited_copy(tmp_path, vision={"parent": "labs"}, speech=speech)
    shared = fields_of(LAB / "group_vars/teams.yml", "team_site_")
    queues = {"queues": [*shared["queues"], {"name": "labs", **amounts}]}
    (site / "group_vars/teams.yml").write_text(variables(shared | queues, "team_site_"))
    for inventory, parent in ((site, "labs"), (LAB, "research")):
        done = teams(inventory)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "queue vision moves to another parent" in " ".join(done.stdout.split())
        spec = kube.call("GET", QUEUE.format("vision"))["spec"]
        assert (spec["parent"], spec["deserved"]) == (parent, amounts["deserved"])
        assert recap(teams(inventory).stdout)["changed"] == 0
    assert "not found" in answer(kube, "GET", QUEUE.format("labs"))


def test_all_problems_of_all_files_are_reported_together(tmp_path: Path) -> None:
    speech = {"guaranteed": {"cpu": "1"}, "cap": {}}
    done = teams(edited_copy(tmp_path, vision={"weight": 0, "parent": "nowhere"}, speech=speech))
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    for problem in ("speech.yml: 1 problem", "vision.yml: 2 problems", "team_weight", "team_parent", "team_cap"):
        assert problem in text
    assert "Traceback" not in text
