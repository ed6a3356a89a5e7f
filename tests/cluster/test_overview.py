"""`gangplank status` without a job on a live cluster: as its administrator, and as a user with nothing granted.

With GANGPLANK_GOLDEN=write, docs/pictures/status.png becomes a picture of what the administrator sees.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli.overview import fields
from gangplank.cluster.overview import overview
from gangplank.teams.access import CLUSTER, role_name, roles
from tests.support import site_page
from tests.support.teams_live import gangplank
from tests.support.why_stories import WAITING, Story, asked, story

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
DIGITS = (
    "exec python3 -m torch.distributed.run --nnodes=2 --node-rank=$RANK --master-addr=$MASTER_ADDR"
    " --master-port=$MASTER_PORT /opt/gangplank/trainer/train.py --epochs 9999 --log-interval 5 --threads 1"
    " --rendezvous-timeout 600 --collective-timeout 600"
)


def screen(kube: Kube, namespace: str = "") -> Json:
    return fields(overview(kube, namespace))


def job(now: Json, name: str) -> Json:
    return next((row for row in now["jobs"] if row["job"] == name), {})


def test_an_administrator_sees_what_holds_what_waits_and_how_long_a_training_takes(
    lab: Lab, kube: Kube, kubeconfig: str
) -> None:
    large = Story("short", {"workers": 20, "command": WAITING, "resources": {"cpu": "900m", "memory": "32Mi"}})
    with story(lab, "trains", Story("", {"command": ["sh", "-c", DIGITS]})), story(lab, "waits", large):
        lab.wait("a training says how far it is", lambda: job(screen(kube), "trains").get("left"), 600)
        lab.wait("its queue says so", lambda: held(kube) == "20m")
        now = lab.wait("a gang waits", lambda: (seen := screen(kube))["queues"][0]["gangs waiting"] and seen)
        row = job(now, "trains")
        assert (row["namespace"], row["back-end"], row["state"], row["running"], row["pods"]) == (
            "why-trains", "volcano", "Running", 2, 2,
        )  # fmt: skip
        assert row["progress"].startswith("epoch ")
        assert job(now, "waits")["running"] == 0
        queue = next(one for one in now["queues"] if one["queue"] == "default")
        assert queue["state"] == "Open"
        assert queue["held"]["cpu"] == "20m"
        assert queue["wanted"]["cpu"] == "18900m"
        assert {node["node"] for node in now["nodes"]} == lab.ready()
        volcano = next(one for one in now["components"] if one["component"] == "Volcano")
        assert volcano["ready"] == "yes"
        assert volcano["version"]
        assert now["cannot_tell"] == []
        done = gangplank("status", kubeconfig=kubeconfig)
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith(("QUEUE", "JOB", "NODE"))] == [
            "QUEUE", "JOB", "NODE",
        ]  # fmt: skip
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        site_page.take(now)


def bound(kind: str, role: str, **place: str) -> Json:
    """What gives ann a role of gangplank/teams/access.py."""
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role_name(role)}
    who = [{"apiGroup": group, "kind": "User", "name": "ann"}]
    meta = {"name": "overview-ann", **place}
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "roleRef": reference, "subjects": who}


@pytest.mark.usefixtures("kubeconfig")
def test_a_viewer_of_a_team_sees_its_jobs_and_of_others_only_what_they_hold(lab: Lab, kube: Kube) -> None:
    given = [*roles(), bound("ClusterRoleBinding", CLUSTER), bound("RoleBinding", "viewer", namespace="why-own")]
    trains = Story("", {"command": ["sh", "-c", DIGITS]})
    with story(lab, "own", trains), story(lab, "hidden", Story("")) as hidden:
        lab.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": given}))
        try:
            lab.wait("others run", lambda: "2 of 2 pods run" in asked(kube, hidden).first_line)
            lab.wait("a training says how far it is", lambda: job(screen(kube), "own").get("left"), 600)
            lab.wait("its queue says so", lambda: held(kube) == "40m")
            kube.api.set_default_header("Impersonate-User", "ann")
            now = screen(kube, "why-own")
        finally:
            kube.api.default_headers.pop("Impersonate-User", None)
            lab.kubectl("delete", "clusterrolebinding", "overview-ann", "--ignore-not-found")
    assert [row["job"] for row in now["jobs"]] == ["own"]
    assert now["jobs"][0]["progress"].startswith("epoch ")
    assert "hidden" not in json.dumps(now)
    queue = next(one for one in now["queues"] if one["queue"] == "default")
    assert (queue["held"]["cpu"], queue["gangs waiting"]) == ("40m", None)
    assert {node["node"]: node["free"] for node in now["nodes"]} == dict.fromkeys(lab.ready())
    assert {line.partition(":")[0] for line in now["cannot_tell"]} == {
        "components", "what is held and free on nodes", "what waits in queues",
    }  # fmt: skip


def held(kube: Kube) -> str:
    """What Volcano notes as held in the default queue."""
    queue = next(one for one in kube.queues() or () if one["metadata"]["name"] == "default")
    return str(((queue.get("status") or {}).get("allocated") or {}).get("cpu"))


@pytest.mark.usefixtures("kubeconfig")
def test_somebody_with_nothing_granted_sees_nothing_and_is_told_so(lab: Lab, kube: Kube) -> None:
    with story(lab, "unseen", Story("")) as unseen:
        lab.wait("it runs", lambda: "2 of 2 pods run" in asked(kube, unseen).first_line)
        kube.api.set_default_header("Impersonate-User", "mallory")
        try:
            now = screen(kube)
        finally:
            del kube.api.default_headers["Impersonate-User"]
    assert "unseen" not in json.dumps(now)
    assert not any(now[name] for name in ("components", "queues", "jobs", "gpus", "nodes"))
    assert {line.partition(":")[0] for line in now["cannot_tell"]} == {
        "components", "what is held and free on nodes", "what waits in queues", "nodes", "queues",
        "jobs of other namespaces than default", "jobs in namespace default",
    }  # fmt: skip
