"""Nodes that give out GPUs by claim: why one publishes nothing, and that no GPU is given out in both ways."""

from __future__ import annotations

from typing import Any

from gangplank.site.gpu_devices import PluginState, abandoned, by_claim, by_device_plugin, without_slices

Json = dict[str, Any]
NODE: Json = {"metadata": {"name": "node-1"}, "spec": {}, "status": {"capacity": {"cpu": "2"}}}
DAEMONSET: Json = {"metadata": {"name": "driver", "uid": "a"}, "spec": {"template": {"spec": {}}}}
RUNNING: Json = {
    "metadata": {"name": "driver-x", "ownerReferences": [{"uid": "a"}]},
    "spec": {"nodeName": "node-1"},
    "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
}


def slice_of(driver: str = "gpu.example.com", devices: int = 1, node: str = "node-1") -> Json:
    return {"spec": {"driver": driver, "nodeName": node, "devices": [{"name": f"gpu-{at}"} for at in range(devices)]}}


def cause(slices: list[Json], **state: Any) -> str:
    driver = PluginState(**({"daemonset": DAEMONSET, "role": "gpu_dra_driver"} | state))
    return "\n".join(map(str, without_slices([NODE], driver, slices)))


def test_a_node_that_publishes_devices_has_no_finding() -> None:
    assert cause([slice_of()], pods=[RUNNING]) == ""
    assert cause([slice_of()], daemonset=None) == "", "before its pods are looked at"


def test_a_slice_of_another_node_or_without_devices_does_not_count() -> None:
    for slices in ([slice_of(node="node-0")], [slice_of(devices=0)]):
        assert "node-1: no devices: pod driver-x runs and publishes no ResourceSlice" in cause(slices, pods=[RUNNING])


def test_a_node_that_is_not_ready_is_the_cause_although_its_slices_stay() -> None:
    down = {**NODE, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    state = PluginState(DAEMONSET, [RUNNING], role="gpu_dra_driver", listed=["node-1"])
    (finding,) = without_slices([down], state, [slice_of()])
    assert (finding.cause, finding.evidence) == ("node not ready", "its condition Ready is Unknown")
    assert finding.fix == "repair the node, or take it out of gpu_dra_driver_nodes"


def test_a_node_that_only_its_label_selects_beside_a_list_is_named_with_the_command_that_takes_the_label_away() -> None:
    said = cause([], pods=[RUNNING], listed=["node-0"])
    assert said.startswith("node-1: no devices: pod driver-x runs and publishes no ResourceSlice")
    assert "Fix: kubectl label node node-1 gangplank.dev/gpus-by-claim-, since gpu_dra_driver_nodes does not" in said


def test_what_keeps_the_driver_away_names_its_own_role() -> None:
    assert "Fix: run the role gpu_dra_driver." in cause([], daemonset=None)
    tainted = {**NODE, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    driver = PluginState(DAEMONSET, role="gpu_dra_driver")
    assert "add the taint to gpu_dra_driver_taints" in str(without_slices([tainted], driver, [])[0])


def test_a_driver_that_crashed_is_named_with_its_last_line() -> None:
    ended = {"state": {"terminated": {"reason": "Error", "exitCode": 1}}}
    pod = {**RUNNING, "status": {"phase": "Running", "containerStatuses": [ended]}}
    assert "Error, exit code 1: no kubelet" in cause([], pods=[pod], logs={"driver-x": "start\nno kubelet\n"})


def revised(pod: Json, revision: str) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "labels": {"controller-revision-hash": revision}}}


def revision(number: int, name: str, uid: str = "a") -> Json:
    meta = {"labels": {"controller-revision-hash": name}, "ownerReferences": [{"uid": uid}]}
    return {"metadata": meta, "revision": number}


REVISIONS = [revision(1, "old"), revision(2, "new"), revision(3, "other", uid="b")]
NO_IMAGE = {"state": {"waiting": {"reason": "ErrImagePull", "message": "v0.0.0 not found"}}}


def test_a_new_pod_that_cannot_start_is_named_although_the_old_one_publishes() -> None:
    new = {
        **RUNNING,
        "metadata": {**RUNNING["metadata"], "name": "driver-y"},
        "status": {"phase": "Pending", "containerStatuses": [NO_IMAGE]},
    }
    pods = [revised(RUNNING, "old"), revised(new, "new")]
    said = cause([slice_of()], pods=pods, revisions=REVISIONS)
    assert said.startswith("node-1: no image: pod driver-y: ErrImagePull: v0.0.0 not found. Fix: ")


def test_a_taint_is_named_although_the_old_pod_stays_on_the_node_and_publishes() -> None:
    tainted = {**NODE, "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    nowhere = {**RUNNING, "metadata": {**RUNNING["metadata"], "name": "driver-y"}, "spec": {}}
    pods = [revised(RUNNING, "old"), revised(nowhere, "new")]
    driver = PluginState(DAEMONSET, pods, revisions=REVISIONS, role="gpu_dra_driver")
    (finding,) = without_slices([tainted], driver, [slice_of()])
    assert finding.cause == "plugin not scheduled because of a taint"


def test_a_pod_of_a_template_that_was_restored_is_a_new_one() -> None:
    restored = [revision(3, "old"), revision(2, "new")]
    assert cause([slice_of()], pods=[revised(RUNNING, "old")], revisions=restored) == ""


def test_a_rollout_that_only_takes_long_is_named_if_nothing_else_is() -> None:
    said = cause([slice_of()], pods=[revised(RUNNING, "old")], revisions=REVISIONS)
    assert "DaemonSet driver has not replaced its older pod there yet. Fix: raise gpu_dra_driver_timeout_s" in said


def node_with(**capacity: str) -> Json:
    named = {name.replace("__", "/").replace("_", "."): number for name, number in capacity.items()}
    return {**NODE, "status": {"capacity": named, "allocatable": named}}


def test_a_gpu_of_a_device_plugin_is_seen_and_one_that_is_gone_is_not() -> None:
    (line,) = by_device_plugin([node_with(nvidia_com__gpu="2")])
    assert line.startswith(
        "node-1: got 2 nvidia.com/gpu of a device plugin, expected GPUs by claim alone. Fix: let its"
    )
    assert "if the plugin is gone, wait five minutes" in line, "its node may have left the list a moment ago"
    silent = node_with(nvidia_com__gpu="2")
    silent["status"]["allocatable"] = {"nvidia.com/gpu": "0"}  # of a plugin that was removed: the kubelet still counts
    (line,) = by_device_plugin([silent])
    assert "2 nvidia.com/gpu of a device plugin that does not answer" in line
    assert "wait five minutes" in line
    assert by_device_plugin([node_with(nvidia_com__gpu="0"), node_with(example_com__fpga="1"), NODE]) == []


def test_a_gpu_by_claim_is_seen_and_a_device_of_another_kind_is_not() -> None:
    (line,) = by_claim([NODE], [slice_of("gpu.nvidia.com"), slice_of("dra.net")])
    assert "node-1: got devices of the driver gpu.nvidia.com, which gives them out by claim" in line
    assert "if the driver is gone, wait a minute" in line
    assert (
        by_claim([NODE], [slice_of("dra.net"), slice_of(node="node-0"), slice_of(devices=0), slice_of(node="")]) == []
    )


def test_what_another_release_s_nodes_publish_is_not_abandoned() -> None:
    slices = [slice_of(node=f"node-{at}") | {"metadata": {"name": f"slice-{at}"}} for at in range(3)]
    other = {"metadata": {"name": "other-x"}, "spec": {"nodeName": "node-1"}}
    leaving = {"metadata": {"name": "other-y", "deletionTimestamp": "now"}, "spec": {"nodeName": "node-2"}}
    assert abandoned(slices, [other, leaving]) == ["slice-0", "slice-2"]
    assert abandoned(slices, []) == ["slice-0", "slice-1", "slice-2"]
