"""The linters look at everything: no rule is skipped, and what is left out is left out for a reason."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((ROOT / ".ansible-lint").read_text())
LINTED = ("roles", "playbooks", "inventories", "jobs", "molecule")


def lines_with(pattern: str, *paths: str) -> list[str]:
    command = ["git", "grep", "-nIE", pattern, "--", *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def test_ansible_lint_skips_no_rule_and_asks_nobody() -> None:
    assert CONFIG["profile"] == "production"
    assert CONFIG["offline"] is True
    assert {"skip_list", "warn_list", "enable_list"} & CONFIG.keys() == set()
    assert not (ROOT / ".ansible-lint-ignore").exists()


def test_no_linted_folder_is_left_out() -> None:
    left_out = [path.rstrip("/") for path in CONFIG["exclude_paths"]]
    assert set(left_out) & set(LINTED) == set()


def test_no_line_is_exempt_from_ansible_lint_or_yamllint() -> None:
    assert lines_with(r"noqa|skip_ansible_lint|yamllint +disable", *LINTED) == []


def test_ansible_test_leaves_out_every_template_of_a_packed_chart_whichever_its_version() -> None:
    """`ansible-test sanity` needs the package index, so `make check` does not run it."""
    templates = {str(path.relative_to(ROOT)) for path in ROOT.glob("charts/*/templates/**/*.yaml")}
    files = sorted((ROOT / "tests/sanity").glob("ignore-*.txt"))
    assert len({path.read_text() for path in files}) == 1
    left_out = set(re.findall(r"^(\S+) yamllint!skip ", files[0].read_text(), re.MULTILINE))
    assert left_out == {name for name in templates if not name.startswith("charts/lab-dns/")}


def test_no_file_has_the_curly_quotes_that_ansible_test_refuses() -> None:
    assert lines_with("\u2018|\u2019|\u201c|\u201d", ".") == []


def test_every_exemption_in_python_names_its_rule_and_its_reason() -> None:
    marks = lines_with(r"# (noqa|type: ignore)", "*.py")
    mine = [mark for mark in marks if not mark.startswith("tests/repository/test_lint.py")]
    rule, reason = r"# (?:noqa: [A-Z]+[0-9]+(?:, [A-Z]+[0-9]+)*|type: ignore\[[a-z, -]+\])", r"  (?:# )?[A-Za-z]\S* \S+"
    fine = re.compile(rule + reason)
    assert [mark for mark in mine if not fine.search(mark)] == []


def test_molecule_and_pre_commit_fetch_nothing() -> None:
    shared = yaml.safe_load((ROOT / ".config/molecule/config.yml").read_text())
    assert (shared["dependency"]["enabled"], shared["prerun"]) == (False, False)
    scenarios = [yaml.safe_load(path.read_text()) or {} for path in (ROOT / "molecule").glob("*/molecule.yml")]
    assert scenarios
    assert [scenario for scenario in scenarios if {"dependency", "prerun"} & scenario.keys()] == []
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repository["repo"] for repository in hooks} == {"local"}
    assert {hook["language"] for repository in hooks for hook in repository["hooks"]} == {"system"}


def test_every_name_that_a_test_takes_from_another_file_of_tests_exists() -> None:
    """What mypy would say, without the types of all tests."""
    files = [path for folder in ("tests", "molecule") for path in (ROOT / folder).rglob("*.py")]
    missing = []
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                names = names_in(ROOT / str(node.module).replace(".", "/"))
                missing += [f"{file.relative_to(ROOT)}: {one.name}" for one in node.names if one.name not in names]
    assert missing == []


@functools.cache
def names_in(source: Path) -> set[str]:
    """The names that a module binds, or the modules of a folder."""
    code = ast.parse(source.with_suffix(".py").read_text()).body if not source.is_dir() else []
    return {name for line in code for name in names_of(line)} | {path.stem for path in source.glob("*.py")}


def names_of(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module binds."""
    nodes = list(ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imports = [alias for node in nodes if isinstance(node, ast.ImportFrom | ast.Import) for alias in node.names]
    names |= {alias.asname or alias.name for alias in imports}
    return names | ({statement.name} if isinstance(statement, ast.FunctionDef | ast.ClassDef) else set())
