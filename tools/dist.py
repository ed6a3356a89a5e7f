"""What a site installs, in dist/: `python -m tools.dist`, or `make dist`.

It is made of the last commit, not of the files of the checkout, and has the time of that commit: the same commit gives
the same bytes.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangplank import __version__
from gangplank.disk import discard, move, sync_system
from gangplank.errors import Problem
from gangplank.jobs import schema
from lab.build.parts import build
from lab.build.unpack import unpack
from lab.errors import PartError, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "dist"
STALE_S = 24 * 3600  # after which a draft is nobody's
SCHEMA, SUMS, PACKAGES = "job.schema.json", "SHA256SUMS", "requirements-site.txt"


class DistError(Exception):
    """Why nothing was built; the message has the fix."""


@dataclass(frozen=True)
class Commit:
    """What everything is made of."""

    tree: Path  # its files
    seconds: int  # its time

    def run(self, *command: str | Path) -> None:
        """Run a program that packs something, with nothing of this machine in what it writes."""
        env = {**os.environ, "SOURCE_DATE_EPOCH": str(self.seconds), "PYTHONHASHSEED": "0", "TZ": "UTC"}
        done = subprocess.run(
            command, cwd=self.tree, env=env, umask=0o022, capture_output=True, text=True, check=False
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise DistError(f"{last}\n{Problem(str(command[0]), f'exit status {done.returncode}', '0', 'see above')}")


def git(root: Path, *words: str) -> bytes:
    """What git prints in a checkout."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    if done.returncode:
        got = " ".join(done.stderr.decode(errors="replace").split())  # in lines, where a mount ends its search
        raise DistError(str(Problem("git", got, "a checkout with a commit", "run it in a clone of the repository")))
    return done.stdout


def refuse_changes(root: Path, *new: str) -> None:
    """Refuse a checkout with changes that are not committed, and with untracked files below some folders."""
    changed = git(root, "status", "--porcelain", "--untracked-files=no").decode().splitlines()
    if new:
        changed += git(root, "status", "--porcelain", "--untracked-files=all", "--", *new).decode().splitlines()
    if changed:
        problem = Problem("git status", changed[0][3:], "no change that is not committed", "commit it or take it back")
        raise DistError(str(problem))


def exported(root: Path, folder: Path) -> Commit:
    """The files of the last commit, below a folder; refuses a checkout with other changes."""
    refuse_changes(root)
    with tarfile.open(fileobj=io.BytesIO(git(root, "archive", "--format=tar", "HEAD"))) as files:
        unpack(files, folder)  # with modes of its own, whatever git's settings say
    return Commit(folder, int(git(root, "log", "-1", "--format=%ct")))


def settle(archive: Path, seconds: int) -> None:
    """Write a .tar.gz again: members by name, of nobody, with one time; a collection's list of files by name too."""
    with tarfile.open(archive) as packed:
        members = {member.name: (member, packed.extractfile(member)) for member in packed}
        files = {name: content.read() if content else None for name, (_, content) in members.items()}
    if "FILES.json" in files:
        listed = json.loads(files["FILES.json"] or b"")
        listed["files"].sort(key=lambda entry: entry["name"])
        files["FILES.json"] = sorted_list = json.dumps(listed, indent=1).encode()
        manifest = json.loads(files["MANIFEST.json"] or b"")
        manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(sorted_list).hexdigest()
        files["MANIFEST.json"] = json.dumps(manifest, indent=1).encode()
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=seconds, fileobj=raw) as pressed,
        tarfile.open(fileobj=pressed, mode="w", format=tarfile.PAX_FORMAT) as packed,
    ):
        for name in sorted(files):
            member, content = members[name][0], files[name]
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.linkname = member.type, member.mode, member.linkname
            entry.mtime, entry.size = seconds, len(content or b"")
            packed.addfile(entry, io.BytesIO(content or b""))


def collection(commit: Commit, out: Path) -> Path:
    """The collection; galaxy.yml names what stays in the checkout."""
    program = Path(sys.executable).with_name("ansible-galaxy")
    commit.run(program, "collection", "build", "--output-path", out)
    (archive,) = out.glob("*.tar.gz")
    settle(archive, commit.seconds)
    return archive


def wheel(commit: Commit, out: Path) -> Path:
    """The Python package, built by the setuptools of requirements.txt."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-index"]
    commit.run(*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", out, commit.tree)
    (archive,) = out.glob("*.whl")
    return archive


def charts(commit: Commit, source: Path, helm: Path, out: Path) -> None:
    """A chart repository with the charts of the collection: those of the lab are not among them."""
    out.mkdir()
    for chart in sorted(source.glob("*/Chart.yaml")):
        commit.run(helm, "package", chart.parent, "--destination", out)
    index(commit, helm, out)


def index(commit: Commit, helm: Path, out: Path) -> None:
    """Make a folder with archives of charts a chart repository, with nothing of this machine in it."""
    for archive in out.glob("*.tgz"):
        settle(archive, commit.seconds)
    (out / "index.yaml").unlink(missing_ok=True)
    commit.run(helm, "repo", "index", out)
    listed: dict[str, Any] = yaml.safe_load((out / "index.yaml").read_text())
    listed["generated"] = moment = datetime.fromtimestamp(commit.seconds, UTC).isoformat()
    for entry in (entry for entries in listed["entries"].values() for entry in entries):
        entry["created"] = moment
    (out / "index.yaml").write_text(yaml.safe_dump(listed))


def job_schema() -> dict[str, Any]:
    """The schema of a job file, for editors and CI."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"A job file of Gangplank {__version__}",
        "type": "object",
        "required": ["training_job"],
        "properties": {"training_job": schema.job()},
    }


def write(root: Path, out: Path, helm: Path) -> None:
    """Write everything into an empty folder."""
    with tempfile.TemporaryDirectory(prefix="gangplank-dist-") as scratch:
        commit = exported(root, Path(scratch, "commit"))
        archive = collection(commit, out)
        with tarfile.open(archive) as packed:
            unpack(packed, Path(scratch, "collection"))
        charts(commit, Path(scratch, "collection/charts"), helm, out / "charts")
        wheel(commit, out)
        shutil.copy(commit.tree / PACKAGES, out)
    (out / SCHEMA).write_text(json.dumps(job_schema(), indent=1, sort_keys=True) + "\n")
    sum_up(out)


def sum_up(out: Path) -> None:
    """Write the hashes of all files of a folder."""
    (out / SUMS).unlink(missing_ok=True)
    paths = sorted(path for path in out.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in paths]
    (out / SUMS).write_text("".join(sums))


@contextlib.contextmanager
def draft_in(folder: Path, prefix: str) -> Iterator[Path]:
    """An empty folder inside another, which is removed afterwards if it is still there; so are those left long ago."""
    for left in folder.glob(f"{prefix}*"):  # another run may be at work on its own
        if time.time() - left.stat().st_mtime > STALE_S:
            shutil.rmtree(left, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=prefix, dir=folder))
    draft.chmod(0o755)
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


ERRORS = (DistError, PartError, OSError)  # why nothing may be written


def failed(error: Exception, out: Path) -> int:
    """Print why nothing was written; the exit status."""
    print(explain(str(error), str(out)) if isinstance(error, OSError) else error, file=sys.stderr)
    return 1


def main() -> int:
    """Write dist/ completely, or leave it as it is."""
    try:
        with draft_in(ROOT, ".dist-") as draft:
            helm = build(["helm"], partial(print, file=sys.stderr, flush=True), roots=())["bin"]["helm"]
            write(ROOT, draft, Path(helm, "helm"))
            sync_system(draft)
            if OUT.is_symlink():
                OUT.unlink()
            discard(OUT)
            move(draft, OUT)
    except ERRORS as error:
        return failed(error, OUT)
    print((OUT / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
