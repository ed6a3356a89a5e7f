"""README and docs name only what exists: every command parses, every target, file and link exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from gangplank.cli import main, split
from gangplank.cli.parser import command_line

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [*sorted(set(ROOT.glob("*.md")) - {ROOT / "CHANGELOG.md"}), *sorted(ROOT.glob("docs/**/*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
FOLDERS = "playbooks|roles|lab|gangplank|trainer|jobs|charts|docs|inventories|molecule|tests|tools|plugins|bench"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# They stand for the reader's own, or are in dist/.
MADE_UP = {"inventories/yours", "inventories/<site>", "inventories/<site>/teams", "charts/training-job-*.tgz"}


def code(page: Path) -> list[str]:
    """The command lines of a page: lines of code blocks without prompt and comment, and inline code."""
    text = page.read_text()
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    lines += re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    lines = [re.sub(r"\s+#.*$", "", line.removeprefix("$ ")) for line in lines]
    return [part.strip() for line in lines for part in re.split(r"&&|\|(?!\|)", line)]


def commands(page: Path, program: str) -> list[list[str]]:
    """The arguments of each call of a program that a page prints."""
    calls = [shlex.split(line) for line in code(page) if re.match(rf"(\.venv/bin/)?{re.escape(program)} ", line)]
    return [words[1:] for words in calls if "…" not in words]


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@each_page
def test_every_make_target_exists(page: Path) -> None:
    named = {word for words in commands(page, "make") for word in words if re.fullmatch(r"[a-z-]+", word)}
    assert named <= TARGETS


@each_page
def test_every_call_of_gangplank_parses(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [words for words in commands(page, "gangplank") if words[0] not in {"--help", "--version"}]
    refused = []
    for words in calls:
        names = words[:2] if words[0] == "team" else words[:1]
        call = [*names, "--help"] if words == names else words  # a command's name alone, as text has it
        try:
            command_line().parse_args(split(call)[0])
        except SystemExit as end:
            if end.code:
                refused.append((words, capsys.readouterr().err.splitlines()[-1]))
    assert refused == []


@each_page
def test_every_playbook_inventory_and_job_of_a_command_exists(page: Path) -> None:
    words = [word for program in ("ansible-playbook", "gangplank", "make", "cp", "helm")
             for call in commands(page, program) for word in call]  # fmt: skip
    files = {word.removeprefix("@").partition("=")[2] or word.removeprefix("@") for word in words}
    paths = {file for file in files if re.match(rf"(?:{FOLDERS})/", file)} - MADE_UP
    assert {path for path in paths if not (ROOT / path).exists()} == set()


@each_page
def test_every_test_that_a_command_runs_exists(page: Path) -> None:
    words = [word for call in commands(page, "pytest") for word in call]
    assert {word for word in words if word.startswith("tests/") and not (ROOT / word).exists()} == set()


@each_page
def test_every_module_that_a_command_runs_exists(page: Path) -> None:
    modules = {call[1] for call in commands(page, "python") if call[0] == "-m"}
    files = [(name, ROOT / name.replace(".", "/")) for name in modules]
    assert {name for name, file in files if not (file.with_suffix(".py").exists() or file.is_dir())} == set()


@each_page
def test_every_file_it_names_exists(page: Path) -> None:
    assert {path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()} - MADE_UP == set()


@each_page
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text()):
        if re.match(r"https?:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_a_command_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nmake nonsense  # no\n$ gangplank expnd a.yml\n```\nand `make other`, [gone](gone.md)\n")
    with pytest.raises(AssertionError):
        test_every_make_target_exists(page)
    with pytest.raises(AssertionError):
        test_every_relative_link_resolves(page)
    assert commands(page, "gangplank") == [["expnd", "a.yml"]]


def test_the_readme_names_the_first_commands() -> None:
    named = {word for words in commands(ROOT / "README.md", "make") for word in words}
    assert {"train", "test", "down", "setup"} <= named


def test_the_tables_name_every_playbook_role_and_chart() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    names = [f"playbooks/{path.name}" for path in (ROOT / "playbooks").glob("*.yml")]
    names += [f"roles/{path.parent.parent.name}/" for path in (ROOT / "roles").glob("*/tasks/main.yml")]
    names += [f"charts/{path.parent.name}/" for path in (ROOT / "charts").glob("*/Chart.yaml")]
    assert [name for name in names if name not in text] == []


def test_every_room_of_the_library_has_a_row() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    rooms = [f"`{path.parent.name}/`" for path in (ROOT / "gangplank").glob("*/__init__.py")]
    assert [room for room in rooms if f"| {room} |" not in text] == []


def test_every_module_of_the_picture_exists() -> None:
    picture = (ROOT / "docs/architecture.md").read_text().split("```mermaid")[1].split("```")[0]
    modules = re.findall(r"\w+/[…\w]*/?\w+\.py", picture)
    assert len(modules) > 5
    assert [name for name in modules if not list((ROOT / "gangplank").glob(name.replace("…", "*")))] == []


def test_every_page_of_docs_can_be_reached() -> None:
    reached, new = set(), {ROOT / "README.md"}
    while new:
        page = new.pop()
        reached.add(page)
        links = {(page.parent / link.partition("#")[0]).resolve() for link in LINK.findall(page.read_text())}
        new |= {link for link in links if link in PAGES} - reached
    assert set(PAGES) - reached == set()


def test_its_table_of_a_job_is_what_expand_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", str(ROOT / "jobs/digits.yml")]) == 0
    assert capsys.readouterr().out.rstrip() in README
