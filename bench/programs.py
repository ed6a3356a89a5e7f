"""What the lab's processes use, those of pods included: memory and CPU by program, and requests to the API server."""

from __future__ import annotations

import contextlib
import http.client
import re
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from lab.host.cgroups import members

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube

REQUESTS = b"apiserver_request_total{"
LASTING = {"WATCH", "CONNECT"}  # no requests that a gang waits for
REFUSED = ", refused"  # of what was to be created, also because it exists already
PSS = re.compile(r"^Pss:\s+(\d+)", re.MULTILINE)


def program(pid: int) -> str:
    """What a process runs; supervisord and Ansible's helpers are Python's."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "supervisor.supervisord" in words:
        return "supervisord"
    return Path(words[0]).name or Path(f"/proc/{pid}/comm").read_text().strip()


def memory() -> dict[str, float]:
    """MiB by program: Pss, in which a page that several processes share counts once; of files, only what is mapped."""
    sizes: dict[str, float] = {}
    for pid in members():
        with contextlib.suppress(OSError):  # a short-lived helper
            text = PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
            name = program(pid)
            sizes[name] = sizes.get(name, 0.0) + (int(text[1]) / 1024 if text else 0.0)
    return sizes


def ticks() -> dict[tuple[int, str], float]:
    """Seconds of CPU of each process so far."""
    seconds = {}
    for pid in members():
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            seconds[pid, program(pid)] = (int(fields[11]) + int(fields[12])) / 100
    return seconds


def spent(before: dict[tuple[int, str], float], after: dict[tuple[int, str], float]) -> dict[str, float]:
    """Seconds of CPU by program, of the processes that were there before and after.

    >>> spent({(1, "etcd"): 2.0, (2, "sh"): 1.0}, {(1, "etcd"): 5.0, (3, "sh"): 1.0})
    {'etcd': 3.0}
    """
    seconds: dict[str, float] = {}
    for key in before.keys() & after.keys():
        seconds[key[1]] = seconds.get(key[1], 0.0) + after[key] - before[key]
    return seconds


def machine() -> tuple[float, float]:
    """Ticks of all processors so far: those in which one was idle, and all of them (proc(5), /proc/stat)."""
    fields = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def idle_share(before: tuple[float, float], after: tuple[float, float]) -> float:
    """The percentage of ticks in which a processor was idle.

    >>> idle_share((10, 100), (15, 200))
    5.0
    """
    return 100 * (after[0] - before[0]) / max(after[1] - before[1], 1)


def requests(kube: Kube) -> dict[str, float]:
    """Requests that the API server has answered so far, by what they did: "POST pods/binding", "POST pods, refused"."""
    with contextlib.closing(kube.open("GET", "/metrics")) as answer:
        lines = [line for line in answer.read().splitlines() if line.startswith(REQUESTS)]
    counts: dict[str, float] = {}
    for family in text_string_to_metric_families(b"\n".join(lines).decode() + "\n"):
        for sample in family.samples:
            labels = sample.labels
            if labels["verb"] not in LASTING:
                name = f"{labels['verb']} {'/'.join(filter(None, (labels['resource'], labels['subresource'])))}"
                refused = labels["verb"] == "POST" and int(labels["code"]) >= http.client.BAD_REQUEST
                name += REFUSED * refused
                counts[name] = counts.get(name, 0.0) + sample.value
    return counts
