"""What a part of the bench declares, and what it is given.

A part is a module in bench/parts with a `PART` and a function `measure(Setting) -> Iterable[Figure]`.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from gangplank.errors import GangplankError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.figures import Figure
    from gangplank.cluster.client import Kube

ROOT = Path(__file__).resolve().parents[1]
STATE = Path("/var/lib/gangplank/lab")
SOCKET = Path("/run/gangplank/supervisor.sock")
INVENTORY = "inventories/lab/hosts.yml"


class BenchError(GangplankError):
    """A part cannot be measured; the message says why."""


class Lab(Enum):
    """What a part needs of the lab."""

    ANY = "any"
    DOWN = "down"
    UP = "up"


@dataclass(frozen=True)
class Part:
    """What a part declares."""

    title: str
    minutes: float
    """About how long it takes on two cores that do nothing else."""
    lab: Lab = Lab.ANY
    quiet: bool = True
    """Other work on the machine would change its figures."""
    usual: bool = True
    """It belongs to `make bench PARTS=usual`."""
    builds: tuple[str, ...] = ()
    """Parts of lab/versions.yml that are built on demand only."""
    root: bool = False
    """It starts programs in a network of their own. A part that needs a lab needs root anyway."""
    first: bool = False
    """It runs before the others that need the same of the lab: what these leave in memory would be in its figures."""
    adds: bool = False
    """A run may make some of its figures only: each is kept at once, and the others stay as earlier runs made them."""


@dataclass(frozen=True)
class Setting:
    """What a part is given."""

    folder: Path
    """Empty, and gone afterwards."""

    def say(self, line: str) -> None:
        """Tell how far the run is."""
        print(f"  {line}", file=sys.stderr, flush=True)

    @property
    def kubeconfig(self) -> str:
        """An administrator's, of the lab that runs."""
        return os.environ.get("GANGPLANK_KUBECONFIG") or str(STATE / "admin.kubeconfig")

    @functools.cached_property
    def kube(self) -> Kube:
        """The client of that lab."""
        from gangplank.cluster.client import Kube

        return Kube(self.kubeconfig)


class Measure(Protocol):
    """A part's module."""

    PART: Part

    def measure(self, setting: Setting) -> Iterable[Figure]:
        """The figures."""


def parts() -> dict[str, Measure]:
    """All parts by name, in the order in which they run."""
    import bench.parts

    names = sorted(info.name for info in pkgutil.iter_modules(bench.parts.__path__))
    modules = {name: cast("Measure", importlib.import_module(f"bench.parts.{name}")) for name in names}
    order = list(Lab)  # nothing else runs beside what needs no lab
    return dict(sorted(modules.items(), key=lambda item: (order.index(item[1].PART.lab), not item[1].PART.first)))


def run(*words: object, stdin: str = "", **environment: str) -> str:
    """Run a program to its end; what it printed."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode:
        end = "\n".join([*done.stdout.splitlines()[-20:], *done.stderr.splitlines()[-20:]])
        raise BenchError(f"{' '.join(command[:6])} …: got exit status {done.returncode}, expected 0. Fix: see\n{end}")
    return done.stdout


def playbook(*words: str, before: Sequence[str] = (), **variables: Any) -> str:
    """Run playbooks on the lab; what they printed. With words that stand before the command."""
    extra = ["-e", json.dumps(variables)] if variables else []
    return run(*before, ROOT / ".venv/bin/ansible-playbook", "-i", INVENTORY, *words, *extra)


@functools.cache
def shown(place: str) -> Path:
    """Where a part of lab/versions.yml lies; it is built if it is missing."""
    return Path(run(sys.executable, "-m", "lab.build", "--show", place).strip())
