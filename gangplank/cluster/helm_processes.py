"""Which Helm is at work on a release: the processes of this machine, and what an interrupted one of it has left.

A run that asks for a release while Helm works on it must wait. Helm notes in the cluster that a revision is pending,
but not by whom: a Helm that was killed leaves it as it is. So it is noted on this machine before each call of Helm.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.cluster.choice import address
from gangplank.reading.files import write

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

# With the aliases of `helm uninstall`: https://github.com/helm/helm/blob/v3.18.0/cmd/helm/uninstall.go
CHANGES = {"install", "upgrade", "rollback", "uninstall", "del", "delete", "un"}
SHOWN = 200  # characters of a command
BEGUN_S = 300  # from the note to a revision of the same Helm, at most: it renders first, and clocks differ


@dataclass(frozen=True)
class Place:
    """A release of a cluster."""

    server: str
    namespace: str
    name: str


def option(words: Sequence[str], long: str, short: str = "") -> str:
    """The value of an option on a command line; empty without it.

    >>> [option(text.split(), "--namespace", "-n") for text in ("a -n b", "a --namespace=b", "-nb a", "-n=b", "a b")]
    ['b', 'b', 'b', 'b', '']
    """
    for number, word in enumerate(words):
        if word in {long, short} - {""}:
            return words[number + 1] if number + 1 < len(words) else ""
        if word.startswith(f"{long}="):
            return word.partition("=")[2]
        if short and word.startswith(short) and not word.startswith("--"):
            return word.removeprefix(short).removeprefix("=")
    return ""


def context_of(files: Sequence[Path], name: str) -> tuple[str, str]:
    """Server and namespace of a kubeconfig's context, or of its current one; each empty if it is not there.

    Of an entry in several files the first counts. Raises OSError, and others if it is not a kubeconfig.
    """
    contents = [yaml.safe_load(file.read_text()) or {} for file in files if file.exists()]

    def entry(part: str, name: str) -> Any:
        items = (item for content in contents for item in content.get(part) or [] if item["name"] == name)
        empty: dict[str, Any] = {}
        return next(items, empty).get(part.removesuffix("s")) or {}

    name = name or next(filter(None, (content.get("current-context") for content in contents)), "")
    context = entry("contexts", name)
    return str(entry("clusters", context.get("cluster")).get("server", "")), str(context.get("namespace", ""))


def target(words: Sequence[str], environment: Mapping[str, str], process: Path) -> tuple[str, str]:
    """Server and namespace that a process of Helm changes, as Helm chooses them; the server is empty if unknown."""
    home = environment.get("HOME", "")
    names = option(words, "--kubeconfig") or environment.get("KUBECONFIG") or f"{home}/.kube/config"
    context = option(words, "--kube-context") or environment.get("HELM_KUBECONTEXT", "")
    # As the process sees its files: it may be in a container.
    files = [process / ("root" if name.startswith("/") else "cwd") / name.lstrip("/") for name in names.split(":")]
    server = namespace = ""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
        server, namespace = context_of(files, context)
    server = option(words, "--kube-apiserver") or environment.get("HELM_KUBEAPISERVER") or server
    namespace = option(words, "--namespace", "-n") or environment.get("HELM_NAMESPACE") or namespace or "default"
    return server, namespace


def running(place: Place, processes: Path = Path("/proc")) -> str:
    """The process of this machine that changes the release, with its command; empty without one.

    One whose cluster cannot be found out counts, and so does any of the release's name whose environment is hidden.
    """
    for entry in processes.glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
        except OSError:  # it ended meanwhile
            continue
        if Path(words[0]).name != "helm" or place.name not in words or not CHANGES & set(words):
            continue
        try:
            block = (entry / "environ").read_bytes().decode(errors="replace")
        except PermissionError:
            server, namespace = "", option(words, "--namespace", "-n") or place.namespace
        except OSError:
            continue
        else:
            environment = dict(line.split("=", 1) for line in block.split("\0") if "=" in line)
            server, namespace = target(words, environment, entry)
        if namespace == place.namespace and (not server or address(server) == address(place.server)):
            return f"process {entry.name} ({' '.join(words)[:SHOWN]})"
    return ""


class Note:
    """The note on this machine that a run lets Helm change a release: which revisions it had before.

    It stays if the run is interrupted. A revision that came later and is pending is then what this machine's Helm left.
    """

    def __init__(self, place: Place, environment: Mapping[str, str] = os.environ) -> None:
        cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME') or Path.home()}/.cache"
        digest = hashlib.sha256(json.dumps(vars(place), sort_keys=True).encode()).hexdigest()[:16]
        self.path = Path(cache, "gangplank", "helm", f"{digest}.json")

    def write(self, revisions: Collection[str]) -> None:
        """Note the existing revisions before Helm begins."""
        with contextlib.suppress(OSError):  # without the note, the run after an interrupted one only waits longer
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write(self.path, json.dumps(sorted(revisions)))

    def forget(self) -> None:
        """Remove the note: Helm has ended by itself."""
        self.path.unlink(missing_ok=True)

    def left(self, ages_s: Mapping[str, float]) -> list[str]:
        """Those of the revisions, each with its age, that were not there before; none without a note.

        One that came much later than the note is not this Helm's: it makes its revision before it changes anything. Nor
        is one of long before, of which the note would know: that may be of another cluster at this address.
        """
        before, noted = self._read()
        noted_s = time.time() - noted
        return [name for name, age_s in ages_s.items() if name not in before and abs(noted_s - age_s) <= BEGUN_S]

    def removed(self, moments: Mapping[str, float]) -> list[str]:
        """Those of the revisions, each with when a Helm here would have begun to remove it, that this machine's did.

        One of before the note was waited for as long as its Helm could live. One of much later is another Helm's.
        """
        before, noted = self._read()
        return [name for name, moment in moments.items() if name in before and moment - noted <= BEGUN_S]

    def _read(self) -> tuple[set[str], float]:
        """The revisions before, and when the note was written, in seconds since 1970; none, long ago, without one."""
        try:
            return set(json.loads(self.path.read_text())), self.path.stat().st_mtime
        except (OSError, ValueError, TypeError):
            return set(), -math.inf
