"""The facts of this machine that decide whether it can run the lab, read in one pass; nothing is changed."""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import json
import os
import platform
import shutil
import subprocess
from pathlib import Path

from lab.host import preflight

CGROUPS = Path(preflight.CGROUPS)
FEATURES = preflight.FEATURES


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _controllers() -> tuple[frozenset[str] | None, int]:
    """The cgroup controllers, None without a hierarchy, and the version of the hierarchy."""
    unified = CGROUPS / "cgroup.controllers"
    if unified.exists():
        return frozenset(_text(unified).split()), 2
    with contextlib.suppress(OSError):
        mounted = [path.name for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists()]
        names = frozenset(name for path in mounted for name in path.split(","))
        return names or None, 1
    return None, 1


def cgroup_processes() -> int:
    """The processes in the top of a v2 hierarchy that may have none: a container's, but not the machine's root."""
    return len(_text(CGROUPS / "cgroup.procs").split()) if (CGROUPS / "cgroup.type").exists() else 0


def _features() -> tuple[frozenset[str], frozenset[str]]:
    """The usable features, and those that modprobe would provide."""
    release = platform.release()
    modules = Path("/lib/modules") / release
    config = _text(Path(f"/boot/config-{release}"))
    with contextlib.suppress(OSError):
        config = config or gzip.decompress(Path("/proc/config.gz").read_bytes()).decode(errors="replace")
    lines = set(config.splitlines())
    built_in, loadable = _text(modules / "modules.builtin"), _text(modules / "modules.dep")
    usable, more = set(), set()
    for name, (module, option) in FEATURES.items():
        can_load = f"/{module}.ko" in loadable
        loads_itself = can_load and name in ("bridge", "veth")  # `ip link add` makes the kernel load them
        loaded = Path(f"/sys/module/{module}").exists() or f"/{module}.ko" in built_in or f"{option}=y" in lines
        if loaded or loads_itself:
            usable.add(name)
        if can_load:
            more.add(name)
    now = {"overlay": "\toverlay\n" in _text(Path("/proc/filesystems"))}  # visible once they are loaded
    now["br_netfilter"] = Path("/proc/sys/net/bridge").exists()
    usable = (usable - now.keys()) | {name for name, visible in now.items() if visible}
    return frozenset(usable), frozenset(more)


def _free_gib(path: Path) -> float:
    """The free space where `path` is or will be."""
    while not path.exists():
        path = path.parent
    system = os.statvfs(path)
    return system.f_bavail * system.f_frsize / 2**30


def _memory_gib() -> float:
    """The machine's memory, or the limit of this container."""
    sizes = [int(line.split()[1]) * 1024 for line in _text(Path("/proc/meminfo")).splitlines() if "MemTotal" in line]
    limits = (_text(CGROUPS / name).strip() for name in ("memory.max", "memory/memory.limit_in_bytes"))
    sizes += [int(limit) for limit in limits if limit.isdigit()]
    return min(sizes, default=0) / 2**30


def _inotify_free(limit: int) -> int:
    """How many instances of inotify can be opened, up to `limit`: the kernel does not tell what is in use."""
    libc, opened = ctypes.CDLL(None), list[int]()
    if not hasattr(libc, "inotify_init1"):
        return 0  # not Linux, which is a problem of its own
    try:
        while len(opened) < limit and (descriptor := libc.inotify_init1(os.O_CLOEXEC)) >= 0:
            opened.append(descriptor)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return len(opened)


def _ip(kind: str) -> list[dict[str, object]]:
    with contextlib.suppress(OSError, ValueError):
        done = subprocess.run(["ip", "-json", *kind.split()], capture_output=True, text=True, check=False)
        return list(json.loads(done.stdout or "[]"))
    return []


def _daemons() -> tuple[str, ...]:
    """The container daemons in the machine's own network namespace: the lab's are in others."""
    own, names = Path("/proc/self/ns/net").stat().st_ino, set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or (name := _text(entry / "comm").strip()) not in preflight.DAEMONS:
            continue
        with contextlib.suppress(OSError):
            if (entry / "ns/net").stat().st_ino == own:
                names.add(name)
    return tuple(sorted(names))


def gather(cache: str, state: str) -> preflight.Host:
    """Read the machine's facts; `cache` is the lab's cache folder, `state` the folder of the running lab."""
    controllers, version = _controllers()
    features, loadable = _features()
    bits = [int(line.split()[1], 16) for line in _text(Path("/proc/self/status")).splitlines() if "CapEff" in line]
    effective = bits[0] if bits else 0
    writable = controllers is None or not os.statvfs(CGROUPS).f_flag & os.ST_RDONLY
    if controllers is not None and version == 1:
        writable = not os.statvfs(CGROUPS / "memory" if "memory" in controllers else CGROUPS).f_flag & os.ST_RDONLY
    addresses: list[tuple[str, str]] = []
    for link in _ip("address show"):
        infos = link["addr_info"]
        if isinstance(infos, list):
            addresses += [(f"{info['local']}/{info['prefixlen']}", str(link["ifname"])) for info in infos]
    routes = [(str(route["dst"]), str(route.get("dev", ""))) for route in _ip("-4 route show")]
    folder = Path(cache)
    return preflight.Host(
        user=os.geteuid(),
        system=platform.system(),
        machine=platform.machine(),
        capabilities=frozenset(name for name, bit in preflight.CAPABILITIES.items() if effective >> bit & 1),
        controllers=controllers,
        cgroup_version=version,
        cgroup_writable=writable,
        cgroup_processes=cgroup_processes() if version == 2 else 0,
        namespaces=frozenset(kind for kind in ("net", "mnt") if Path(f"/proc/self/ns/{kind}").exists()),
        features=features,
        loadable=loadable,
        programs=frozenset(name for name in preflight.PROGRAMS if Path(name).is_file() or shutil.which(name)),
        cache=cache,
        cache_free_gib=_free_gib(folder),
        cache_warm=all(any((folder / kind).glob("[!.]*")) for kind in ("parts", "roots", "stores")),
        state=state,
        state_free_gib=_free_gib(Path(state)),
        memory_gib=_memory_gib(),
        inotify_free=_inotify_free(preflight.INOTIFY),
        lab_exists=Path(state).exists() or any(Path("/run/gangplank/mnt").glob("*")),
        links=frozenset(path.name for path in Path("/sys/class/net").glob("*")),
        addresses=tuple(addresses),
        routes=tuple(("0.0.0.0/0" if dst == "default" else dst, link) for dst, link in routes),
        pinned=tuple(sorted(path.name for path in Path("/run/netns").glob(f"{preflight.NAMESPACES}*"))),
        daemons=_daemons(),
    )
