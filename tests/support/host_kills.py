"""A lab of two nodes, in namespaces of its own: made, killed after the n-th step, made again.

    unshare --mount --net --propagation private python -m tests.support.host_kills WHAT SCRATCH N

WHAT is `make`, `join` (of the second node), `leave` (again), `remove`, `again` (with other mounts, under programs),
`reboot`, `make-cut`, `configure` or `cut`. The last two are of what a node needs besides: certificates, files, the
user's kubeconfig, its image store. After a cut the power fails too: of the files that were written and not synced, half
are empty, drawn by the number of the step; and all are of before this boot. What `make-cut` has made in memory is gone
then.

A step is an external command (each line of `ip -batch` and of a script counts) or a file that is made, linked, renamed
or removed, or gets another mode, owner or length. The last line printed is JSON: the steps that an undisturbed run
takes, what the machine looks like afterwards, and what the runs after the killed one reported. Nothing of a lab on this
machine is reached: /run is a file system of its own, the links are in a network namespace of its own, and the cgroups
have another name.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank import disk
from gangplank.wait import polls
from lab.build.image_store import CONTENT, DATABASES, LAYERS, place_store, record_images
from lab.host import cgroups, files, kubeconfig, lock, mounts, namespaces, network, node, pki, processes

if TYPE_CHECKING:
    from collections.abc import Collection

real_run = namespaces.run
NODES = {"node-0": "192.0.2.1", "node-1": "192.0.2.2"}
# Of the events that change a file: which of their arguments names it. The last one is the folder that a relative name
# is in, or -1, but for os.truncate.
CHANGES = {
    "os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.chmod": 0, "os.chown": 0, "os.truncate": 0,
    "os.rename": 1, "os.link": 1, "os.symlink": 1,
}  # fmt: skip
USER = 65534  # of the kubeconfig
SYSCTLS = ("ipv4/conf", "ipv4/ip_forward", "ipv6/conf", "bridge")


class Steps:
    """Counts the steps of this process, and ends it right after one of them."""

    def __init__(self, limit: int, places: tuple[str, ...]) -> None:
        self.limit, self.places, self.count = limit, places, 0

    def take(self) -> None:
        self.count += 1
        if self.count == self.limit:
            os.kill(os.getpid(), signal.SIGKILL)

    def run(self, command: list[str], stdin: str = "") -> str:
        """As lab.host.namespaces.run, line by line."""
        if command[-2:] == ["-batch", "-"]:
            for line in stdin.splitlines():
                real_run(command, line + "\n")
                self.take()
            return ""
        if command[0] == "unshare":
            return self.run_script(command)
        if command[-2:-1] == ["-c"]:
            for line in command[-1].splitlines():
                real_run([*command[:-1], line])
                self.take()
            return ""
        output = real_run(command, stdin)
        self.take()
        return output

    def run_script(self, command: list[str]) -> str:
        """Run the script of a mount namespace, which kills this process and itself after its step."""
        at = command.index("-c") + 1
        head = [
            f"steps={self.count}",
            f'step() {{ steps=$((steps + 1)); [ "$steps" != {self.limit} ] || kill -9 {os.getpid()} $$; }}',
            *(f'{name}() {{ command {name} "$@"; step; }}' for name in ("mount", "mkdir", "pivot_root", "umount")),
        ]
        script = "\n".join([*head, command[at], 'echo "$steps"'])
        output = real_run([*command[:at], script, *command[at + 1 :]])
        self.count = int(output.split()[-1])
        self.take()
        return output

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take a step before a file is changed: the one before it is complete."""
        if event in CHANGES:
            place = place_of(arguments[CHANGES[event]], -1 if event == "os.truncate" else arguments[-1])
        elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            place = "" if isinstance(arguments[0], int) else place_of(arguments[0], -1)
        else:
            return
        if place.startswith(self.places):
            self.take()


def place_of(name: Any, folder: int) -> str:
    """The path of a file that a call names by a path, by one in an open folder, or by its open file."""
    if isinstance(name, int):
        return str(Path(f"/proc/self/fd/{name}").readlink())
    return str((Path(f"/proc/self/fd/{folder}").readlink() if folder != -1 else Path()) / os.fsdecode(name))


def make(scratch: Path, names: Collection[str] = tuple(NODES), more: Collection[mounts.Bind] = ()) -> list[str]:
    """Ensure both nodes, or these, with more binds; return what was not right."""
    (scratch / "state").mkdir(parents=True, exist_ok=True)
    (scratch / "state" / lock.NAME).touch()
    binds = [mounts.Bind("etc", "/mnt/etc"), mounts.Bind("log", "/var/log", True), *more]
    nodes = [
        node.Node(name, scratch / "state/nodes" / name, address, f"10.99.{name[-1]}.0/24", binds)
        for name, address in NODES.items()
        if name in names
    ]
    wrong = node.ensure_nodes(nodes, "/", "192.0.2.254/24", "10.98.0.0/24")
    return [f"{name}: {line}" for name, lines in wrong.items() for line in lines]


ADMIN = """clusters: [{name: lab, cluster: {server: "https://192.0.2.1", certificate-authority: PKI/ca.crt}}]
users: [{name: lab, user: {client-certificate: PKI/admin.crt, client-key: PKI/admin.key}}]
"""


def prepare(scratch: Path) -> None:
    """What was there before: a store of images, and a kubeconfig of the user's."""
    root = scratch / "stores/one/root"
    blobs, layers = root / CONTENT / "blobs", root / LAYERS
    for folder in (scratch / "user", blobs, layers / "1/fs", *(root / name for name in DATABASES)):
        folder.mkdir(parents=True, exist_ok=True)
    for name in DATABASES:
        (root / name / "meta.db").write_text("a database")
    (blobs / "a").write_text("a blob")
    (scratch / "stores/one/images.json").write_text('{"a": "sha256:1"}')
    (scratch / "user/config").write_text("# mine\n" + kubeconfig.EMPTY)
    for path in (scratch / "user", scratch / "user/config"):
        os.chown(path, USER, USER)


def configure(scratch: Path) -> bool:
    """Ensure a node's certificates, files, image store and the user's kubeconfig; return whether something changed."""
    state, admin = scratch / "state", scratch / "state/admin.kubeconfig"
    leaves = [pki.Leaf("admin", "admin", "system:masters"), pki.Leaf("api", "api", sans=("192.0.2.1", "api"))]
    changed = bool(pki.ensure(state / "pki", ["ca"], leaves))
    texts = {"admin.kubeconfig": ADMIN.replace("PKI", str(state / "pki")), "supervisor/supervisord.conf": "[x]\n"}
    wanted = [files.HostFile(state / name, 0o600, text) for name, text in texts.items()]
    wanted += [files.HostFile(state / "nodes/node-0/etc/copy.crt", 0o644, copy=state / "pki/ca.crt")]
    changed |= bool(files.ensure(wanted, dry=False))
    changed |= place_store(scratch / "stores/one", state / "nodes/node-0/containerd", "/mnt/stores")
    images = [{"name": "b", "digest": "sha256:2", "archive": "b.tar"}]
    record = state / "nodes/node-0/containerd/images.json"
    if "b" not in json.loads(record.read_text()):
        record_images(record.parent, images)
        changed = True
    return changed | kubeconfig.ensure(scratch / "user/config", "lab", admin, lab=state, dry=False)


def contents(scratch: Path) -> dict[int, int]:
    """When each file was last written, by its number."""
    paths = [path for path in scratch.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path.stat().st_ino: path.stat().st_mtime_ns for path in paths}


def note_syncs(scratch: Path, notes: Path) -> None:
    """Let this process note what it syncs."""
    sync, sync_system = disk.sync, disk.sync_system

    def noted(path: Path) -> None:
        sync(path)
        note({path.stat().st_ino: path.stat().st_mtime_ns})

    def noted_system(path: Path) -> None:
        sync_system(path)
        note(contents(scratch))

    def note(synced: dict[int, int]) -> None:
        descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, "".join(f"{number} {when}\n" for number, when in synced.items()).encode())
        os.close(descriptor)

    disk.sync, disk.sync_system = noted, noted_system


def cut_power(scratch: Path, before: dict[int, int], notes: Path, seed: int) -> None:
    """Empty half of what was written and not synced; every file is of before this boot."""
    lines = notes.read_text().splitlines() if notes.exists() else []
    safe = {tuple(map(int, line.split())) for line in lines} | set(before.items())
    chance = random.Random(seed)
    paths = sorted(path for path in scratch.rglob("*") if path.is_file() and not path.is_symlink())
    for path in [path for path in paths if (path.stat().st_ino, path.stat().st_mtime_ns) not in safe]:
        if chance.random() < 0.5:
            os.truncate(path, 0)
    for path in paths:
        os.utime(path, (0, 0))


def remove(scratch: Path) -> bool:
    """Remove everything; return whether something existed."""
    return node.remove_lab(scratch / "state")


def leave(_: Path) -> bool:
    """Remove the second node; return whether it existed."""
    return node.remove_node("node-1")


def again(scratch: Path) -> list[str]:
    """Make both nodes with other mounts; return what was not right."""
    return make(scratch, more=[mounts.Bind("more", "/mnt/more")])


def start_programs() -> None:
    """One in each node, where supervisord has its programs."""
    cgroups.ensure_cgroup(cgroups.SYSTEM)
    for name in NODES:
        command = [*namespaces.enter(name), "sleep", "infinity"]
        subprocess.Popen(command, preexec_fn=lambda: cgroups.join_cgroup(cgroups.SYSTEM))  # noqa: PLW1509  no threads
    for _ in polls(60, 0.02):
        if all(set(processes.processes_in({namespaces.mntns(name).stat().st_ino})) for name in NODES):
            return
    raise AssertionError("no program runs in each node")


def reboot() -> None:
    """What a reboot leaves where /run is on the disk: the pins are plain files, and the links are gone."""
    for pin in [*namespaces.NETNS.glob("*"), *(namespaces.RUN / "mnt").glob("*")]:
        if namespaces.is_namespace(pin):  # else a killed run has not pinned it yet
            real_run(["umount", str(pin)])
    mounts.unmount(namespaces.RUN)
    for _ in polls(60, 0.02):  # the kernel removes it with its other end
        if network.HOST_LINK not in network.links(None):
            break
    cgroups.remove_cgroup()


def facts_of_network(pin: str) -> dict[str, Any]:
    """The links, addresses, routes and sysctls of a network namespace, without what differs each time."""
    enter = ["nsenter", f"--net={pin}"]
    links = []
    for link in json.loads(real_run([*enter, "ip", "-json", "-details", "address", "show"])):
        info = link.get("linkinfo", {})
        flags = sorted(set(link["flags"]) - {"LOWER_UP", "NO-CARRIER"})
        addresses = sorted(f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"])
        delay = info.get("info_data", {}).get("forward_delay")
        links.append([link["ifname"], flags, link.get("master"), info.get("info_kind"), delay, addresses])
    routes = json.loads(real_run([*enter, "ip", "-json", "route", "show", "table", "all"]))
    kept = sorted(json.dumps({key: value for key, value in route.items() if key != "flags"}) for route in routes)
    paths = [f"/proc/sys/net/{name}" for name in SYSCTLS]
    sysctls = subprocess.run([*enter, "grep", "-rs", "", *paths], capture_output=True, text=True, check=False).stdout
    return {"links": sorted(links), "routes": kept, "sysctls": sorted(sysctls.splitlines())}


def facts_of_mounts(mountinfo: str) -> list[str]:
    """Each mount: its point, root, type, options, and whether it is shared."""
    lines = []
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split()
        lines.append(f"{fields[4]} {fields[3]} {tail.split()[0]} {fields[5]} {'shared:' in head}")
    return sorted(lines)


def facts_of_files(folder: Path) -> list[str]:
    """Each path with its mode, its owner and its content."""
    paths = sorted(folder.rglob("*")) if folder.exists() else []
    lines = []
    for path in paths:
        text = path.read_text().replace(str(folder), "SCRATCH") if path.is_file() else ""
        status = path.lstat()
        lines.append(f"{path} {status.st_mode:o} {status.st_uid}:{status.st_gid} {without_keys(text)}")
    return lines


def without_keys(text: str) -> str:
    """A text without what is drawn for each lab, as keys and certificates are."""
    return re.sub(r"[\w+/=]{40,}(\n[\w+/=]+(?=\n))*", "KEY", text)


def facts(scratch: Path) -> Any:
    """What the machine looks like."""
    pins = sorted(str(path) for path in namespaces.NETNS.glob("*"))
    own = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if " /run" in line]
    controllers = [base / cgroups.SLICE for base in cgroups.controllers()]
    result: dict[str, Any] = {
        "networks": {pin: facts_of_network(pin) for pin in ["/proc/self/ns/net", *pins]},
        "mounts": {
            name: facts_of_mounts(real_run(["nsenter", f"--mount={pin}", "cat", "/proc/self/mountinfo"]))
            for name, pin in {name: namespaces.mntns(name) for name in NODES}.items()
            if namespaces.is_namespace(pin)
        },
        "own mounts": [re.sub(r"mnt:\[\d+\]|net:\[\d+\]", "", line) for line in facts_of_mounts("\n".join(own))],
        "files": facts_of_files(scratch),
        "programs in what has no pin": len(outside()),
        "pins": [str(path) for path in sorted((namespaces.RUN / "mnt").glob("*"))],
        "cgroups": {
            str(path): {file.name: file.read_text() for file in sorted(path.glob("cpuset.[cm][pe]*s"))}
            for base in controllers
            for path in [base, *sorted(base.glob("*/"))]
            if path.exists()
        },
    }
    text = json.dumps(result).replace(str(scratch), "SCRATCH").replace(cgroups.SLICE, "SLICE")
    return json.loads(text)


ACTIONS = {"remove": remove, "leave": leave, "again": again, "configure": configure, "cut": configure}


def outside() -> set[int]:
    """The programs of nodes that are not in the namespaces of one."""
    with processes.pinned_namespaces(None) as pinned:
        spaces = {pid: Path(f"/proc/{pid}/ns") for pid in cgroups.members()}
        numbers = {pid: {(ns / kind).stat().st_ino for kind in ("net", "mnt")} for pid, ns in spaces.items()}
        return {pid for pid, own in numbers.items() if not own <= pinned}


def in_child(what: Any, scratch: Path, limit: int, count: Path) -> bool:
    """Do it in a process that is killed right after step `limit` (0 only counts); return whether it came that far."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            steps = Steps(limit, (str(scratch), "/run/", str(cgroups.CGROUPS)))
            for module in (namespaces, network, mounts, node):
                module.run = steps.run  # type: ignore[attr-defined]  # mypy sees no such name
            note_syncs(scratch, scratch.with_suffix(".synced"))
            sys.addaudithook(steps.hook)
            what(scratch)
            total, steps.places = steps.count, ("/nowhere",)
            count.write_text(str(total))
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            sys.stderr.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (0, -signal.SIGKILL):
        raise SystemExit(f"the run that was to be killed after step {limit} ended with {status}")
    return status != 0


def main(what: str, scratch: Path, limit: int) -> dict[str, Any]:
    """Kill once, then run twice."""
    own = Path("/proc/self/mountinfo").read_text()
    assert "shared:" not in own, "this would unmount what others use"
    for point in reversed(mounts.mounts_below(Path("/run"))):  # a lab's on this machine, in this namespace only
        real_run(["umount", "--lazy", point])
    real_run(["mount", "-t", "tmpfs", "gangplank-test", "/run"])
    real_run(["ip", "link", "set", "lo", "up"])
    cgroups.SLICE = f"gangplank-kills-{os.getpid()}"
    count = scratch.with_suffix(".count")
    action = ACTIONS.get(what, make)
    try:
        if what in ("remove", "leave", "reboot", "again"):
            make(scratch)
        if what == "again":
            start_programs()
        if what == "join":
            make(scratch, ("node-0",))
        if what == "reboot":
            reboot()
        if action is configure:
            prepare(scratch)
        before = contents(scratch)
        killed = in_child(action, scratch, limit, count)
        if what == "make-cut" and limit:
            reboot()
        if what in ("cut", "make-cut") and limit:
            cut_power(scratch, before, scratch.with_suffix(".synced"), limit)
        first = action(scratch)
        after = facts(scratch)
        second = action(scratch)
        stable = facts(scratch) == after
        steps = int(count.read_text()) if not limit else 0
        report = {"steps": steps, "killed": killed, "first": first, "second": bool(second)}
        return {**report, "stable": stable, "facts": after}
    finally:
        processes.kill(cgroups.members)
        cgroups.remove_cgroup()


if __name__ == "__main__":
    for kind in ("net", "mnt"):
        own, outer = Path(f"/proc/self/ns/{kind}"), Path(f"/proc/{os.getppid()}/ns/{kind}")
        assert own.readlink() != outer.readlink(), f"run it in a {kind} namespace of its own"
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
