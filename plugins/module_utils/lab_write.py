"""Write a file beside, then rename it: a killed run leaves the old file or the new one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, data: bytes, mode: int) -> None:
    """Put `data` at `path` with exactly `mode`; its folder must be there."""
    draft = path.with_name(f".{path.name}.gangplank")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as stream:
        os.fchmod(stream.fileno(), mode)
        stream.write(data)
    draft.replace(path)
