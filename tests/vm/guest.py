"""A machine in user-mode Linux: a Debian root with systemd and cgroup v2, and a kernel of its own.

It needs no /dev/kvm. Its disk is a file and the host's cache is mounted read-only, so killing it is a power cut.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from gangplank.wait import polls
from lab.build.cache import building, cache_home
from lab.build.debian_root import Debs

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
SHARED = ("parts", "roots", "images", "venv")  # of the cache; the store is on the guest's disk, for hard links
PACKAGES = (
    "ca-certificates", "dbus", "debian-archive-keyring", "git", "iproute2", "iptables", "kmod", "make", "mount",
    "nftables", "openssl", "perl", "procps", "python3", "python3-venv", "systemd-sysv", "util-linux",
)  # fmt: skip
SERVICE = f"""[Unit]
RequiresMountsFor=/host
[Service]
KillMode=process
WorkingDirectory=/root
Environment=HOME=/root LANG=C.UTF-8 PATH={sys.base_prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/bin/sh /host/server
[Install]
WantedBy=multi-user.target
"""
MEMORY_MIB, DISK_GIB = 6400, 24


def run(*command: str, **more: Any) -> str:
    """What the command prints; fails with its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **more)
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return str(done.stdout)


def kernel(home: Path) -> Path:
    """The folder with Debian's user-mode-linux, and the library that it needs on processors with AMX."""
    target = home / "kernel"
    if not target.exists():
        with building(target) as draft:
            run("apt-get", "-oAPT::Sandbox::User=root", "download", "user-mode-linux", cwd=draft)
            run("dpkg-deb", "-x", str(next(draft.glob("*.deb"))), str(draft))
            run("cc", "-O2", "-shared", "-fPIC", "-o", str(draft / "xstate.so"), str(HERE / "xstate.c"))
    return target


def root(home: Path, suite: str) -> Path:
    """The folder with the Debian release `suite`."""
    target = home / suite
    if not target.exists():
        with building(target) as draft:
            script = Debs(cache_home(), print).mmdebstrap(draft / "mmdebstrap")
            mirror = run("apt-get", "indextargets", "--format", "$(SITE)").split()[0]
            options = ["--mode=root", "--variant=apt", f"--include={','.join(PACKAGES)}"]
            options += ['--aptopt=Acquire::Check-Valid-Until "false"', suite, str(draft / "tree"), mirror]
            run("perl", str(script), *options, env=os.environ | {"PATH": f"{script.parent}:{os.environ['PATH']}"})
    return target / "tree"


def _files(tree: Path, host: Path, modules: Path) -> None:
    """What makes the root this machine: its mounts, its modules, a clone of the checkout, the service."""
    cache = cache_home()
    shared = [*(cache / name for name in SHARED), *([Path(sys.base_prefix)] if sys.base_prefix != "/usr" else [])]
    mounts = [f"none {place} hostfs ro,{place} 0 0" for place in shared]
    for place in (*shared, Path("/host")):
        (tree / place.relative_to("/")).mkdir(parents=True, exist_ok=True)
    lines = ["/dev/ubda / ext4 defaults 0 1", *mounts, f"none /host hostfs {host} 0 0", ""]
    (tree / "etc/fstab").write_text("\n".join(lines))
    (tree / "etc/modules-load.d/lab.conf").write_text("bridge\nbr_netfilter\noverlay\nveth\n")
    (tree / "etc/systemd/system/server.service").write_text(SERVICE)
    run("chroot", str(tree), "systemctl", "enable", "server.service")
    shutil.copytree(modules, tree / "lib/modules" / modules.name, symlinks=True)
    run("chroot", str(tree), "depmod", modules.name)
    run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(tree / "root/gangplank"))
    for name in run("git", "ls-files", "--modified", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (tree / "root/gangplank" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / "root/gangplank" / name)


class Guest:
    """The machine: `start`, `do`, `cut`."""

    def __init__(self, folder: Path, suite: str) -> None:
        """Write its disk to `folder`."""
        home = cache_home() / "vm"
        self.folder, self.host, self.kernel = folder, folder / "host", kernel(home)
        self.disk, self.count = folder / "disk", 0
        self.process: subprocess.Popen[bytes] | None = None
        self.host.mkdir()
        shutil.copy(HERE / "server.sh", self.host / "server")  # without .sh, or it would run itself
        store = Path(json.loads(run(sys.executable, "-m", "lab.build", cwd=ROOT))["store"])
        tree = folder / "tree"
        run("cp", "-a", "--reflink=auto", f"{root(home, suite)}/.", f"{tree}/")
        _files(tree, self.host, next((self.kernel / "usr/lib/uml/modules").iterdir()))
        stores = tree / store.parent.relative_to("/")
        stores.mkdir(parents=True)
        run("cp", "-a", str(store), str(stores))
        run("truncate", "-s", f"{DISK_GIB}G", str(self.disk))
        run("mkfs.ext4", "-q", "-F", "-d", str(tree), str(self.disk))
        shutil.rmtree(tree)

    def start(self) -> None:
        """Start it and wait until its service runs commands."""
        (self.host / "boot").unlink(missing_ok=True)
        command = [str(self.kernel / "usr/bin/linux.uml"), f"mem={MEMORY_MIB}M", f"ubda={self.disk}", "root=/dev/ubda"]
        command += ["rw", "con=null", "con0=null,fd:1", "systemd.unified_cgroup_hierarchy=1"]
        # On one processor: the kernel and the process that it runs wait for each other at every system call.
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
        environment = os.environ | {"LD_PRELOAD": str(self.kernel / "xstate.so"), "TMPDIR": "/dev/shm"}
        with (self.folder / "console").open("ab") as console:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                start_new_session=True,
            )
        for _ in polls(600, 0.5):
            if (self.host / "boot").exists():
                return
            assert self.process.poll() is None, (self.folder / "console").read_text(errors="replace")[-3000:]
        raise AssertionError((self.folder / "console").read_text(errors="replace")[-3000:])

    def begin(self, script: str) -> Path:
        """Start a script in the checkout there; its output goes to the returned path, its status beside it."""
        self.count += 1
        name = self.host / f"{self.count:03}"
        name.with_suffix(".draft").write_text(f"cd ~/gangplank\n{script}\n")
        name.with_suffix(".draft").rename(name.with_suffix(".sh"))
        return name.with_suffix(".log")

    def do(self, script: str, limit_s: float = 7200) -> str:
        """Run a script there; fails with its output."""
        log = self.begin(script)
        for _ in polls(limit_s, 1):
            if log.with_suffix(".rc").exists():
                break
        text = log.read_text(errors="replace") if log.exists() else ""
        assert log.with_suffix(".rc").exists(), f"no end of {script!r} after {limit_s} s: {text[-3000:]}"
        assert log.with_suffix(".rc").read_text().strip() == "0", text[-6000:]
        return text

    def cut(self) -> None:
        """Cut its power."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
