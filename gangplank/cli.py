"""The gangplank command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def read_scripts(job: object, root: Path | None = None) -> dict[str, str]:
    """The text of the script that a job names by a relative path, looked up here and then below root."""
    inner = job.get("training_job", job) if isinstance(job, Mapping) else None
    path = inner.get("script") if isinstance(inner, Mapping) else None
    if not isinstance(path, str) or not path or path.startswith("/") or "\x00" in path:
        return {}
    for folder in (Path(), root):
        if folder is not None and (folder / path).is_file():
            return {path: (folder / path).read_text(encoding="utf-8", errors="surrogateescape")}
    return {}


def main() -> int:
    """Run the command."""
    raise SystemExit(2)
