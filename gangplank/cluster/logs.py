"""The lines of a container's log as they come: each once, also when the connection breaks and is made again.

The API server is asked for the time of each line. A log that broke off is asked for again from the second before its
last line, since sinceTime is in whole seconds there, and what was read of it already is dropped.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from gangplank.cluster.client import path
from gangplank.errors import KubeError
from gangplank.wait import Pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
OVERLAP_S = 1  # standard output and error are stamped before they meet in one file
PAUSES_S = (0.1, 2.0)  # the first and the longest before a log that ended is looked at again; the status comes later
GONE = {400, 404}  # no such pod, or no such container's log (any more)


class Place:
    """How far a log was read: the lines of its last seconds, with their times."""

    def __init__(self) -> None:
        self.second = 0  # since 1970, of the latest line
        self.seen: dict[int, Counter[bytes]] = {}
        self.again: Counter[bytes] = Counter()

    def since(self) -> dict[str, str]:
        """The query for what may not have been read; lines that were are awaited once more."""
        self.again = sum(self.seen.values(), Counter[bytes]())
        if not self.second:
            return {}
        return {"sinceTime": datetime.fromtimestamp(self.second - OVERLAP_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}

    def take(self, raw: bytes) -> str | None:
        """A line without its time, None for one that was read before."""
        if self.again[raw] > 0:
            self.again[raw] -= 1
            return None
        stamp = STAMP.match(raw)
        if stamp:
            second = int(datetime.fromisoformat((stamp[1] + stamp[2]).decode()).timestamp())
            if second > self.second:
                self.second = second
                self.seen = {key: lines for key, lines in self.seen.items() if key >= second - OVERLAP_S}
            self.seen.setdefault(second, Counter())[raw] += 1
        return raw[stamp.end() if stamp else 0 :].decode("utf-8", "replace")


def follow(kube: Kube, pod: Json, container: str = "") -> Iterator[str]:
    """The lines of one run of a container (of the only one, if not named) to its end, as they are written.

    KubeError where there is no such log, or where the API server is away for longer than `kube` is patient.
    """
    from urllib3.exceptions import HTTPError

    meta, run = pod["metadata"], restarts(pod, container)
    where = path("v1", "Pod", meta["namespace"], meta["name"])
    place, rest, begun, pause = Place(), b"", False, Pause(*PAUSES_S)
    while True:
        live = kube.get(where)
        if live is None or live["metadata"].get("uid") != meta.get("uid") or restarts(live, container) > run + 1:
            break
        before = restarts(live, container) > run
        over = before or not runs(live, container)
        if begun and not over:
            pause.take()
        query = {"follow": str(not over).lower(), "timestamps": "true", **place.since()}
        query |= {"container": container} if container else {}
        query |= {"previous": "true"} if before else {}
        try:
            answer = kube.open("GET", f"{where}/log", query=query)
        except KubeError as error:
            if begun and error.status in GONE:
                break
            raise
        begun, rest = True, b""
        try:
            for part in answer.stream(decode_content=True):
                *lines, rest = (rest + part).split(b"\n")
                for raw in lines:
                    text = place.take(raw)
                    if text is not None:
                        pause.reset()
                        yield text
            if over:
                break
        except (HTTPError, OSError):
            rest = b""  # the beginning of a line, which comes again
        finally:
            answer.close()
    text = place.take(rest) if rest else None
    if text is not None:
        yield text


def status_of(pod: Json, container: str) -> Json:
    """What a pod's status says of a container, of the first where none is named; empty before it says anything."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    found: Json = next((item for item in statuses if container in ("", item.get("name"))), {})
    return found


def restarts(pod: Json, container: str) -> int:
    """How often a container was started again."""
    return int(status_of(pod, container).get("restartCount") or 0)


def runs(pod: Json, container: str) -> bool:
    """Whether a container runs, as far as the cluster knows."""
    return "running" in (status_of(pod, container).get("state") or {})
