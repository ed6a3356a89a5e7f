"""What a shadow is made of, and what keeps the command from asking one. No program is started here."""

from __future__ import annotations

import fnmatch
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.cluster.deployed import DEPLOYMENTS
from gangplank.cluster.situation import asked
from gangplank.errors import KubeError, Unreadable
from gangplank.jobs.parse import parse_job
from gangplank.scheduling.fit import Verdict
from gangplank.scheduling.snapshot import Snapshot
from gangplank.scheduling.why import Situation
from gangplank.shadow.exact import exact, scheduler_of, submission
from gangplank.shadow.inside import Question
from gangplank.shadow.programs import ANY, BUILT, find
from gangplank.shadow.state import copied
from lab.build.parts import Workshop
from lab.build.versions import load_pins

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Json = dict[str, Any]
MAP = "/api/v1/namespaces/volcano-system/configmaps/own"
GROUP, RULES = "/apis/resource.k8s.io", "/apis/resource.k8s.io/v1alpha3/devicetaintrules"
CRD = {
    "metadata": {"name": "queues.scheduling.volcano.sh", "uid": "c"},
    "spec": {
        "group": "scheduling.volcano.sh",
        "names": {"plural": "queues", "kind": "Queue"},
        "versions": [{"name": "v1alpha1", "storage": False}, {"name": "v1beta1", "storage": True}],
    },
}


def cluster(objects: Mapping[str, list[Json] | Json], *forbidden: str) -> Any:
    """A cluster that has objects, and lists of them, by path, and that forbids some."""

    def get(where: str) -> Any:
        if where in forbidden:
            raise KubeError("no", 403)
        held = objects.get(where)
        return {"items": held} if isinstance(held, list) else held

    return SimpleNamespace(get=get, call=lambda *_: {"gitVersion": "v1.35.4"})


def volcano(
    image: str = "a.example/vc-scheduler:v1.15.1", text: str = "actions: allocate", *args: str, forbidden: str = ""
) -> Any:
    """A cluster with Volcano's scheduler."""
    container = {
        "image": image,
        "args": ["--scheduler-conf=/etc/v/v.conf", "--leader-elect=true", "--node-selector=a:b", *args],
        "volumeMounts": [{"name": "c", "mountPath": "/etc/v"}],
    }
    pod = {"containers": [container], "volumes": [{"name": "c", "configMap": {"name": "own"}}]}
    meta = {"name": "s", "namespace": "volcano-system"}
    return cluster({
        DEPLOYMENTS: [{"metadata": meta, "spec": {"template": {"spec": pod}}}],
        MAP: {"metadata": {"name": "own"}, "data": {"v.conf": text}},
    }, forbidden)  # fmt: skip


def situation(backend: str = "volcano", state: Snapshot | None = None, **fields: Any) -> tuple[Situation, list[Json]]:
    """A job that is not submitted, and what its controllers would make."""
    base = {"name": "a", "image": "i", "script": "/a.py", "backend": backend, "workers": 2}
    job = BACKENDS[backend].manifests(parse_job({**base, **fields}))[-1]
    job["metadata"].setdefault("namespace", "default")
    known = cluster({"/apis/scheduling.volcano.sh": []})
    demand, objects = asked(known, job)
    return Situation("a", demand, state or Snapshot(), live=False), objects


def test_objects_lie_where_the_api_server_keeps_them() -> None:
    meta = {"name": "a", "uid": "1", "resourceVersion": "7", "managedFields": [{}], "creationTimestamp": "then"}
    copy = copied(cluster({
        "/api/v1/nodes": [{"metadata": meta}],
        "/api/v1/pods": [{"metadata": {**meta, "namespace": "n"}, "spec": {"containers": []}}],
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions": [CRD],
        "/apis/scheduling.volcano.sh/v1beta1/queues": [{"metadata": meta}],
    }))  # fmt: skip
    keys = dict(copy.objects)
    assert {*keys} == {
        "minions/a", "pods/n/a", "scheduling.volcano.sh/queues/a",
        "apiextensions.k8s.io/customresourcedefinitions/queues.scheduling.volcano.sh",
    }  # fmt: skip
    assert keys["minions/a"]["metadata"] == {"name": "a", "uid": "1", "creationTimestamp": "then"}
    assert keys["scheduling.volcano.sh/queues/a"]["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert keys["pods/n/a"]["kind"] == "Pod"
    assert copy.missing == []


def test_a_copied_pod_has_nothing_of_what_it_runs() -> None:
    container = {"name": "c", "image": "i", "env": [{"name": "KEY", "value": "secret"}], "args": ["secret"]}
    pod = {"metadata": {"name": "a", "namespace": "n", "uid": "1"}, "spec": {"containers": [container]}}
    copy = copied(cluster({"/api/v1/pods": [pod]}))
    assert "secret" not in str(copy.objects)


def test_objects_of_the_job_can_be_left_out() -> None:
    nodes = [{"metadata": {"name": name, "uid": name}} for name in ("a", "b")]
    assert [key for key, _ in copied(cluster({"/api/v1/nodes": nodes}), {"a"}).objects] == ["minions/b"]


def test_all_rights_that_are_missing_are_named_at_once() -> None:
    now, objects = situation("indexed")
    result = exact(cluster({}, "/api/v1/nodes", "/api/v1/persistentvolumeclaims"), now, objects)
    assert result.answer.verdict is Verdict.CANNOT_TELL
    lines = [line for line in result.answer.missing if "you may not" in line]
    assert [line.partition(" ")[0] for line in lines] == ["nodes", "persistentvolumeclaims"]


def test_volcano_keeps_the_flags_and_the_configuration_of_the_site() -> None:
    own = scheduler_of(volcano(), "volcano", None)
    assert (own.program, own.version, own.configuration) == ("vc-scheduler", "v1.15.1", "actions: allocate")
    assert "--node-selector=a:b" in own.words
    assert "--leader-elect=true" not in own.words
    assert own.missing == ()


def test_flags_of_two_words_are_kept_with_their_values() -> None:
    more = ("--schedule-period", "5s", "--leader-elect", "--scheduler-name", "batch")
    own = scheduler_of(volcano("a/vc-scheduler:v1.15.1", "actions: allocate", *more), "batch", None)
    assert own.name == "batch"
    assert "--schedule-period=5s" in own.words
    assert not {"5s", "--schedule-period"} & {*own.words}


@pytest.mark.parametrize(("kube", "words"), [
    (volcano("a.example/vc-scheduler@sha256:0a"), "expected a tag that is a version"),
    (volcano("a.example/vc-scheduler:v1.15.1", "tiers: [{plugins: [{name: extender}]}]"), "what its plugin extender"),
    (volcano("a.example/vc-scheduler:v1.15.1", ""), "its configuration /etc/v/v.conf"),
    (volcano(forbidden=MAP), "its configuration /etc/v/v.conf (you may not read it, or no ConfigMap has it)"),
    (volcano("a.example/vc-scheduler:v1.15.1", "a: 1", "--plugins-dir=/p"), "what the plugins of /p do"),
    (cluster({}), "scheduler volcano: got no Deployment of it"),
    (cluster({}, DEPLOYMENTS), "deployments of all namespaces (you may not list them)"),
])  # fmt: skip
def test_what_the_copy_would_not_do_as_the_site_does_is_refused(kube: Any, words: str) -> None:
    assert any(words in line for line in scheduler_of(kube, "volcano", None).missing)


def test_a_configuration_is_read_beside_a_sidecar_and_as_a_single_file() -> None:
    """Only the first container counted, and only a ConfigMap that is mounted as a folder."""
    kube = volcano()
    pod = kube.get(DEPLOYMENTS)["items"][0]["spec"]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "c", "mountPath": "/etc/v/v.conf", "subPath": "scheduler"}]
    pod["containers"].insert(0, {"image": "a.example/proxy:v1"})
    kube.get(MAP)["data"] = {"scheduler": "actions: enqueue"}
    own = scheduler_of(kube, "volcano", None)
    assert (own.configuration, own.missing) == ("actions: enqueue", ())


def test_a_configuration_of_kube_scheduler_has_to_be_brought_along(tmp_path: Path) -> None:
    container = {"command": ["kube-scheduler", "--config=/etc/own.yaml"]}
    pod = {"metadata": {"labels": {"component": "kube-scheduler"}}, "spec": {"containers": [container]}}
    kube = cluster({"/api/v1/namespaces/kube-system/pods": [pod]})
    [line] = scheduler_of(kube, "default-scheduler", None).missing
    assert "got --config=/etc/own.yaml" in line
    assert "--scheduler-config" in line
    file = tmp_path / "own.yaml"
    file.write_text("kind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: /x}\npercentageOfNodesToScore: 3")
    own = scheduler_of(kube, "default-scheduler", str(file))
    assert own.missing == ()
    assert '"percentageOfNodesToScore": 3' in own.configuration
    assert "/x" not in own.configuration
    file.write_text("kind: Pod")
    with pytest.raises(Unreadable, match="KubeSchedulerConfiguration"):
        scheduler_of(kube, "default-scheduler", str(file))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_pods_that_are_created_have_names_of_their_own(backend: str) -> None:
    now, objects = situation(backend)
    order = submission(now, objects, fresh=False)
    names = [item["metadata"]["name"] for where, item in order["create"] if where.endswith("/pods")]
    assert len({*names}) == now.demand.size == 3  # type: ignore[union-attr]  # the library knows its own jobs
    assert order["pods"] == names
    assert "<" not in str(order)
    assert bool(order["group"]) == now.demand.gang  # type: ignore[union-attr]  # as above


def test_a_job_that_waits_keeps_its_pods_and_gets_those_that_it_lacks() -> None:
    now, objects = situation()
    there: Json = {"metadata": {"name": "a-worker-0", "uid": "u"}, "spec": {}}
    group: Json = {"metadata": {"name": "a-own", "uid": "g"}}
    waiting = Situation("a", now.demand, pods=(there,), group=group)
    order = submission(waiting, objects, fresh=False)
    assert [item["metadata"]["name"] for _, item in order["create"]] == ["a-master-0", "a-worker-1"]
    assert order["pods"] == ["a-worker-0", "a-master-0", "a-worker-1"]
    assert order["group"].endswith("/namespaces/default/podgroups/a-own")
    assert len(submission(waiting, objects, fresh=True)["create"]) == 4


def test_a_claim_without_a_volume_is_said_where_the_volume_follows_the_pod() -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"storageClassName": "late"}}
    kind = {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
    volumes = [{"claim": "c", "mount": "/c", "on": "master"}]
    now, objects = situation("volcano", Snapshot(claims=(claim,), classes=(kind,)), volumes=volumes)
    result = exact(cluster({}), now, objects)
    assert "where volume claim c gets its volume: it is made for the first pod that mounts it" in result.answer.missing


def claimed(**source: str) -> tuple[Situation, list[Json]]:
    """A job with devices by claim; fit counts them, so its demand has no claims any more."""
    now, objects = situation()
    for item in objects:
        if item["kind"] == "Pod":
            item["spec"] = {**item["spec"], "resourceClaims": [{"name": "gpus", **source}]}
    return now, objects


def test_devices_that_a_controller_would_make_are_no_reason_for_a_no() -> None:
    """The copy's scheduler waits forever for such claims, so its answer would be no."""
    result = exact(cluster({}), *claimed(resourceClaimTemplateName="a-gpus"))
    line = "devices of claims that are made from templates: no controller makes them in the copy"
    assert line in result.answer.missing


@pytest.mark.parametrize(("rules", "forbidden", "told"), [([{}], (), True), ([], (RULES,), True), ([], (), False)])
def test_rules_about_devices_are_not_in_the_copy(rules: list[Json], forbidden: tuple[str, ...], told: bool) -> None:
    known = cluster({RULES: rules}, *forbidden)
    lists = known.get
    versions, kinds = [{"groupVersion": "resource.k8s.io/v1alpha3"}], [{"name": "devicetaintrules"}]
    discovery: Json = {GROUP: {"versions": versions}, RULES.rpartition("/")[0]: {"resources": kinds}}
    known.get = lambda where: discovery.get(where) or lists(where)
    result = exact(known, *claimed(resourceClaimName="shared"))
    line = "devices behind resource claims: the copy has no rules that taint some (DeviceTaintRules)"
    assert (line in result.answer.missing) == told


def program(folder: Path, name: str, version: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\necho 'Version: {version}'\n")
    file.chmod(0o755)


def test_programs_are_taken_in_exactly_the_versions_of_the_site(tmp_path: Path) -> None:
    program(tmp_path, "etcd", "3.6.8")
    program(tmp_path, "kube-apiserver", "v1.35.4")
    program(tmp_path, "vc-scheduler", "v1.15.10")
    wanted = {"etcd": ANY, "kube-apiserver": "v1.35.4", "vc-scheduler": "v1.15.1", "kube-scheduler": "v1.35.4"}
    paths, problems = find(wanted, str(tmp_path))
    assert {*paths} == {"etcd", "kube-apiserver"}
    assert problems[0].startswith(f"vc-scheduler: got v1.15.10 in {tmp_path}, expected v1.15.1, which the site runs.")
    assert problems[1].startswith(f"kube-scheduler: got no such program in {tmp_path}, expected v1.35.4")


def test_it_looks_where_the_build_of_the_lab_puts_its_programs(tmp_path: Path) -> None:
    shop = Workshop(tmp_path, load_pins(), print, dry=True)
    for name in ("etcd", "kubernetes", "kubeadm", "volcano", "volcano-before"):
        place = shop.place(shop.pins.parts[name])
        assert place.parent == tmp_path / "parts"
        assert fnmatch.fnmatch(f"{place.name}/bin", BUILT)


def test_pods_that_end_for_it_are_named_in_its_own_namespace_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    metas = [("default", "a-old"), ("speech", "quiet-0"), ("speech", "quiet-1")]
    leaving = [{"metadata": {"uid": name, "namespace": space, "name": name}} for space, name in metas]
    pods: list[list[Json]] = [[], [{"metadata": {**one["metadata"], "deletionTimestamp": "now"}} for one in leaving]]

    def call(method: str, *_: Any, **__: Any) -> Json:
        return {"items": pods.pop(0)} if method == "GET" else {}

    kube: Any = SimpleNamespace(call=call, delete_at=lambda *_, **__: None)
    plane: Any = SimpleNamespace()
    question = Question(plane, kube, {"scheduler": {"program": "kube-scheduler"}, "namespace": "default"})
    question.end_displaced()
    result = {"verdict": "yes", "placement": {}, "ended": question.ended}
    monkeypatch.setattr("gangplank.shadow.exact.asked", lambda _: json.loads(json.dumps(result)))
    monkeypatch.setattr("gangplank.shadow.programs.find", lambda *_: ({}, []))
    said = exact(cluster({}), *situation("indexed"))
    assert said.ended == ("default/a-old", "2 pods of other namespaces")
