"""docs/jobs.md explains every field that a job may have, and of every refusal."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank import spec
from gangplank.backends import BACKENDS
from gangplank.cli import main
from gangplank.jobs import schema
from gangplank.jobs.parse import HYPERPARAMETERS, PLACES

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/jobs.md").read_text()
FIRST_CELLS = {
    name for line in TEXT.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])
}


def test_every_field_has_a_row() -> None:
    field_names = {field.name for field in fields(spec.JobSpec)} - {"block"} | set(BACKENDS)
    assert field_names - FIRST_CELLS == set()
    assert FIRST_CELLS - field_names == set()


def test_every_field_of_a_block_is_named_in_its_row() -> None:
    blocks = TEXT.split("## Blocks")[1].split("## ")[0].splitlines()
    rows = {line.split("`")[1]: line for line in blocks if line.startswith("| `")}
    for backend in BACKENDS:
        fields_of_block = schema.job()["properties"][backend]["properties"]
        assert fields_of_block
        for field in fields_of_block:
            assert f"`{field}`" in rows[backend]


def test_every_hyperparameter_is_named() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith("| `hyperparameters`"))
    assert all(f"`{name}`" in row for name in [*HYPERPARAMETERS, *PLACES])


def test_every_refusal_is_there_word_for_word() -> None:
    for name, backend in BACKENDS.items():
        for field, (reason, fix) in backend.refuses.items():
            assert f"| `{field}` | `{name}` | {reason} | {fix} |" in TEXT


def test_the_config_map_of_a_script_has_the_name_that_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", str(ROOT / "jobs/linear.yml"), "-o", "yaml"]) == 0
    names = set(re.findall(r"linear-script-[0-9a-f]+", capsys.readouterr().out))
    assert names == set(re.findall(r"linear-script-[0-9a-f]+", TEXT)) != set()
