"""What each checkout that shares the cache uses of it: a build removes no image that another checkout's lab needs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.build.cache import digest_of
from lab.host.files import write

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKOUT = Path(__file__).resolve().parents[2]
NOTES = "checkouts"  # a file for each, in the cache


def notes(home: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The notes of the checkouts that still exist."""
    for path in (home / NOTES).glob("[!.]*.json"):
        with contextlib.suppress(OSError, ValueError):  # it is being removed, or its disk was full
            content = json.loads(path.read_text())
            if (Path(content["checkout"]) / "lab/versions.yml").is_file():
                yield path, content
            else:
                path.unlink()


def note(home: Path, result: dict[str, Any], checkout: Path = CHECKOUT) -> bool:
    """Write down which archives and which image store this checkout uses; of other parts, what it used before.

    Returns whether that is written only now.
    """
    path = home / NOTES / f"{digest_of(str(checkout))}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent):  # two runs of one checkout note at the same moment
            return _noted(path, result, checkout)
    except OSError as error:  # who may not write to a cache removes nothing from it either
        if error.errno not in {errno.EACCES, errno.EPERM, errno.EROFS}:
            raise
        return False


def _noted(path: Path, result: dict[str, Any], checkout: Path) -> bool:
    home = path.parent.parent
    before: dict[str, Any] = next((content for at, content in notes(home) if at == path), {"uses": {}})
    places = {f"images/{Path(image['archive']).parent.name}" for image in result["images"]}
    parts = {_part(place) for place in places}  # of which several may have several images
    uses = {key: place for key, place in before["uses"].items() if _part(place) not in parts}
    uses |= {place: place for place in sorted(places)}
    if "store" in result:
        uses["the store"] = f"stores/{Path(result['store']).name}"
    content = {"checkout": str(checkout), "uses": uses}
    if content == before and path.exists():
        return False
    write(path, json.dumps(content).encode(), 0o600)
    return True


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock, which needs no file: there is none to leave on a full disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _part(place: str) -> str:
    """The part that has an image at a place; "" for a store."""
    return place.removeprefix("images/").rpartition("-")[0]


def used_by_others(home: Path, checkout: Path = CHECKOUT) -> set[Path]:
    """The folders in the cache that other checkouts use."""
    others = (content for _, content in notes(home) if content["checkout"] != str(checkout))
    return {home / place for content in others for place in content["uses"].values()}
