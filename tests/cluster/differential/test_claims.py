"""Live controllers make of a job with GPUs by claim what the library foretells: pods, and a claim for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS, device_claims
from gangplank.backends.base import RANDOM
from gangplank.cluster.site import site_of
from gangplank.cluster.submit import adopt
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from tests.cluster.differential.compare import IMAGE, differences, nowhere, unequal
from tests.cluster.differential.normal import key, normal
from tests.cluster.differential.test_trainjob import job as train_job
from tests.cluster.differential.test_trainjob import patch

if TYPE_CHECKING:
    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]
DRA = Gpus(allocation="dra", device_class="gpu.example.com")
BY_CLAIM = [name for name, backend in BACKENDS.items() if not backend.no_claims]


def manifests(backend: str, name: str, cluster: Cluster, **fields: Any) -> list[Json]:
    job: Json = {"name": name, "namespace": cluster.namespace, "image": IMAGE, "backend": backend}
    job |= {"command": ["sleep", "9"], "collective": "gloo", "processes_per_node": 1, "workers": 1}
    job |= {"resources": {"gpus": 2}, **fields}
    if backend != "indexed":
        job["queue"] = "default"
    return BACKENDS[backend].manifests(on_site(parse_job(job), DRA))


def of_pods(item: Json) -> Json:
    """A claim with the random ends of its Indexed Job's pods made alike."""
    text = re.sub(r"(-\d+-)([a-z0-9]{5})(-gp)", rf"\g<1>{RANDOM}\g<3>", item["metadata"]["generateName"])
    owners = [{**one, "name": re.sub(r"(-\d+-)[a-z0-9]{5}$", rf"\g<1>{RANDOM}", one["name"])}
              for one in item["metadata"]["ownerReferences"]]  # fmt: skip
    return {**item, "metadata": {**item["metadata"], "generateName": text, "ownerReferences": owners}}


@pytest.mark.parametrize("backend", BY_CLAIM)
def test_pods_and_claims_are_as_foretold(cluster: Cluster, backend: str) -> None:
    name = f"claims-{backend}"
    submitted = manifests(backend, name, cluster)
    for item in submitted[:-1]:
        cluster.kube.create(item)
    live = site_of(cluster.kube)
    settings = {"gang": live.gang, "init_image": live.init_image, "init_template": live.init_template,
                "init_tries": live.init_tries} if backend == "pytorchjob" else {}  # fmt: skip
    assert differences(backend, [submitted[-1]], cluster, **settings) == []
    predicted = BACKENDS[backend].objects(nowhere(submitted[-1]))
    claims = list(device_claims.claims_of(predicted, submitted))
    assert len(claims) == 2

    def live_claims() -> list[Json]:
        items = [{**item, "kind": "ResourceClaim"} for item in cluster.items("ResourceClaim")]
        return [item for item in items if item["metadata"]["generateName"].startswith(name)]

    cluster.wait(lambda: len(live_claims()) == 2, "ResourceClaim")
    real = {key(item, name): normal(item, name) for item in map(of_pods, live_claims())}
    foretold = {key(item, name): normal(item, name) for item in claims}
    assert list(unequal(real, foretold)) == []


def test_a_template_of_any_form_is_completed_as_the_api_server_does(cluster: Cluster) -> None:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "x"}},
        {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "y"}]},
        {"name": "d", "exactly": {"deviceClassName": "z", "allocationMode": "All"}},
    ]
    spec = {"devices": {"requests": requests}}
    head = {"apiVersion": device_claims.API_VERSION, "kind": device_claims.TEMPLATE}
    template = {**head, "metadata": {"name": "any-form", "namespace": cluster.namespace}, "spec": {"spec": spec}}
    stored = cluster.create(template)
    assert stored["spec"]["spec"] == device_claims.defaulted(spec)


def test_a_train_job_would_lose_its_claims(cluster: Cluster) -> None:
    """Why no_claims of the back-end trainjob refuses it before."""
    claims = [{"name": "gpus", "resourceClaimTemplateName": "x"}]
    manifest = train_job("dropped", {}, runtimePatches=[patch({"resourceClaims": claims})])
    where = cluster.path("TrainJob").format(ns=cluster.namespace)
    with pytest.raises(KubeError, match=r"unknown field .*resourceClaims"):
        cluster.call("POST", where, manifest, query={"fieldValidation": "Strict", "dryRun": "All"})
    stored = cluster.call("POST", where, manifest, query={"dryRun": "All"})
    assert "resourceClaims" not in str(stored["spec"])


def test_a_job_that_is_deleted_takes_its_template_with_it(cluster: Cluster) -> None:
    *beside, job = manifests("indexed", "owner", cluster)
    for item in [*beside, nowhere(job)]:
        cluster.kube.create(item)
    adopt(cluster.kube, job, [*beside, job])
    cluster.kube.delete(job)
    mine = f"{job['metadata']['name']}-"
    templates = device_claims.TEMPLATE
    cluster.wait(
        lambda: not [item for item in cluster.items(templates) if item["metadata"]["name"].startswith(mine)], templates
    )
