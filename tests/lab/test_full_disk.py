"""D11: a full disk at any write. A real file system (tmpfs) of few pages, in a mount namespace of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gangplank.backends import lay_out
from lab.build import cache
from tests.unit.jobs.test_code_pieces import wheel

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
    "what a checkout uses of the cache": """
from lab.build import checkouts
checkouts.NOTES = "."
def work():
    checkouts.note(folder, {"images": [], "store": "stores/" + "x" * 6000})
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


def isolated(*command: str) -> subprocess.CompletedProcess[str]:
    """A command, in a mount namespace of its own."""
    line = ["unshare", "--mount", "--propagation", "private", *command]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def outcomes_of(script: str, *places: Path) -> Any:
    """What a script prints about its folders, each with so many pages at most."""
    done = isolated(sys.executable, "-c", script, *map(str, places), str(PAGES))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("writer", WRITERS)
def test_d11_a_full_disk_at_any_write_is_one_error_and_leaves_no_half_file(tmp_path: Path, writer: str) -> None:
    script = SCRIPT.replace("WORK", WRITERS[writer])
    outcomes = outcomes_of(script, tmp_path)  # with space again, each of them succeeded
    full = [problem for problem, _, _ in outcomes if problem]
    assert full
    assert outcomes[-1][0] == "", "there is space for all of it"
    assert all(problem.startswith(f"No space left on device: {tmp_path}/") for problem in full), full
    assert not any("/." in problem.removeprefix(str(tmp_path)) for problem in full), "nobody knows a draft's name"
    assert [halves for _, halves, _ in outcomes if halves] == []
    if writer == "the report of a training":
        assert all(text == ("old" if problem else "pag") for problem, _, text in outcomes)


OWNERS = {
    "the user's kubeconfig": """
from lab.host.kubeconfig import ensure
MINE = "# mine\\napiVersion: v1\\nkind: Config\\nclusters: []\\nusers: []\\ncontexts: []  # none\\n"
MINE += 500 * "# a comment\\n"
mine = folder / "config"
for name in ("ca", "crt", "key"):
    (outside / name).write_bytes(3000 * b"x")
admin = {"clusters": [{"cluster": {"server": "https://198.18.0.1:6443", "certificate-authority": str(outside / "ca")}}],
         "users": [{"user": {"client-certificate": str(outside / "crt"), "client-key": str(outside / "key")}}]}
(outside / "admin").write_text(json.dumps(admin))
def before():
    mine.write_text(MINE)
def work():
    ensure(mine, "gangplank-lab", outside / "admin", lab=folder, dry=False)
    ensure(mine, "gangplank-lab", outside / "admin", lab=folder, dry=False)
def whole():
    text = mine.read_text()
    return {"old": text == MINE, "new": "gangplank-lab" in text and text.count("# a comment") == 500}
""",
    "event files": """
from gangplank.proof.report.tensorboard import write_events
from tests.unit.proof.test_claims import World
world = World()
world.train()
def before():
    pass
def work():
    write_events(folder / "runs", world.records())
def whole():
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "filler")
    return {"old": not files, "new": len({path.parent for path in files}) == 3}
""",
    "a member's kubeconfig": """
from gangplank.teams.kubeconfig import write
member = folder / "member"
def before():
    member.write_text("old")
def work():
    write(str(member), 4000 * "words ")
def whole():
    return {"old": member.read_text() == "old", "new": member.read_text() == 4000 * "words "}
""",
    "files that are fetched": """
import hashlib
from gangplank.cluster.landing import PARTS, File, Landing
stays.add(PARTS)  # with what has arrived, to continue
data = 20000 * b"x"
file = File("below/a", len(data), hashlib.sha256(data).hexdigest())
def before():
    pass
def work():
    with Landing(folder / "fetched") as target:
        start = target.fetched(file)
        target.write(file, start, data[start:])
        target.remember(file)
        assert target.finish(file)
        target.settle([file])
def whole():
    target = folder / "fetched/below/a"
    return {"old": not target.exists(), "new": target.exists() and target.read_bytes() == data}
""",
    "the lab's lock": """
from lab.host.lock import NAME, hold
from gangplank.processes import process
stays.add(NAME)  # it marks a lab's folder
def before():
    pass
def work():
    hold(folder, {**process(os.getpid()), "since": 0}, print, 1)
def whole():
    text = (folder / NAME).read_text()
    return {"old": not text, "new": text.endswith("}")}
""",
}
OWNER_SCRIPT = """
import json, os, shutil, subprocess, sys
from pathlib import Path
from gangplank.errors import GangplankError
folder, outside, pages = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
outcomes, stays = [], set()
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={(pages + 40) * 4}k", "full", str(folder)], check=True)
OWNER
for free in range(pages + 1):
    before()
    with (folder / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(4096 * b"x")
        except OSError:
            filler.truncate((filler.tell() // 4096 - free) * 4096)
    try:
        work()
        problem = ""
    except OSError as error:
        problem = f"{error.strerror}: {error.filename}"
    except GangplankError as error:
        problem = str(error)
    kept = whole()["old" if problem else "new"]
    drafts = [path.name for pattern in (".*", "*.lock") for path in folder.rglob(pattern)]
    names = sorted(set(drafts) - stays)
    (folder / "filler").unlink()
    work()
    outcomes.append([problem, kept, names, whole()["new"]])
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize("owner", OWNERS)
def test_d11_what_is_the_users_is_whole_on_a_full_disk(tmp_path: Path, owner: str) -> None:
    places = [tmp_path / "disk", tmp_path / "outside"]
    for place in places:
        place.mkdir()
    script = OWNER_SCRIPT.replace("OWNER", OWNERS[owner])
    outcomes = outcomes_of(script, *places)
    problems = [problem for problem, *_ in outcomes if problem]
    assert problems
    assert all("No space left on device" in problem and str(places[0]) in problem for problem in problems), problems
    assert not any("remove what" in problem for problem in problems), problems
    assert outcomes[-1][0] == "", "there is space for all of it"
    assert all(kept for _, kept, _, _ in outcomes), outcomes
    assert not any(names for _, _, names, _ in outcomes), "no draft and no lock is left"
    assert all(again for *_, again in outcomes), "with space it is as it would have been"


# `make down` holds the lab, and then frees its disk.
HOLDS = """
import json, os, subprocess, sys
from pathlib import Path
from gangplank.processes import process
from lab.host.lock import free, hold
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "full", str(folder)], check=True)
own = {**process(os.getpid()), "since": 0}
hold(folder, own, print, 1)
free(folder, own["pid"])
with (folder / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(4096 * b"x")
    except OSError:
        pass
hold(folder, own, print, 1)
print(json.dumps((folder / "lab.lock").read_text()))
"""


def test_d11_a_lab_that_has_filled_its_disk_can_be_held_to_remove_it(tmp_path: Path) -> None:
    assert '"pid": ' in outcomes_of(HOLDS, tmp_path)


# It lays code out as a pod does, in a folder with more room each time; then it removes the rest of the last attempt.
LAYS_OUT = """
import hashlib, json, subprocess, sys
from pathlib import Path
from gangplank.backends import lay_out
folder, outside, pages = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
pieces = outside / "pieces"
pieces.mkdir()
files = {f"lib/{number}.py": bytes([number]) * 9000 for number in range(4)}
index = [[name, 9000, hashlib.sha256(data).hexdigest(), [[name[4:], 0, 9000]]] for name, data in files.items()]
for name, data in files.items():
    (pieces / name[4:]).write_bytes(data)
(outside / "index").write_text(json.dumps({"files": index}))
outcomes = []
for free in range(1, pages):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={free * 4}k", "full", str(folder)], check=True)
    line = [sys.executable, "-I", lay_out.__file__, str(outside / "index"), str(pieces), str(folder), "echo", "it runs"]
    done = subprocess.run(line, capture_output=True, text=True)
    mark = folder / lay_out.DONE
    outcomes.append([done.returncode, done.stdout, done.stderr, mark.exists() and mark.read_text() != ""])
    if done.returncode:
        subprocess.run(["mount", "-o", f"remount,size={pages * 4}k", str(folder)], check=True)
        again = subprocess.run(line, capture_output=True, text=True)
        assert again.stdout == "it runs\\n", again.stderr
    assert all((folder / name).read_bytes() == data for name, data in files.items())
    subprocess.run(["umount", str(folder)], check=True)
print(json.dumps(outcomes))
"""


def test_d11_code_that_finds_no_room_in_its_pod_is_one_message_and_laid_out_again(tmp_path: Path) -> None:
    places = [tmp_path / "disk", tmp_path / "outside"]
    for place in places:
        place.mkdir()
    outcomes = outcomes_of(LAYS_OUT, *places)
    assert {code for code, *_ in outcomes} == {0, 1}
    for code, said, problem, complete in outcomes:
        expected = f"gangplank: code: got No space left on device: {places[0]}"
        assert (said, complete) == (("", False) if code else ("it runs\n", True))
        assert not code or (problem.startswith(expected) and len(problem.splitlines()) == 1), problem
        assert not code or "expected room for 36000 bytes of code on the pod's node" in problem


def test_d11_packages_that_find_no_room_in_their_pod_are_the_same_message(tmp_path: Path) -> None:
    place, code = tmp_path / "disk", tmp_path / "code"
    place.mkdir()
    carried = wheel(code, "carried", "ANSWER = 42\n" + 99_000 * "#")
    pinned = f"carried==1.0 --hash=sha256:{cache.sha256_file(carried)}\n".encode()
    files = {carried.name: carried.read_bytes(), "requirements.txt": pinned}
    (code / "requirements.txt").write_bytes(pinned)
    rows = [[name, len(data), hashlib.sha256(data).hexdigest(), [[name, 0, len(data)]]] for name, data in files.items()]
    index = tmp_path / "index"
    index.write_text(json.dumps({"files": rows, "requirements": "requirements.txt"}))
    mount = f'mount -t tmpfs -o size=140k full {place}; exec "$@"'
    line = [sys.executable, "-I", lay_out.__file__, index, code, place, "echo", "it runs"]
    done = isolated("sh", "-euc", mount, "sh", *map(str, line))
    assert (done.returncode, done.stdout) == (1, "")
    full = f"gangplank: code: got No space left on device: {place}/.packages, expected room for "
    assert done.stderr.startswith(full)
    assert len(done.stderr.splitlines()) == 1
