"""What is read of CSI drivers: little, only where a claim may need one, and said where it may not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.client import Kube
from gangplank.cluster.situation import situation
from gangplank.cluster.snapshot import ignored
from gangplank.scheduling.fit import Answer, Verdict, fit
from tests.support.why_stories import Story, manifests
from tests.unit.scheduling.states import node, queue
from tests.unit.scheduling.test_drivers import DRIVER, MOUNT, claim, csi_node, late, volume

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
STORAGE = "/apis/storage.k8s.io/v1"
SPACE = "why-mounts"  # of the story
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"


@pytest.fixture
def forbidden(api: Api, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Paths that this person may not list; the cluster has a node that runs the driver of a claim's volume."""
    paths: set[str] = set()
    usual = api.answer

    def answer(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        return (403, b'{"message": "forbidden"}') if where in paths else usual(method, where, query, body)

    monkeypatch.setattr(api, "answer", answer)
    api.objects |= {
        "/api/v1/nodes/a": node("a"),
        f"{STORAGE}/csinodes/a": csi_node("a", DRIVER),
        f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/data": claim(namespace=SPACE),
        "/api/v1/persistentvolumes/v-data": volume(namespace=SPACE),
        **{f"{QUEUES}/{name}": queue(name) for name in ("root", "default")},
        "/apis/scheduling.volcano.sh": {},
    }
    return paths


def answer(change: Json) -> Answer:
    """Of fit, about a job that is not submitted."""
    now = situation(Kube(), manifests("mounts", Story("", change, submitted=False))[-1], live=False)
    assert now.demand
    return fit(now.demand, now.state)


@pytest.mark.usefixtures("forbidden")
@pytest.mark.parametrize(("change", "reads"), [({}, False), ({"volumes": MOUNT}, True)])
def test_drivers_are_read_where_a_claim_needs_one(api: Api, change: Json, reads: bool) -> None:
    assert answer(change).verdict is Verdict.YES
    assert any(f"GET {STORAGE}/csinodes" in line for line in api.seen) is reads
    api.objects[f"{STORAGE}/csinodes/a"] = csi_node("a")
    assert [cause.code for cause in answer(change).causes] == (["volume-driver"] if reads else [])


@pytest.mark.parametrize("where", [f"{STORAGE}/csinodes", f"{STORAGE}/csidrivers", "/apis/apps/v1/deployments"])
def test_who_may_not_list_the_nodes_drivers_gets_cannot_tell_for_them_alone(forbidden: set[str], where: str) -> None:
    forbidden.add(where)
    assert answer({}).verdict is Verdict.YES
    said = answer({"volumes": MOUNT})
    blind = where.endswith("csinodes")  # the driver is on a node, so that no other name is needed to know it
    assert said.missing == (("csinodes (you may not list them)",) if blind else ())
    assert said.verdict is (Verdict.CANNOT_TELL if blind else Verdict.YES)


def test_a_team_s_member_who_may_not_read_volumes_gets_the_driver_of_the_claim_s_annotation(
    api: Api, forbidden: set[str]
) -> None:
    forbidden |= {"/api/v1/persistentvolumes", f"{STORAGE}/storageclasses"}
    own = claim(namespace=SPACE)
    own["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": DRIVER}
    api.objects[f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/data"] = own
    api.objects[f"{STORAGE}/csidrivers/d"] = {"metadata": {"name": DRIVER}}
    unread = ("persistentvolumes (you may not list them)",)
    assert (answer({"volumes": MOUNT}).verdict, answer({"volumes": MOUNT}).missing) == (Verdict.CANNOT_TELL, unread)
    api.objects[f"{STORAGE}/csinodes/a"] = csi_node("a")
    assert [cause.code for cause in answer({"volumes": MOUNT}).causes] == ["volume-driver"]


@pytest.mark.usefixtures("forbidden")
def test_what_a_scheduler_ignores_that_is_not_to_be_seen_is_missing(api: Api) -> None:
    own = late("nfs.example.com/external")
    api.objects |= {
        f"/api/v1/namespaces/{SPACE}/persistentvolumeclaims/data": own["claims"][0],
        f"{STORAGE}/storageclasses/late": own["classes"][0],
    }
    assert answer({"volumes": MOUNT}).verdict is Verdict.CANNOT_TELL
    assert answer({"volumes": MOUNT}).missing == ("deployments of its scheduler (none has vc-scheduler)",)


@pytest.mark.parametrize(("words", "names"), [
    (["--ignored-provisioners=a.b,c"], {"a.b", "c"}),
    (["--ignored-provisioners", "a.b", "--ignored-provisioners=c"], {"a.b", "c"}),
    ([], set()),
])  # fmt: skip
def test_the_provisioners_that_volcano_ignores_are_a_flag_of_its_scheduler(words: list[str], names: set[str]) -> None:
    def deployment(image: str, args: list[str]) -> Json:
        container = {"image": image, "args": args}
        return {"spec": {"template": {"spec": {"containers": [container]}}}}

    other = deployment("registry/other:1", ["--ignored-provisioners=x"])
    assert ignored([deployment("registry/vc-scheduler:v1", words), other]) == frozenset(names)
    assert ignored([other]) is None, "that of a mirror with names of its own may ignore any"
