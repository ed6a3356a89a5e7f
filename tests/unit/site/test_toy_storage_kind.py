"""A kind of storage that exists in this file alone works everywhere: one entry of KINDS, and no edit of the package."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.errors import Problem, shown
from gangplank.site.claim_pending import why_pending
from gangplank.site.storage import KINDS, Release, StorageKind, class_problems
from gangplank.site.volume_claims import claim_problems
from tests.support.storage import LOCAL, claim, live_claim, live_class
from tools.write_docs_tables import storage_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Json = dict[str, Any]
SHELF = {"name": "shelf", "kind": "toy", "shelf": "top", "colour": "red"}
PROVISIONER = "toys.example.com/shelves"


def problems(inputs: Mapping[str, Any]) -> Iterator[Problem]:
    if inputs["source"] != "lab":
        yield Problem("storage_source", shown(inputs["source"]), "lab, which alone has toys", "set it to lab")


TOY = StorageKind(
    title="a shelf of toys",
    how="the toy maker",
    checked_by="this test",
    needs=("shelf",),
    takes=("colour",),
    access_modes=("ReadOnlyMany",),
    binding_modes=("Immediate",),
    binding="at once",
    provisioner=PROVISIONER,
    csi=False,
    release=Release(
        name="toys",
        namespace="toys",
        chart="{charts}/toys",
        values=lambda classes, inputs: {"shelves": dict(classes), "source": inputs["source"]},
        problems=problems,
        pods=0,
    ),
    values=lambda item: {"shelf": item["shelf"], "colour": item.get("colour", "blue")},
)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "toy", TOY)


def run_filter(name: str, *arguments: Any) -> Any:
    return importlib.import_module("plugins.filter.storage").FilterModule().filters()[name](*arguments)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (SHELF | {"shelf": ""}, "storage_classes[1].shelf: got nothing, expected a shelf for kind toy. Fix: add shelf"),
        (SHELF | {"folder": "/x"}, "Fix: remove it: kind toy takes shelf, colour"),
        (SHELF | {"binding_mode": "WaitForFirstConsumer"}, "Immediate: a volume of kind toy is created at once"),
        ({"name": "n", "kind": "local", "folder": "/x", "shelf": "top"}, "expected no shelf for kind local"),
        ({"name": "n", "kind": "toi"}, "expected one of local, shared, csi, loop, toy"),
    ],
)  # fmt: skip
def test_a_wrong_class_is_refused(item: Json, message: str) -> None:
    (problem,) = class_problems([LOCAL, item])
    assert message in str(problem)
    assert class_problems([LOCAL, SHELF]) == []


def test_claims_are_checked_against_its_access_modes() -> None:
    entry = claim(**{"class": "shelf"})
    assert claim_problems([entry | {"access_modes": ["ReadOnlyMany"]}], [LOCAL, SHELF]) == []
    (problem,) = claim_problems([entry], [LOCAL, SHELF])
    assert (problem.got, problem.fix) == ('["ReadWriteOnce"]', "use the class local-path")
    live = live_class("shelf", PROVISIONER)  # which says that it can
    (problem,) = claim_problems([entry | {"size": "20Gi"}], [LOCAL, SHELF], [live_claim("shelf")], [live])
    assert problem.expected == "10Gi: the class shelf cannot enlarge volumes"


def test_a_claim_that_waits_for_it_is_explained() -> None:
    line = why_pending(live_claim("shelf", "Pending"), [live_class("shelf", PROVISIONER)], [])
    assert f"nobody answers for {PROVISIONER}, which the class shelf names" in line


def test_the_documentation_has_its_row() -> None:
    row = "| `toy` | a shelf of toys | the toy maker | ReadOnlyMany | at once | this test |"
    assert row in storage_table().splitlines()


def test_the_roles_filters_install_and_remove_its_release() -> None:
    inputs: Json = {"charts": "/c", "source": "lab", "local_path_chart": "/l", "local_path_version": "1"}
    inputs["tolerations"] = []
    inputs["helper_image"] = "busybox:1"
    inputs["local_path_image"] = "provisioner"
    local_path, csi, _, toys = run_filter("storage_releases", [LOCAL, SHELF], inputs)
    assert (local_path["classes"], csi["classes"]) == (["local-path"], [])
    assert toys == {
        "name": "toys",
        "namespace": "toys",
        "classes": ["shelf"],
        "chart": "/c/toys",
        "values": {"shelves": {"shelf": {"shelf": "top", "colour": "red"}}, "source": "lab"},
    }
    assert {"name": "toys", "namespace": "toys", "classes": []} in run_filter("storage_releases", [])
    assert run_filter("release_problems", [SHELF], inputs) == []
    assert run_filter("release_problems", [SHELF], inputs | {"source": "release"}) == [
        'storage_source: got "release", expected lab, which alone has toys. Fix: set it to lab'
    ]
    assert run_filter("class_problems", [LOCAL, SHELF], [], []) == []


def test_the_roles_filters_write_its_claims() -> None:
    (written,) = run_filter("volume_claims", [claim(**{"class": "shelf"})])
    assert written["spec"]["storageClassName"] == "shelf"
