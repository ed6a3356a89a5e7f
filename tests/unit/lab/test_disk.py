"""C6: whatever ends in a rename is on the disk before it, and its name right after. D11: on a full disk it stays."""

from __future__ import annotations

import ast
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gangplank.cluster.helm_processes import Note, Place
from gangplank.disk import sync
from lab.build import lock
from lab.build.image_store import record_images

ROOT = Path(__file__).resolve().parents[3]
COMPARED = {"gangplank/cluster/landing.py"}  # its next run compares the hash of each of many files
DRAFTS = {"lab/build/go_toolchain.py"}  # it moves files within a draft
CALLS = "fsync,fdatasync,syncfs,rename,renameat,renameat2"
WRITES = {
    "a file of a host": (
        "from lab.host.files import write; write(folder / 'a', b'x', 0o600)",
        ["fsync .a.gangplank", "rename .a.gangplank a", "fsync folder"],
    ),
    "a file for the user": (
        "from gangplank.reading.files import write; write(folder / 'a', 'x')",
        ["fsync .gangplank-N.writing", "rename .gangplank-N.writing a", "fsync folder"],
    ),
    "a member's kubeconfig": (
        "from gangplank.teams.kubeconfig import write; write(str(folder / 'a'), 'x')",
        ["fsync .gangplank-N.writing", "rename .gangplank-N.writing a", "fsync folder"],
    ),
    "a folder of the cache": (
        "from lab.build.cache import building\nwith building(folder / 'part') as draft: (draft / 'a').write_text('x')",
        ["syncfs .part.", "rename .part. part", "fsync folder"],
    ),
    "the record of a node's images": (
        (
            "from lab.build.image_store import record_images\n"
            "record_images(folder, [{'name': 'a', 'digest': 'b', 'archive': 'c'}])"
        ),
        ["syncfs folder", "fsync .images.json.gangplank", "rename .images.json.gangplank images.json", "fsync folder"],
    ),
    "the lock of the builds": (
        "from lab.build import lock; lock.LOCK = folder / 'lock.json'; lock.write_lock({})",
        ["fsync .lock.json.gangplank", "rename .lock.json.gangplank lock.json", "fsync folder"],
    ),
}


def same(name: str) -> str:
    """A name without what differs in each run."""
    return re.sub(r"^\.gangplank-\d+", ".gangplank-N", re.sub(r"^(\.part\.).*", r"\1", name))


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("write", WRITES)
def test_c6_content_is_synced_before_the_rename_and_the_name_after_it(tmp_path: Path, write: str) -> None:
    code, expected = WRITES[write]
    folder = tmp_path / "folder"
    folder.mkdir()
    program = f"from pathlib import Path; folder = Path({str(folder)!r})\n{code}"
    command = ["strace", "-f", "-y", "-o", str(tmp_path / "calls"), "-e", f"trace={CALLS}", sys.executable, "-Bc"]
    done = subprocess.run([*command, program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    calls = []
    for line in (tmp_path / "calls").read_text().splitlines():
        if match := re.search(r"(f(?:data)?sync|syncfs)\(\d+<(.*)>\) += 0|(rename)(?:at2?)?\((.*)\) += 0", line):
            call, path, renames, paths = match.groups()
            names = [Path(path).name] if call else [Path(one).name for one in re.findall(r'"(.*?)"', paths)]
            calls.append(" ".join([call or renames, *map(same, names)]))
    assert calls == expected


def renames(path: Path) -> list[int]:
    """The lines that rename a file: `a.rename(b)`, `a.replace(b)` (of a text it has two, of a record named ones), …"""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    ways = {("rename", 1), ("replace", 1), ("rename", 2), ("renames", 2)}
    calls = [call for call in calls if not (call.keywords and ast.unparse(call.func) == "dataclasses.replace")]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and ((call.func.attr, len(call.args)) in ways or ast.unparse(call.func) in {"os.replace", "shutil.move"})
    ]


def test_c6_nothing_is_renamed_past_the_helper() -> None:
    rooms = ("gangplank", "lab", "plugins", "tools")
    sources = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    others = {str(path.relative_to(ROOT)) for path in sources if renames(path)}
    assert others == {"gangplank/disk.py", *COMPARED, *DRAFTS}


def test_what_cannot_be_synced_is_passed_over() -> None:
    sync(Path("/dev/null"))
    with pytest.raises(FileNotFoundError):
        sync(Path("/dev/no-such"))


@pytest.mark.parametrize("name", ["images.json", "lock.json", "note"])
def test_d11_a_write_without_space_keeps_the_old_file_and_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path / "lock.json")
    note = Note(Place("server", "namespace", "name"), {"XDG_CACHE_HOME": str(tmp_path)})
    path = note.path if name == "note" else tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    writes = {
        "images.json": lambda: record_images(tmp_path, [{"name": "a", "digest": "b", "archive": "c"}]),
        "lock.json": lambda: lock.write_lock({"parts": {}}),
        "note": lambda: note.write(["revision"]),  # no error: without it a later run only waits longer
    }
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    problem = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, hard))
    try:
        writes[name]()
    except OSError as error:
        problem = error.filename
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert problem == (None if name == "note" else str(path))
    assert path.read_text() == "{}"
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
