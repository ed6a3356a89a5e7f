"""The base of every action: it checks the arguments, calls the library, and reports a refusal as it was written.

Actions run in Ansible's own process on the controller, where the library is; a module would start its own Python.
plugins/modules/<name>.py documents what each takes and returns, for ansible-doc.
"""

from __future__ import annotations

import abc
import errno
import io
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import filter_loader, test_loader
from ansible_collections.gangplank.gangplank.plugins.plugin_utils import python  # noqa: F401  before the library; pylint: disable=unused-import

from gangplank.errors import FULL, GangplankError
from gangplank.processes import end_with_parent, origin
from gangplank.runs import holder
from gangplank.text import plain_lines

# Every task is a fork of the process that has loaded this. A task that has to search for a filter loads all of them,
# and our library with them: a tenth of a second per task.
for loader in (filter_loader, test_loader):
    list(loader.all())
filter_loader.get("gangplank.gangplank.claim_paths")  # and all of this collection

# Python buffers 8 KiB of output to a pipe or a file: `make train | tee log` would show nothing of a build for many
# minutes. This is the process that prints, the parent of every task.
if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(line_buffering=True)

SPACE, PERMISSIONS = "free some space", "correct its permissions"
FIXES = dict.fromkeys(FULL, SPACE) | dict.fromkeys((errno.EACCES, errno.EPERM), PERMISSIONS)


def plain(value: Any) -> Any:
    """The value without the tags of Ansible's own strings and numbers, which some libraries refuse."""
    if isinstance(value, Mapping):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    return value


class LibraryAction(ActionBase):
    """An action that checks its arguments against OPTIONS (an argument spec of Ansible's) and calls `act` with them."""

    OPTIONS: ClassVar[dict[str, Any]] = {}
    REQUIRED_IF: ClassVar[list[tuple[str, Any, list[str]]]] = []
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result of `act`, or a failure with the message of what it raised."""
        end_with_parent(False)  # what has begun is brought to its end, also without the run
        result: dict[str, Any] = super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(self.OPTIONS, required_if=self.REQUIRED_IF)
        self.variables = task_vars or {}
        try:
            return result | self.act(plain(args))
        except GangplankError as error:
            return result | {"failed": True, "msg": plain_lines(str(error))}
        except OSError as error:
            place, reason = error.filename or self._task.action, error.strerror or error
            fix = f"{FIXES.get(error.errno or 0, 'correct or restore it')}, then run it again"
            return result | {"failed": True, "msg": f"{place}: {reason}; {fix}"}
        finally:
            end_with_parent(True)

    @property
    def dry(self) -> bool:
        """Whether `act` may only report what would change."""
        return bool(self._task.check_mode)

    @staticmethod
    def record() -> dict[str, Any]:
        """What a lock notes of this run of ansible-playbook: the process of which this task is a fork lives as long."""
        return holder(origin(), context.CLIARGS.get("args") or ())

    @abc.abstractmethod
    def act(self, args: dict[str, Any]) -> dict[str, Any]:
        """Do it, or with `dry` only find out what would change; return at least `changed`."""
