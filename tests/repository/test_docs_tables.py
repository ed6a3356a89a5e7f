"""The generated parts of docs/ are up to date, and every command has a section with an example that parses."""

from __future__ import annotations

import doctest
import shlex

import pytest

from gangplank.cli import split
from gangplank.cli.parser import command_line
from gangplank.proof.claims import CLAIMS
from tools import write_docs_tables as tables


@pytest.mark.parametrize("name", tables.PAGES)
def test_a_page_is_what_make_docs_writes(name: str) -> None:
    assert (tables.ROOT / name).read_text() == tables.page(name, tables.PAGES[name]), "Fix: make docs"


def test_a_stale_page_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(tables.PAGES, "docs/commands.md", lambda: "other")
    assert tables.main([]) == 1
    assert capsys.readouterr().out == "stale: docs/commands.md\n"


def test_a_page_without_a_place_for_the_generated_part_is_refused() -> None:
    with pytest.raises(ValueError, match=r"README\.md: expected the lines"):
        tables.page("README.md", str)


def test_every_example_parses_and_every_command_has_one() -> None:
    for line in tables.EXAMPLES:
        command_line().parse_args(split(shlex.split(line)[1:])[0])
    words = [words for words, _, _ in tables.commands(command_line())]
    assert [name for name in words if not any(line.startswith(f"{name} ") for line in tables.EXAMPLES)] == []


def test_every_claim_of_the_proof_has_a_row_with_what_it_shows_and_fails_for() -> None:
    lines = (tables.ROOT / "docs/proof.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert [name for name in CLAIMS if [row[0] for row in rows].count(name) != 1] == []
    assert [row for row in rows if row[0] in CLAIMS and not all(row)] == []


def test_its_doctests_hold() -> None:
    assert doctest.testmod(tables).failed == 0
