"""What a machine needs to run the lab: the facts that matter, and the problems with them.

This is pure, so that every check can be tested with invented facts; lab/host/facts.py reads the real ones.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

CGROUPS = "/sys/fs/cgroup"
CONTROLLERS = ("cpu", "memory", "pids")
CONTROLLERS_V1 = ("cpuset",)  # with v2 the kubelet uses it only if it exists
# Moves the processes out of the top of a container's cgroup hierarchy.
LEAVE_TOP = f"mkdir -p {CGROUPS}/init; xargs -rn1 < {CGROUPS}/cgroup.procs > {CGROUPS}/init/cgroup.procs"
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # bits, see linux/capability.h
HOST_LINK = "gangplank0"
INOTIFY = 64  # instances of inotify that a lab of four nodes takes: 20 for control plane and Volcano, 10 a node
NAMESPACES = "gangplank-"
MACHINES = ("aarch64", "x86_64")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Programs that the lab calls on the host -> their Debian packages.
PROGRAMS = {
    "apt-get": "apt",
    "cp": "coreutils",
    "dpkg-deb": "dpkg",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "perl": "perl",  # mmdebstrap is a Perl script
    "tar": "tar",
    "umount": "mount",
    "unshare": "util-linux",
    KEYRING: "debian-archive-keyring",  # not a program, but Debian's descendants may lack it too
}

# Feature of the kernel -> (module, its configuration option).
FEATURES = {
    "bridge": ("bridge", "CONFIG_BRIDGE"),
    "br_netfilter": ("br_netfilter", "CONFIG_BRIDGE_NETFILTER"),
    "overlay": ("overlay", "CONFIG_OVERLAY_FS"),
    "veth": ("veth", "CONFIG_VETH"),
}
# Daemons to mention, because people ask whether the lab will disturb them.
DAEMONS = ("containerd", "crio", "dockerd", "k3s-server", "kubelet")


@dataclass(frozen=True)
class Needs:
    """What the lab needs from the machine; sizes in GiB, networks as CIDR."""

    networks: tuple[str, ...]
    disk_cold_gib: float = 25
    disk_warm_gib: float = 8
    memory_gib: float = 6


@dataclass(frozen=True)
class Host:
    """The facts of the machine; `addresses` and `routes` are (CIDR, link)."""

    user: int
    system: str
    machine: str
    capabilities: frozenset[str]
    controllers: frozenset[str] | None
    cgroup_version: int
    cgroup_writable: bool
    namespaces: frozenset[str]
    features: frozenset[str]
    loadable: frozenset[str]
    programs: frozenset[str]
    cache: str
    cache_free_gib: float
    cache_warm: bool
    state: str
    state_free_gib: float
    memory_gib: float
    inotify_free: int
    """How many instances of inotify root can still open, counted up to INOTIFY."""
    lab_exists: bool
    cgroup_processes: int = 0  # in a v2 hierarchy's top that is not the machine's root
    links: frozenset[str] = frozenset()
    addresses: tuple[tuple[str, str], ...] = ()
    routes: tuple[tuple[str, str], ...] = ()
    pinned: tuple[str, ...] = ()
    daemons: tuple[str, ...] = ()


def _line(what: str, got: str, expected: str, fix: str) -> str:
    return f"{what}: got {got}, expected {expected}. Fix: {fix}"


def _system(host: Host) -> list[str]:
    problems = []
    if host.system != "Linux" or host.machine not in MACHINES:
        got, expected = f"{host.system} {host.machine}", f"Linux {' or '.join(sorted(MACHINES))}"
        problems.append(_line("machine", got, expected, "run the lab on such a machine; site.yml works from any other"))
    if host.user:
        fix = "run it as root (sudo -E); site.yml on your own cluster needs no root"
        problems.append(_line("user", f"uid {host.user}", "root, which namespaces and mounts need", fix))
    elif missing := sorted(CAPABILITIES.keys() - host.capabilities):
        fix = "run a container privileged; otherwise use a virtual machine"
        problems.append(_line("capabilities", f"root without {', '.join(missing)}", "root that may mount", fix))
    return problems


def _cgroups(host: Host) -> list[str]:
    if host.controllers is None:
        fix = f"mount -t cgroup2 none {CGROUPS}"
        return [_line("cgroups", f"nothing at {CGROUPS}", "a cgroup hierarchy", fix)]
    problems = []
    needed = {*CONTROLLERS, *(CONTROLLERS_V1 if host.cgroup_version == 1 else ())}
    missing = sorted(needed - host.controllers)
    if missing:
        got, expected = f"no controller {', '.join(missing)}", ", ".join(sorted(needed))
        fix = "boot with " + " ".join(f"cgroup_enable={name}" for name in missing)
        if host.cgroup_version == 1:
            mounts = [f"mount -t cgroup -o {name} {name} {CGROUPS}/{name}" for name in missing]
            fix = f"{'; '.join(mounts)} (after mkdir); or {fix}"
        problems.append(_line(f"cgroups v{host.cgroup_version}", got, expected, fix))
    if not host.cgroup_writable:
        fix = f"mount -o remount,rw {CGROUPS}; in a container, run it privileged"
        problems.append(_line("cgroups", f"{CGROUPS} read-only", "them writable", fix))
    if host.cgroup_processes:  # a container with a cgroup namespace of its own; the machine's root may have processes
        got = f"{host.cgroup_processes} processes in {CGROUPS} itself"
        problems.append(_line("cgroups", got, "none: with them, no cgroup below gets a controller", LEAVE_TOP))
    return problems


def _kernel(host: Host) -> list[str]:
    problems = []
    names = {"net": "network", "mnt": "mount"}
    for kind in sorted(names.keys() - host.namespaces):
        fix = f"boot a kernel with CONFIG_{'NET_NS' if kind == 'net' else 'NAMESPACES'}=y"
        problems.append(_line("kernel", f"no {names[kind]} namespaces", "a kernel with them", fix))
    for name in sorted(FEATURES.keys() - host.features):
        module, option = FEATURES[name]
        fix = f"modprobe {module}"
        if name not in host.loadable:
            fix += f"; if the kernel has no such module, boot one with {option}=y or =m"
        problems.append(_line("kernel", f"no {name}", f"{name} loaded or built in", fix))
    return problems


def _programs(host: Host) -> list[str]:
    missing = sorted(PROGRAMS.keys() - host.programs)
    if not missing:
        return []
    packages = " ".join(sorted({PROGRAMS[name] for name in missing}))
    with_packages = ", ".join(f"{name} (package {PROGRAMS[name]})" for name in missing)
    return [_line("programs", f"no {with_packages}", "every program on PATH", f"apt-get install {packages}")]


def _space(host: Host, needs: Needs) -> list[str]:
    problems = []
    needed_gib = needs.disk_warm_gib if host.cache_warm else needs.disk_cold_gib
    healing = host.lab_exists and host.cache_warm  # a lab that filled its disk has to be healed all the same
    if host.cache_free_gib < needed_gib and not healing:
        state = "filled" if host.cache_warm else "empty"
        expected = f"{needed_gib:g} GiB (the cache is {state})"
        fix = "free some space, or set XDG_CACHE_HOME to a folder on a larger disk"
        problems.append(_line(f"disk of {host.cache}", f"{host.cache_free_gib:.1f} GiB free", expected, fix))
    if host.state_free_gib < needs.disk_warm_gib and not host.lab_exists:
        got, expected = f"{host.state_free_gib:.1f} GiB free", f"{needs.disk_warm_gib:g} GiB for the nodes' files"
        problems.append(_line(f"disk of {host.state}", got, expected, "free some space there"))
    if host.memory_gib < needs.memory_gib * 0.95:  # a machine of 6 GiB reports 5.8: the kernel keeps some
        got = f"{host.memory_gib:.1f} GiB"
        fix = "add memory; for a smaller lab, lower preflight_memory_gib and remove a node from its inventory"
        problems.append(_line("memory of the machine", got, f"{needs.memory_gib:g} GiB", fix))
    if host.inotify_free < INOTIFY and not host.lab_exists:
        fix = "sysctl -w fs.inotify.max_user_instances=1024; to keep it after a reboot, add it to /etc/sysctl.d"
        got, expected = f"{host.inotify_free} free", f"{INOTIFY} for the lab's daemons"
        problems.append(_line("inotify instances", got, expected, fix))
    return problems


def _overlaps(cidr: str, networks: tuple[str, ...]) -> str | None:
    """The lab's network that overlaps `cidr`; wide routes (a VPN's, the default) yield to ours."""
    one = ipaddress.ip_interface(cidr).network
    if one.prefixlen <= 8 and not cidr.endswith(f"/{one.max_prefixlen}"):
        return None
    for network in networks:
        if one.version == 4 and one.overlaps(ipaddress.ip_network(network)):
            return network
    return None


def _conflicts(host: Host, needs: Needs) -> list[str]:
    problems = []
    for kind, listed in (("address", host.addresses), ("route", host.routes)):
        for cidr, link in listed:
            network = _overlaps(cidr, needs.networks)
            if network and link != HOST_LINK:
                fix = f"remove it (ip {kind} del {cidr} dev {link}), or give the lab other networks (lab_cluster_*)"
                problems.append(_line(f"network {network}", f"{kind} {cidr} on {link}", "only the lab in it", fix))
    if not host.lab_exists and HOST_LINK in host.links:
        fix = f"rename or remove it: ip link del {HOST_LINK}"
        problems.append(_line("link", f"{HOST_LINK} without a lab", "the name to be free", fix))
    if not host.lab_exists and host.pinned:
        fix = "; ".join(f"ip netns del {name}" for name in host.pinned)
        got = f"{', '.join(host.pinned)} without a lab"
        problems.append(_line("network namespaces", got, f"the names {NAMESPACES}* to be free", fix))
    return problems


def find_problems(host: Host, needs: Needs) -> list[str]:
    """All reasons why this machine cannot run the lab, a line each: what, got, expected, fix."""
    return [
        *_system(host),
        *_cgroups(host),
        *_kernel(host),
        *_programs(host),
        *_space(host, needs),
        *_conflicts(host, needs),
    ]


def notes(host: Host) -> list[str]:
    """Remarks that are not problems."""
    remark = f"{', '.join(host.daemons)} on this machine: left alone, the lab runs its own in separate namespaces"
    return [remark] if host.daemons else []
