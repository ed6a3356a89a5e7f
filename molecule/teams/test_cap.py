"""A3: each way round a cap is refused by the quota or the LimitRange, and ordinary jobs of every back-end fit."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.teams.job_defaults import with_team
from gangplank.teams.load import load
from gangplank.teams.namespaces import create
from gangplank.teams.objects import namespace
from tests.support.inventories import LAB
from tests.support.teams_live import ROOT, answer, edited_copy, pod, teams, until
from tests.support.teams_ways import DEVICE, OF_CLASS, WAYS, WHERE, claim_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
DRY = {"dryRun": "All"}
PODS = "/api/v1/namespaces/vision/pods"
QUOTA = "exceeded quota: gangplank-team"
NOT_GRANTED = '" is not one of its resources'  # admission comes before the quota
MIG = "nvidia.com/mig-1g.10gb"
SUSPENDED: Json = {"schedule": "0 0 30 2 *", "suspend": True}
# What a member may create: the API group, the object without its name, and the member.
MANY: dict[str, tuple[str, Json, str]] = {
    "services": ("/api/v1", {"spec": {"clusterIP": "None", "ports": [{"port": 1}]}}, "bob"),
    "configmaps": ("/api/v1", {"data": {"a": "b"}}, "bob"),
    "secrets": ("/api/v1", {"stringData": {"a": "b"}}, "ada"),
    "cronjobs": ("/apis/batch/v1", {"spec": SUSPENDED}, "bob"),
    "leases": ("/apis/coordination.k8s.io/v1", {"spec": {"holderIdentity": "bob"}}, "bob"),
}


def greedy(resources: Json, spec: Json | None = None) -> Json:
    """A pod of vision with other resources."""
    manifest = pod("greedy", "vision", "vision")
    manifest["spec"] |= spec or {}
    manifest["spec"]["containers"][0]["resources"] = resources
    return manifest


def starting(resources: Json) -> Json:
    """A pod whose init container has these resources."""
    manifest = greedy({})
    manifest["spec"]["initContainers"] = [copy.deepcopy(manifest["spec"]["containers"][0]) | {"name": "first"}]
    manifest["spec"]["initContainers"][0]["resources"] = resources
    return manifest


GREEDY = {
    "no cpu requested": (greedy({"requests": {"cpu": "0"}}), "minimum cpu usage per Container is 10m, but"),
    "no memory requested": (greedy({"requests": {"memory": "0"}}), "minimum memory usage per Container is 4Mi"),
    "no disk requested": (greedy({"requests": {"ephemeral-storage": "0"}}), "minimum ephemeral-storage usage"),
    "a limit of 0 disk": (greedy({"limits": {"ephemeral-storage": "0"}}), "minimum ephemeral-storage usage"),
    "an init container that requests nothing": (starting({"requests": {"cpu": "0"}}), "minimum cpu usage"),
    "a pod that requests nothing as a whole": (
        greedy({"requests": {"cpu": "0"}}, {"resources": {"requests": {"cpu": "10m"}}}),
        "minimum cpu usage",
    ),
    "more than its requests": (greedy({"requests": {"cpu": "10m"}, "limits": {"cpu": "100"}}), QUOTA),
    "all memory of a node": (greedy({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Ti"}}), QUOTA),
    "all disk of a node": (greedy({"limits": {"ephemeral-storage": "1Ti"}}), QUOTA),
    "no limit": (greedy({"requests": {"cpu": "1"}}), "must be less than or equal to cpu limit"),
    "a GPU": (greedy({"limits": {"nvidia.com/gpu": "1"}}), NOT_GRANTED),
    "huge pages": (greedy({"limits": {"hugepages-2Mi": "2Mi", "memory": "64Mi"}}), NOT_GRANTED),
}


@pytest.mark.parametrize("way", GREEDY)
def test_a3_a_pod_cannot_go_round_the_cap(way: str, as_member: Callable[[str, str], Kube]) -> None:
    manifest, words = GREEDY[way]
    assert words in answer(as_member("vision", "bob"), "POST", PODS, manifest, **DRY)


def test_a3_a_pod_without_resources_runs_within_the_defaults(as_member: Callable[[str, str], Kube]) -> None:
    accepted = as_member("vision", "bob").call("POST", PODS, greedy({}), DRY)["spec"]["containers"][0]["resources"]
    assert accepted["requests"] == accepted["limits"] == {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "2Gi"}


def test_a3_claims_of_devices_stop_at_the_cap(kube: Kube, as_member: Callable[[str, str], Kube]) -> None:
    """The team has two devices of a class: of three pods that claim one each, the third gets no claim."""
    bob, space = as_member("vision", "bob"), "/apis/resource.k8s.io/v1/namespaces/vision"
    template = claim_template({"exactly": DEVICE})
    posted = [(f"{space}/resourceclaimtemplates", template)]
    for number in range(3):
        manifest = pod(f"claims-{number}", "vision", "vision")
        manifest["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "probe"}]
        manifest["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus"}]}
        posted.append((PODS, manifest))
    try:
        for where, item in posted:
            assert answer(bob, "POST", where, item) == ""
        events = "/api/v1/namespaces/vision/events"
        until(lambda: f"{QUOTA}, requested: {OF_CLASS}.deviceclass.resource.k8s.io/devices=1, used:" in str(
            [event["message"] for event in bob.call("GET", events)["items"]]), "a claim beyond the cap")  # fmt: skip
        assert len(bob.call("GET", f"{space}/resourceclaims")["items"]) == 2
        mine = answer(bob, "POST", f"{space}/resourceclaims", {"metadata": {"name": "own"}, "spec": {}})
        assert "cannot create resource" in mine, "members write templates alone"
    finally:
        for where, item in posted:
            kube.call("DELETE", f"{where}/{item['metadata']['name']}")
        until(lambda: kube.call("GET", f"{space}/resourceclaims")["items"] == [], "the claims are gone")


@pytest.mark.parametrize("plural", MANY)
def test_a3_no_member_fills_the_cluster_with_objects(
    plural: str, kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    group, rest, member = MANY[plural]
    if plural == "cronjobs":
        template = pod("x", "vision", "vision")
        meta = {"annotations": template["metadata"]["annotations"]}
        job = {"spec": {"template": {"metadata": meta, "spec": template["spec"]}}}
        rest = {"spec": rest["spec"] | {"jobTemplate": job}}
    where, someone, refusal, count = f"{group}/namespaces/vision/{plural}", as_member("vision", member), "", 0
    try:
        while QUOTA not in refusal and count < 300:
            body = {"metadata": {"name": f"many-{count}", "labels": {"cap": "many"}}, **rest}
            refusal, count = answer(someone, "POST", where, body), count + 1
    finally:
        for item in kube.call("GET", where, query={"labelSelector": "cap=many"})["items"]:
            kube.call("DELETE", f"{where}/{item['metadata']['name']}")
    assert QUOTA in refusal
    assert count < 30, "vision may have 5 jobs of each kind, and what these need"


def test_a3_pods_that_wait_are_counted(kube: Kube, as_member: Callable[[str, str], Kube]) -> None:
    """Their gang is never complete, so that they take no node."""
    bob = as_member("vision", "bob")
    gangs = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups"
    kube.call("POST", gangs, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
              "metadata": {"name": "many"}, "spec": {"minMember": 1000, "queue": "vision"}})  # fmt: skip
    refusal, count = "", 0
    least = {"requests": {"cpu": "10m", "memory": "4Mi", "ephemeral-storage": "1Mi"}}
    try:
        while QUOTA not in refusal and count < 300:  # another refusal is a moment's: a busy server, a late answer
            manifest = greedy(least | {"limits": least["requests"]})
            manifest["metadata"] |= {"name": f"many-{count}", "labels": {"cap": "many"}}
            manifest["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "many"
            refusal, count = answer(bob, "POST", PODS, manifest), count + 1
    finally:
        kube.call("DELETE", PODS, query={"labelSelector": "cap=many"})
        kube.call("DELETE", f"{gangs}/many")
        until(lambda: not kube.call("GET", PODS, query={"labelSelector": "cap=many"})["items"], "no pods are left")
    assert f"{QUOTA}, requested: pods=1" in refusal
    assert count < 80, "60 pods; the quota's controller counts from a cache, and may forget some of the last second's"


def test_a3_what_a_job_leaves_behind_is_counted(kube: Kube, as_member: Callable[[str, str], Kube]) -> None:
    """A member deletes a job and orphans its PodGroup, which no member can delete. PodGroups without end fill etcd."""
    bob, where = as_member("vision", "bob"), WHERE["Volcano Job"]
    gangs = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups"
    counted = "count/podgroups.scheduling.volcano.sh"

    def orphans() -> list[str]:
        items = kube.call("GET", gangs)["items"]
        return [item["metadata"]["name"] for item in items if item["metadata"]["name"].startswith("left-")]

    def used() -> int:
        status = kube.call("GET", "/api/v1/namespaces/vision/resourcequotas/gangplank-team")["status"]
        return int(status["used"].get(counted, 0))

    until(lambda: used() == len(kube.call("GET", gangs)["items"]), "those of other tests are counted, or gone")
    manifest = next(build for name, _, build, _ in WAYS if name == "Volcano Job")("vision")
    manifest["metadata"]["name"] = "left"
    bob.call("POST", where, manifest)
    try:
        until(orphans, "the job's PodGroup")
        assert answer(bob, "DELETE", f"{where}/left", {"propagationPolicy": "Orphan"}) == ""
        until(lambda: gone(kube, f"{where}/left"), "the job is gone")
        assert orphans()
        until(lambda: used() == len(kube.call("GET", gangs)["items"]) > 0, "its PodGroup is counted")
        for name in orphans():
            assert "cannot delete resource" in answer(bob, "DELETE", f"{gangs}/{name}")
    finally:
        for name in orphans():
            kube.call("DELETE", f"{gangs}/{name}")
        kube.call("DELETE", PODS, query={"labelSelector": "volcano.sh/job-name=left"})


@pytest.fixture
def mig(kube: Kube) -> Iterator[None]:
    """A node advertises parts of a GPU; afterwards no longer."""
    name = kube.call("GET", "/api/v1/nodes")["items"][-1]["metadata"]["name"]

    def advertise(amount: str | None) -> None:
        kube.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"capacity": {MIG: amount}}})

    advertise("4")
    yield
    advertise(None)
    kube.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"allocatable": {MIG: None}}})
    assert teams().returncode == 0


@pytest.mark.usefixtures("mig")
def test_a3_parts_of_gpus_that_a_node_advertises_are_0_after_the_next_run(
    kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    done = teams()
    difference = f'ResourceQuota vision/gangplank-team: spec.hard["requests.{MIG}"]: wanted "0"'
    assert difference in " ".join(done.stdout.split())
    assert NOT_GRANTED in answer(
        as_member("vision", "bob"), "POST", PODS, greedy({"limits": {MIG: "1"}}), **DRY
    )
    capability = kube.call("GET", "/apis/scheduling.volcano.sh/v1beta1/queues/vision")["spec"]["capability"]
    assert capability[MIG] == "0"


@pytest.mark.parametrize("backend", sorted(BACKENDS))
def test_a3_pods_of_an_ordinary_job_fit(backend: str, kube: Kube) -> None:
    """The pods that its controller makes, each as a dry run. What else the admission says of them is not asked here."""
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())["training_job"]
    job = {key: value for key, value in job.items() if key not in {"volumes", "output"}}
    own = with_team(job | {"team": "vision", "backend": backend}, load(str(LAB))[1])
    spec = parse_job({"training_job": own}, "digits")
    made = [item for item in BACKENDS[backend].objects(BACKENDS[backend].manifests(spec)[-1]) if item["kind"] == "Pod"]
    assert made
    for item in made:
        meta = {"name": "digits", "namespace": "vision", "annotations": item["metadata"].get("annotations", {})}
        meta["annotations"]["scheduling.volcano.sh/queue-name"] = "vision"
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": item["spec"]}
        refusal = answer(kube, "POST", PODS, body, **DRY)
        assert not [word for word in ("quota", "usage per", "must be less", "must specify") if word in refusal], refusal


def test_a10_a_namespace_that_appears_during_the_run_stays_as_it_is(kube: Kube, tmp_path: Path) -> None:
    where = "/api/v1/namespaces/teams-late"
    _, specs = load(str(edited_copy(tmp_path, speech={"namespace": "teams-late"})))
    speech = namespace(next(team for team in specs if team.name == "speech"))
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": "teams-late", "labels": {"team": "platform"}}})
    try:
        created, (refused,) = create(kube, [speech])
        assert 'got "teams-late", which exists and does not belong to a team' in refused
        assert not created
        assert not [key for key in kube.call("GET", where)["metadata"]["labels"] if key.startswith("gangplank")]
    finally:
        kube.call("DELETE", where)


def test_a11_an_object_that_keeps_a_namespace_from_its_deletion_is_named(kube: Kube, tmp_path: Path) -> None:
    place = "/api/v1/namespaces/teams-held"
    labels = {"gangplank.dev/part": "team", "gangplank.dev/team": "teams-held"}
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": "teams-held", "labels": labels}})
    kube.call("POST", f"{place}/configmaps", {"metadata": {"name": "mine", "finalizers": ["a.b/c"]}})
    kube.call("DELETE", place)

    def removed() -> str:
        done = teams(edited_copy(tmp_path), teams_remove="teams-held")
        return "" if done.returncode == 0 else " ".join((done.stdout + done.stderr).split())

    try:
        until(lambda: "a.b/c" in str(kube.call("GET", place)["status"]), "the condition names the finalizer")
        assert "got configmaps/mine with the finalizers a.b/c, expected nothing that keeps the namespace" in removed()
    finally:
        kube.call("PATCH", f"{place}/configmaps/mine", {"metadata": {"finalizers": None}})
    until(lambda: gone(kube, place), "the namespace is gone")


def gone(kube: Kube, where: str) -> bool:
    """Whether an object does not exist any more."""
    try:
        return kube.get(where) is None
    except KubeError:
        return False
