"""Count what the layout promises, a column for each checkout: `python -m tools.count_house [FOLDER ...]`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from gangplank.text import table
from tools import prose

BACKENDS = re.compile(r"\b(volcano|pytorchjob|trainjob|indexed)\b", re.IGNORECASE)
CLIENT = re.compile(r"^\s*(?:from|import) (?:kubernetes\b|gangplank\.(?:cluster\.client|kube)\b)", re.MULTILINE)
LOOP = re.compile(r"time\.sleep\(|Event\(\)\.wait\(")
VAGUE_NAMES = {"found", "given", "made", "known", "told"}
EXAMPLES = "tests/repository/test_prose.py"  # the phrases in it are there to be noticed
TALKING = ("cluster/", "shadow/", "teams/", "cli/")  # rooms that may hold a client


def code(path: Path) -> str:
    """A module without its comments and docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def vague_names(path: Path) -> int:
    """How many places bind or read a variable that is named for how it came about."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    names += [node.arg for node in nodes if isinstance(node, ast.arg)]
    return sum(name in VAGUE_NAMES for name in names)


def hits(root: Path) -> int:
    """How many expressions that readers stumble over there are, in tests and comments too."""
    pieces = [piece for kind in prose.pieces(root).values() for piece in kind]
    return sum(len(prose.dialect(piece)) for piece in pieces if not piece.place.startswith(EXAMPLES))


def long_sentences(root: Path) -> int:
    """How many sentences of pages, messages, titles and comments have too many words."""
    return sum(len(prose.too_long(piece)) for kind in prose.pieces(root).values() for piece in kind)


def contracts(root: Path) -> str:
    """What import-linter says of the layers."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    path = {"PYTHONPATH": str(root), "PATH": "", "COLUMNS": "200"}
    done = subprocess.run(command, cwd=root, env=path, capture_output=True, text=True, check=False)
    kept = re.search(r"Contracts: (\d+) kept, (\d+) broken", done.stdout)
    return f"{kept[1]} kept, {kept[2]} broken" if kept else "no contract"


def command_works(root: Path) -> str:
    """Whether the command is there after `make setup`."""
    command = root / ".venv/bin/gangplank"
    if not command.exists():
        return "no"
    done = subprocess.run([command, "--version"], capture_output=True, check=False)
    return "no" if done.returncode else "yes"


def measures(root: Path) -> dict[str, tuple[str, int | str]]:
    """The goal and the count of each measure."""
    names = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [root / name for name in names.split() if (root / name).is_file()]
    package = [path for path in files if path.is_relative_to(root / "gangplank")]
    inside = {path: str(path.relative_to(root / "gangplank")) for path in package}
    lab = [path for path in files if path.is_relative_to(root / "lab")]
    plugins = [path for path in files if path.is_relative_to(root / "plugins")]
    actions = {path.stem for path in plugins if path.parent.name == "action"}
    pages = {path.stem for path in plugins if path.parent.name == "modules"}
    top = {Path(name).parts[0] for name in inside.values()}
    return {
        "entries at the top of gangplank/": ("13", len(top)),
        "modules that name a back-end, outside backends/": ("0", sum(
            bool(BACKENDS.search(code(path))) for path in package if not inside[path].startswith("backends/")
        )),
        "layers, as import-linter sees them": ("all kept", contracts(root)),
        "modules with a cluster client outside cluster/ teams/ cli/": ("0", sum(
            bool(CLIENT.search(path.read_text())) for path in package if not inside[path].startswith(TALKING)
        )),
        "modules of gangplank/ that wait by hand": ("1", sum(bool(LOOP.search(code(path))) for path in package)),
        "modules of lab/ that wait by hand": ("1", sum(bool(LOOP.search(code(path))) for path in lab)),
        "variables named `found`, `given`, `made`, `known`, `told`": (
            "under 100", sum(vague_names(root / name) for name in prose.modules(root))
        ),
        "sentences over 35 words": ("0", long_sentences(root)),
        "expressions that readers stumble over, tests included": ("under 50", hits(root)),
        "plugins with sys.path.insert": ("0", sum("sys.path.insert" in path.read_text() for path in plugins)),
        "actions without a page for ansible-doc": ("0", f"{len(actions - pages)} of {len(actions)}"),
        "`gangplank` works after `make setup`": ("yes", command_works(root)),
    }  # fmt: skip


def main(folders: list[str]) -> None:
    """Print them, a column for each checkout."""
    roots = [Path(folder).resolve() for folder in folders or ["."]]
    columns = [measures(root) for root in roots]
    rows = [["measure", "goal", *(root.name for root in roots)]]
    rows += [[name, goal, *(str(column[name][1]) for column in columns)] for name, (goal, _) in columns[0].items()]
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
