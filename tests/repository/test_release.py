"""The version has one owner, and every release a dated section in the changelog, made from fragments."""

from __future__ import annotations

import datetime as dt
import doctest
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gangplank import __version__
from tests.support.checkout import copy_checkout, git
from tools import release

ROOT = Path(__file__).resolve().parents[2]
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
TYPES = [kind["directory"] for kind in TOWNCRIER["type"]]
FRAGMENTS = sorted(path for path in (ROOT / release.FRAGMENTS).iterdir() if path.name != "README.md")
HEADING = re.compile(r"^## (\S+) \((\d{4}-\d\d-\d\d)\)$", re.MULTILINE)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with one fragment."""
    folder = copy_checkout(tmp_path_factory.mktemp("release") / "checkout")
    (folder / "changes/+a-test.added.md").write_text("A line that only this test has.\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a fragment")
    return folder


def fragment_problems(name: str, text: str) -> list[str]:
    rules = {
        f"its name is +WORDS.TYPE.md, with a type of {', '.join(TYPES)}":
            re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(TYPES)})\.md", name),
        "it begins like a sentence and ends with a full stop": re.fullmatch(r"[A-Z`].*\.\n", text, re.DOTALL),
        "it is one paragraph": "\n\n" not in text,
        "the dash and the heading of its type are added later":
            not re.search(r"^(?:[-*#|] |Fixed: )", text, re.MULTILINE),
    }  # fmt: skip
    return [rule for rule, held in rules.items() if not held]


def make_release(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.release", version]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)


def test_every_place_names_the_version_of_the_library() -> None:
    assert release.stale(ROOT, __version__) == []


@pytest.mark.parametrize(("pattern", "before"), release.PLACES)
def test_every_kind_of_place_exists(pattern: str, before: str) -> None:
    texts = [path.read_bytes().decode(errors="replace") for path in release.files(ROOT, pattern)]
    assert any(re.search(before + release.NUMBER, text, re.MULTILINE) for text in texts)


@pytest.mark.parametrize("version", ["", "1", "v1.2.3", "1.2.3rc1", __version__, "0.0.9"])
def test_refuses_a_version_that_is_not_a_later_one(checkout: Path, version: str) -> None:
    done = make_release(checkout, version)
    assert done.returncode == 1
    assert done.stderr.startswith(f"VERSION: got {version}, expected ")
    assert git(checkout, "status", "--porcelain") == ""


def test_a_release_sets_every_place_and_builds_a_dated_changelog(checkout: Path) -> None:
    before = len(HEADING.findall((checkout / "CHANGELOG.md").read_text()))
    done = make_release(checkout, "98.7.6")
    assert done.returncode == 0, done.stderr
    assert release.stale(checkout, "98.7.6") == []
    assert len(release.stale(checkout, "98.7.7")) == len(release.stale(ROOT, "98.7.7")) > 20
    sections = HEADING.findall((checkout / "CHANGELOG.md").read_text())
    assert sections[0][0] == "98.7.6"
    assert abs(dt.date.fromisoformat(sections[0][1]) - dt.datetime.now(dt.UTC).date()).days <= 1
    assert len(sections) == before + 1
    assert "- A line that only this test has." in (checkout / "CHANGELOG.md").read_text()
    assert [path.name for path in (checkout / "changes").iterdir()] == ["README.md"]
    assert make_release(checkout, "98.7.7").stderr.startswith("git status: got ")
    git(checkout, "commit", "--quiet", "--all", "--message", "release")
    assert make_release(checkout, "98.7.7").stderr.startswith("changes: got no fragment, ")


def test_the_changelog_is_dated_newest_first_and_has_nothing_unreleased() -> None:
    """New lines go to changes/, see changes/README.md."""
    text = (ROOT / "CHANGELOG.md").read_text()
    sections = HEADING.findall(text)
    assert [heading for heading in re.findall(r"^## .*$", text, re.MULTILINE) if not HEADING.match(heading)] == []
    assert sections[0][0] == __version__
    assert [release.key(version) for version, _ in sections] == sorted(
        (release.key(version) for version, _ in sections), reverse=True
    )
    assert TOWNCRIER["start_string"] in text


def test_every_fragment_is_of_a_known_type_and_one_paragraph() -> None:
    problems = {path.name: fragment_problems(path.name, path.read_text()) for path in FRAGMENTS}
    assert {name: rules for name, rules in problems.items() if rules} == {}


@pytest.mark.parametrize(("name", "text"), [
    ("+a-word.novel.md", "A line.\n"), ("a-word.added.md", "A line.\n"), ("+a-word.added.txt", "A line.\n"),
    ("+a-word.added.md", "- A line.\n"), ("+a-word.added.md", "A line\n"), ("+a-word.added.md", "One.\n\nTwo.\n"),
    ("+a-word.fixed.md", "Fixed: a line.\n"), ("+a-word.added.md", ""),
])  # fmt: skip
def test_a_fragment_of_another_form_is_noticed(name: str, text: str) -> None:
    assert fragment_problems(name, text)
    assert not fragment_problems("+a-word.added.md", "`make house` counts.\n")


def test_its_doctests_hold() -> None:
    assert doctest.testmod(release).failed == 0
