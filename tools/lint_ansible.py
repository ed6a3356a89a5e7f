"""ansible-lint, with one start of Ansible for the syntax of all playbooks and roles.

By itself it starts Ansible for each of them, which takes two minutes of CPU time. If the one start reports an error,
each of them is checked alone as before, so that every error has its file and line. Nothing is checked if nothing that
it reads has changed since it passed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from ansiblelint import runner
from ansiblelint.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from ansiblelint.errors import MatchError
    from ansiblelint.file_utils import Lintable


def pass_together(playbooks: list[Path], roles: list[Path]) -> bool:
    """Whether Ansible reads all of them without an error."""
    imports = [{"name": "Import it", "ansible.builtin.import_role": {"name": str(role)}} for role in roles]
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "False"}
    with tempfile.TemporaryDirectory() as folder:
        of_roles = Path(folder, "roles.yml")
        of_roles.write_text(yaml.safe_dump([{"name": "Import roles", "hosts": "localhost", "tasks": imports}]))
        files = [str(path) for path in (of_roles, *playbooks)]
        command = [sys.executable, "-m", "ansible", "playbook", "--syntax-check", *files]
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode == 0


class Runner(runner.Runner):
    """ansible-lint's, with a quicker way to the result that nothing is wrong."""

    def _map_syntax_check_workers(self, worker: Any, files: list[Lintable]) -> list[list[MatchError]]:
        paths = {kind: [file.path.absolute() for file in files if file.kind == kind] for kind in ("playbook", "role")}
        if pass_together(paths["playbook"], paths["role"]):
            return []
        return super()._map_syntax_check_workers(worker, files)


ROOT = Path(__file__).resolve().parents[1]
PASSED = ROOT / ".ansible/lint-passed"  # the digest of what passed last


def is_read(path: str) -> bool:
    """Whether ansible-lint's verdict can depend on this file of the repository.

    >>> [is_read(path) for path in ("roles/a/tasks/main.yml", "plugins/action/a.py", "lab/host/a.py", "docs/a.md")]
    [True, True, False, False]
    """
    return not path.endswith(".md") and (
        not path.endswith(".py") or path.startswith("plugins/") or path == "tools/lint_ansible.py"
    )


def digest(root: Path) -> str:
    """Of the files that ansible-lint reads, also those that are in no commit, and of the installed packages."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    digests = hashlib.sha256()
    for name in [".venv/stamp", *sorted(filter(is_read, filter(None, names)))]:
        path = root / name
        content = path.read_bytes() if path.is_file() else b""
        digests.update(f"{name} {len(content)}\n".encode() + content)
    return digests.hexdigest()


def unless_passed(lint: Callable[[], int], root: Path, passed: Path) -> int:
    """The exit status of `lint`, which runs only if something has changed since it was 0."""
    now = digest(root)
    if passed.is_file() and passed.read_text() == now:
        print("ansible-lint: nothing has changed since it passed")
        return 0
    status = lint()
    if not status:
        passed.parent.mkdir(exist_ok=True)
        passed.write_text(now)
    return status


if __name__ == "__main__":
    runner.Runner = Runner  # type: ignore[misc]  # it is the class that its functions start
    sys.exit(unless_passed(main, ROOT, PASSED))
