"""A site whose Volcano has other settings than upstream's: live objects are still what `expand --cluster` shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.site import site_of
from gangplank.wait import polls
from tests.cluster.conftest import COMPONENTS
from tests.cluster.differential import test_pytorchjob, test_volcano
from tests.cluster.differential.compare import differences

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.conftest import Lab
    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]
# Those of the chart, and the two that change pods and PodGroups
WEBHOOKS = (
    "/jobs/mutate,/jobs/validate,/podgroups/validate,/queues/mutate,/queues/validate,/hypernodes/validate,"
    "/cronjobs/validate,/podgroups/mutate,/pods/mutate"
)
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
FAST = {"object": {"key": "annotation", "value": ["lane: fast"]}, "labels": {"lane": "fast"}}
TERMS = [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}}}
SECONDS = {"tolerationseconds": 7, "tolerationSeconds": 5}  # the webhook reads the first one
TAINT = {"key": "dedicated", "operator": "Exists", "effect": "NoExecute", **SECONDS}
MASTER, WORKER = test_volcano.task("master", 1), test_volcano.task("worker", 2)
JOBS = [
    test_volcano.job("plain", MASTER, WORKER),
    test_volcano.job("own-scheduler", MASTER, schedulerName="mine"),
    test_volcano.job("own-affinity", test_volcano.task("master", 1, pod={"affinity": {"podAntiAffinity": {}}})),
    test_volcano.job("own-toleration", test_volcano.task("master", 1, pod={"tolerations": [{"operator": "Exists"}]})),
    test_volcano.job("fast", test_volcano.task("master", 1, template={"metadata": {"annotations": {"lane": "fast"}}})),
]
PYTORCHJOBS = [test_pytorchjob.job("torch", test_pytorchjob.replica(), test_pytorchjob.replica(2))]


def install(lab: Lab, **custom: Any) -> None:
    """Install the components; Volcano with values of its chart that differ from upstream's."""
    values = {"site_components": COMPONENTS, "volcano_values": {"custom": custom}}
    lab.playbook("playbooks/site.yml", "-e", json.dumps(values))


@pytest.fixture(scope="module")
def other(lab: Lab, cluster: Cluster) -> Iterator[Cluster]:
    """Volcano under another scheduler name, with all webhooks, two resource groups and a queue of the namespace."""
    name = cluster.namespace
    here = {"object": {"key": "namespace", "value": [name]}, "schedulerName": "three", "labels": {"size": "big"}}
    groups = [FAST, {**here, "tolerations": [TAINT], "affinity": json.dumps(AFFINITY)}]
    configuration = yaml.safe_dump({"resourceGroups": groups})
    annotations = {"scheduling.volcano.sh/queue-name": name}
    cluster.call("PATCH", f"/api/v1/namespaces/{name}", {"metadata": {"annotations": annotations}})
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    cluster.call("POST", QUEUES, {**kind, "metadata": {"name": name}, "spec": {"weight": 1}})
    try:
        install(lab, enabled_admissions=WEBHOOKS, scheduler_name="two", admission_config_override=configuration)
        assert any("Open" in str(cluster.call("GET", f"{QUEUES}/{name}").get("status")) for _ in polls(300, 1))
        yield cluster
    finally:
        install(lab)
        cluster.call("DELETE", f"{QUEUES}/{name}")


@pytest.mark.parametrize(("backend", "manifests"), [("volcano", JOBS), ("pytorchjob", PYTORCHJOBS)])
def test_the_settings_of_its_volcano_are_in_the_objects(other: Cluster, backend: str, manifests: list[Json]) -> None:
    jobs = [{**item, "metadata": {**item["metadata"], "namespace": other.namespace}} for item in manifests]
    site = vars(site_of(other.kube, jobs=jobs))
    assert (site["scheduler"], site["queues"]) == ("two", {other.namespace: other.namespace})
    assert len(site["groups"][other.namespace]) == 2
    assert differences(backend, jobs, other, **{key: value for key, value in site.items() if key != "uid"}) == []
    unread = {"gang": site["gang"], "init_template": site["init_template"]}
    again = [{**item, "metadata": {**item["metadata"], "name": f"{item['metadata']['name']}-2"}} for item in jobs]
    messages = "\n".join(differences(backend, again[:1], other, **unread))
    for part in ("nodeSelector.size", "affinity", "tolerations", "schedulerName", "queue"):
        assert f".spec.{part}: live" in messages
