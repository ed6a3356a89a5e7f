"""What `ansible-test sanity` may not complain about has a reason, and is in the collection."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(ROOT.glob("tests/sanity/ignore-*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_line_names_a_file_and_has_a_reason(path: Path) -> None:
    for line in path.read_text().splitlines():
        entry, _, reason = line.partition(" # ")
        assert (ROOT / entry.split()[0]).is_file(), line
        assert reason, line


def test_every_version_of_ansible_has_the_same_lines() -> None:
    assert len({path.read_text() for path in FILES}) == 1


def test_every_module_of_the_collection_has_a_line() -> None:
    """The lab's modules are not in it."""
    named = {line.split()[0] for line in FILES[0].read_text().splitlines()}
    paths = [path for path in ROOT.glob("plugins/modules/[a-z]*.py") if not path.name.startswith("lab_")]
    assert {str(path.relative_to(ROOT)) for path in paths} <= named
