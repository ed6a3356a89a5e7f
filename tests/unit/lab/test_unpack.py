"""Extraction of archives: what they hold arrives, and nothing leaves the folder."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lab.build.unpack import unpack
from lab.errors import PartError

ROOT = Path(__file__).resolve().parents[3]


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode = kind, link, mode
    return member


def archive(*members: tarfile.TarInfo) -> tarfile.TarFile:
    """An archive in which every file has the content `new`."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as packed:
        for member in members:
            member.size = 3 if member.isreg() else 0
            packed.addfile(member, io.BytesIO(b"new") if member.isreg() else None)
    raw.seek(0)
    return tarfile.open(fileobj=raw)


def test_files_programs_folders_and_links_arrive(tmp_path: Path) -> None:
    members = (
        entry("./b", tarfile.DIRTYPE, mode=0o777),
        entry("./b/file", mode=0o666),
        entry("a/program", mode=0o4775),
        entry("a/up", tarfile.SYMTYPE, "../b/file"),
        entry("a/whole", tarfile.SYMTYPE, ".."),
        entry("z", tarfile.SYMTYPE, "a/up"),
    )
    folder = tmp_path / "folder"
    with archive(*members) as packed:
        unpack(packed, folder)
    modes = {
        str(path.relative_to(folder)): path.lstat().st_mode & 0o7777
        for path in folder.rglob("*")
        if not path.is_symlink()
    }
    assert modes == {"b": 0o755, "a": 0o755, "b/file": 0o644, "a/program": 0o755}
    assert (folder / "z").read_text() == (folder / "a/program").read_text() == "new"
    assert (folder / "a/whole").resolve() == folder.resolve()


@pytest.mark.parametrize(
    "members",
    [
        pytest.param((entry("../outside"),), id="a path with dots"),
        pytest.param((entry("a/../../outside"),), id="a path that leaves later"),
        pytest.param((entry("/outside"),), id="an absolute path"),
        pytest.param((entry("null", tarfile.CHRTYPE),), id="a character device"),
        pytest.param((entry("disk", tarfile.BLKTYPE),), id="a block device"),
        pytest.param((entry("pipe", tarfile.FIFOTYPE),), id="a pipe"),
        pytest.param((entry("a"), entry("b", tarfile.LNKTYPE, "../outside")), id="a hard link"),
        pytest.param((entry("a", tarfile.SYMTYPE, "/etc/passwd"),), id="an absolute link"),
        pytest.param((entry("a", tarfile.SYMTYPE, "../outside"),), id="a link out of it"),
        pytest.param((entry("a", tarfile.SYMTYPE, ".."), entry("a/outside")), id="a file behind a link"),
        pytest.param((entry("a", tarfile.SYMTYPE, "absent"),), id="a link to nothing"),
        pytest.param((entry("a", tarfile.SYMTYPE, "a"),), id="a link to itself"),
        pytest.param(
            (entry("d/b", tarfile.SYMTYPE, ".."), entry("d/e/l", tarfile.SYMTYPE, "../b/../outside")),
            id="a link through a link",
        ),
    ],
)
def test_what_leaves_the_folder_is_refused(members: tuple[tarfile.TarInfo, ...], tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.write_text("old")
    with archive(*members) as packed, pytest.raises(PartError):
        unpack(packed, folder)
    assert outside.read_text() == "old"
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    assert sorted(path.name for path in tmp_path.iterdir()) in (["folder", "outside"], ["outside"])


def test_nothing_is_written_if_a_name_is_refused(tmp_path: Path) -> None:
    with (
        archive(entry("good"), entry("../bad")) as packed,
        pytest.raises(PartError, match=r"^\.\./bad of the archive: got "),
    ):
        unpack(packed, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


@pytest.mark.slow
def test_no_other_place_extracts_a_tar_archive() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    calls = {
        path
        for path in listed.stdout.split()
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("extract", "extractall")
        and "tarfile" in (ROOT / path).read_text()
    }
    # A wheel, which is a zip archive.
    assert calls <= {"tests/unit/tools/test_dist.py", "tests/unit/lab/test_unpack.py"}


def test_debian_s_python_can_extract(tmp_path: Path) -> None:
    """Without the filters, which came with 3.11.4."""
    text = (
        "import sys, tarfile; from pathlib import Path\n"
        "for name in ('data_filter', 'tar_filter', 'fully_trusted_filter'): vars(tarfile).pop(name, None)\n"
        "def extractall(self, path='.', members=None, *, numeric_owner=False): raise AssertionError\n"
        "tarfile.TarFile.extractall = tarfile.TarFile.extract = extractall\n"
        "from lab.build.unpack import unpack\n"
        "unpack(tarfile.open(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        packed.addfile(entry("file"))
    subprocess.run([sys.executable, "-c", text, tmp_path / "a.tar", tmp_path / "folder"], cwd=ROOT, check=True)
    assert (tmp_path / "folder/file").exists()
