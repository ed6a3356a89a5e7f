"""The lab's context in the user's kubeconfig: added and removed by its name. Every other byte stays.

The lab's folder notes which files have it, and which keys of each were not there before: its removal may be called with
another environment.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.disk import move
from gangplank.errors import Problem
from gangplank.processes import process
from gangplank.wait import late, polls
from lab.errors import LabError
from lab.host.files import draft_of, write
from lab.host.kubeconfig_text import LISTS, edit, ended, keys, less

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

EMPTY = "apiVersion: v1\nkind: Config\npreferences: {}\nclusters: []\nusers: []\ncontexts: []\n"
NULLS = (None, "", "~", "null", "Null", "NULL")
LOCK_S = 10.0
NOTES = "kubeconfigs.json"  # in the lab's folder: by path, the keys that were not there before; null without a file
KEYS = ("apiVersion", "kind", "preferences", *LISTS, "current-context")  # all that this program may add
FIX = "correct or move the file, then run it again"


class KubeconfigError(LabError):
    """A file that is not a valid kubeconfig; it is not changed."""


class UnreadableError(KubeconfigError):
    """A file that kubectl cannot read, either."""


def user_file() -> Path:
    """The file that kubectl itself would change: the first of $KUBECONFIG, else ~/.kube/config."""
    first = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else Path.home() / ".kube" / "config"


def chosen_elsewhere() -> bool:
    """Whether another file of $KUBECONFIG sets the current context: kubectl takes it from the first that does."""
    others = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep)[1:] if name]
    for other in others:
        with contextlib.suppress(OSError, KubeconfigError):
            if parse(read(other), other).get("current-context"):
                return True
    return False


def read(path: Path) -> str:
    """The file's text, with an empty kubeconfig below it if it has nothing but comments; raises KubeconfigError."""
    text = _text(path)
    if not text.strip():
        return EMPTY
    with contextlib.suppress(yaml.YAMLError):
        node = yaml.compose(text, yaml.BaseLoader)
        if node is None or (isinstance(node, yaml.ScalarNode) and not (node.value or node.style)):
            return ended(text) + EMPTY
    return text


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode() if path.exists() else ""
    except (UnicodeDecodeError, OSError) as error:  # PowerShell writes UTF-16
        got = str(error.strerror) if isinstance(error, OSError) else "other bytes than UTF-8"
        raise UnreadableError(str(Problem(str(path), got, "a kubeconfig", FIX))) from error


def parse(text: str, path: Path) -> dict[str, Any]:
    """The content of the file's text, all scalars as they are written; raises UnreadableError."""
    try:
        content = yaml.load(text, yaml.BaseLoader) or {}  # noqa: S506  it makes only strings, lists and mappings
    except yaml.YAMLError as error:
        what = str(error).splitlines()[0]
        raise UnreadableError(f"{path}: got {what}, expected YAML. Fix: {FIX}") from error
    if isinstance(content, dict):
        content |= {name: [] for name in LISTS if content.get(name) in NULLS}
    lists = [content[name] for name in LISTS] if isinstance(content, dict) else [None]
    if not all(isinstance(items, list) and all(isinstance(item, dict) for item in items) for items in lists):
        raise UnreadableError(f"{path}: got other YAML, expected a kubeconfig. Fix: {FIX}")
    return dict(content)


def entries(admin: Path, name: str) -> dict[str, dict[str, Any]]:
    """The lab's cluster, user and context under `name`, with their certificates, by list."""
    config = yaml.safe_load(admin.read_text())

    def data(path: str) -> str:
        return base64.b64encode(Path(path).read_bytes()).decode()

    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    certificates = {f"{key}-data": data(user[key]) for key in ("client-certificate", "client-key")}
    authority = data(cluster["certificate-authority"])
    return {
        "clusters": {"name": name, "cluster": {"server": cluster["server"], "certificate-authority-data": authority}},
        "users": {"name": name, "user": certificates},
        "contexts": {"name": name, "context": {"cluster": name, "user": name}},
    }


def merge(
    content: dict[str, Any], name: str, new: dict[str, dict[str, Any]] | None, *, chosen: bool = False
) -> dict[str, Any]:
    """The kubeconfig with the entries called `name` replaced by `new` or removed, and its other entries.

    `chosen`: whether another file sets the user's current context.
    """
    result = dict(content)
    for part in LISTS:
        kept = [entry for entry in content.get(part) or [] if entry.get("name") != name]
        before = [entry for entry in content.get(part) or [] if entry.get("name") == name]
        if new and before == [new[part]]:
            kept = list(content[part])
        elif new:
            kept.append(new[part])
        result[part] = kept
    if new and not chosen and not content.get("current-context"):
        result["current-context"] = name  # only if the user has none: kubectl keeps its current cluster
    if not new and content.get("current-context") == name:
        result["current-context"] = ""
    return result


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _remove_dead(held: Path) -> None:
    """Remove the lock of a run that was killed, or of before this boot: a power cut leaves it as empty as kubectl's."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # kubectl's own is empty
        boot = time.time() - float(Path("/proc/uptime").read_text().split()[0])
        if held.stat().st_mtime < boot or not _lives(json.loads(held.read_text())):
            held.unlink()
    for draft in held.parent.glob(f".{held.name}.*"):
        with contextlib.suppress(OSError, ValueError):
            if not process(int(draft.suffix[1:])):
                draft.unlink()


def _lives(record: Any) -> bool:
    """Whether the process of a lock's record lives itself, neither a fork nor another that has its number now."""
    if not isinstance(record, dict):
        record = {"pid": record}  # of an earlier version
    return bool(record.items() <= process(record["pid"]).items())


def _appear(draft: Path, held: Path) -> None:
    """Give a draft its name; raises FileExistsError. A shared folder of a virtual machine may have no hard links."""
    try:
        os.link(draft, held)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        with held.open("x") as file:
            file.write(draft.read_text())


@contextlib.contextmanager
def locked(path: Path, limit_s: float = LOCK_S) -> Iterator[None]:
    """Hold the file that kubectl, too, makes while it changes a kubeconfig; raises KubeconfigError.

    It comes into being with its record: an empty one would look like kubectl's forever.
    """
    held = _lock_of(path)
    draft = held.with_name(f".{held.name}.{os.getpid()}")
    own = process(os.getpid())
    try:
        draft.write_text(json.dumps({key: own[key] for key in ("pid", "started", "boot")}))
        for _ in polls(limit_s, 0.1):
            try:
                _appear(draft, held)
            except FileExistsError:
                _remove_dead(held)
            else:
                break
        else:
            fix = f"end the program that changes it, or remove {held}"
            raise KubeconfigError(late(str(path), f"{held.name} of another program", "its end", limit_s, fix))
    except OSError as error:  # the disk is full
        error.filename = str(held)
        raise
    finally:
        draft.unlink(missing_ok=True)
    try:
        yield
    finally:
        held.unlink(missing_ok=True)


def place(path: Path) -> Path:
    """A file's path, whatever its folder is called; the file itself may be a link."""
    return path.parent.resolve() / path.name


def noted(lab: Path) -> dict[Path, list[str] | None]:
    """The files that have the context of the lab in a folder, with the keys that were not there before."""
    try:
        rows = dict(json.loads((lab / NOTES).read_text()))
    except (OSError, ValueError, TypeError):  # none, or a torn one: of a power cut
        return {}
    return {Path(name): added and list(map(str, added)) for name, added in rows.items()
            if name.startswith("/") and (added is None or isinstance(added, list))}  # fmt: skip


def _note(lab: Path, notes: dict[Path, list[str] | None]) -> None:
    if notes != noted(lab) and lab.is_dir():
        rows = {str(path): added for path, added in notes.items()}
        write(lab / NOTES, json.dumps(rows, indent=1).encode(), 0o600)


def _has(content: dict[str, Any], name: str) -> bool:
    """Whether a kubeconfig has an entry of this name."""
    return any(entry.get("name") == name for part in LISTS for entry in content[part])


def _cluster(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The cluster of this name in a kubeconfig; empty if there is none."""
    clusters = [entry.get("cluster") for entry in content["clusters"] if entry.get("name") == name]
    return clusters[0] if clusters and isinstance(clusters[0], dict) else {}


def _authority(lab: Path) -> str:
    """The authority of the lab in this folder, as a kubeconfig has it; "" before there is one."""
    place = lab / "pki/ca.crt"
    return base64.b64encode(place.read_bytes()).decode() if place.exists() else ""


def refuse_other(path: Path, name: str, server: str, *, lab: Path) -> None:
    """Raise KubeconfigError if the file has entries of this name that are not of a lab with this `server`, a URL."""
    content = parse(read(path), path)
    cluster = _cluster(content, name)
    own = cluster.get("server") == server or cluster.get("certificate-authority-data", "") == _authority(lab) != ""
    if own or not _has(content, name):
        return
    got = f"a cluster, a user or a context called {name} that is not the lab's"
    expected, fix = "none of this name, or the lab's own", "set lab_cluster_context to another name"
    raise KubeconfigError(str(Problem(str(path), got, expected, fix)))


def _is_labs(path: Path, name: str, lab: Path, *, has_note: bool) -> bool:
    """Whether the entries of this name in a file are those of the lab in this folder; `has_note` says that they were.

    Another machine's lab may have replaced them since: it has the same address, and another authority.
    """
    cluster = _cluster(parse(read(path), path), name) if path.exists() else {}
    present, authority = cluster.get("certificate-authority-data", ""), _authority(lab)
    return present == authority if present and authority else has_note


def ensure(path: Path, name: str, admin: Path | None, *, lab: Path, dry: bool) -> bool:
    """Add (with `admin`) or remove the context; return whether the file had to change.

    With nothing left it is removed if the notes in the lab's folder `lab` say that it was not there before. The lab's
    own file, which $KUBECONFIG may name, stays as it is.
    """
    if admin and path.resolve() == admin.resolve():
        return False
    path = place(path)
    new = entries(admin, name) if admin else None
    if new:
        refuse_other(path, name, new["clusters"]["cluster"]["server"], lab=lab)
    chosen = bool(new) and chosen_elsewhere()

    def changed() -> tuple[str, dict[str, Any], dict[str, Any]] | None:
        text = read(path)
        before = parse(text, path)
        after = merge(before, name, new, chosen=chosen)
        return None if after == before else (text, before, after)

    if not dry:
        _remove_dead(_lock_of(path))  # kubectl refuses to change the file as long as it is there
    change = changed() if admin or path.exists() else None
    if dry:
        return bool(change)
    if (draft := draft_of(path.resolve())).exists():  # of an interrupted run, with all the user's credentials
        with locked(path):
            draft.unlink(missing_ok=True)
    notes = noted(lab)
    if change:
        _make_folder(path.parent)
        with locked(path):
            if change := changed():
                text, before, after = change
                if admin and not _has(before, name):
                    notes[path] = [key for key in KEYS if key not in keys(_text(path))] if path.exists() else None
                    _note(lab, notes)
                _write(path, text, after, added=() if admin else notes.get(path, ()))
    if admin:
        notes.setdefault(path, [])  # of an earlier version: what it had before is not known
    else:
        notes.pop(path, None)
    _note(lab, notes)
    return bool(change)


def remove(name: str, lab: Path, *, dry: bool) -> bool:
    """Remove the lab's context from the user's kubeconfig, and from each that is noted; whether one had to change.

    In a file that is not noted, entries of that name may be another lab's, or the user's own: they stay.
    Raises KubeconfigError, with all files that cannot be changed, once the others are. One that nobody can read, and
    that is not noted, has no context.
    """
    notes, changed, problems = noted(lab), False, list[str]()
    for path in dict.fromkeys([*notes, place(user_file())]):
        if path.resolve().is_relative_to(lab.resolve()):  # it goes with the lab
            continue
        try:
            if _is_labs(path, name, lab, has_note=path in notes):
                changed |= ensure(path, name, None, lab=lab, dry=dry)
        except KubeconfigError as error:
            if path in notes or not isinstance(error, UnreadableError):
                problems.append(str(error))
    if problems:
        raise KubeconfigError("\n".join(problems))
    return changed


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it; each has the owner of the one above from its first moment, not root."""
    if not folder.exists():
        _make_folder(folder.parent)
        draft = folder.with_name(f".{folder.name}.gangplank")
        draft.mkdir(exist_ok=True, mode=0o700)
        if owner := _owner(folder.parent.stat()):
            os.chown(draft, *owner)
        move(draft, folder)


def _owner(like: os.stat_result) -> tuple[int, int] | None:
    """The user and group of a file that root makes for them, as with `sudo -E`; None for those of this process."""
    return (like.st_uid, like.st_gid) if os.geteuid() == 0 else None


def _write(path: Path, text: str, after: dict[str, Any], *, added: Collection[str] | None) -> None:
    """Write the text so that its content is `after`, less what was `added` and is empty. None: there was no file."""
    empty = not any(value for name, value in after.items() if name not in ("apiVersion", "kind"))
    if added is None and empty and "#" not in text and not path.is_symlink():
        path.unlink()
        return
    try:
        content = parse(text, path)
        result = edit(text, content, after := less(text, after, added or ()))
        content = parse(result, path)
    except (yaml.YAMLError, ValueError, LookupError):
        content = {}
    if content != {**{name: [] for name in LISTS}, **after}:
        problem = Problem(str(path), "YAML with anchors or in another rare form", "a kubeconfig of kubectl's form", FIX)
        raise KubeconfigError(str(problem))
    target = path.resolve()
    old = target.stat() if target.exists() else None
    mode = old.st_mode & 0o7777 if old else 0o600
    try:
        write(target, result.encode(), mode, _owner(old or target.parent.stat()))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        with target.open("r+b") as stream:  # it is a mount, as in a container: it keeps its file
            stream.write(result.encode())
            stream.truncate()
            os.fsync(stream.fileno())
