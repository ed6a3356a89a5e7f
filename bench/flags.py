"""Other flags for the programs of the lab's control plane, for as long as a block runs."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from bench.part import SOCKET, STATE, BenchError
from lab.host import supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONFIG, PROGRAMS = (STATE / "supervisor" / name for name in ("supervisord.conf", "control-plane.conf"))


def with_values(text: str, values: Mapping[str, object]) -> str:
    """The programs with other values of flags and variables that they have, in each of them.

    >>> with_values('etcd --size=1 --name=lab GOGC="50"', {"size": 2, "GOGC": 100})
    'etcd --size=2 --name=lab GOGC="100"'
    """
    for name, value in values.items():
        text, count = re.subn(rf'((?:--{name}=|\b{name}="))[^\s"]+', rf"\g<1>{value}", text)
        if not count:
            raise BenchError(f"{PROGRAMS}: got no {name}, expected one to change")
    return text


def with_flag(text: str, program: str, flag: str) -> str:
    """The programs with one more flag of one of them.

    >>> with_flag("command=nsenter -- /bin/etcd --name=lab", "etcd", "--more")
    'command=nsenter -- /bin/etcd --more --name=lab'
    """
    changed, count = re.subn(rf"^(command=.* -- \S*/{program})(?=\s)", rf"\1 {flag}", text, flags=re.MULTILINE)
    if count != 1:
        raise BenchError(f"{PROGRAMS}: got {count} programs {program}, expected one")
    return changed


@contextlib.contextmanager
def own_programs() -> Iterator[str]:
    """The programs of the control plane, which run so again afterwards; after a kill, `make lab` does that."""
    own = PROGRAMS.read_text()
    try:
        yield own
    finally:
        start(own)


def start(text: str) -> None:
    """Run the programs so, each from its start."""
    for programs in ("", text):
        PROGRAMS.write_text(programs)
        supervisor.ensure(CONFIG, SOCKET)
