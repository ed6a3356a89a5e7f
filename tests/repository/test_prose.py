"""Pages, messages, titles and comments are plain English: short sentences, no expression that readers stumble over."""

from __future__ import annotations

import doctest
import functools
import re
from pathlib import Path

import pytest

from tools import prose
from tools.count_house import EXAMPLES, VAGUE_NAMES, vague_names

ROOT = Path(__file__).resolve().parents[2]
pieces = functools.cache(prose.pieces)  # when a test runs: to read all of them takes longer than to collect all tests
READ = ("pages", "Python", "YAML", "charts")  # what users read
INSIDE = ("comments", "tests")  # what only contributors read


@pytest.mark.parametrize("kind", [*READ, *INSIDE])
def test_no_sentence_is_too_long(kind: str) -> None:
    assert pieces(ROOT)[kind]
    assert [line for piece in pieces(ROOT)[kind] for line in prose.too_long(piece)] == []


@pytest.mark.parametrize("kind", READ)
def test_what_users_read_has_none_of_the_expressions(kind: str) -> None:
    assert [line for piece in pieces(ROOT)[kind] for line in prose.dialect(piece)] == []


def test_what_contributors_read_has_few_of_the_expressions() -> None:
    texts = [piece for kind in INSIDE for piece in pieces(ROOT)[kind] if not piece.place.startswith(EXAMPLES)]
    hits = [line for piece in texts for line in prose.dialect(piece)]
    assert len(hits) < 50, "\n".join(hits)


def test_few_variables_are_named_for_how_they_came_about() -> None:
    """`found` says "a variable"; `missing_claims` says which."""
    assert len(VAGUE_NAMES) == 5
    counts = {path: count for path in prose.modules(ROOT) if (count := vague_names(ROOT / path))}
    assert sum(counts.values()) < 100, counts


@pytest.mark.parametrize("phrase", [
    "the operator is no Deployment", "a script of Volcano's, too", "the cause is told", "it mends them", "the cure",
    "made anew", "waits for ever", "it goes on from there", "what a killed run left", "for who has only Helm",
    "the namespace that is there", "it has not a queue", "from a over b to c", "the five documents",
    "the job is there already", "what is there", "by Volcano's own",
])  # fmt: skip
def test_an_expression_is_noticed(phrase: str) -> None:
    assert prose.dialect(prose.Text("here", phrase)) != []


@pytest.mark.parametrize("phrase", [
    "there is no queue", "it is no longer used", "has not finished", "the name of Volcano's queue", "find out whether",
    "`is no` in code",
])  # fmt: skip
def test_plain_english_is_let_through(phrase: str) -> None:
    assert prose.dialect(prose.Text("here", phrase)) == []


def test_sentences_are_those_of_paragraphs_list_items_and_cells() -> None:
    text = "# Head\n\nOne `a.b c` two. Three\n[four](x.md).\n\n- five\n  six\n- seven\n\n| a | b |"
    assert prose.sentences(text) == ["Head", "One `a.b_c` two.", "Three four.", "five six", "seven", "a", "b"]


def test_every_reader_sees_its_long_sentence() -> None:
    long = "one two three four five six seven " * 6
    read = [
        prose.of_page("a.md", f"# Head\n\n{long}\n"),
        prose.of_python("a.py", f'raise Error("x", "{long}" f"{{x}}")\n'),
        prose.of_python("a.py", f'def made():\n    """Short.\n\n    {long}\n    """\n'),
        prose.of_python("plugins/modules/a.py", f'DOCUMENTATION = """\nmodule: a\ndescription:\n  - {long}\n"""\n'),
        prose.of_comments("a.py", "# " + long.replace(" six", "\n# six").strip() + "\n"),
        prose.of_yaml("a.yml", f"- name: {long}\n  ansible.builtin.fail: {{}}\n"),
        prose.of_yaml("a.yml", f"- block:\n    - ansible.builtin.assert:\n        fail_msg: '{{{{ a }}}} {long}'\n"),
        prose.of_chart("a.tpl", f'{{{{- fail (printf "{long}" .) }}}}'),
    ]
    assert [len([line for piece in pieces for line in prose.too_long(piece)]) for pieces in read] == [1] * len(read)


def test_code_and_generated_text_are_not_prose() -> None:
    long = "word " * 40
    text = f"```sh\n{long}\n```\n\n    {long}\n<!-- begin: a command -->\n{long}\n<!-- end -->\n"
    assert prose.of_page("a.md", text)[0].text.split() == []
    assert prose.of_yaml("a.yml", f"- ansible.builtin.command: {long}\n") == []
    (docstring,) = prose.of_python("a.py", '"""Made.\n\n>>> made()\n\'it is no flag\'\n"""\n')
    assert docstring.text.split() == ["Made."]
    assert prose.of_python("a.py", f'NAMES = "{long}".split()\n') == []
    assert re.search(r"\bX\b", prose.of_python("a.py", 'f"got {a}, expected more"')[0].text)


def test_its_doctests_hold() -> None:
    assert doctest.testmod(prose).failed == 0
