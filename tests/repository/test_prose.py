"""Pages are plain English: short sentences, and none of the expressions that readers stumble over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.write_docs_tables import BEGIN, END

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
LONGEST = 35  # words of a sentence
# Expression, and what to write instead. Quoted and code text is not looked at.
DIALECT = {
    r"(?<!there )\b(?:is|are) no (?!longer\b|more than\b)": "is not a …, are not …",
    r"\bof (?:upstream|Volcano|Kubernetes|the (?:trainer|cluster|platform|operator))'s(?=[.,;:)]| (?:is|are)\b)":
        "upstream's …",
    r"\b(?:told|tells)\b": "reports, explains, names",
    r"\bmend(?:s|ed)?\b": "fix",
    r"\bcures?\b": "fix",
    r"\banew\b": "again",
    r"\bfor ever\b": "forever",
    r"\b(?:go|goes|going|gone|went) on\b": "continue, resume",
    r"\bkilled run\b": "interrupted run",
    r"\bfor who\b|\bwhoever\b|\bsomebody\b|\ba person\b|\bstrangers?'?s?\b": "people who, you, third-party",
    r"\bwhere there (?:is|are) n|\bwhat there is\b|\bthat (?:is|are) there\b": "if missing, existing",
    r"\bha(?:s|ve) not (?:a|an|any|the|got)\b|\bmay not be there\b": "does not have, may be missing",
    r"\blet (?:it|them) go\b": "delete",
    r"\bfrom [^.;,]{1,40} over [^.;,]{1,40} to\b": "from … through … to",
    r"\bread differently than\b": "note the corrections",
    r"\bseeds?\b(?!`)(?= (?:of|run|are|say)\b)|\b(?:circulating|five) documents\b": "the guides",
    r"\bin place of\b": "instead of",
    r"\bstands? in an?\b|\bfor one\.": "is in; for example",
}  # fmt: skip


def text_of(page: Path) -> str:
    """A page without code and without what is generated from the code."""
    text = re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)


def sentences(text: str) -> list[str]:
    """The sentences of a page: tables are left out, and a list item stands alone."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or line.startswith(("|", "#", "- ")) or re.match(r"\d+\. ", line):
            blocks.append([])
        if not line.startswith("|"):
            blocks[-1].append(line.strip())
    plain = [" ".join(block).removeprefix("- ").lstrip("#").strip() for block in blocks]
    plain = [re.sub(r"`([^`]*)`", lambda code: f"`{code[1].replace(' ', '_')}`", block) for block in plain]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block) for block in plain]
    ends = re.compile(r"(?<=[.!?])\s+(?=[\"'(`A-Z0-9_./-])")
    return [sentence for block in plain for sentence in ends.split(block) if sentence]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_too_long(page: Path) -> None:
    counted = [(len(sentence.split()), sentence) for sentence in sentences(text_of(page))]
    assert [f"{words} words: {sentence}" for words, sentence in counted if words > LONGEST] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_none_of_the_expressions(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "`code`", text_of(page))
    text = re.sub(r"(?<!\n)\n(?![\n|#-])", " ", text)
    hits = [
        f"{match[0]!r} in: {text[max(match.start() - 50, 0) : match.end() + 30]!r}; write: {instead}"
        for expression, instead in DIALECT.items()
        for match in re.finditer(expression, text, re.IGNORECASE)
    ]
    assert hits == []


def test_sentences_are_those_of_paragraphs_and_of_list_items() -> None:
    text = "# Head\n\nOne `a.b c` two. Three\n[four](x.md).\n\n- five\n  six\n- seven\n\n| a | b |"
    assert sentences(text) == ["Head", "One `a.b_c` two.", "Three four.", "five six", "seven"]


@pytest.mark.parametrize("phrase", [
    "the operator is no Deployment", "a script of Volcano's, too", "the cause is told", "it mends them", "the cure",
    "made anew", "waits for ever", "it goes on from there", "what a killed run left", "for who has only Helm",
    "the namespace that is there", "it has not a queue", "from a over b to c", "the five documents",
])  # fmt: skip
def test_an_expression_is_noticed(phrase: str) -> None:
    assert any(re.search(expression, phrase, re.IGNORECASE) for expression in DIALECT)


@pytest.mark.parametrize("phrase", [
    "there is no queue", "it is no longer used", "has not finished", "the name of Volcano's queue", "find out whether",
])
def test_plain_english_is_let_through(phrase: str) -> None:
    assert not any(re.search(expression, phrase, re.IGNORECASE) for expression in DIALECT)
