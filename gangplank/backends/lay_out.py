"""In a pod, before its job's script starts: lays out code that came in pieces, and installs what the code requires.

    python3 -I lay_out.py INDEX PIECES FOLDER command …

INDEX is a JSON file that names each file with its size, its SHA-256 and the pieces that hold it. PIECES is the folder
of those. FOLDER is where the code will lie, complete before the command starts. A container that is started again finds
it complete. This text travels with the index, so it uses the standard library alone, of any Python 3.8.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

DONE, PACKAGES = ".complete", ".packages"  # in FOLDER; code has no names that begin with a dot
SHOWN = 2000  # characters of what pip says


def stop(got: str, expected: str, fix: str) -> NoReturn:
    """End with one message."""
    sys.exit("gangplank: code: got " + got + ", expected " + expected + ". Fix: " + fix)


def lay_out(index: dict[str, Any], pieces: Path, folder: Path) -> None:
    """Write each file, compared with its hash."""
    for name, size, digest, parts in index["files"]:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        whole, written = hashlib.sha256(), 0
        with target.open("wb") as file:
            for piece, start, length in parts:
                with (pieces / piece).open("rb") as source:
                    source.seek(start)
                    data = source.read(length)
                whole.update(data)
                written += file.write(data)
            file.flush()
            os.fsync(file.fileno())  # before the mark: a power cut must not keep that and take the code
        if (written, whole.hexdigest()) != (size, digest):
            stop(name + " with other bytes than were sent", "the code as it was submitted",
                 "delete the job and submit it again")


def install(requirements: str, folder: Path) -> None:
    """Install the packages of a file that is locked by hashes, from the wheels beside it or from the site's index."""
    wheels = sorted({path.parent for path in folder.rglob("*.whl")})
    pip = [sys.executable, "-m", "pip"]
    if importlib.util.find_spec("pip") is None:
        carried = sorted(folder.rglob("pip-*.whl"))
        if not carried:
            stop("an image without pip", "pip in the image, or its wheel in `code`",
                 "pip download --no-deps -d WHEELS pip, in the folder of the other wheels")
        pip = [sys.executable, str(carried[0] / "pip")]
    source = [word for place in wheels for word in ("--no-index", "--find-links", str(place))]
    line = [*pip, "install", "--require-hashes", "--only-binary", ":all:", "--no-input", "--no-cache-dir",
            "--disable-pip-version-check", "--no-warn-script-location", "--quiet",
            "--target", str(folder / PACKAGES), "--requirement", str(folder / requirements)]
    both = subprocess.STDOUT
    done = subprocess.run([*line, *source], stdout=subprocess.PIPE, stderr=both, cwd=str(folder), check=False)
    if done.returncode:
        said = " ".join(done.stdout.decode("utf-8", "replace")[-SHOWN:].split())
        if os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / PACKAGES))
        stop(requirements + ", which pip could not install (" + said + ")", "a wheel of each of them",
             "pip download --require-hashes --only-binary :all: -r " + requirements
             + " -d WHEELS, with the image's version of Python, and carry that folder in `code`")


def main(index_file: str, pieces: str, folder: str, *command: str) -> None:
    """Lay the code out once, and become the command."""
    target, text = Path(folder), Path(index_file).read_bytes()
    done, mark = target / DONE, hashlib.sha256(text).hexdigest()
    if not done.exists() or done.read_text() != mark:
        index = json.loads(text)
        try:
            for path in target.iterdir():
                shutil.rmtree(str(path)) if path.is_dir() else path.unlink()
            lay_out(index, Path(pieces), target)
            if index.get("requirements"):
                install(index["requirements"], target)
                os.sync()
            done.write_text(mark)
        except OSError as error:
            size = sum(file[1] for file in index["files"])
            got = str(error.strerror or error) + ": " + str(error.filename or folder)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                stop(got, "room for " + str(size) + " bytes of code on the pod's node",
                     "free space there, or use another node")
            stop(got, "a folder that the container's user may write, and all pieces", "submit the job again")
    os.execvp(command[0], command)  # noqa: S606  the container's own process


if __name__ == "__main__":
    main(*sys.argv[1:])
