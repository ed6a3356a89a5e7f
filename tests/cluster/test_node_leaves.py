"""A node that leaves the inventory is named by every run, and on request drained and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.conftest import STATE

if TYPE_CHECKING:
    from tests.cluster.conftest import Lab

LEAVER = "node-2"


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


def test_a_node_that_left_the_inventory_is_named_and_removed_on_request(three_nodes: Lab) -> None:
    lab = three_nodes
    more, lab.more = lab.more, ()
    try:
        said = " ".join(lab.playbook("playbooks/lab.yml").split())  # Ansible wraps it
        assert f"{LEAVER}: got a node of this lab that runs, expected it in the inventory (node-0, node-1)." in said
        assert all(traces(lab).values()), traces(lab)
        lab.playbook("playbooks/lab.yml", "-e", "lab_cluster_remove_left=true")
        assert not any(traces(lab).values()), traces(lab)
        assert lab.ready() == {"node-0", "node-1"}
        again = lab.playbook("playbooks/lab.yml")
        assert "got a node of this lab" not in again
        assert again.count("changed=0") == 3, again[-600:]  # localhost and two nodes
    finally:
        lab.more = more
    lab.playbook("playbooks/lab.yml")
    assert lab.ready() == {"node-0", "node-1", LEAVER}, "it may come back"
