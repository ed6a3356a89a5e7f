"""What people read in this project, and the wording to avoid; for tests/repository/test_prose.py and count_house.py."""

from __future__ import annotations

import ast
import inspect
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
    r"\bwhere there (?:is|are) n|\bwhat (?:there is|is there)\b|\bthat (?:is|are) there\b": "if missing, existing",
    r"\b(?:is|are) there already\b": "already exists",
    r"\bha(?:s|ve) not (?:a|an|any|the|got)\b|\bmay not be there\b": "does not have, may be missing",
    r"\blet (?:it|them) go\b": "delete",
    r"\bfrom [^.;,]{1,40} over [^.;,]{1,40} to\b": "from … through … to",
    r"\bread differently than\b": "note the corrections",
    r"\bseeds?\b(?!`)(?= (?:of|run|are|say)\b)|\b(?:circulating|five) documents\b": "the guides",
    r"\bin place of\b": "instead of",
    r"\bby \w+'s own\b": "by the … of …",
    r"\bstands? in an?\b|\bfor one\.": "is in; for example",
}  # fmt: skip
CODE = re.compile(r"`[^`\n]*`")
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n)+")  # code, in Markdown and in docstrings
DOCTEST = re.compile(r"^ *>>> .*(?:\n *\S.*)*", re.MULTILINE)
# Of plays and tasks, and of the documentation of roles and plugins.
PROSE_KEYS = {"name", "msg", "fail_msg", "success_msg", "description", "short_description", "notes"}


@dataclass(frozen=True)
class Text:
    """A piece of prose and where it is."""

    place: str
    text: str


def sentences(text: str) -> list[str]:
    r"""The sentences of a page or a message; a list item and a cell of a table stand alone.

    >>> sentences("One `a b` two. Three\n[four](x.md).\n\n- five\n  six")
    ['One `a_b` two.', 'Three four.', 'five six']
    """
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if not line.strip() or re.match(r"[|#]| *(?:-|\d+\.) ", line):
            blocks.append([])
        if line.startswith("|"):
            blocks += [[cell.strip()] for cell in line.split("|") if cell.strip(" -")] + [[]]
        else:
            blocks[-1].append(line.strip())
    plain = [" ".join(block).removeprefix("- ").lstrip("#").strip() for block in blocks]
    plain = [CODE.sub(lambda code: code[0].replace(" ", "_"), block) for block in plain]
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block) for block in plain]
    ends = re.compile(r"(?<=[.!?])\s+(?=[\"'(`A-Z0-9_./-])")
    return [sentence for block in plain for sentence in ends.split(block) if sentence]


def too_long(piece: Text) -> list[str]:
    """Its sentences that have too many words."""
    counts = [(len(sentence.split()), sentence) for sentence in sentences(piece.text)]
    return [f"{piece.place}: {words} words: {sentence}" for words, sentence in counts if words > LONGEST]


def dialect(piece: Text) -> list[str]:
    """Its expressions that readers stumble over, each with its place and what to write.

    >>> dialect(Text("a.md", "It is made anew, `anew`."))
    ["a.md: 'anew' in: 'It is made anew, `code`.'; write: again"]
    """
    text = re.sub(r"(?<!\n)\n(?![\n|#-])", " ", CODE.sub("`code`", piece.text))
    return [
        f"{piece.place}: {match[0]!r} in: {text[max(match.start() - 50, 0) : match.end() + 30]!r}; write: {instead}"
        for expression, instead in DIALECT.items()
        for match in re.finditer(expression, text, re.IGNORECASE)
    ]


def of_page(place: str, text: str) -> list[Text]:
    """A Markdown page without code and without what is generated from the code."""
    text = re.sub(r"<!-- begin: .*?<!-- end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [Text(place, INDENTED.sub("", text))]


def prose_of(node: Any, key: str = "") -> Iterator[str]:
    """The values of a YAML document that are titles, messages and descriptions."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from prose_of(value, str(name))
    elif isinstance(node, list):
        for value in node:
            yield from prose_of(value, key)
    elif isinstance(node, str) and key in PROSE_KEYS and " " in node:  # one word is the name of an object
        yield node


def of_yaml(place: str, text: str) -> list[Text]:
    """What people read of YAML; a Jinja expression counts as one word."""
    documents = yaml.load_all(text, Loader=yaml.BaseLoader)  # which makes nothing but strings
    found = [piece for document in documents for piece in prose_of(document)]
    return [Text(place, re.sub(r"\{[{%].*?[}%]\}", "X", piece, flags=re.DOTALL)) for piece in found]


def of_python(place: str, text: str) -> list[Text]:
    """Docstrings, comments, and strings of three words and more; what an f-string fills in counts as one word."""
    pieces = []
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {
        id(node.body[0].value)
        for node in nodes
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node)
        if isinstance(node.body[0], ast.Expr)
    }
    skipped = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    skipped |= {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "split"}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            value = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            value = node.value
        else:
            continue
        where = f"{place}:{node.lineno}"
        if re.match(r"(---)?\s*(\w+: |\w+:\n)", value) and place.startswith("plugins/modules/"):
            pieces += of_yaml(where, value)
        elif id(node) in docstrings:
            pieces.append(Text(where, INDENTED.sub("", DOCTEST.sub("", inspect.cleandoc(value) + "\n"))))
        else:  # text of several lines is a script, a template or a table
            pieces += [Text(where, line.strip()) for line in value.splitlines() if len(line.split()) > 2]
    return pieces


def of_comments(place: str, text: str) -> list[Text]:
    """The comments of a module; those that fill neighbouring lines are one piece."""
    pieces: list[Text] = []
    next_line = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words, alone = token.string.lstrip("# "), token.line.lstrip().startswith("#")
            if alone and token.start[0] == next_line:
                pieces[-1] = Text(pieces[-1].place, f"{pieces[-1].text} {words}")
            else:
                pieces.append(Text(f"{place}:{token.start[0]}", words))
            next_line = token.start[0] + 1 if alone else 0
    return pieces


def of_chart(place: str, text: str) -> list[Text]:
    """What a chart's template says when it refuses its values."""
    quoted = [match[1] for match in re.finditer(r'fail (?:\(printf )?"((?:[^"\\]|\\.)*)"', text)]
    return [Text(place, re.sub(r"%[a-z]", "X", piece)) for piece in quoted]


def of_files(root: Path, read: Callable[[str, str], list[Text]], *patterns: str) -> list[Text]:
    """What one reader takes from all files of these patterns."""
    paths = sorted({path for pattern in patterns for path in root.glob(pattern)})
    return [piece for path in paths for piece in read(str(path.relative_to(root)), path.read_text())]


def modules(root: Path) -> list[str]:
    """The modules of the library, the lab, the plugins and the trainer."""
    paths = [path for room in ("gangplank", "lab", "plugins", "trainer") for path in root.glob(f"{room}/**/*.py")]
    return sorted(str(path.relative_to(root)) for path in paths)


def pieces(root: Path) -> dict[str, list[Text]]:
    """All that people read, by kind."""
    rooms = [f"{room}/**/*.py" for room in ("gangplank", "lab", "plugins", "trainer", "tools")]
    roles = [f"{room}/**/*.yml" for room in ("roles", "playbooks", "plugins", "molecule")]
    names = ("README", "CONTRIBUTING", "RELEASING", "SECURITY", "CHANGELOG", "docs/**/*", "changes/*")
    return {
        "pages": of_files(root, of_page, *(f"{name}.md" for name in names)),
        "Python": of_files(root, of_python, *rooms),
        "comments": of_files(root, of_comments, *rooms),
        "YAML": of_files(root, of_yaml, *roles),
        "charts": of_files(root, of_chart, *(f"charts/*/templates/**/*.{kind}" for kind in ("tpl", "yaml", "txt"))),
        "tests": [*of_files(root, of_python, "tests/**/*.py"), *of_files(root, of_comments, "tests/**/*.py")],
    }
