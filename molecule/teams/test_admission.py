"""Every way to a queue, an address or an image is closed but for the team's own, for an administrator too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.support.teams_live import ROOT, answer, gangplank, pod
from tests.support.teams_ways import (
    BATCH,
    COMMANDS,
    EXPOSURES,
    EXTERNAL_IPS,
    EXTERNAL_IPS_DENIED,
    QUEUE_API,
    SERVICES,
    VOLUME,
    WAYS,
    WHERE,
    Subject,
    command,
    exposure,
    group,
    service,
    subjects,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
QUEUE = 'team vision: queue "{}" is none of its queues (vision)'
each_way = pytest.mark.parametrize(("where", "made", "absent"), [way[1:] for way in WAYS], ids=[way[0] for way in WAYS])


@pytest.mark.usefixtures("crds")
@each_way
def test_a_foreign_queue_the_default_one_and_none_are_refused_and_the_own_one_is_not(
    kube: Kube, where: str, made: Callable[[str | None], Json], absent: str
) -> None:
    assert answer(kube, "POST", where, made("vision"), dryRun="All") == ""
    for queue in ("speech", "default"):
        assert QUEUE.format(queue) in answer(kube, "POST", where, made(queue), dryRun="All")
    told = answer(kube, "POST", where, made(None), dryRun="All")
    assert told == "" if absent == "allowed" else QUEUE.format(absent) in told


def test_a_pod_group_does_not_move_to_another_queue(kube: Kube) -> None:
    place = WHERE["PodGroup"]
    kube.call("POST", place, group("vision"))
    try:
        assert QUEUE.format("speech") in answer(kube, "PATCH", f"{place}/probe", {"spec": {"queue": "speech"}})
    finally:
        kube.call("DELETE", f"{place}/probe")


def test_a_member_closes_no_queue_and_commands_the_team_s_jobs(
    kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    bob = as_member("vision", "bob")
    for queue in ("speech", "research", "default", "vision"):
        told = answer(bob, "POST", COMMANDS, command(QUEUE_API, "Queue", queue, "CloseQueue"))
        assert f'target "{QUEUE_API} Queue" is none of its targets ({BATCH} Job)' in told
    queues = kube.call("GET", f"/apis/{QUEUE_API}/queues")["items"]
    assert {item.get("status", {}).get("state", "Open") for item in queues} == {"Open"}
    assert answer(bob, "POST", COMMANDS, command(BATCH, "Job", "digits", "AbortJob"), dryRun="All") == ""


def test_a_member_s_service_takes_no_address_but_its_own(as_member: Callable[[str, str], Kube]) -> None:
    bob, place = as_member("vision", "bob"), f"{SERVICES}/probe"
    assert answer(bob, "POST", SERVICES, service()) == ""
    try:
        for fields in EXPOSURES:
            told = f'exposure "{exposure(fields)}" is none of its exposures (type: ClusterIP)'
            assert told in answer(bob, "POST", SERVICES, service(**fields), dryRun="All")
            assert told in answer(bob, "PATCH", place, {"spec": fields})
        assert EXTERNAL_IPS_DENIED in answer(bob, "POST", SERVICES, service(**EXTERNAL_IPS), dryRun="All")
        assert EXTERNAL_IPS_DENIED in answer(bob, "PATCH", place, {"spec": EXTERNAL_IPS})
        assert answer(bob, "PATCH", place, {"spec": {"publishNotReadyAddresses": True}}) == ""
    finally:
        bob.call("DELETE", place)
    assert answer(bob, "POST", SERVICES, service(clusterIP="None"), dryRun="All") == "", "as Volcano makes one"


def test_a_member_s_pod_takes_image_volumes_that_the_team_has(as_member: Callable[[str, str], Kube]) -> None:
    bob, manifest = as_member("vision", "bob"), pod("probe", "vision", "vision")
    for image, refused in ((VOLUME["image"]["reference"], True), ("gangplank.dev/data:1", False)):
        manifest["spec"]["volumes"] = [{"name": "x", "image": {"reference": image}}]
        told = answer(bob, "POST", WHERE["pod"], manifest, dryRun="All")
        assert f'image "{image}" is none of its images' in told if refused else not told


def test_a_job_is_not_marked_later_so_that_it_keeps_what_was_borrowed(as_member: Callable[[str, str], Kube]) -> None:
    bob, where = as_member("vision", "bob"), WHERE["JobTemplate"]
    manifest = next(build for name, _, build, _ in WAYS if name == "JobTemplate")("vision")
    assert answer(bob, "POST", where, manifest) == ""
    try:
        for part in ("annotations", "labels"):
            told = answer(bob, "PATCH", f"{where}/probe", {"metadata": {part: {"volcano.sh/preemptable": "false"}}})
            assert 'annotation or label "volcano.sh/preemptable" is none of its marks (none)' in told
        assert answer(bob, "PATCH", f"{where}/probe", {"metadata": {"labels": {"stage": "two"}}}) == ""
    finally:
        bob.call("DELETE", f"{where}/probe")


@pytest.mark.usefixtures("crds", "admin")
def test_nothing_is_taken_that_the_team_has_not_by_any_way(kube: Kube) -> None:
    def told(subject: Subject) -> str:
        return answer(kube, "POST", subject.where, subject.manifest, dryRun="All")

    found = {subject.name: (subject.told, told(subject)) for subject in subjects()}
    assert {name: both for name, both in found.items() if both[0] not in both[1]} == {}


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("priorityClassName", "system-node-critical", "system-node-critical"),
        ("hostNetwork", True, 'violates PodSecurity "restricted:latest"'),
        ("priorityClassName", "normal", ""),
    ],
    ids=["critical", "host network", "granted"],
)
def test_a_pod_takes_what_the_team_has_and_no_more(kube: Kube, field: str, value: object, told: str) -> None:
    manifest = pod("probe", "vision", "vision")
    manifest["spec"][field] = value
    seen = answer(kube, "POST", "/api/v1/namespaces/vision/pods", manifest, dryRun="All")
    assert told in seen if told else not seen


def test_more_than_the_quota_is_refused(kube: Kube) -> None:
    greedy = pod("probe", "vision", "vision", cpu="2100m")
    assert "exceeded quota: gangplank-team" in answer(
        kube, "POST", "/api/v1/namespaces/vision/pods", greedy, dryRun="All"
    )
    claim = {"metadata": {"name": "more"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    claim["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
    where = "/api/v1/namespaces/vision/persistentvolumeclaims"
    assert "exceeded quota: gangplank-team" in answer(kube, "POST", where, claim, dryRun="All")


def test_a_foreign_queue_is_refused_where_a_person_submits(
    kubeconfigs: Callable[[str, str], str], tmp_path: Path
) -> None:
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    job["training_job"] |= {"team": "vision", "queue": "speech"}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    done = gangplank("submit", str(tmp_path / "job.yml"), kubeconfig=kubeconfigs("vision", "bob"))
    assert done.returncode != 0
    assert QUEUE.format("speech") in done.stderr
    assert "Traceback" not in done.stderr


def test_namespaces_of_nobody_are_as_free_as_before(kube: Kube) -> None:
    free = pod("probe", "default", "default")
    free["spec"]["schedulerName"] = "default-scheduler"
    assert answer(kube, "POST", "/api/v1/namespaces/default/pods", free, dryRun="All") == ""
