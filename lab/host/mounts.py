"""A node's mount namespace: its root file system, and the host's folders in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.host.namespaces import RUN, is_namespace, mntns, run


@dataclass(frozen=True)
class Bind:
    """One of the host's folders at `target` in the node, read-only unless `writable`."""

    source: str
    target: str
    writable: bool = False


def mounts_below(path: Path) -> list[str]:
    """The mount points at and below `path`, in the order of their mounting."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if point == str(path) or point.startswith(f"{path}/")]


def unmount(path: Path) -> None:
    """Unmount `path` and everything below it, however often it was mounted over."""
    while str(path) in mounts_below(path):
        run(["umount", "--lazy", str(path)])


# Inside the new mount namespace: $1 is the node's own root, $2 the tree it shows; then source, target, ro|rw each.
# So each node has its own content at the paths that upstream's programs fix, and the host sees none of its mounts.
_MOUNTS = """
root=$1 tree=$2; shift 2
mount --bind "$tree" "$root"
mount -o remount,ro,bind "$root"
for own in run mnt var/lib; do mount -t tmpfs -o mode=755 gangplank "$root/$own"; done
mount -t tmpfs -o mode=1777 gangplank "$root/tmp"
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


def ensure_mounts(node: str, tree: str, root: str, binds: list[Bind]) -> bool:
    """Create the node's mount namespace over `tree`; return whether it was missing."""
    if is_namespace(mntns(node)):
        return False
    mntns(node).parent.mkdir(parents=True, exist_ok=True)
    if str(RUN) not in mounts_below(RUN):  # a namespace can be pinned only on a private mount
        run(["mount", "--bind", str(RUN), str(RUN)])
        run(["mount", "--make-private", str(RUN)])
    mntns(node).touch()
    Path(root).mkdir(parents=True, exist_ok=True)
    flat: list[str] = []
    for bind in binds:
        if not Path(bind.source).exists():
            Path(bind.source).mkdir(parents=True)
        flat += [bind.source, bind.target, "rw" if bind.writable else "ro"]
    pinned = ["unshare", f"--mount={mntns(node)}", "--propagation", "private", "sh", "-eu", "-c", _MOUNTS, "sh"]
    try:
        run([*pinned, root, tree, *flat])
    except LabError:
        remove_mounts(node)
        raise
    return True


def remove_mounts(node: str) -> None:
    """Unpin the node's mount namespace; its mounts end with its last process."""
    unmount(mntns(node))
    mntns(node).unlink(missing_ok=True)
