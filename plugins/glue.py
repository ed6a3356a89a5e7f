"""What every action plugin of this project does: check its arguments, call the library, translate the error.

They run in Ansible's own process on the controller, where the library is; a module would start a Python of its own.
"""

from __future__ import annotations

import abc
import io
import json
import sys
from typing import Any, ClassVar

from ansible.plugins.action import ActionBase
from ansible.plugins.loader import filter_loader, test_loader

from gangplank.errors import GangplankError

# Every task is a fork of the process that has loaded this. A task that has to find a filter by itself loads all that
# there are, our library with them: a tenth of a second for each.
for loader in (filter_loader, test_loader):
    list(loader.all())

# Python holds back what it prints to a pipe or a file until it has 8 KiB: `make train | tee log` would show nothing of
# a build for many minutes. This is the process that prints, the parent of every task.
if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(line_buffering=True)


class Glue(ActionBase):
    """An action with the arguments OPTIONS (as Ansible's argument specs) that calls `act` with them."""

    OPTIONS: ClassVar[dict[str, Any]] = {}
    REQUIRED_IF: ClassVar[list[tuple[str, Any, list[str]]]] = []
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return what `act` returns, or a failure with what it raised."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(self.OPTIONS, required_if=self.REQUIRED_IF)
        self.variables = task_vars or {}
        plain = json.loads(json.dumps(given))  # Ansible's strings carry tags, which not every library takes
        try:
            return result | self.act(plain)
        except GangplankError as error:
            return result | {"failed": True, "msg": str(error)}
        except OSError as error:
            cure = "free some space or mend its permissions, then run it again"
            return result | {"failed": True, "msg": f"{error.filename or self._task.action}: {error.strerror}; {cure}"}

    @property
    def dry(self) -> bool:
        """Whether `act` may only say what would change."""
        return bool(self._task.check_mode)

    @abc.abstractmethod
    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Do it, or with `dry` only look; return at least `changed`."""
