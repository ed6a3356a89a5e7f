"""C6: whatever ends in a rename is on the disk before it, and its name right after."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gangplank.disk import sync

ROOT = Path(__file__).resolve().parents[3]
COMPARED = {"gangplank/cluster/landing.py"}  # its next run compares the hash of each of many files
CALLS = "fsync,fdatasync,syncfs,rename,renameat,renameat2"
WRITES = {
    "a file of a host": (
        "from lab.host.files import write; write(folder / 'a', b'x', 0o600)",
        ["fsync .a.gangplank", "rename .a.gangplank a", "fsync folder"],
    ),
    "a file for the user": (
        "from gangplank.reading.files import write; write(folder / 'a', 'x')",
        ["fsync .a.writing", "rename .a.writing a", "fsync folder"],
    ),
    "a member's kubeconfig": (
        "from gangplank.teams.kubeconfig import write; write(str(folder / 'a'), 'x')",
        ["fsync .a.writing", "rename .a.writing a", "fsync folder"],
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
        ["fsync images.new", "rename images.new images.json", "fsync folder"],
    ),
}


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
            calls.append(" ".join([call or renames, *(re.sub(r"^(\.part\.).*", r"\1", name) for name in names)]))
    assert calls == expected


def renames(path: Path) -> list[int]:
    """The lines that rename a file: `a.rename(b)`, `a.replace(b)` (of a text it has two, of a record named ones)."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    ways = {("rename", 1), ("replace", 1), ("rename", 2), ("renames", 2)}
    calls = [call for call in calls if not (call.keywords and ast.unparse(call.func) == "dataclasses.replace")]
    return [
        call.lineno
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and ((call.func.attr, len(call.args)) in ways or ast.unparse(call.func) == "os.replace")
    ]


def test_c6_nothing_is_renamed_past_the_helper() -> None:
    sources = [path for room in ("gangplank", "lab", "plugins") for path in sorted((ROOT / room).rglob("*.py"))]
    others = {str(path.relative_to(ROOT)) for path in sources if renames(path)}
    assert others == {"gangplank/disk.py", *COMPARED}


def test_what_cannot_be_synced_is_passed_over() -> None:
    sync(Path("/dev/null"))
    with pytest.raises(FileNotFoundError):
        sync(Path("/dev/no-such"))
