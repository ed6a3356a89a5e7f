"""What counts as a step of the lab's host code, after which tests/support/host_kills.py kills it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Each changes one file in `home`; `opened` is an open file of it, and `inside` the folder, open.
CHANGES = (
    'open(home / "new", "w").close()', '(home / "new").mkdir()', '(home / "a").rename(home / "new")',
    '(other / "a").replace(home / "a")', '(home / "a").unlink()', 'os.unlink("a", dir_fd=inside)',
    '(home / "new").hardlink_to(other / "a")', '(home / "new").symlink_to(other / "a")', '(home / "a").chmod(0o600)',
    "os.fchmod(opened, 0o600)", 'os.chown(home / "a", os.getuid(), os.getgid())', 'os.truncate(home / "a", 0)',
    "os.ftruncate(opened, 0)",
)  # fmt: skip
RUN = """
import json, os, shutil, sys
from pathlib import Path
from tests.support.host_kills import Steps
folder, counts = Path(sys.argv[1]), []
steps = Steps(0, (str(folder / "lab"),))
sys.addaudithook(steps.hook)
for at, change in enumerate(json.loads(sys.argv[2])):
    for name in ("lab", "elsewhere"):
        home, other = folder / name / str(at), folder / f"beside-{name}-{at}"
        for place in (home, other):
            place.mkdir(parents=True)
            (place / "a").write_text("a")
        opened, inside = os.open(home / "a", os.O_RDWR), os.open(home, os.O_RDONLY)
        steps.count = 0
        exec(change)
        counts.append(steps.count)
print(json.dumps(counts))
"""


def counted(folder: Path, *changes: str) -> list[int]:
    """The steps of each change in the lab's folder, then of the same elsewhere."""
    command = [sys.executable, "-c", RUN, str(folder), json.dumps(changes)]
    counts: list[int] = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    return counts


def test_whatever_changes_a_file_of_the_lab_is_a_step_and_elsewhere_it_is_none(tmp_path: Path) -> None:
    counts = counted(tmp_path, *CHANGES)
    assert dict(zip(CHANGES, counts[::2], strict=True)) == dict.fromkeys(CHANGES, 1)
    assert not any(counts[1::2])


def test_each_file_of_a_removed_tree_is_a_step(tmp_path: Path) -> None:
    assert counted(tmp_path, '(home / "b").write_text(""); shutil.rmtree(home)') == [4, 0]
