"""The README names only what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cli.main import main

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z][a-z-]+)", README)) - {"sure"}
    assert {"train", "test", "down", "clean", "lab-load", "bench-lab"} <= named <= targets


def test_every_link_and_path_it_names_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    paths = re.findall(r"`((?:playbooks|roles|lab|gangplank|trainer|jobs|charts|docs|inventories)/[\w./-]+)`", README)
    assert len(links) > 5
    assert [path for path in [*links, *paths] if not (ROOT / path).exists()] == []


def test_its_tables_name_every_playbook_role_and_chart() -> None:
    there = [f"playbooks/{path.name}" for path in (ROOT / "playbooks").glob("*.yml")]
    there += [f"roles/{path.parent.parent.name}/" for path in (ROOT / "roles").glob("*/tasks/main.yml")]
    there += [f"charts/{path.parent.name}/" for path in (ROOT / "charts").glob("*/Chart.yaml")]
    assert [name for name in there if name not in README] == []


def test_its_table_of_a_job_is_what_expand_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", str(ROOT / "jobs/digits.yml")]) == 0
    assert capsys.readouterr().out.rstrip() in README
