"""Your own image: a base image and one layer with your folder, without Docker and without a network.

    python -m lab.build.own_image NAME BASE FOLDER OUT.tar [PLACE] [--entrypoint COMMAND]

NAME is what jobs will call it (example.org/mine:1). BASE is an OCI archive, or a part of lab/versions.yml with one
image (trainer), which is built if it is missing. FOLDER is copied to /opt/<its name>, where the image then starts.
With PLACE, an absolute path, it is copied there, and the image starts where its base does. COMMAND, in the words of a
shell, takes the place of the base's entry point.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.disk import rename
from lab.build import command
from lab.build.oci_archive import read_image, write_image, write_layer
from lab.build.parts import build
from lab.build.versions import load_pins
from lab.errors import PartError, explain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.build.cache import Say

USAGE = "usage: python -m lab.build.own_image NAME BASE FOLDER OUT.tar [PLACE] [--entrypoint COMMAND]"


def base_archive(base: str, say: Say) -> Path:
    """The archive that `base` names: a file, or the image of a part."""
    if Path(base).is_file():
        return Path(base)
    if base not in load_pins().parts or len(load_pins().parts[base].images) != 1:
        what = "got no such archive, nor a part with one image, expected one of them"
        raise PartError(what, base, "name an OCI archive, or `trainer`")
    return Path(build([base], say)["images"][0]["archive"])


def start(folder: Path) -> str:
    """Where an image with this folder starts."""
    return f"/opt/{folder.resolve().name}"


def own_files(folder: Path, place: str = "") -> dict[str, Path]:
    """{path in the image: file} for all files below `folder` except hidden ones and Python's caches."""
    if not folder.is_dir():
        raise PartError("got no such folder, expected one with your scripts", str(folder), "name an existing folder")
    if place and (not place.startswith("/") or ".." in place.split("/")):
        raise PartError("got another PLACE, expected an absolute path in the image", place, "start it with /")
    where = place.rstrip("/") if place else start(folder)
    files = {f"{where}/{path.relative_to(folder)}": path for path in sorted(_visible(folder)) if path.is_file()}
    if not files:
        raise PartError("got an empty folder, expected your scripts", str(folder), "put your scripts there")
    return files


def _visible(folder: Path) -> Iterator[Path]:
    """What is below a folder, but no folders; a linked one is refused: it may lead anywhere, also back."""
    def unreadable(error: OSError) -> None:
        raise explain(str(error), str(folder)) from error

    for inside, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith((".", "__pycache__"))]
        for name in folders:
            if (path := Path(inside) / name).is_symlink():
                raise PartError("got a link to a folder, expected a folder", str(path), "copy there what it leads to")
        yield from (Path(inside) / name for name in names if not name.startswith((".", "__pycache__")))


def words_of(entrypoint: str) -> list[str]:
    """A command as a list of words, as a shell reads it."""
    try:
        return shlex.split(entrypoint)
    except ValueError as error:
        raise PartError(f"got {error}, expected a command", entrypoint, "close each quote that it opens") from None


def write_own_image(
    name: str, base: Path, folder: Path, out: Path, place: str = "", entrypoint: Sequence[str] = ()
) -> str:
    """Write the archive `out` completely or not at all; return the image's digest, sha256:…

    Without an entry point, the image has that of its base.
    """
    files = own_files(folder, place)
    files = {target: path for target, path in files.items() if path.resolve() != out.resolve()}  # an earlier one
    layers, config, platform = read_image(base)
    try:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.resolve().parent) as scratch:
            layers.append(write_layer(Path(scratch) / "layer.tar", files))
            if not place:
                config["WorkingDir"] = start(folder)
            if entrypoint:
                config["Entrypoint"] = list(entrypoint)
                config.pop("Cmd", None)  # the arguments of the base's own
            digest = write_image(Path(scratch) / "image.tar", name, layers, config, platform)
            rename(Path(scratch) / "image.tar", out)
    except OSError as error:
        raise explain(str(error), str(out)) from error
    return digest


def main(arguments: list[str]) -> int:
    """Write the image and print its digest."""
    words, entrypoint = arguments, ""
    if arguments[-2:-1] == ["--entrypoint"]:
        *words, _, entrypoint = arguments
    if len(words) not in (4, 5) or any(word.startswith("--") for word in words):
        return command.wrong_words(USAGE)
    name, base, folder, out, *place = words

    def work(say: Say) -> str:
        digest = write_own_image(
            name, base_archive(base, say), Path(folder), Path(out), "".join(place), words_of(entrypoint)
        )
        return f"{name} {digest}\nnext: make lab-load IMAGE={out}"

    return command.answer(work)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
