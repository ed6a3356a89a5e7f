"""Where the pod that writes to a claim takes files from: a web server or a bucket. It runs in that pod (receive.py)."""

from __future__ import annotations

import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplank.errors import GangplankError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WEB = re.compile(r"https?://[^/\s]+/\S*")
BUCKET = re.compile(r"(?:s3|gs)://[^/\s]+/?\S*")
BLOCK = 2**20  # bytes, read at once
SILENCE_S = 60  # without a byte from a server
FAULT = 500  # from this answer on, it is the server's fault
CHANGED = (200, 206)  # all of it, although a part was asked for; the part
NETWORK = "correct the address; a team's pods reach only what its `team_network` names"


@dataclass(frozen=True)
class Entry:
    """One file there."""

    name: str
    size: int | None  # in bytes; None if the server does not say
    origin: str  # its address and version; "" if it has no version, so that a part of it cannot be continued
    read: Callable[[int], tuple[int, Iterator[bytes]]] = field(compare=False)  # from a byte: from which one it is


def entries(address: str) -> Iterator[Entry]:
    """The files at an address."""
    return bucket(address) if BUCKET.fullmatch(address) else iter([web(address)])


def base_name(address: str) -> str:
    """The name of the file at a web address, "" if it has none.

    >>> base_name("https://a.example/mnist/train%20images.gz?raw=1")
    'train images.gz'
    """
    return urllib.parse.unquote(urllib.parse.urlsplit(address).path).rsplit("/", 1)[-1]


def unreadable(address: str, got: str, fix: str = NETWORK) -> GangplankError:
    """The error about a source."""
    return GangplankError(str(Problem(address, got, "a source that can be read", fix)))


def web(address: str) -> Entry:
    """The file at a web address."""
    with ask(address, 0, "") as answer:
        length, headers = answer.headers.get("Content-Length"), answer.headers
        version = headers.get("ETag") or headers.get("Last-Modified") or ""
    size = int(length) if length and length.isdigit() else None
    weak = version.startswith("W/") or size is None or "Content-Encoding" in headers
    origin = "" if weak or not version else f"{address} {version} {size}"

    def read(start: int) -> tuple[int, Iterator[bytes]]:
        opened = ask(address, start, version)
        first = start if opened.status == CHANGED[1] else 0

        def blocks() -> Iterator[bytes]:
            with opened:
                yield from iter(lambda: opened.read(BLOCK), b"")

        return first, blocks()

    return Entry(base_name(address), size, origin, read)


def ask(address: str, start: int, version: str) -> Any:
    """The answer of a web server, from a byte on if the file still has this version."""
    wanted = {"Range": f"bytes={start}-", "If-Range": version} if start else {}
    agent = {"User-Agent": "gangplank", "Accept-Encoding": "identity"}
    request = urllib.request.Request(address, headers={**agent, **wanted})  # noqa: S310  # WEB admits http(s) alone
    try:
        return urllib.request.urlopen(request, timeout=SILENCE_S)  # noqa: S310  # as above
    except urllib.error.HTTPError as error:
        fix = "correct the address" if error.code < FAULT else "try again later"
        raise unreadable(address, f"{error.code} {error.reason}", fix) from None
    except (urllib.error.URLError, OSError) as error:
        raise unreadable(address, str(getattr(error, "reason", error))) from None


def bucket(address: str) -> Iterator[Entry]:
    """The objects below an address of a bucket, or the one that has it."""
    try:
        import fsspec  # type: ignore[import-not-found]  # of the image

        files, root = fsspec.core.url_to_fs(address.rstrip("/"))
        objects = files.find(root, detail=True)
    except ImportError as error:
        got = f"an image without the Python package {error.name}"
        raise unreadable(address, got, "name an image that has it with --image") from None
    except FileNotFoundError:  # some stores' clients say no more than that
        raise unreadable(address, "no such bucket", "correct the address") from None
    except Exception as error:  # noqa: BLE001  # each store's client has errors of its own
        reason = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise unreadable(address, reason, "name the Secret with its address and credentials with --secret") from None
    objects = {path: about for path, about in objects.items() if not path.endswith("/")}
    if not objects:
        raise unreadable(address, "no object", "correct the address")
    for path, about in sorted(objects.items()):
        name = path.rsplit("/", 1)[-1] if path == root else path[len(root) + 1 :]
        version = about.get("ETag") or about.get("etag") or about.get("LastModified") or about.get("updated") or ""

        def read(start: int, path: str = path) -> tuple[int, Iterator[bytes]]:
            def blocks() -> Iterator[bytes]:
                with files.open(path, "rb", block_size=8 * BLOCK, cache_type="readahead") as opened:
                    opened.seek(start)
                    yield from iter(lambda: opened.read(BLOCK), b"")

            return start, blocks()

        yield Entry(name, about["size"], f"{address} {name} {version} {about['size']}" if version else "", read)
