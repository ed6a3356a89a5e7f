"""Every way to a foreign queue, address or image is closed, also to an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import GPU_TOLERATION
from gangplank.cluster.evidence import reader
from gangplank.jobs.parse import parse_job
from tests.support.teams_live import ROOT, allowing_admin_access, answer, gangplank, pod, until
from tests.support.teams_ways import (
    ADMIN_ACCESS,
    BATCH,
    COMMANDS,
    EVIL,
    EXPOSURES,
    EXTERNAL_IPS,
    EXTERNAL_IPS_DENIED,
    QUEUE_API,
    SERVICES,
    TEMPLATES,
    WAYS,
    WHERE,
    command,
    exposure,
    pod_group,
    service,
    violations,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
QUEUE = 'team vision: queue "{}" is not one of its queues (vision)'
NAMES = [way[0] for way in WAYS]
each_way = pytest.mark.parametrize(("where", "build", "absent"), [way[1:] for way in WAYS], ids=NAMES)


@pytest.mark.usefixtures("crds")
@each_way
def test_only_the_team_s_own_queue_is_accepted(
    kube: Kube, where: str, build: Callable[[str | None], Json], absent: str
) -> None:
    assert answer(kube, "POST", where, build("vision"), dryRun="All") == ""
    for queue in ("speech", "default"):
        assert QUEUE.format(queue) in answer(kube, "POST", where, build(queue), dryRun="All")
    reply = answer(kube, "POST", where, build(None), dryRun="All")
    assert reply == "" if absent == "allowed" else QUEUE.format(absent) in reply


def test_a_pod_group_does_not_move_to_another_queue(kube: Kube) -> None:
    place = WHERE["PodGroup"]
    kube.call("POST", place, pod_group("vision"))
    try:
        assert QUEUE.format("speech") in answer(kube, "PATCH", f"{place}/probe", {"spec": {"queue": "speech"}})
    finally:
        kube.call("DELETE", f"{place}/probe")


def test_a1_a_member_commands_jobs_of_the_team_but_cannot_close_a_queue(
    kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    bob = as_member("vision", "bob")
    for queue in ("speech", "research", "default", "vision"):
        reply = answer(bob, "POST", COMMANDS, command(QUEUE_API, "Queue", queue, "CloseQueue"))
        assert f'target "{QUEUE_API} Queue" is not one of its targets ({BATCH} Job)' in reply
    queues = kube.call("GET", f"/apis/{QUEUE_API}/queues")["items"]
    assert {item.get("status", {}).get("state", "Open") for item in queues} == {"Open"}
    assert answer(bob, "POST", COMMANDS, command(BATCH, "Job", "digits", "AbortJob"), dryRun="All") == ""


def test_a2_a_member_s_service_takes_only_its_own_address(as_member: Callable[[str, str], Kube]) -> None:
    bob, place = as_member("vision", "bob"), f"{SERVICES}/probe"
    assert answer(bob, "POST", SERVICES, service()) == ""
    try:
        for fields in EXPOSURES:
            message = f'exposure "{exposure(fields)}" is not one of its exposures (type: ClusterIP)'
            assert message in answer(bob, "POST", SERVICES, service(**fields), dryRun="All")
            assert message in answer(bob, "PATCH", place, {"spec": fields})
        assert EXTERNAL_IPS_DENIED in answer(bob, "POST", SERVICES, service(**EXTERNAL_IPS), dryRun="All")
        assert EXTERNAL_IPS_DENIED in answer(bob, "PATCH", place, {"spec": EXTERNAL_IPS})
        assert answer(bob, "PATCH", place, {"spec": {"publishNotReadyAddresses": True}}) == ""
    finally:
        bob.call("DELETE", place)
    assert answer(bob, "POST", SERVICES, service(clusterIP="None"), dryRun="All") == "", "as Volcano makes one"


def test_a5_a_member_s_pod_mounts_only_image_volumes_of_the_team(as_member: Callable[[str, str], Kube]) -> None:
    bob, manifest = as_member("vision", "bob"), pod("probe", "vision", "vision")
    for image, refused in ((EVIL, True), ("gangplank.dev/data:1", False)):
        manifest["spec"]["volumes"] = [{"name": "x", "image": {"reference": image}}]
        reply = answer(bob, "POST", WHERE["pod"], manifest, dryRun="All")
        assert f'image "{image}" is not one of its images' in reply if refused else not reply


def test_a4_a_job_cannot_be_marked_later_to_keep_what_it_borrowed(as_member: Callable[[str, str], Kube]) -> None:
    bob, where = as_member("vision", "bob"), WHERE["Volcano CronJob"]
    manifest = next(build for name, _, build, _ in WAYS if name == "Volcano CronJob")("vision")
    assert answer(bob, "POST", where, manifest) == ""
    try:
        for part in ("annotations", "labels"):
            reply = answer(bob, "PATCH", f"{where}/probe", {"metadata": {part: {"volcano.sh/preemptable": "false"}}})
            assert 'mark "volcano.sh/preemptable" is not one of its marks (none)' in reply
        assert answer(bob, "PATCH", f"{where}/probe", {"metadata": {"labels": {"stage": "two"}}}) == ""
    finally:
        bob.call("DELETE", f"{where}/probe")


def test_a4_a_running_pod_that_is_deleted_slowly_does_not_keep_its_place(
    kube: Kube, as_member: Callable[[str, str], Kube], start_pod: Callable[[Json, Callable[[Json], bool]], str]
) -> None:
    """What ends slowly is not evicted again. (A pod without a node holds nothing, and is removed at once.)"""
    bob, dry = as_member("vision", "bob"), {"dryRun": ["All"]}  # the options in a body replace those of the address
    where = start_pod(pod("slow", "vision", "vision", "sleep", "600"), lambda status: status["phase"] == "Running")
    for seconds in (31, 10**7):
        reply = answer(bob, "DELETE", where, dry | {"gracePeriodSeconds": seconds})
        assert f'team vision: grace period "{seconds}" is not one of its gracePeriods (30 or less)' in reply
        assert answer(bob, "DELETE", where, dryRun="All", gracePeriodSeconds=str(seconds)) == reply
    assert answer(bob, "DELETE", where, dry | {"gracePeriodSeconds": 30}) == ""
    assert answer(bob, "DELETE", where, dry) == ""
    assert answer(kube, "DELETE", where, dry | {"gracePeriodSeconds": 60}) == "", "an administrator may"


def test_a_job_with_the_name_of_a_network_policy_does_not_remove_it(
    kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    """When a job ends, Volcano's plugin svc removes the policy of the job's name, whoever made it (as in A1)."""
    bob, where = as_member("vision", "bob"), WHERE["Volcano Job"]
    policies = "/apis/networking.k8s.io/v1/namespaces/vision/networkpolicies"
    names = {item["metadata"]["name"] for item in kube.call("GET", policies)["items"]}
    assert {"gangplank-nothing", "gangplank-allowed"} <= names
    manifest = next(build for name, _, build, _ in WAYS if name == "Volcano Job")("vision")
    manifest["metadata"]["name"] = "gangplank-nothing"
    ends = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    manifest["spec"] |= {"minAvailable": 1, "plugins": {"svc": []}, "policies": ends}
    bob.call("POST", where, manifest)
    try:
        job = f"{where}/gangplank-nothing"
        until(lambda: kube.call("GET", job).get("status", {}).get("state", {}).get("phase") == "Completed", "job ended")
        assert {item["metadata"]["name"] for item in kube.call("GET", policies)["items"]} >= names
    finally:
        bob.call("DELETE", f"{where}/gangplank-nothing")
    assert answer(kube, "DELETE", f"{policies}/gangplank-nothing", {"dryRun": ["All"]}) == "", "an administrator may"


def test_a7_the_pod_that_reads_evidence_may_run_on_a_gpu_node_without_a_gpu(
    as_member: Callable[[str, str], Kube],
) -> None:
    volumes = [{"claim": "data", "mount": "/data", "on": "master"}]
    job: Json = {"name": "digits", "team": "vision", "image": "gangplank.dev/trainer:0.1.0", "script": "/a.py"}
    job |= {"output": "/data/out", "volumes": volumes, "resources": {"gpus": 1}}
    manifest = reader(BACKENDS["volcano"].manifests(parse_job(job))[-1])
    assert manifest is not None
    assert GPU_TOLERATION in manifest["spec"]["tolerations"]
    bob = as_member("vision", "bob")
    assert answer(bob, "POST", WHERE["pod"], manifest, dryRun="All") == ""
    del manifest["spec"]["containers"][0]["env"]
    assert 'toleration "nvidia.com/gpu" is not one of' in answer(bob, "POST", WHERE["pod"], manifest, dryRun="All")


def test_admin_access_is_refused_even_where_the_namespace_allows_it(
    kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    refusal = 'field "ExactDeviceRequest.adminAccess" is not one of its fields (none)'
    bob = as_member("vision", "bob")
    with allowing_admin_access(kube, "vision"):
        until(lambda: refusal in answer(bob, "POST", TEMPLATES, ADMIN_ACCESS, dryRun="All"), "refused by the policy")


@pytest.mark.usefixtures("crds", "admin")
def test_every_violation_is_refused_with_its_message(kube: Kube, as_member: Callable[[str, str], Kube]) -> None:
    """Among them one for each field that the census does not call harmless (faults A1, A2, A4 to A8, A11, A13)."""
    posters = {"": kube} | {member: as_member("vision", member) for member in ("ada", "bob")}
    replies = [
        (item, answer(posters[item.poster], "POST", item.where, item.manifest, dryRun="All"))
        for item in violations()
    ]
    assert {item.name: (item.message, reply) for item, reply in replies if item.message not in reply} == {}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("priorityClassName", "system-node-critical", "system-node-critical"),
        ("hostNetwork", True, 'violates PodSecurity "restricted:latest"'),
        ("priorityClassName", "normal", ""),
    ],
    ids=["critical", "host network", "granted"],
)
def test_a_pod_may_use_what_the_team_has_and_nothing_else(kube: Kube, field: str, value: object, message: str) -> None:
    manifest = pod("probe", "vision", "vision")
    manifest["spec"][field] = value
    reply = answer(kube, "POST", "/api/v1/namespaces/vision/pods", manifest, dryRun="All")
    assert message in reply if message else not reply


def test_a_member_s_pod_without_requests_gets_the_team_s(as_member: Callable[[str, str], Kube]) -> None:
    """The API server notes in an annotation what it filled in, which must not look like the member's."""
    manifest = pod("probe", "vision", "vision")
    del manifest["spec"]["containers"][0]["resources"]
    assert answer(as_member("vision", "bob"), "POST", WHERE["pod"], manifest, dryRun="All") == ""


def test_more_than_the_quota_is_refused(kube: Kube) -> None:
    greedy = pod("probe", "vision", "vision", cpu="2100m")
    assert "exceeded quota: gangplank-team" in answer(
        kube, "POST", "/api/v1/namespaces/vision/pods", greedy, dryRun="All"
    )
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"metadata": {"name": "more"}, "spec": wanted}
    where = "/api/v1/namespaces/vision/persistentvolumeclaims"
    assert "exceeded quota: gangplank-team" in answer(kube, "POST", where, claim, dryRun="All")


def test_gangplank_submit_reports_the_refusal_of_a_foreign_queue(
    kubeconfigs: Callable[[str, str], str], tmp_path: Path
) -> None:
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    job["training_job"] |= {"team": "vision", "queue": "speech"}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    done = gangplank("submit", str(tmp_path / "job.yml"), kubeconfig=kubeconfigs("vision", "bob"))
    assert done.returncode != 0
    assert QUEUE.format("speech") in done.stderr
    assert "Traceback" not in done.stderr


def test_namespaces_without_a_team_are_not_restricted(kube: Kube) -> None:
    free = pod("probe", "default", "default")
    free["spec"]["schedulerName"] = "default-scheduler"
    assert answer(kube, "POST", "/api/v1/namespaces/default/pods", free, dryRun="All") == ""
