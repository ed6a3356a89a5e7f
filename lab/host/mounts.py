"""A node's mount namespace: its root file system, and the host's folders in it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.host.namespaces import RUN, is_namespace, mntns, run

REFUSED = "failed: Invalid argument"  # by unshare, when the kernel does not pin the namespace


@dataclass(frozen=True)
class Bind:
    """One of the host's folders at `target` in the node, read-only unless `writable`."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo; `folder` is the mounted one in its file system, `shared` is its propagation."""

    point: str
    folder: str
    options: frozenset[str]
    shared: bool


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The mounts in the order of their mounting.

    >>> parse_mounts("30 1 254:0 /a /mnt ro,noatime shared:7 - ext4 /dev/vda rw")[0].shared
    True
    """
    lines = [[_plain(word) for word in line.partition(" - ")[0].split()] for line in mountinfo.splitlines()]
    return [
        Mount(words[4], words[3], frozenset(words[5].split(",")), any(word.startswith("shared:") for word in words[6:]))
        for words in lines
    ]


def _plain(word: str) -> str:
    r"""A word of mountinfo, in which blanks and backslashes are octal numbers.

    >>> _plain(r"/mnt/my\040data")
    '/mnt/my data'
    """
    return re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), word)


def mounts_below(path: Path) -> list[str]:
    """The mount points at and below `path`, in the order of their mounting."""
    points = [mount.point for mount in parse_mounts(Path("/proc/self/mountinfo").read_text())]
    return [point for point in points if point == str(path) or point.startswith(f"{path}/")]


def unmount(path: Path) -> None:
    """Unmount `path` and everything below it, however often it was mounted over."""
    while str(path) in mounts_below(path):
        run(["umount", "--lazy", str(path)])


# Inside the new mount namespace: $1 is the node's own root, $2 the tree it shows; then source, target, ro|rw each.
# So each node has its own content at the paths that upstream's programs fix, and the host sees none of its mounts.
MOUNTS = """
root=$1 tree=$2; shift 2
mount --bind "$tree" "$root"
mount -o remount,ro,bind "$root"
for own in run mnt var/lib etc; do mount -t tmpfs -o mode=755 gangplank "$root/$own"; done
mount -t tmpfs -o mode=1777 gangplank "$root/tmp"
cp -a "$tree/etc/." "$root/etc" # writable: upstream's programs make folders in /etc/kubernetes
for shared in /dev /proc /sys; do mount --rbind "$shared" "$root$shared"; done
while [ $# -gt 0 ]; do
  case $2 in /mnt/*|/run/*|/var/lib/*) mkdir -p "$root$2" ;; esac
  mount --bind "$1" "$root$2"
  [ "$3" = rw ] || mount -o remount,ro,bind "$root$2"
  shift 3
done
cd "$root"
pivot_root . .
umount -l .
mount --make-rshared /
"""


def are_complete(node: str, binds: list[Bind]) -> bool:
    """Whether the node's mount namespace exists with every mount of the script, up to its last line."""
    if not is_namespace(mntns(node)):
        return False
    try:
        mounts = parse_mounts(run(["nsenter", f"--mount={mntns(node)}", "cat", "/proc/self/mountinfo"]))
    except LabError:  # a half-made one may have no /proc
        return False
    roots = [mount for mount in mounts if mount.point == "/"]
    latest = {mount.point: mount for mount in mounts}
    own = ("/run", "/mnt", "/var/lib", "/tmp", "/etc", "/dev", "/proc", "/sys")  # noqa: S108  the node's
    access = dict.fromkeys(own, "")
    access |= {bind.target: "rw" if bind.writable else "ro" for bind in binds}
    return (
        len(roots) == 1  # the host's is unmounted
        and "ro" in roots[0].options
        and roots[0].shared
        and all(point in latest and {access[point]} - {""} <= latest[point].options for point in access)
        and not any(latest[bind.target].folder.endswith("//deleted") for bind in binds)
    )


def make_mounts(node: str, tree: str, root: str, binds: list[Bind]) -> None:
    """Create the node's mount namespace over `tree`."""
    mntns(node).parent.mkdir(parents=True, exist_ok=True)
    if str(RUN) not in mounts_below(RUN):
        run(["mount", "--bind", str(RUN), str(RUN)])
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    if any(mount.shared for mount in mounts if mount.point == str(RUN)):  # a namespace needs a private one
        run(["mount", "--make-private", str(RUN)])
    mntns(node).touch()
    Path(root).mkdir(parents=True, exist_ok=True)
    flat: list[str] = []
    for bind in binds:
        if not Path(bind.source).exists():
            Path(bind.source).mkdir(parents=True)
        flat += [bind.source, bind.target, "rw" if bind.writable else "ro"]
    try:
        pin_mounts(mntns(node), ["sh", "-eu", "-c", MOUNTS, "sh", root, tree, *flat])
    except LabError:
        remove_mounts(node)
        raise


def pin_mounts(pin: Path, command: list[str]) -> None:
    """Run a command in a new mount namespace, and pin that to the file `pin`.

    A namespace can be pinned only in one with a lower number. Linux 6.18 gives each processor a stock of numbers, so
    outside of the machine's first mount namespace (in a container) it may need another processor.
    """
    unshared = ["unshare", f"--mount={pin}", "--propagation", "private", *command]
    refusals = []
    for processor in ("", *map(str, sorted(os.sched_getaffinity(0)))):
        try:
            run([*(["taskset", "--cpu-list", processor] if processor else []), *unshared])
        except LabError as error:
            if REFUSED not in str(error):
                raise
            refusals.append(error)
        else:
            return
    raise refusals[-1]


def remove_mounts(node: str) -> None:
    """Unpin the node's mount namespace; its mounts end with its last process."""
    unmount(mntns(node))
    mntns(node).unlink(missing_ok=True)
