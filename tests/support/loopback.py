"""A folder served on the loopback, instead of an address on the internet; a chart repository in it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nothing: pytest shows what matters."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder, which may still change."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def chart_repository(helm: str, chart: str, folder: Path, version: str = "") -> Path:
    """Make a folder a chart repository with one chart, in a version of its own or in `version`: its archive."""
    numbered = ["--version", version] if version else []
    for words in (["package", chart, "-d", str(folder), *numbered], ["repo", "index", str(folder)]):
        subprocess.run([f"{helm}/helm", *words], check=True, capture_output=True, timeout=60)
    (archive,) = folder.glob("*.tgz")
    return archive
