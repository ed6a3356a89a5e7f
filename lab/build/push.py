"""Push an image to a registry: `python -m lab.build.push IMAGE REFERENCE [--insecure]`.

IMAGE is an OCI archive, or a part of lab/versions.yml with one image (trainer), which is built if it is missing.
REFERENCE is its name there, such as registry.example.org/trainer:1. The image arrives as it is, entry point included,
and is printed with its digest. --insecure is for a registry without TLS. crane, which pushes, is built if it is
missing; it takes the credentials of `crane auth login`, or of docker's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.build import command
from lab.build.oci_archive import manifest_digest
from lab.build.own_image import base_archive
from lab.build.parts import build
from lab.build.unpack import unpack
from lab.errors import PartError, explain

if TYPE_CHECKING:
    from lab.build.cache import Say

USAGE = "usage: python -m lab.build.push IMAGE REFERENCE [--insecure]"


def push(archive: Path, reference: str, crane: str, *more: str) -> str:
    """Push the image of an OCI archive; return its digest, sha256:…, which the registry confirmed."""
    digest = manifest_digest(archive)
    with tempfile.TemporaryDirectory(prefix="gangplank-push-") as layout:
        try:
            with tarfile.open(archive) as content:
                unpack(content, Path(layout))
        except OSError as error:
            raise explain(str(error), layout) from error
        words = [crane, "push", layout, reference, *more]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        fix = f"check its address and your rights there ({crane} auth login); --insecure is for one without TLS"
        raise PartError(f"got {last}, expected that the registry takes it", reference, fix)
    if not done.stdout.strip().endswith(digest):
        raise PartError(f"got {done.stdout.strip()}, expected {digest}", reference, "push it again")
    return digest


def main(arguments: list[str]) -> int:
    """Push the image and print it with its digest."""
    more = [word for word in arguments if word == "--insecure"]
    words = [word for word in arguments if word not in more]
    if len(words) != 2 or any(word.startswith("-") for word in words):
        return command.wrong_words(USAGE)

    def work(say: Say) -> str:
        archive = base_archive(words[0], say)
        crane = f"{build(['registry'], say, roots=())['bin']['registry']}/crane"
        return f"{words[1]}@{push(archive, words[1], crane, *more)}"

    return command.answer(work)


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
