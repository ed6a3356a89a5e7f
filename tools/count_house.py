"""Count what the layout promises, of this checkout or another: `python -m tools.count_house [FOLDER]`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from tools import prose

BACKENDS = re.compile(r"\b(volcano|pytorchjob|trainjob|indexed)\b", re.IGNORECASE)
CLIENT = re.compile(r"^\s*(?:from|import) (?:kubernetes\b|gangplank\.(?:cluster\.client|kube)\b)", re.MULTILINE)
LOOP = re.compile(r"time\.sleep\(|Event\(\)\.wait\(")
VAGUE_NAMES = {"found", "given", "made", "known", "told"}
TALKING = ("cluster/", "teams/", "cli/")  # rooms that may hold a client


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


def counts(root: Path) -> dict[str, int]:
    """The measures, by name."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [root / name for name in listed.split() if (root / name).is_file()]
    package = [path for path in files if path.is_relative_to(root / "gangplank")]
    inside = {path: str(path.relative_to(root / "gangplank")) for path in package}
    lab = [path for path in files if path.is_relative_to(root / "lab")]
    plugins = [path for path in files if path.is_relative_to(root / "plugins")]
    actions = [path for path in plugins if path.parent.name == "action"]
    pages = [path for path in plugins if path.parent.name == "modules"]
    top = {Path(name).parts[0] for name in inside.values()}
    return {
        "entries at the top of gangplank/": len(top),
        "modules that name a back-end, outside backends/": sum(
            bool(BACKENDS.search(code(path))) for path in package if not inside[path].startswith("backends/")
        ),
        "modules with a cluster client outside cluster/ teams/ cli/": sum(
            bool(CLIENT.search(path.read_text())) for path in package if not inside[path].startswith(TALKING)
        ),
        "modules of gangplank/ that wait by hand": sum(bool(LOOP.search(code(path))) for path in package),
        "modules of lab/ that wait by hand": sum(bool(LOOP.search(code(path))) for path in lab),
        "variables named found, given, made, known, told": sum(vague_names(root / one) for one in prose.modules(root)),
        "plugins with sys.path.insert": sum("sys.path.insert" in path.read_text() for path in plugins),
        "actions": len(actions),
        "actions with a page for ansible-doc": len({path.name for path in actions} & {path.name for path in pages}),
    }


def main() -> None:
    """Print them."""
    for name, count in counts(Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()).items():
        print(f"{count:5}  {name}")


if __name__ == "__main__":
    main()
