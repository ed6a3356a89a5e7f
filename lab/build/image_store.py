"""containerd's store with all images unpacked, made once; a node's own store links to its blobs and layers.

Importing the trainer image takes half a minute, and would be needed on every node after every `make down`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from gangplank.disk import discard, sync_system
from gangplank.wait import late, polls
from lab.build.cache import Say, building, digest_of
from lab.errors import LabError, PartError, explain
from lab.host.files import write

if TYPE_CHECKING:
    from collections.abc import Collection

NAMESPACE = "k8s.io"  # of the kubelet's images
CONTENT, SNAPSHOTTER = "io.containerd.content.v1.content", "io.containerd.snapshotter.v1.overlayfs"
CONTAINERD_S, LIST_S, IMPORT_S = 120, 120, 3600  # of its start, of a list of images, of an archive of many gigabytes
DATABASES = ("io.containerd.metadata.v1.bolt", SNAPSHOTTER)  # written in place by a node
LAYERS = f"{SNAPSHOTTER}/snapshots"
HELD = "store.json"  # a node's hard link to its store's images.json: a store with such a link is not removed
CONFIG = """version = 4
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri"]
[plugins."io.containerd.server.v1.grpc"]
  address = "{state}/containerd.sock"
[plugins."io.containerd.server.v1.ttrpc"]
  address = "{state}/containerd.sock.ttrpc"
"""


def link_files(source: Path, target: Path) -> None:
    """Copy a folder by hard links, or its bytes if links are impossible."""
    # cp -al keeps owners, special files and sticky bits, and is faster than a walk in Python.
    done = subprocess.run(["cp", "-al", f"{source}/.", f"{target}/"], capture_output=True, text=True, check=False)
    if done.returncode:
        done = subprocess.run(["cp", "-a", f"{source}/.", f"{target}/"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise explain(done.stderr, str(target))


def copy_databases(source: Path, target: Path) -> None:
    """Copy the databases of a store, which its copy will write to."""
    for folder in DATABASES:
        (target / folder).mkdir(exist_ok=True)
        for database in (source / folder).glob("*.db"):
            (target / folder / database.name).unlink(missing_ok=True)
            shutil.copy2(database, target / folder / database.name)


def link_copy(source: Path, target: Path) -> None:
    """Copy a store: links to its blobs and layers, which nobody changes, and its own databases."""
    link_files(source, target)
    copy_databases(source, target)


def images_in(store: Path) -> dict[str, str]:
    """The digests of the images that a store records; none without a record that can be read."""
    try:
        record = json.loads((store / "images.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def is_used(store: Path) -> bool:
    """Whether a node runs from a store: it has a link to the record."""
    record = store / "images.json"
    return record.exists() and record.stat().st_nlink > 1


def store_folder(images: list[dict[str, str]], home: Path) -> Path:
    """The folder of a store with at least these images, or the folder where one would be made."""
    digests = {image["name"]: image["digest"] for image in images}
    for record in sorted((home / "stores").glob("[!.]*/images.json")):
        if digests.items() <= images_in(record.parent).items():
            return record.parent
    return home / "stores" / digest_of(sorted(digests.items()))


def make_store(
    target: Path, images: list[dict[str, str]], containerd: Path, say: Say, kept: Collection[Path] = ()
) -> None:
    """Make the store of these images from the latest one, whose layers need not be unpacked again.

    Older ones are removed, but for those that a node runs from and those in `kept`.
    """
    with building(target) as draft:
        older = sorted((path for path in target.parent.glob("[!.]*")), key=lambda path: path.stat().st_mtime)
        latest = next((path for path in reversed(older) if images_in(path)), None)
        root = draft / "root"
        root.mkdir()
        if latest:
            link_copy(latest / "root", root)
        have = images_in(latest) if latest else {}
        digests = {image["name"]: image["digest"] for image in images}
        with _containerd(root, containerd) as ctr:
            for image in images:
                if have.get(image["name"]) != image["digest"]:
                    say(f"image {image['name']}: unpacking")
                    import_image(ctr, Path(image["archive"]))
            outdated = sorted(set(have) - set(digests))
            if outdated:
                _run([*ctr, "images", "rm", "--sync", *outdated], "the image store")
        (draft / "images.json").write_text(json.dumps(digests, indent=1))
    for path in older:
        if path not in kept and not is_used(path):
            discard(path)


def place_store(store: Path, folder: Path, mounted_at: str) -> bool:
    """Give a node without a store its own, with the images of this one; return whether it needed one.

    The layers, twenty thousand files, stay where they are: the node gets symbolic links to them below `mounted_at`,
    where it sees the folder of the stores. On another file system than the cache it gets a complete copy.
    """
    if (folder / "images.json").exists():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    with building(folder) as draft:
        try:
            (draft / HELD).hardlink_to(store / "images.json")
        except OSError:
            link_copy(store / "root", draft)
        else:
            (draft / CONTENT).mkdir()
            link_files(store / "root" / CONTENT, draft / CONTENT)
            copy_databases(store / "root", draft)
            (draft / LAYERS).mkdir(mode=0o700)
            for layer in (store / "root" / LAYERS).iterdir():
                (draft / LAYERS / layer.name).symlink_to(Path(mounted_at, store.name, "root", LAYERS, layer.name))
        shutil.copyfile(store / "images.json", draft / "images.json")
    return True


def missing_images(
    folder: Path, images: list[dict[str, str]], names: Collection[str] | None = None
) -> list[dict[str, str]]:
    """The images that the node's store lacks, by name and digest.

    `names` are those that its containerd has, so that an image removed from it counts as missing; None: not asked.
    An archive is recorded under its path, which containerd does not know.
    """
    have = images_in(folder)
    return [
        image
        for image in images
        if have.get(image["name"]) != image["digest"]
        or any(have.get(origin, image["digest"]) != image["digest"] for origin in origins(image))
        or (names is not None and image["name"] != image["archive"] and image["name"] not in names)
    ]


def origins(image: dict[str, str]) -> list[str]:
    """Under what a node's store records which archive each of its images is from: another archive may replace it."""
    own = image["name"] == image.get("archive")
    return [f"archive of {name}" for name in names_in(Path(image["name"]))] if own else []


@functools.cache
def names_in(archive: Path) -> tuple[str, ...]:
    """The names of the images in an OCI or docker-save archive; none if it cannot be read: containerd says why."""
    try:
        with tarfile.open(archive) as content:
            members = {member.name.removeprefix("./"): member for member in content}
            indexes = [name for name in ("index.json", "manifest.json") if name in members]
            stream = content.extractfile(members[indexes[0]]) if indexes else None
            index = json.load(stream) if stream else []
        if isinstance(index, list):
            return tuple(name for entry in index for name in entry["RepoTags"] or ())
        notes = [entry.get("annotations") or {} for entry in index["manifests"]]
        return tuple(filter(None, (note.get("io.containerd.image.name") for note in notes)))
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError, tarfile.TarError):
        return ()


def image_names(ctr: list[str]) -> set[str] | None:
    """The names of the images that a containerd has; None if it refuses. Raises LabError at the time limit."""
    done = _finished([*ctr, "images", "ls", "--quiet"], "containerd", LIST_S)
    return None if done.returncode else set(done.stdout.decode().split())


def record_images(folder: Path, images: list[dict[str, str]]) -> None:
    """Record in the node's store that it has these images; their layers are on the disk before."""
    sync_system(folder)
    have = images_in(folder)
    for image in images:
        have |= dict.fromkeys((image["name"], *origins(image)), image["digest"])
    write(folder / "images.json", json.dumps(have, indent=1).encode(), 0o644)


def import_image(ctr: list[str], archive: Path) -> None:
    """Import an OCI or docker-save archive and unpack it; `ctr` is the command with its address and namespace.

    Each layer is on the disk before containerd records it: one that it has recorded is never unpacked again.
    """
    with archive.open("rb") as stream:  # a node cannot see the host's files
        _run([*ctr, "images", "import", "--local", "--sync-fs", "-"], f"image archive {archive}", stream)


def _run(command: list[str], where: str, stdin: IO[bytes] | None = None) -> None:
    done = _finished(command, where, IMPORT_S, stdin)
    if done.returncode:
        raise explain((done.stderr or done.stdout).decode(errors="replace"), where)


def _finished(
    command: list[str], where: str, limit_s: float, stdin: IO[bytes] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of ctr, which waits without end for a containerd that hangs; raises LabError at the time limit."""
    try:
        return subprocess.run(command, stdin=stdin, capture_output=True, check=False, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        fix = "end that containerd if its log does not name another cause, then run it again"
        raise LabError(late(where, f"`{' '.join(command)}` at work", "its end", limit_s, fix)) from error


def _wait_for_containerd(ctr: list[str], process: subprocess.Popen[bytes], log: Path, root: Path) -> None:
    for _ in polls(CONTAINERD_S, 0.1):
        if not _finished([*ctr, "version"], str(root), CONTAINERD_S).returncode:
            return
        if process.poll() is not None:
            break
    state = "none" if process.poll() is None else f"exit status {process.returncode}"
    what = late("containerd", f"{state} ({log.read_text(errors='replace').strip()[-600:]})", "an answer", CONTAINERD_S)
    raise PartError(what, str(root), "correct what it reports, then run it again")


@contextlib.contextmanager
def _containerd(root: Path, binaries: Path):  # type: ignore[no-untyped-def]  # a generator of a command prefix
    """Run a containerd over `root` in its own namespaces; yield the ctr command that talks to it. It ends with us."""
    with tempfile.TemporaryDirectory(prefix="gangplank-store-", dir="/tmp") as state:
        config = Path(state) / "config.toml"
        config.write_text(CONFIG.format(root=root, state=state))
        log = (Path(state) / "log").open("wb")
        alone = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--net", "--propagation", "private"]
        command = [*alone, str(binaries / "containerd"), "-c", str(config)]
        with subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL) as process:
            try:
                ctr = [str(binaries / "ctr"), "-a", f"{state}/containerd.sock", "-n", NAMESPACE]
                _wait_for_containerd(ctr, process, Path(log.name), root)
                yield ctr
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
