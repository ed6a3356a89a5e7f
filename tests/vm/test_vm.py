"""The lab on a machine with systemd and cgroup v2, and after power cuts: `make test-vm`, or the sweep `vm`.

It takes 20 minutes. The machine is a user-mode Linux, see guest.py: real programs and a real kernel, one processor, no
cpuset controller.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.sweeps import sweeping
from tests.vm.guest import Guest

if TYPE_CHECKING:
    from collections.abc import Iterator

ASKED = os.environ.get("GANGPLANK_VM") or sweeping("vm")
pytestmark = [
    pytest.mark.skipif(not ASKED, reason="it is `make test-vm`, which takes 20 minutes"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="user-mode Linux is for x86_64"),
]
SEED, CUTS = 20261122, 3
# One node: a machine of one processor is slow. Its programs need minutes for what takes seconds elsewhere.
INVENTORY = "sed /node-1/d inventories/lab/hosts.yml > inventories/lab/one.yml"
PLAY = ".venv/bin/ansible-playbook -i inventories/lab/one.yml -e lab_cluster_timeout_s=3600"
KUBECTL = (
    "$(.venv/bin/python -m lab.build --show bin.kubernetes)/kubectl --request-timeout=120s "
    "--kubeconfig /var/lib/gangplank/lab/admin.kubeconfig"
)
LEFT = """
find /sys/fs/cgroup -path '*/gangplank*'; grep -E '(run|lib)/gangplank' /proc/mounts; ip -o link | grep gangplank0
ls -d /run/gangplank /var/lib/gangplank 2>/dev/null; ps -eo args | grep -E '[k]ube|[e]tcd|[c]ontainerd|[s]upervisord'
cat /sys/fs/cgroup/cgroup.subtree_control
"""
# Its nf_tables has no IPv4, so the programs of the node use the older interface.
LEGACY = """
for module in ip_tables iptable_filter iptable_nat iptable_mangle iptable_security ip_set_hash_ip xt_set; do
  modprobe $module || exit
done
nsenter --net=/run/netns/gangplank-node-0 --mount=/run/gangplank/mnt/node-0 -- \\
  mount --bind /usr/sbin/xtables-legacy-multi /usr/sbin/xtables-nft-multi
"""
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "spec": {"automountServiceAccountToken": False, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
}


def pod(name: str, command: list[str], limits: dict[str, str]) -> dict[str, object]:
    """A pod with these limits."""
    container = {"name": "main", "image": "docker.io/library/busybox:1.37", "command": command}
    spec = {**POD["spec"], "containers": [{**container, "resources": {"limits": limits}}]}
    return {**POD, "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    folder = Path("/var/tmp/gangplank-vm")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    machine = Guest(folder, "bookworm")
    machine.start()
    try:
        machine.do(f"make setup && {INVENTORY} && {PLAY} playbooks/lab.yml")
        yield machine
    finally:
        machine.cut()
    shutil.rmtree(folder)


def test_the_lab_comes_up_on_cgroup_v2_below_systemd(guest: Guest) -> None:
    facts = guest.do("stat -fc %T /sys/fs/cgroup; cat /proc/1/comm; cat /sys/fs/cgroup/cgroup.subtree_control")
    assert facts.split()[:2] == ["cgroup2fs", "systemd"]
    limit = int(guest.do("cat /sys/fs/cgroup/gangplank/node-0/kubepods/memory.max"))
    allocatable = guest.do(f"{KUBECTL} get node node-0 -o jsonpath='{{.status.allocatable.memory}}'")
    assert limit == (int(allocatable.removesuffix("Ki")) + 100 * 1024) * 1024  # and what the kubelet evicts at


def test_b2_the_limits_of_pods_hold(guest: Guest) -> None:
    pods = [
        pod("limited", ["sleep", "3600"], {"cpu": "200m", "memory": "64Mi"}),
        pod("hungry", ["sh", "-c", "x=aaaaaaaa; while :; do x=$x$x; done"], {"memory": "32Mi"}),
    ]
    (guest.host / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    guest.do(LEGACY)
    wait = f"{KUBECTL} wait --timeout=1200s --for=jsonpath="
    guest.do(
        f"until {KUBECTL} apply -f /host/pods.json; do sleep 3; done; {wait}'{{.status.phase}}'=Running pod/limited && "
        f"{wait}'{{.status.phase}}'=Failed pod/hungry"
    )
    ended = "{.status.containerStatuses[0].state.terminated.reason}"
    assert guest.do(f"{KUBECTL} get pod hungry -o jsonpath='{ended}'") == "OOMKilled"
    uid = guest.do(f"{KUBECTL} get pod limited -o jsonpath='{{.metadata.uid}}'")
    files = " ".join(f"pod{uid}/{name}" for name in ("memory.max", "pids.max", "cpu.max"))
    values = guest.do(f"cd /sys/fs/cgroup/gangplank/node-0/kubepods && cat {files}")
    assert values.split("\n")[:3] == [str(64 << 20), "4096", "20000 100000"]


def test_d2_the_next_run_heals_what_a_power_cut_left(guest: Guest) -> None:
    kept = f"{KUBECTL} get configmap kept -o jsonpath='{{.data.word}}' 2>/dev/null"
    guest.do(f"until {KUBECTL} create configmap kept --from-literal=word=mine || {kept}; do sleep 3; done")
    for seconds in random.Random(SEED).sample(range(20, 400), CUTS):
        guest.begin(f"{PLAY} playbooks/lab.yml")
        time.sleep(seconds)
        guest.cut()
        guest.start()
        healed = guest.do(f"{PLAY} playbooks/lab.yml")
        assert "failed=0" in healed
        assert "it is made again" in healed, healed[-3000:]
        assert guest.do(f"until {kept}; do sleep 3; done") == "mine"
    assert "changed=0" in guest.do(f"{PLAY} playbooks/lab.yml").split("node-0 ")[-1]


def test_nothing_is_left_after_down(guest: Guest) -> None:
    guest.do(f"{PLAY} playbooks/lab-down.yml")
    assert guest.do(LEFT).split() == ["memory", "pids"]
