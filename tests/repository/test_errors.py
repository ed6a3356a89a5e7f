"""The library's errors have one shape: what is raised is a Problem or an answer of the cluster, not a sentence."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RAISED = {"GangplankError", "KubeError", "Unreadable", "UsageError", "complain"}


def words(node: ast.AST) -> list[str]:
    """The literal words of a text."""
    parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return " ".join(parts).split()


def sentences(text: str) -> list[str]:
    """What a module passes to an error as text of its own; "waited 3 s; " before an error is not yet a sentence.

    >>> sentences('raise KubeError(f"no job {name} here; submit it")')
    ["f'no job {name} here; submit it'"]
    """
    return [
        ast.unparse(call.args[0])
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and call.args and ast.unparse(call.func).rpartition(".")[2] in RAISED
        if isinstance(call.args[0], ast.Constant | ast.JoinedStr) and len(words(call.args[0])) > 3
    ]


def test_every_error_names_path_got_expected_and_fix() -> None:
    modules = sorted(ROOT.glob("gangplank/**/*.py"))
    assert len(modules) > 50
    assert {str(path.relative_to(ROOT)): texts for path in modules if (texts := sentences(path.read_text()))} == {}
