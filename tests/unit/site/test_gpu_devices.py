"""gangplank/site/gpu_devices.py: each cause of a node without GPUs is named, and no other."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from gangplank.site.gpu_devices import Finding, PluginState, devices, without_devices

GPU = "nvidia.com/gpu"
TAINT = {"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}
# Lines of NVIDIA's plugin v0.18 and v0.19, and of containerd 2.4, as they print them.
NOT_LOADED = "W1121 10:00:00.000000 1 factory.go:102] nvml init failed: Driver Not Loaded"
NO_NVML = "E1121 10:00:00.000000 1 factory.go:97] Failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND."
NO_TOOLKIT = (
    "E1121 10:00:00.000000 1 factory.go:114] If this is a GPU node, did you configure the NVIDIA Container Toolkit?"
)
CHAIN = (
    "E1123 00:11:58.517666 1 main.go:185] error starting plugins",
    "error getting plugins",
    "unable to create plugins",
    "failed to construct resource managers",
    "error building device map",
    "error building device map from config.resources",
    "error building GPU device map",
    "error getting device handle for index '5'",
    "GPU is lost",
)
LOST = ": ".join(CHAIN)
NO_FOLDER = (
    'MountVolume.SetUp failed for volume "driver-root" : hostPath type check failed: '
    "/run/nvidia/driver is not a directory"
)
NO_LIBRARY = (
    "Error: failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file"
)
NO_HANDLER = 'Failed to create pod sandbox: rpc error: code = Unknown desc = no runtime for "nvidia" is configured'


def node(**status: Any) -> dict[str, Any]:
    meta = {"name": "n", "labels": {"nvidia.com/gpu.present": "true"}}
    return {"metadata": meta, "spec": {"taints": [dict(TAINT)]}, "status": status}


def plugin(**spec: Any) -> dict[str, Any]:
    base = {
        "tolerations": [{"key": "flyte/gpu", "operator": "Exists"}],
        "nodeSelector": {"nvidia.com/gpu.present": "true"},
    }
    return {"metadata": {"name": "gpus", "uid": "a"}, "spec": {"template": {"spec": base | spec}}}


def pod(
    state: dict[str, Any], last: dict[str, Any] | None = None, init: dict[str, Any] | None = None
) -> dict[str, Any]:
    status = {"phase": "Running", "containerStatuses": [{"state": state, "lastState": last or {}}]}
    status |= {"initContainerStatuses": [{"state": init}]} if init else {}
    meta = {"name": "gpus-x", "ownerReferences": [{"uid": "a"}]}
    return {"metadata": meta, "spec": {"nodeName": "n"}, "status": status}


def event(name: str, message: str) -> dict[str, Any]:
    return {"involvedObject": {"name": name}, "message": message}


RUNS: dict[str, Any] = {"running": {}}
WAITS = {"waiting": {"reason": "CrashLoopBackOff"}}
ENDED = {"terminated": {"reason": "Error", "exitCode": 1}}
NOT_STARTED = {"terminated": {"reason": "StartError", "exitCode": 128}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}

HELP = """Error: could not parse "many" as int value for flag num-devices
USAGE:
   plugin [options]
OPTIONS:
   --fail-on-error      end where a device cannot be read [$FAIL]
   -v value             number for the log level verbosity (default: 0) [$V]
"""
CASES: dict[str, tuple[PluginState, dict[str, Any], str, str]] = {
    "no DaemonSet": (PluginState(None), {}, "no plugin", "does not exist"),
    "a missing RuntimeClass": (
        PluginState(plugin(runtimeClassName="nvidia"), runtime_classes=["gvisor"]),
        {},
        "wrong runtime class",
        "asks for the RuntimeClass nvidia; the cluster has gvisor",
    ),
    "a taint": (
        PluginState(plugin(tolerations=[])),
        {},
        "plugin not scheduled because of a taint",
        "flyte/gpu=dedicated:NoSchedule, which DaemonSet gpus does not tolerate",
    ),
    "no label": (
        PluginState(plugin(nodeSelector={"pool": "gpu"})),
        {},
        "plugin not scheduled",
        "the node lacks pool=gpu",
    ),
    "refused pods": (
        PluginState(plugin(), events=[event("gpus", "exceeded quota"), event("other", "fine")]),
        {},
        "plugin not scheduled",
        "DaemonSet gpus: exceeded quota",
    ),
    "a handler that containerd lacks": (
        PluginState(plugin(runtimeClassName="nvidia"), [pod(CREATING)], {}, [event("gpus-x", NO_HANDLER)], ["nvidia"]),
        {},
        "wrong runtime class",
        'no runtime for "nvidia" is configured',
    ),
    "a handler that containerd lacked before": (
        PluginState(plugin(runtimeClassName="nvidia"), [pod(RUNS)], {}, [event("gpus-x", NO_HANDLER)], ["nvidia"]),
        {},
        "allocatable 0",
        "its log is empty",
    ),
    "a driver that was missing before": (
        PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": "panic: boom"}, [event("gpus-x", NO_FOLDER)]),
        {},
        "plugin crashed",
        "panic: boom",
    ),
    "no driver, and the runtime's hook ends the start": (
        PluginState(plugin(), [pod(WAITS, NOT_STARTED)], {}, [event("gpus-x", NO_LIBRARY)]),
        {},
        "no driver",
        "libnvidia-ml.so.1",
    ),
    "no image": (
        PluginState(plugin(), [pod({"waiting": {"reason": "ImagePullBackOff", "message": "nvcr.io/x not found"}})]),
        {},
        "no image",
        "ImagePullBackOff: nvcr.io/x not found",
    ),
    "no image of an init container": (
        PluginState(
            plugin(), [pod({"waiting": {"reason": "PodInitializing"}}, init={"waiting": {"reason": "ErrImagePull"}})]
        ),
        {},
        "no image",
        "ErrImagePull",
    ),
    "an init container that has ended well": (
        PluginState(plugin(), [pod(RUNS, init={"terminated": {"reason": "Completed", "exitCode": 0}})]),
        {},
        "allocatable 0",
        "reports no nvidia.com/gpu to the kubelet",
    ),
    "no driver, and the plugin waits": (
        PluginState(plugin(), [pod(RUNS)], {"gpus-x": f"starting\n{NOT_LOADED}\nwaiting"}),
        {},
        "no driver",
        "nvml init failed: Driver Not Loaded",
    ),
    "no driver, and the plugin ends": (
        PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": NOT_LOADED}),
        {},
        "no driver",
        "nvml init failed",
    ),
    "a driver in a container that is not there yet": (
        PluginState(plugin(), [pod(CREATING)], {}, [event("gpus-x", NO_FOLDER)]),
        {},
        "no driver",
        "/run/nvidia/driver is not a directory",
    ),
    "a GPU that fell off the bus": (
        PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": LOST}),
        {},
        "GPU lost",
        "error getting device handle for index '5': GPU is lost",
    ),
    "not in the NVIDIA runtime": (
        PluginState(plugin(), [pod(RUNS)], {"gpus-x": NO_TOOLKIT}),
        {},
        "wrong runtime class",
        "has no runtime class and reports",
    ),
    "in the NVIDIA runtime, and nothing found": (
        PluginState(plugin(runtimeClassName="nvidia"), [pod(RUNS)], {"gpus-x": NO_TOOLKIT}, (), ["nvidia"]),
        {},
        "no driver",
        "has its runtime class and yet reports",
    ),
    "not in the NVIDIA runtime, as v0.19 says it": (
        PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": NO_NVML}),
        {},
        "wrong runtime class",
        "has no runtime class and reports: E1121 10:00:00.000000 1 factory.go:97] Failed to initialize NVML",
    ),
    "a driver in a container that has left nothing in its folder": (
        PluginState(plugin(volumes=[{"name": "driver-root"}]), [pod(WAITS, ENDED)], {"gpus-x": NO_NVML}),
        {},
        "no driver",
        "has the driver's folder and yet reports",
    ),
    "a crash": (
        PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": "begin\npanic: index out of range\n"}),
        {},
        "plugin crashed",
        "Error, exit code 1: panic: index out of range",
    ),
    "a crash whose message comes before the program's help": (
        PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": HELP}),
        {},
        "plugin crashed",
        'Error, exit code 1: Error: could not parse "many" as int value for flag num-devices',
    ),
    "all devices unhealthy": (
        PluginState(plugin(), [pod(RUNS)]),
        {GPU: "4"},
        "allocatable 0",
        "reports 4 nvidia.com/gpu",
    ),
    "no device reported": (
        PluginState(plugin(), [pod(RUNS)], {"gpus-x": "No devices found. Waiting indefinitely."}),
        {},
        "allocatable 0",
        "No devices found",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_names_the_one_cause_with_its_evidence(case: str) -> None:
    state, capacity, cause, evidence = CASES[case]
    findings = without_devices([node(capacity=capacity)], state, GPU)
    assert [(item.node, item.cause) for item in findings] == [("n", cause)]
    assert evidence in str(findings[0]), "it is not in the part that is shown"
    assert findings[0].fix


def test_a_node_that_is_not_ready_is_the_cause_although_it_still_shows_its_devices() -> None:
    """The plugin's pod there is not ready, so that the role fails; without this, it named no node."""
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting."}
    evidence = "its condition Ready is Unknown (NodeStatusUnknown: Kubelet stopped posting.)"
    unlabel = "kubectl label node n nvidia.com/gpu.present-"
    for names, fix in {
        ("n", "m"): "repair the node, or take it out of gpu_device_plugin_nodes",
        (): f"repair the node, or {unlabel}",
        ("m",): f"{unlabel}, since gpu_device_plugin_nodes does not have this node; or repair the node",
    }.items():
        state = PluginState(plugin(), [pod(RUNS)], listed=names)
        (finding,) = without_devices([node(allocatable={GPU: "4"}, conditions=[ready])], state, GPU)
        assert finding == Finding("n", "node not ready", evidence, fix)
    assert without_devices([node(allocatable={GPU: "4"}, conditions=[ready | {"status": "True"}])], state, GPU) == []


def test_pod_security_that_refuses_the_kubelets_folder_is_fixed_by_a_label_of_the_namespace() -> None:
    message = 'pods "gpus-x" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "plugins")'
    (finding,) = without_devices([node()], PluginState(plugin(), events=[event("gpus", message)]), GPU)
    assert message in finding.evidence
    assert finding.fix.startswith("label its namespace pod-security.kubernetes.io/enforce=privileged")


@pytest.mark.parametrize("case", CASES)
def test_a_node_with_devices_has_no_finding_whatever_the_plugin_reports(case: str) -> None:
    assert without_devices([node(allocatable={GPU: "1"}, capacity={GPU: "2"})], CASES[case][0], GPU) == []


def test_a_pod_of_the_chart_s_feature_discovery_is_not_taken_for_the_plugin_s() -> None:
    """It has the plugin's name and release among its labels, and runs beside it."""
    other = pod(RUNS) | {"metadata": {"name": "gpus-gpu-feature-discovery-x", "ownerReferences": [{"uid": "b"}]}}
    (finding,) = without_devices([node()], PluginState(plugin(), [other, pod(WAITS, ENDED)], {"gpus-x": "boom"}), GPU)
    assert (finding.cause, finding.evidence) == ("plugin crashed", "pod gpus-x, Error, exit code 1: boom")


def test_each_node_has_its_own_cause() -> None:
    bare = node() | {"metadata": {"name": "m", "labels": {}}, "spec": {}}
    findings = without_devices([node(), bare], PluginState(plugin(), [pod(WAITS, ENDED)], {"gpus-x": "boom"}), GPU)
    assert [(item.node, item.cause) for item in findings] == [("n", "plugin crashed"), ("m", "plugin not scheduled")]


def test_nothing_is_changed() -> None:
    nodes = [node()]
    state = CASES["a crash"][0]
    before = copy.deepcopy((nodes, state))
    without_devices(nodes, state, GPU)
    assert (nodes, state) == before


def test_devices_are_counted_on_both_sides() -> None:
    two = node(allocatable={GPU: "1"}, capacity={GPU: "2"})
    assert (devices(two, GPU), devices(two, GPU, "capacity"), devices(node(), GPU)) == (1, 2, 0)


def test_a_finding_reads_as_one_line() -> None:
    text = str(Finding("n", "no driver", "x" * 1000, "install it"))
    assert text.startswith("n: no driver: xxx")
    assert text.endswith("Fix: install it.")
    assert len(text) < 400
