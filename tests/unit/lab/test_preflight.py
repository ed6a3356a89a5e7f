"""The checks of a machine before the lab is built on it: invented machines, and this one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.host import facts as lab_host
from lab.host import preflight

ROOT = Path(__file__).resolve().parents[3]

NEEDS = preflight.Needs(("198.18.0.0/24", "198.18.64.0/18", "198.19.0.0/24"))
GOOD = preflight.Host(
    user=0,
    system="Linux",
    machine="x86_64",
    capabilities=frozenset({"CAP_NET_ADMIN", "CAP_SYS_ADMIN"}),
    controllers=frozenset({"cpu", "cpuset", "memory", "pids", "io"}),
    cgroup_version=2,
    cgroup_writable=True,
    namespaces=frozenset({"net", "mnt"}),
    features=frozenset({"bridge", "br_netfilter", "overlay", "veth"}),
    loadable=frozenset(),
    programs=frozenset(preflight.PROGRAMS),
    cache="/home/ann/.cache/gangplank",
    cache_free_gib=25,
    cache_warm=False,
    state="/var/lib/gangplank/lab",
    state_free_gib=8,
    memory_gib=6,
    inotify_free=64,
    lab_exists=False,
    addresses=(("192.168.1.7/24", "eth0"), ("127.0.0.1/8", "lo"), ("fe80::1/64", "eth0")),
    routes=(("0.0.0.0/0", "eth0"), ("192.168.1.0/24", "eth0")),
)
LAB = dataclasses.replace(
    GOOD,
    lab_exists=True,
    links=frozenset({"lo", "eth0", "gangplank0"}),
    addresses=(*GOOD.addresses, ("198.18.0.254/24", "gangplank0")),
    routes=(*GOOD.routes, ("198.18.0.0/24", "gangplank0")),
    pinned=("gangplank-node-0", "gangplank-switch"),
)

# difference from a good machine -> what its one line must contain
BAD: list[tuple[dict[str, Any], list[str]]] = [
    ({"user": 1000}, ["user: got uid 1000", "sudo"]),
    ({"capabilities": frozenset({"CAP_NET_ADMIN"})}, ["without CAP_SYS_ADMIN", "privileged"]),
    ({"system": "Darwin", "machine": "arm64"}, ["Darwin arm64", "Linux aarch64 or x86_64"]),
    ({"machine": "riscv64"}, ["Linux riscv64"]),
    ({"controllers": None}, ["nothing at /sys/fs/cgroup", "mount -t cgroup2"]),
    ({"controllers": frozenset({"cpu", "cpuset", "pids"})}, ["cgroups v2: got no controller memory", "cgroup_enable="]),
    (
        {"controllers": frozenset({"cpu", "memory", "pids"}), "cgroup_version": 1},
        ["cgroups v1: got no controller cpuset", "mount -t cgroup -o cpuset cpuset /sys/fs/cgroup/cpuset"],
    ),
    ({"cgroup_writable": False}, ["read-only"]),
    ({"cgroup_processes": 3}, ["cgroups: got 3 processes in /sys/fs/cgroup itself", "mkdir -p /sys/fs/cgroup/init; "]),
    ({"namespaces": frozenset({"mnt"})}, ["no network namespaces", "CONFIG_NET_NS"]),
    ({"namespaces": frozenset({"net"})}, ["no mount namespaces"]),
    ({"features": GOOD.features - {"veth"}}, ["no veth", "modprobe veth", "CONFIG_VETH"]),
    ({"features": GOOD.features - {"bridge"}}, ["no bridge", "modprobe bridge"]),
    ({"features": GOOD.features - {"br_netfilter"}}, ["no br_netfilter", "modprobe br_netfilter"]),
    ({"features": GOOD.features - {"overlay"}}, ["no overlay", "modprobe overlay"]),
    ({"inotify_free": 17}, ["inotify instances: got 17 free", "sysctl -w fs.inotify.max_user_instances=1024"]),
    ({"cache_free_gib": 24.9}, ["disk of /home/ann/.cache/gangplank: got 24.9 GiB", "25 GiB", "XDG_CACHE_HOME"]),
    ({"cache_free_gib": 7.9, "cache_warm": True}, ["got 7.9 GiB", "expected 8 GiB"]),
    ({"state_free_gib": 7.0}, ["disk of /var/lib/gangplank/lab: got 7.0 GiB"]),
    ({"memory_gib": 5.6}, ["memory of the machine: got 5.6 GiB", "6 GiB", "preflight_memory_gib"]),
    (
        {"addresses": (("198.18.0.9/32", "lo"),)},
        ["network 198.18.0.0/24: got address 198.18.0.9/32 on lo", "ip address"],
    ),
    ({"addresses": (("198.18.70.1/20", "docker0"),)}, ["network 198.18.64.0/18", "docker0"]),
    ({"routes": (("198.18.0.0/15", "tun0"),)}, ["route 198.18.0.0/15 on tun0"]),
    ({"routes": (("198.19.0.0/16", "tun0"),)}, ["network 198.19.0.0/24", "ip route del 198.19.0.0/16 dev tun0"]),
    ({"links": frozenset({"gangplank0"})}, ["link: got gangplank0", "ip link del gangplank0"]),
    (
        {"pinned": ("gangplank-x", "gangplank-y")},
        ["gangplank-x, gangplank-y", "ip netns del gangplank-x; ip netns del"],
    ),
]


@pytest.mark.parametrize("host", [GOOD, LAB], ids=["fresh", "with the lab on it"])
def test_a_good_machine_has_no_problem(host: preflight.Host) -> None:
    assert preflight.find_problems(host, NEEDS) == []


@pytest.mark.parametrize(("bad", "texts"), BAD, ids=[texts[0] for _, texts in BAD])
def test_each_fault_is_one_line_with_its_fix(bad: dict[str, Any], texts: list[str]) -> None:
    (line,) = preflight.find_problems(dataclasses.replace(GOOD, **bad), NEEDS)
    assert "\n" not in line
    assert ": got " in line
    assert ", expected " in line
    assert ". Fix: " in line
    for part in texts:
        assert part in line


@pytest.mark.parametrize("name", sorted(preflight.PROGRAMS))
def test_a_missing_program_is_named_with_its_package(name: str) -> None:
    (line,) = preflight.find_problems(dataclasses.replace(GOOD, programs=GOOD.programs - {name}), NEEDS)
    package = preflight.PROGRAMS[name]
    assert f"no {name} (package {package})" in line
    assert line.endswith(f"Fix: apt-get install {package}")


def test_missing_programs_are_one_command_to_install() -> None:
    (line,) = preflight.find_problems(dataclasses.replace(GOOD, programs=frozenset({"cp"})), NEEDS)
    packages = sorted(set(preflight.PROGRAMS.values()) - {"coreutils"})
    assert line.endswith(f"apt-get install {' '.join(packages)}")


def test_all_faults_are_reported_together() -> None:
    alone = [dict.fromkeys(bad) | bad for bad, _ in BAD if not {"user", "machine", "controllers", "links"} & set(bad)]
    together: dict[str, Any] = {}
    for bad in alone:
        together |= bad
    lines = preflight.find_problems(dataclasses.replace(GOOD, **together, programs=frozenset()), NEEDS)
    kinds = {line.split(":")[0] for line in lines}
    assert {"cgroups", "kernel", "programs", "memory of the machine", "network namespaces", "capabilities"} <= kinds
    assert len(lines) >= 9


def test_a_lab_that_filled_its_disk_may_be_healed() -> None:
    host = dataclasses.replace(LAB, state_free_gib=0.0, cache_free_gib=0.0)
    assert preflight.find_problems(dataclasses.replace(host, cache_warm=True), NEEDS) == []
    assert len(preflight.find_problems(host, NEEDS)) == 1  # to fill a cache takes space


def test_v2_without_cpuset_is_enough() -> None:
    assert GOOD.controllers
    host = dataclasses.replace(GOOD, controllers=GOOD.controllers - {"cpuset"})
    assert preflight.find_problems(host, NEEDS) == []


def test_a_running_lab_excuses_only_its_own_links() -> None:
    stranger = dataclasses.replace(LAB, addresses=(*LAB.addresses, ("198.18.0.1/24", "br-lan")))
    (line,) = preflight.find_problems(stranger, NEEDS)
    assert "br-lan" in line


@pytest.mark.parametrize("cidr", ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "198.20.0.0/16", "198.18.1.0/24"])
def test_wider_routes_are_not_a_problem(cidr: str) -> None:
    assert preflight.find_problems(dataclasses.replace(GOOD, routes=((cidr, "tun0"),)), NEEDS) == []


def test_another_containerd_is_mentioned_and_not_a_problem() -> None:
    host = dataclasses.replace(GOOD, daemons=("containerd", "kubelet"))
    assert preflight.find_problems(host, NEEDS) == []
    (note,) = preflight.notes(host)
    assert "containerd, kubelet on this machine: left alone" in note
    assert preflight.notes(GOOD) == []


def test_this_machines_facts_are_read(tmp_path: Path) -> None:
    host = lab_host.gather(str(tmp_path / "not" / "there"), "/var/lib/not-there/lab")
    assert host.system == "Linux"
    assert host.cache_free_gib > 0
    assert host.state_free_gib > 0
    assert 0.1 < host.memory_gib < 100_000
    assert not host.cache_warm
    assert host.namespaces == {"net", "mnt"}
    assert {"cp", "tar"} <= host.programs
    assert ("127.0.0.1/8", "lo") in host.addresses


def test_instances_of_inotify_are_counted_by_opening_them() -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (13, 13))"
    code = f"from lab.host import facts; {limit}; print(facts._inotify_free(64), facts._inotify_free(5))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    many, few = map(int, done.stdout.split())
    assert 0 < few <= 5 <= many < 13  # none stays open: the second count has as many to take from


def test_a_filled_cache_is_recognised(tmp_path: Path) -> None:
    for kind in ("parts", "roots", "stores"):
        assert not lab_host.gather(str(tmp_path), "/").cache_warm
        (tmp_path / kind).mkdir()
        (tmp_path / kind / ".half").mkdir()
        assert not lab_host.gather(str(tmp_path), "/").cache_warm
        (tmp_path / kind / "whole").mkdir()
    assert lab_host.gather(str(tmp_path), "/").cache_warm


def test_the_networks_are_those_of_the_lab() -> None:
    mine = yaml.safe_load((ROOT / "roles/preflight/defaults/main.yml").read_text())
    lab = yaml.safe_load((ROOT / "roles/lab_cluster/defaults/main.yml").read_text())
    prefix, pods, services = (lab[f"lab_cluster_{name}"] for name in ("node_prefix", "pod_cidr", "service_prefix"))
    assert mine["preflight_networks"] == [f"{prefix}.0/24", pods, f"{services}.0/24"]
    assert mine["preflight_state_folder"] == lab["lab_cluster_folder"]


def test_preflight_looks_at_the_folder_that_the_lab_has() -> None:
    variables = yaml.safe_load((ROOT / "inventories/lab/group_vars/all/lab.yml").read_text())
    assert variables["preflight_state_folder"] == "{{ lab_cluster_folder }}"


def test_a_bad_machine_ends_the_play_with_lines_and_no_traceback(tmp_path: Path) -> None:
    inputs = {
        "preflight_memory_gib": 1_000_000,
        "preflight_disk_cold_gib": 1_000_000,
        "preflight_cache_folder": str(tmp_path),
    }
    (tmp_path / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "roles": ["preflight"], "vars": inputs}])
    )
    command = [sys.executable, "-m", "ansible.cli.playbook", str(tmp_path / "play.yml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    assert done.returncode == 2
    assert "- memory of the machine: got " in output
    assert f"- disk of {tmp_path}: got " in output
    assert "Traceback" not in output
    assert "changed=0" in output


def test_the_sample_in_the_role_s_readme_is_what_it_prints() -> None:
    machine = dataclasses.replace(GOOD, programs=GOOD.programs - {"ip"}, addresses=(("198.18.0.7/32", "lo"),))
    lines = [f"- {line}" for line in preflight.find_problems(machine, NEEDS)]
    assert "\n".join(lines) in (ROOT / "roles/preflight/README.md").read_text()
