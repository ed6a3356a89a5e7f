"""A node that leaves the inventory is named by every run, and on request drained and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.conftest import STATE

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab

LEAVER, OTHERS = "node-2", ("node-0", "node-1")


def traces(lab: Lab) -> dict[str, bool]:
    """What of the node is there."""
    return {
        "in the cluster": LEAVER in lab.ready(),
        "programs": any(name.endswith(LEAVER) for name in lab.programs()),
        "network": Path(f"/run/netns/gangplank-{LEAVER}").exists(),
        "mounts": Path(f"/run/gangplank/mnt/{LEAVER}").exists(),
        "cgroup": any(Path("/sys/fs/cgroup").rglob(f"gangplank/{LEAVER}")),
        "files": (STATE / "nodes" / LEAVER).exists(),
    }


def home(lab: Lab) -> str:
    """The node on which the only pod of the deployment runs; empty if there is none."""
    pods = lab.get("pods", "-l", "app=stays")
    going = "deletionTimestamp"
    running = [pod for pod in pods if pod["status"]["phase"] == "Running" and going not in pod["metadata"]]
    return str(running[0]["spec"]["nodeName"]) if len(running) == 1 else ""


def settle(lab: Lab) -> str:
    """Let a pod run on the node that leaves; its name."""
    lab.kubectl("cordon", *OTHERS)
    lab.kubectl("create", "deployment", "stays", "--image=registry.k8s.io/pause:3.10.1")
    lab.wait("the pod runs on the node that leaves", lambda: home(lab) == LEAVER)
    lab.kubectl("uncordon", *OTHERS)
    return str(lab.get("pods", "-l", "app=stays")[0]["metadata"]["name"])


def test_a_node_that_left_the_inventory_is_named_and_removed_on_request(three_nodes: Lab) -> None:
    lab = three_nodes
    more, lab.more = lab.more, ()
    try:
        said = " ".join(lab.playbook("playbooks/lab.yml").split())  # Ansible wraps it
        assert f"{LEAVER}: got a node of this lab that runs, expected it in the inventory (node-0, node-1)." in said
        assert all(traces(lab).values()), traces(lab)
        lab.playbook("tests/cluster/lose.yml", "-e", f"lose_node={LEAVER}")  # as a reboot leaves it
        lab.playbook("playbooks/lab.yml")
        lab.wait("the node that left is back, too", lambda: all(traces(lab).values()))
        again = lab.playbook("playbooks/lab.yml")
        assert again.count("changed=0") == 1, again[-600:]
        pod = settle(lab)
        lab.playbook("playbooks/lab.yml", "-e", "lab_cluster_remove_left=true")
        events = lab.get("events", f"--field-selector=involvedObject.name={pod},reason=Killing")
        assert events, "the kubelet ended the pod: the node was drained before its programs were stopped"
        assert lab.wait("the pod is elsewhere", lambda: home(lab)) != LEAVER
        assert not any(traces(lab).values()), traces(lab)
        assert lab.ready() == {"node-0", "node-1"}
        again = lab.playbook("playbooks/lab.yml")
        assert "got a node of this lab" not in again
        assert again.count("changed=0") == 1, again[-600:]
    finally:
        lab.more = more
        lab.kubectl("delete", "deployment", "stays", "--ignore-not-found")
    lab.playbook("playbooks/lab.yml")
    assert lab.ready() == {"node-0", "node-1", LEAVER}, "it may come back"
