"""A site as `gangplank status` reads it: trainings that run, a gang that waits, a node that is cordoned.

docs/pictures/status.png is its page: `python -m tests.support.site_page > site.html`, and then
`chromium --headless --hide-scrollbars --window-size=1310,1010 --screenshot=docs/pictures/status.png site.html`.
"""

from __future__ import annotations

import sys
from typing import Any

from gangplank.cli.overview import page
from gangplank.cluster.overview import JOB_COLUMNS, Overview, Section

GIB = 1000 * 2**30  # amounts are thousandths


def some(cpu: int, gib: int, gpus: int = 0) -> dict[str, int]:
    """Amounts as a row has them."""
    return {"cpu": 1000 * cpu, "memory": gib * GIB} | ({"nvidia.com/gpu": 1000 * gpus} if gpus else {})


def rows(columns: tuple[str, ...], *values: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    return tuple(dict(zip(columns, row, strict=True)) for row in values)


COLUMNS = {
    "components": ("component", "version", "ready", "pods"),
    "queues": ("queue", "state", "held", "gangs waiting", "wanted", "free"),
    "jobs": JOB_COLUMNS,
    "gpus": ("device", "nodes", "total", "held", "free"),
    "nodes": ("node", "state", "held", "free"),
}
ROWS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "components": (("Volcano", "v1.15.1", "yes", "3 of 3"), ("training operator", "v1.9.4", "yes", "1 of 1")),
    "queues": (
        ("default", "Open", {}, 0, {}, "no limit"),
        ("speech", "Open", some(24, 96, 8), 1, some(48, 192, 16), some(8, 160)),
        ("vision", "Open", some(12, 48, 4), 0, {}, some(20, 208, 4)),
    ),
    "jobs": (
        ("asr-large", "speech", "pytorchjob", "Created", 0, 4, "", None, "2026-11-24T09:58:12Z"),
        ("asr", "speech", "volcano", "Running", 2, 2, "epoch 3, step 1840 of 6000", 7320.0, "2026-11-24T08:40:30Z"),
        ("detector", "vision", "indexed", "Running", 4, 4, "epoch 11, step 905 of 960", 95.0, "2026-11-24T07:12:09Z"),
        ("digits", "vision", "trainjob", "Complete", None, None, "", None, "2026-11-24T06:01:47Z"),
    ),
    "gpus": (("nvidia.com/gpu", 3, 24, 12, 12),),
    "nodes": (
        ("gpu-3", "cordoned", {}, some(32, 256, 8)),
        ("gpu-1", "ready", some(24, 96, 8), some(8, 160)),
        ("gpu-2", "ready", some(12, 48, 4), some(20, 208, 4)),
    ),
}
SITE = Overview(
    "https://api.example.com:6443",
    "v1.35.4",
    tuple(Section(name, columns, rows(columns, *ROWS[name])) for name, columns in COLUMNS.items()),
)

if __name__ == "__main__":
    sys.stdout.write(page(SITE))
