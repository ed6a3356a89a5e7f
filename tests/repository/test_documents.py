"""docs/documents.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/documents.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:tests|molecule)/[^`]*)`", TEXT)))


def test_each_line_that_is_shown_names_its_test() -> None:
    table = TEXT.partition("## Shown")[2].partition("## Not shown")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 15
    assert [row for row in rows if not re.search(r"\| `(tests|molecule)/", row)] == []


def test_each_row_of_the_corpus_that_is_named_exists() -> None:
    rows = re.findall(r"`tests/cluster/test_script_corpus\.py`(?:, row `(.*?)`)?", TEXT)
    assert len(rows) > 3
    assert set(rows) <= yaml.safe_load((ROOT / "tests/scripts/corpus.yml").read_text()).keys()


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_exists(name: str) -> None:
    path, _, test = name.partition("::")
    assert (ROOT / path).exists()
    assert not test or f"def {test}(" in (ROOT / path).read_text()
