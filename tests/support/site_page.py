"""docs/pictures/status.png: the page of `gangplank status --html`, as Chromium draws it.

The site is site_status.json, as `gangplank status -o json` prints it: an invented one, until a lab's takes its place.
`GANGPLANK_GOLDEN=write .venv/bin/pytest tests/cluster/test_overview.py` takes the picture of a lab. So does any site:
`gangplank status -o json > tests/support/site_status.json`, then `.venv/bin/python -m tests.support.site_page` as root.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import zlib
from pathlib import Path
from typing import Any

from gangplank.cli.overview import page
from gangplank.cluster.overview import Overview, Section
from gangplank.scheduling.amounts import amounts

Json = dict[str, Any]
STATUS = Path(__file__).with_name("site_status.json")
PICTURE = Path(__file__).parents[2] / "docs/pictures/status.png"
WIDTH = 1310
OF_THE_WHOLE = ("cluster", "version", "cannot_tell")


def site(status: Json) -> Overview:
    """The site whose status is this; a table without rows has no columns."""

    def row(values: Json) -> Json:
        return {name: amounts(value) if isinstance(value, dict) else value for name, value in values.items()}

    sections = tuple(
        Section(name, tuple(rows[0]) if rows else (), tuple(map(row, rows)))
        for name, rows in status.items()
        if name not in OF_THE_WHOLE
    )
    return Overview(status["cluster"], status["version"], sections, tuple(status["cannot_tell"]))


def stamp(html: str) -> bytes:
    """What the picture of a page has in it: the digest of all but the time.

    >>> stamp("<p>Kubernetes v1, at 12:00</p>") == stamp("<p>Kubernetes v1, at 13:00</p>") != stamp("<p>v1</p>")
    True
    """
    untimed = re.sub(r"(<p>Kubernetes [^<]*), at [^<]*", r"\1", html)
    return b"tEXtSource\0" + hashlib.sha256(untimed.encode()).hexdigest().encode()


def take(status: Json) -> None:
    """Keep a status, and draw its page."""
    from tests.trainer.browser import picture

    STATUS.write_text(json.dumps(status, indent=2) + "\n")
    html = page(site(status))
    png, chunk = picture(html, WIDTH), stamp(html)
    stamped = struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    PICTURE.write_bytes(png[:-12] + stamped + png[-12:])  # before the chunk of twelve bytes that ends a picture


SITE = site(json.loads(STATUS.read_text()))

if __name__ == "__main__":
    take(json.loads(STATUS.read_text()))
