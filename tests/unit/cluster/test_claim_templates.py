"""What submit.py does with the templates of a job's claims: the job owns them, and a new job has new ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.device_claims import is_template
from gangplank.cli import main
from gangplank.cluster import submit
from gangplank.cluster.client import Kube, path
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site

if TYPE_CHECKING:
    from tests.unit.conftest import Api

Json = dict[str, Any]
DRA = Gpus(allocation="dra", device_class="gpu.example.com")
each_backend = pytest.mark.parametrize("backend", [name for name, item in BACKENDS.items() if not item.no_claims])


@pytest.fixture(autouse=True)
def volcano(api: Api) -> None:
    """The cluster has Volcano and the operator."""
    api.objects = {where: {"kind": "there"} for where in ("/apis/scheduling.volcano.sh", "/apis/kubeflow.org/v1")}


def manifests(backend: str, gpus: int = 1) -> list[Json]:
    job = {"name": "a", "image": "i", "command": ["true"], "backend": backend, "collective": "gloo"}
    return BACKENDS[backend].manifests(
        on_site(parse_job({**job, "resources": {"gpus": gpus}, "processes_per_node": 1}), DRA)
    )


def run(described: list[Json], *, replace: bool = False) -> None:
    kube = Kube()
    todo = submit.plan(kube, described, replace=replace)
    if todo.refused:
        raise KubeError("\n".join(todo.refused))
    submit.carry_out(kube, todo, dry_run=False)


def templates(api: Api) -> list[Json]:
    return [item for item in api.objects.values() if is_template(item)]


def owners(api: Api) -> list[list[str]]:
    return [[one["uid"] for one in item["metadata"].get("ownerReferences", [])] for item in templates(api)]


@each_backend
def test_the_job_owns_its_template_and_a_second_submission_changes_nothing(api: Api, backend: str) -> None:
    run(described := manifests(backend))
    (template,) = templates(api)
    (reference,) = template["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["name"]) == (described[-1]["kind"], "a")
    assert reference["uid"]
    asked = len(api.seen)
    run(manifests(backend))
    assert {line.split()[0] for line in api.seen[asked:]} == {"GET"}


@each_backend
def test_a_job_that_replaces_another_does_not_keep_a_template_that_goes_with_it(api: Api, backend: str) -> None:
    run(manifests(backend, 1))
    for where, item in list(api.objects.items()):
        if item.get("kind") in {"Job", "PyTorchJob"}:
            api.objects[where] = {**item, "metadata": {**item["metadata"], "uid": "first"}}
        elif is_template(item):
            meta = {**item["metadata"], "ownerReferences": [{"uid": "first"}]}
            api.objects[where] = {**item, "metadata": meta}
    changed = manifests(backend, 1)
    changed[-1]["metadata"]["labels"]["x"] = "y"
    changed[-1]["spec"]["ttlSecondsAfterFinished"] = 7
    run(changed, replace=True)
    assert [uids for uids in owners(api) if "first" not in uids] == owners(api) != []
    deleted = [line for line in api.seen if line.startswith("DELETE") and "resourceclaimtemplates" in line]
    assert len(deleted) == 1, "it was removed before the new one was written"


@each_backend
def test_a_field_that_the_cluster_would_drop_is_refused_before_anything_is_created(api: Api, backend: str) -> None:
    asked: list[str] = []
    answer = api.answer

    def strict(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        if "fieldValidation=Strict" in query and "dryRun=All" in query:
            asked.append(where)
            return 400, b'{"message": "strict decoding error: unknown field \\"spec.template.spec.resourceClaims\\""}'
        return answer(method, where, query, body)

    api.answer = strict  # type: ignore[method-assign]  # an API server whose CRD is old
    before = dict(api.objects)
    with pytest.raises(KubeError, match=r"expected a job whose pods can claim devices"):
        run(manifests(backend))
    assert asked
    assert api.objects == before


def test_a_trainjob_whose_patches_an_older_trainer_would_drop_is_refused(api: Api) -> None:
    """Its pods would have no volumes and no script, and its output would be lost."""
    job = parse_job({"name": "a", "image": "i", "script": "/a.py", "backend": "trainjob"})
    message = b'{"message": "strict decoding error: unknown field \\"spec.runtimePatches\\""}'
    answer = api.answer

    def old(method: str, where: str, query: str, body: Json) -> tuple[int, bytes]:
        return (400, message) if "fieldValidation=Strict" in query else answer(method, where, query, body)

    api.answer = old  # type: ignore[method-assign]  # an API server whose CRD is old
    with pytest.raises(KubeError, match=r"spec.runtimePatches.*, expected Kubeflow Trainer 2.3 or later"):
        run(BACKENDS["trainjob"].manifests(job))


def test_a_job_without_claims_is_not_asked_for_strictly(api: Api) -> None:
    run(manifests("indexed", 0))
    assert not [line for line in api.seen if "fieldValidation" in line]


def test_delete_removes_a_template_that_nobody_owns_yet(api: Api, tmp_path: Any) -> None:
    described = manifests("indexed")
    for item in described:  # as if the submission had been killed before the job owned it
        where = path(item["apiVersion"], item["kind"], "default", item["metadata"]["name"])
        api.objects[where] = item
    file = tmp_path / "a.yml"
    file.write_text("\n---\n".join(json.dumps(item) for item in described))
    assert main(["delete", str(file), "--kubeconfig", api.kubeconfig]) == 0
    assert templates(api) == []
