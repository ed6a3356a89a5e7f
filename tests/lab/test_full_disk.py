"""D11: a full disk at any write. A real file system (tmpfs) of few pages, in a mount namespace of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = 24  # more than any of the writers needs
# Each writer writes into `folder`; what it would change is there as `old`.
WRITERS = {
    "the files of a host": """
from lab.host.files import HostFile, ensure
def work():
    ensure([HostFile(folder / name, 0o644, name * 6000) for name in "abc"], dry=False)
""",
    "certificates and keys": """
from lab.host.pki import Leaf, ensure
def work():
    ensure(folder, ["ca"], [Leaf("admin", "admin"), Leaf("api", "api", sans=("localhost",))])
    assert ensure(folder, ["ca"], [Leaf("admin", "admin"), Leaf("api", "api", sans=("localhost",))]) == {}
""",
    "the report of a training": """
from gangplank.reading.files import write
def work():
    write(folder / "a", "page" * 4000)
""",
}
SCRIPT = """
import json, os, subprocess, sys
from pathlib import Path
folder, pages = Path(sys.argv[1]), int(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={(pages + 1) * 4}k", "full", str(folder)], check=True)
WORK
(folder / "a").write_text("old")
outcomes = []
for free in range(pages + 1):
    (folder / "filler").write_bytes(b"x" * 4096 * (pages - free))
    try:
        work()
        problem = ""
    except OSError as error:
        problem = f"{error.strerror}: {error.filename}"
    names = [path for path in sorted(folder.iterdir()) if path.name != "filler"]
    halves = [path.name for path in names if path.name.startswith(".") or not path.read_bytes()]
    outcomes.append([problem, halves, (folder / "a").read_text()[:3]])
    (folder / "filler").unlink()
    work()
    for path in folder.iterdir():
        path.unlink()
    (folder / "a").write_text("old")
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize("writer", WRITERS)
def test_d11_a_full_disk_at_any_write_is_one_error_and_leaves_no_half_file(tmp_path: Path, writer: str) -> None:
    script = SCRIPT.replace("WORK", WRITERS[writer])
    isolated = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", script]
    done = subprocess.run(
        [*isolated, str(tmp_path), str(PAGES)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr  # with space again, each of them succeeded
    outcomes = json.loads(done.stdout)
    full = [problem for problem, _, _ in outcomes if problem]
    assert full
    assert outcomes[-1][0] == "", "there is space for all of it"
    assert all(problem.startswith("No space left on device: ") for problem in full), full
    assert [halves for _, halves, _ in outcomes if halves] == []
    if writer == "the report of a training":
        assert all(text == ("old" if problem else "pag") for problem, _, text in outcomes)
