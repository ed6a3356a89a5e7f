"""Each thing that prevents an installation is reported, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.errors import Problem
from gangplank.site.components import COMPONENTS, NAMESPACED
from gangplank.site.preflight import Facts, Wanted, checks
from gangplank.site.storage import releases
from tests.support.storage import LOCAL, NFS, installed, live_class

ROLES = Path(__file__).resolve().parents[3] / "roles"
OWN = ("volcano", "volcano-system")
DRIVER = ("dra-example-driver", "gpu-dra-driver")
STORAGE = ("local-path-provisioner", "local-path-storage")
WANTED = Wanted({"volcano": OWN, "storage": STORAGE})


def named(name: str, namespace: str = "", release: tuple[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """An object, of a Helm release or of nobody."""
    notes = {"meta.helm.sh/release-name": release[0], "meta.helm.sh/release-namespace": release[1]} if release else {}
    return {"metadata": {"name": name, "namespace": namespace, "annotations": notes}, **more}


def program(image: str, release: tuple[str, str] | None = None, namespace: str = "batch") -> dict[str, Any]:
    """A Deployment."""
    containers = [{"name": "a", "image": image}]
    spec = {"template": {"spec": {"containers": containers}}}
    return named(image.rpartition("/")[2].partition(":")[0], namespace, release, kind="Deployment", spec=spec)


def crd(release: tuple[str, str] | None, version: str = "v1alpha1") -> dict[str, Any]:
    """Volcano's CRD of jobs."""
    return named("jobs.batch.volcano.sh", release=release, spec={"versions": [{"name": version, "served": True}]})


def node(**more: Any) -> dict[str, Any]:
    """A node that takes pods."""
    status = {"conditions": [{"type": "Ready", "status": "True"}],
              "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}}  # fmt: skip
    return {"metadata": {"name": "a"}, "spec": {}, "status": status, **more}


DEFAULT = {"metadata": {"name": "a", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}
GOOD = Facts(version="v1.34.4", programs={"helm": "/bin/helm", "kubectl": None}, classes=[DEFAULT], crds=[],
             workloads=[], webhooks=[], ready_services=frozenset({"kube-system/kube-dns"}),
             services=frozenset({"kube-system/kube-dns"}), namespaces=[], nodes=[node()], pods=[])  # fmt: skip
VOLCANO = ("docker.io/volcanosh/vc-scheduler:v1", "volcanosh/vc-controller-manager@sha256:12", "x/vc-webhook-manager")
HOOK = {"name": "a.example.org", "clientConfig": {"service": {"namespace": "n", "name": "s"}},
        "rules": [{"apiGroups": ["*"], "resources": ["*/*"], "operations": ["*"]}]}  # fmt: skip
PLUGIN, NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v1", "nvcr.io/nvidia/k8s-dra-driver-gpu:v25.8.0"
TAINT = {"taints": [{"key": "a", "effect": "NoSchedule"}]}


def problems(facts: Facts, wanted: Wanted = WANTED) -> list[str]:
    """All problems, as text."""
    return [str(problem) for check in checks(facts, wanted) for problem in check.problems]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"version": "v1.99.0-rc.1+vendor"},
        {"crds": [crd(OWN)]},  # kept by an uninstallation
        {"workloads": [program(image, OWN) for image in VOLCANO], "crds": [crd(OWN)]},
        {"workloads": [program(VOLCANO[0], OWN)], "crds": [crd(OWN)]},  # an interrupted run
        {"workloads": [program("example.org/my-vc-scheduler-exporter:1")]},
        {"webhooks": [named("a", kind="V", webhooks=[{**HOOK, "failurePolicy": "Ignore"}])]},
        {"webhooks": [named("a", kind="V", release=OWN, webhooks=[HOOK])]},  # as an interrupted run leaves it
        {"classes": None, "crds": None, "workloads": None, "webhooks": None, "nodes": None, "pods": None},
    ],
)
def test_accepts(change: dict[str, Any]) -> None:
    assert problems(replace(GOOD, **change)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"programs": {"helm": None}}, "helm: got none on PATH"),
        ({"helm_version": "v4.0.1+g12500dd"}, "helm: got v4.0.1+g12500dd, expected Helm 3"),
        ({"version": "v1.29.14"}, "Kubernetes: got v1.29.14, expected 1.30 to 1.35. Fix: upgrade"),
        ({"denied": ["create namespaces"]}, "may not create namespaces"),
        ({"ready_services": frozenset()}, "no ready endpoint of kube-system/kube-dns"),
        ({"webhooks": [named("a", kind="V", webhooks=[HOOK])]}, "webhook a.example.org: got no ready endpoint of n/s"),
        ({"pod_refusal": "the cluster says: no"}, "pods in default: got the cluster says: no"),
        ({"nodes": [node(spec=TAINT)]}, "room: got 0 schedulable nodes; free"),
        ({"nodes": [node(status={**node()["status"], "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "3"}})]},
         "expected room for 5 pods"),
        ({"workloads": [program(VOLCANO[0])]}, "half of one (Deployment batch/vc-scheduler; no vc-controller-manager"),
        ({"workloads": [program(image) for image in VOLCANO]}, "take volcano out of site_components), or remove it"),
        ({"workloads": [program(image, ("theirs", "batch")) for image in VOLCANO]},
         "adopt it (volcano_release: theirs and volcano_namespace: batch)"),
        ({"crds": [crd(None)]}, "does not own (jobs.batch.volcano.sh), without its programs"),
        ({"crds": [crd(OWN, "v2")]}, "CRD jobs.batch.volcano.sh: got v2, expected the version v1alpha1"),
        ({"nodes": [node(metadata={"name": "a", "labels": {"nvidia.com/gpu.present": "true"}})],
          "workloads": [program(PLUGIN)]}, "no devices on a"),
    ],
)  # fmt: skip
def test_refuses(change: dict[str, Any], words: str) -> None:
    (problem,) = problems(replace(GOOD, **change))
    assert words in problem


@pytest.mark.parametrize(
    ("release", "fix"),
    [
        (("nvdp", "gpu"), "or remove it"),  # as NVIDIA's README calls it; the role's is always nvidia-device-plugin
        (("nvidia-device-plugin", "gpu"), "or adopt it (gpu_device_plugin_namespace: gpu)"),
    ],
)
def test_offers_only_inputs_of_the_role_to_adopt_a_component(release: tuple[str, str], fix: str) -> None:
    wanted = Wanted({"gpu_device_plugin": ("nvidia-device-plugin", "gpu-device-plugin")})
    (problem,) = problems(replace(GOOD, workloads=[program(PLUGIN, release)]), wanted)
    assert problem.endswith(f"(take gpu_device_plugin out of site_components), {fix}")


def test_refuses_a_third_party_release_under_the_name_of_its_own() -> None:
    theirs = Problem("Helm's release", "a third-party one", "none", "hand it over")
    programs = [program(image, OWN) for image in VOLCANO]
    for place in (OWN, STORAGE):
        assert problems(replace(GOOD, workloads=programs, third_party={place: theirs})) == [str(theirs)]
    assert problems(replace(GOOD, workloads=programs, third_party={DRIVER: theirs})) == []


FULL: dict[str, Any] = {"nodes": [node()], "pods": [{"spec": {"nodeName": "a"}}] * 110}
LOCAL_PATH = program("docker.io/rancher/local-path-provisioner:v1", STORAGE)


TOLERATED = {"volcano": [{"key": "a", "operator": "Exists"}], "training_operator": [{"key": "a"}]}
OPERATOR = {"volcano": OWN, "training_operator": ("training-operator", "kubeflow")}
TAINTED = "room: got 0 schedulable nodes; free: 0 pods, cpu 0.0, memory 0Mi; with taints: a (a:NoSchedule), expected"
FIX = "Fix: add a node, or remove pods, or remove the taint of a node"


@pytest.mark.parametrize(
    ("releases", "tolerations", "fix"),
    [
        (OPERATOR, TOLERATED, None),
        (OPERATOR, {"volcano": TOLERATED["volcano"]},
         f"{FIX}, or tolerate it in volcano_values, training_operator_values"),
        ({**OPERATOR, "storage": STORAGE}, TOLERATED | {"storage": [{"key": "a"}]}, None),
        ({**OPERATOR, "storage": STORAGE}, TOLERATED,
         f"{FIX}, or tolerate it in volcano_values, training_operator_values, storage_tolerations"),
    ],
)  # fmt: skip
def test_a_node_takes_pods_that_tolerate_its_taints(
    releases: dict[str, tuple[str, str]], tolerations: dict[str, Any], fix: str | None
) -> None:
    wanted = Wanted(releases, [LOCAL] if "storage" in releases else [], tolerations=tolerations)
    classes = [] if "storage" in releases else [DEFAULT]
    text = "".join(problems(replace(GOOD, nodes=[node(spec=TAINT)], classes=classes), wanted))
    assert text.startswith(TAINTED if fix else "")
    assert text.endswith(fix or text)
    assert bool(text) == bool(fix)


def test_asks_no_room_for_what_runs_already() -> None:
    runs = [*(program(image, OWN) for image in VOLCANO), LOCAL_PATH]
    assert problems(replace(GOOD, **FULL, workloads=runs)) == []
    (problem,) = problems(replace(GOOD, **FULL, workloads=[*runs[:2], LOCAL_PATH]))
    assert "expected room for 4 pods" in problem
    assert "expected room for 1 pod," in problems(replace(GOOD, **FULL, workloads=runs[:3]))[0]
    tainted = [node(spec=TAINT)]  # as on a site whose every node is a GPU node, once it is installed
    assert problems(replace(GOOD, nodes=tainted, workloads=runs)) == []


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": {"requests": {"memory": "4000Mi"}}}]},
        {"containers": [{}], "initContainers": [{"resources": {"requests": {"memory": "4000Mi"}}}]},
        {"containers": [{}], "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": {"memory": "4000Mi"}}}]},
        {"containers": [{}], "resources": {"requests": {"memory": "4000Mi"}}},
        {"containers": [{}], "overhead": {"memory": "4000Mi"}},
    ],
)  # fmt: skip
def test_a_pod_takes_all_that_the_scheduler_reserves_for_it(spec: dict[str, Any]) -> None:
    pods = [{"spec": {"nodeName": "a", **spec}}]
    (problem,) = problems(replace(GOOD, pods=pods), Wanted({"trainer_v2": ("kubeflow-trainer", "kubeflow-system")}))
    assert "room: got 1 schedulable node; free: 109 pods, cpu 2.0, memory 96Mi" in problem


@pytest.mark.parametrize("nodes", [[], [node(spec=TAINT)]])
def test_a_cluster_whose_nodes_come_by_themselves_is_not_refused_for_want_of_one(nodes: list[dict[str, Any]]) -> None:
    assert "room: got 0 schedulable nodes" in problems(replace(GOOD, nodes=nodes))[0]
    facts = replace(GOOD, nodes=nodes, autoscaler="Karpenter")
    assert problems(facts) == []
    (check,) = (check for check in checks(facts, WANTED) if check.name == "room")
    assert check.finding.startswith("0 schedulable nodes; free: 0 pods")
    assert check.finding.endswith("; for 5 pods, cpu 0.0, memory 0Mi, Karpenter has to add a node")
    assert "has to" not in str([check.finding for check in checks(replace(GOOD, autoscaler="Karpenter"), WANTED)])


def gpu_node(**resources: str) -> dict[str, Any]:
    """A node with the label of GPU nodes, and resources."""
    labels = {"nvidia.com/gpu.present": "true"}
    status = node()["status"]
    return node(metadata={"name": "a", "labels": labels},
                status={**status, "allocatable": {**status["allocatable"], **resources}})  # fmt: skip


def slices(driver: str, *devices: str) -> list[dict[str, Any]]:
    """What the node publishes for claims."""
    return [{"spec": {"nodeName": "a", "driver": driver, "devices": [{"name": name} for name in devices]}}]


@pytest.mark.parametrize(
    "resources",
    [
        {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "56"},  # MIG `mixed`, all of it split
        {"nvidia.com/gpu.shared": "8"},
        {"nvidia.com/gpu": "1"},
    ],
)
def test_a_node_whose_gpus_have_another_name_has_devices(resources: dict[str, str]) -> None:
    facts = replace(GOOD, nodes=[gpu_node(**resources)], workloads=[program(PLUGIN)])
    assert problems(facts) == []
    assert "1 node with a label of GPU nodes" in [check.finding for check in checks(facts, WANTED)]


@pytest.mark.parametrize("component", ["gpu_device_plugin", "gpu_dra_driver"])
def test_a_component_of_the_site_says_itself_which_node_lacks_devices(component: str) -> None:
    what = COMPONENTS[component]
    own = (what.release, what.namespace)
    facts = replace(GOOD, nodes=[gpu_node()], workloads=[program(what.programs[0], own)], slices=[])
    assert problems(facts, Wanted({component: own}, by_claim=component == "gpu_dra_driver")) == []


@pytest.mark.parametrize(
    ("published", "count"),
    [([], 1), (slices("gpu.nvidia.com"), 1), (slices("compute-domain.nvidia.com", "channel-0"), 1),
     (slices("gpu.nvidia.com", "gpu-0"), 0), (None, 0)],
)  # fmt: skip
def test_a_node_that_publishes_nothing_for_claims_has_no_devices(published: Any, count: int) -> None:
    facts = replace(GOOD, nodes=[gpu_node()], workloads=[program(NVIDIA)], slices=published)
    assert len(problems(facts, replace(WANTED, by_claim=True))) == count
    assert problems(facts) == []  # a site with a device plugin, which does not run here


def rule(*resources: str, group: str = "", operation: str = "*") -> dict[str, Any]:
    """A rule of a webhook."""
    return {"rules": [{"apiGroups": [group], "resources": [*resources], "operations": [operation]}]}


def selects(operator: str, key: str, *values: str, by: str = "namespaceSelector") -> dict[str, Any]:
    """A selector with one expression."""
    return {by: {"matchExpressions": [{"key": key, "operator": operator, "values": [*values]}]}}


SPACE = {"metadata": {"name": "volcano-system", "labels": {"istio-injection": "enabled"}}}
PODS, NAME = rule("pods", operation="CREATE"), "kubernetes.io/metadata.name"


@pytest.mark.parametrize(
    ("hook", "stops"),
    [
        ({}, True),
        ({"rules": None}, False),
        (rule("certificates", "certificaterequests/status", group="cert-manager.io"), False),
        (rule("jobs", group="batch.volcano.sh"), True),  # of which the release makes one
        (rule("pytorchjobs", group="kubeflow.org"), False),  # a component that the site does not have
        (rule("deployments", group="apps", operation="DELETE"), True),
        (rule("deployments", group="apps", operation="CONNECT"), False),
        (rule("deployments", group="*"), True),
        (rule("deployments/scale", group="apps"), False),
        (PODS, True),  # controllers create them
        (PODS | {"matchConditions": [{"name": "a", "expression": "false"}]}, True),
        (PODS | {"namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}, False),
        (PODS | selects("NotIn", NAME, "kube-system"), True),
        (PODS | selects("In", NAME, "theirs"), False),
        (PODS | selects("In", NAME, "theirs", "local-path-storage"), True),
        (rule("clusterroles", group="rbac.authorization.k8s.io") | selects("In", NAME, "theirs"), True),
        (PODS | selects("In", "sidecar.istio.io/inject", "true", by="objectSelector"), False),
        (PODS | selects("NotIn", "sidecar.istio.io/inject", "false", by="objectSelector"), True),
    ],
)
def test_a_webhook_that_nothing_serves_stops_a_site_only_if_it_sees_what_that_writes(
    hook: dict[str, Any], stops: bool
) -> None:
    facts = replace(GOOD, webhooks=[named("a", kind="V", webhooks=[{**HOOK, **hook}])])
    (check,) = (check for check in checks(facts, WANTED) if check.name == "webhooks")
    assert len(check.problems) == stops
    assert ("all with an endpoint but a.example.org, which do not stop the site; only" in check.finding) != stops


def test_a_webhook_sees_the_namespaces_of_a_site_that_have_the_labels_that_it_selects() -> None:
    hook = {**HOOK, **PODS, "namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}
    for namespaces, count in (([], 0), ([SPACE], 1), (None, 1)):
        facts = replace(GOOD, webhooks=[named("a", kind="V", webhooks=[hook])], namespaces=namespaces)
        assert len(problems(facts)) == count


def test_kinds_in_namespaces_are_those_that_the_components_have_there() -> None:
    kinds = {kind for what in COMPONENTS.values() for kind in what.kinds}
    outside = {kind for kind in kinds if kind.split(".")[0].startswith(("cluster", "custom", "mutating", "validating"))}
    outside |= {"runtimeclasses.node.k8s.io", "deviceclasses.resource.k8s.io", "storageclasses.storage.k8s.io"}
    assert kinds - NAMESPACED == outside


def test_says_which_webhooks_were_not_asked() -> None:
    served = {**HOOK, "clientConfig": {"service": {"namespace": "kube-system", "name": "kube-dns"}}}
    outside = {"name": "b.example.org", "clientConfig": {"url": "https://b.example.org"}}
    facts = replace(GOOD, webhooks=[named("a", kind="V", webhooks=[served, outside])])
    (check,) = (check for check in checks(facts, WANTED) if check.name == "webhooks")
    assert check.problems == ()
    expected = "1 in the cluster, all with an endpoint; only those that see pods were asked"
    assert check.finding == f"{expected}; not checked, as they are at a URL: b.example.org"


def test_a_webhook_that_does_not_answer_for_a_pod_is_named_with_its_own_fix() -> None:
    refusal = 'Internal error occurred: failed calling webhook "a.example.org": context deadline exceeded'
    (problem,) = problems(replace(GOOD, pod_refusal=refusal))
    fix = "repair what serves it, or remove its configuration (a.example.org)"
    assert f"expected a webhook that answers. Fix: {fix}" in problem


@pytest.mark.parametrize(
    ("change", "classes", "words"),
    [
        ({"classes": []}, [], "no default storage class"),
        ({}, [LOCAL], 'storage_classes: got ["local-path", "a"], expected exactly one default class'),
        ({"classes": [live_class("local-path", default=True)]}, [LOCAL], "another provisioner of them"),
        ({"drivers": []}, [NFS], 'provisioner: got "nfs.csi.k8s.io", expected a CSI driver of the cluster'),
    ],
)
def test_refuses_what_the_role_of_storage_would_refuse_after_others_are_installed(
    change: dict[str, Any], classes: list[dict[str, Any]], words: str
) -> None:
    (problem,) = problems(replace(GOOD, **change), replace(WANTED, classes=classes))
    assert words in problem


def test_a_default_class_that_the_site_replaces_is_not_reported_as_that_of_the_cluster() -> None:
    old, new = (installed(live_class(name, default=True)) for name in ("old", "local-path"))
    for live in ([old], [old, new]):
        by_name = {check.name: check for check in checks(replace(GOOD, classes=live), replace(WANTED, classes=[LOCAL]))}
        assert by_name["class"].problems == ()
        assert by_name["class"].finding == "the site makes local-path the default class; old no longer is"


def test_reports_all_at_once() -> None:
    facts = replace(GOOD, programs={"helm": None}, version="v1.20.1", classes=[], workloads=[program(VOLCANO[0])])
    assert len(problems(facts, replace(WANTED, classes=[]))) == 4


def test_a_default_class_of_the_site_is_enough() -> None:
    assert problems(replace(GOOD, classes=[]), replace(WANTED, classes=[LOCAL])) == []
    assert problems(replace(GOOD, classes=[]), Wanted({"volcano": OWN})) == []  # it needs none


@pytest.mark.parametrize(
    ("image", "release", "words"),
    [
        ("registry.k8s.io/dra-example-driver/dra-example-driver:v0.4.0", DRIVER, ""),
        ("registry.k8s.io/dra-example-driver/dra-example-driver:v0.4.0", None, "got a third-party one (Deployment"),
        (NVIDIA, None, "got another one (Deployment batch/k8s-dra-driver-gpu)"),
    ],
)
def test_recognises_a_driver_of_gpus_by_claim(image: str, release: tuple[str, str] | None, words: str) -> None:
    facts = replace(GOOD, workloads=[program(image, release)])
    check = checks(facts, Wanted({"gpu_dra_driver": DRIVER}))[-1]
    assert [str(problem) for problem in check.problems if words in str(problem)] == [*map(str, check.problems)]
    assert len(check.problems) == bool(words)
    if release:
        assert check.finding == "release dra-example-driver in gpu-dra-driver"


TRAINER = ("kubeflow-trainer", "kubeflow-system")
JOBSETS = named("jobsets.jobset.x-k8s.io", spec={"versions": [{"name": "v1alpha2", "served": True}]})


@pytest.mark.parametrize(
    ("workloads", "crds", "brings", "words"),
    [
        ([], [], True, []),
        ([program("registry.k8s.io/jobset/jobset:v0.12.0", TRAINER)], [JOBSETS], True, []),
        ([program("registry.k8s.io/jobset/jobset:v0.8.0")], [JOBSETS], True,
         ["JobSet: got a third-party one (Deployment batch/jobset)", "Fix: set trainer_v2_jobset: false"]),
        ([program("registry.k8s.io/jobset/jobset:v0.8.0")], [JOBSETS], False, []),
        ([], [], False, ["JobSet: got none", "Fix: leave trainer_v2_jobset out"]),
        ([program("registry.k8s.io/jobset/jobset:v0.12.0", TRAINER)], [JOBSETS], False,
         ["JobSet: got only that of Trainer's release", "Fix: leave trainer_v2_jobset out"]),
        ([program("registry.k8s.io/jobset/jobset:v0.12.0", name) for name in (TRAINER, None)], [JOBSETS], False, []),
        ([], [JOBSETS], False, []),  # its program may be a pod that no Deployment makes
        ([program("registry.redhat.io/job-set/jobset-rhel9:1.0")], [JOBSETS], True,
         ["JobSet: got a third-party one (Deployment batch/jobset-rhel9)", "Fix: set trainer_v2_jobset: false"]),
    ],
)  # fmt: skip
def test_a_jobset_of_others_is_used_or_refused_and_never_replaced(
    workloads: list[dict[str, Any]], crds: list[dict[str, Any]], brings: bool, words: list[str]
) -> None:
    facts = replace(GOOD, workloads=workloads, crds=crds)
    said = problems(facts, Wanted({"trainer_v2": TRAINER}, jobset=brings))
    assert len(said) == bool(words)
    assert all(word in said[0] for word in words)
    assert problems(facts) == []  # of a site without Trainer


@pytest.mark.parametrize(
    ("kinds", "pods"), [([], 0), (["local", "shared"], 1), (["csi"], 0), (["loop"], 2), (["local", "csi", "loop"], 3)]
)
def test_asks_room_for_the_releases_that_the_classes_have_and_that_do_not_run(kinds: list[str], pods: int) -> None:
    """By the names under which the role installs them: a second run asks none."""
    classes = [{"name": kind, "kind": kind} for kind in kinds]
    own = [(row["name"], row["namespace"]) for row in releases(classes) if row["classes"]]
    for present, expected in (([], pods), (own, 0)):
        running = [program("example.org/a:1", release) for release in present]
        by_name = {check.name: check for check in checks(
            replace(GOOD, **FULL, workloads=running), Wanted({"storage": STORAGE}, classes))}  # fmt: skip
        asked = [problem.expected for problem in by_name["room"].problems]
        assert asked == [f"room for {expected} pod{'s' * (expected > 1)}, cpu 0.0, memory 0Mi"] * bool(expected)
        text = "; ".join(f"release {name} in {namespace}" for name, namespace in present)
        assert by_name["storage"].finding == (text or "nothing of it yet")


@pytest.mark.parametrize("field", ["workloads", "classes"])
def test_of_releases_that_may_not_be_read_it_does_not_say_that_they_are_not_there(field: str) -> None:
    change: dict[str, Any] = {field: None}
    by_name = {check.name: check for check in checks(replace(GOOD, **change), WANTED)}
    assert by_name["storage"].finding == "not checked: this account may not read what it needs"


@pytest.mark.parametrize("name", [name for name in COMPONENTS if name != "storage"])
def test_knows_the_defaults_of_the_roles(name: str) -> None:
    inputs = yaml.safe_load((ROLES / name / "defaults/main.yml").read_text())
    own = yaml.safe_load((ROLES / name / "vars/main.yml").read_text())
    release = inputs.get(f"{name}_release") or own[f"__{name}_release"]
    assert (COMPONENTS[name].release, COMPONENTS[name].namespace) == (release, inputs[f"{name}_namespace"])


@pytest.mark.parametrize(
    ("change", "starting"),
    [
        ({"ready_services": frozenset()}, {"dns"}),
        ({"nodes": [node(spec=TAINT)]}, {"room"}),
        ({"pods": [{"spec": {"nodeName": "a"}}] * 110}, set()),  # full, which does not pass by itself
        ({"version": "v1.29.0"}, set()),
        ({"nodes": [gpu_node(**{"nvidia.com/gpu": "0"})], "workloads": [program(PLUGIN)]}, {"gpus"}),
        ({"nodes": [gpu_node()], "workloads": [program(PLUGIN)]}, set()),
        ({"pod_refusal": 'pods "a" is forbidden: serviceaccount "default" not found'}, {"pods"}),
        ({"pod_refusal": 'pods "a" is forbidden: violates PodSecurity'}, set()),
    ],
)
def test_what_a_cluster_lacks_while_it_starts_is_told_apart(change: dict[str, Any], starting: set[str]) -> None:
    wrong = [check for check in checks(replace(GOOD, **change), WANTED) if check.problems]
    assert wrong
    assert {check.name for check in wrong if check.starting} == starting
