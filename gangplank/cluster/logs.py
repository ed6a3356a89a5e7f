"""The lines of a container's log as they are written: each exactly once, also across broken connections.

The API server adds the time to each line. After a break, the log is requested from one second before its last line,
since sinceTime is in whole seconds, and lines that were read before are dropped.
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
    from collections.abc import Iterable, Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
OVERLAP_S = 1  # standard output and error get their times before they are merged into one file
PAUSES_S = (0.1, 2.0)  # first and longest, before reading on after a log's end: the container's status comes later
GONE = {400, 404}  # no such pod, or no such container's log (any more)


class Place:
    """How far a log was read: its lines of the last seconds, with their times."""

    def __init__(self) -> None:
        self.second = 0  # since 1970, of the latest line
        self.seen: dict[int, Counter[bytes]] = {}
        self.again: Counter[bytes] = Counter()

    def since(self) -> dict[str, str]:
        """The query for lines that may be unread; lines that were read are expected to come again."""
        self.again = sum(self.seen.values(), Counter[bytes]())
        if not self.second:
            return {}
        return {"sinceTime": datetime.fromtimestamp(self.second - OVERLAP_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}

    def take(self, raw: bytes) -> str | None:
        """A line without its time, None if it was read before."""
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


def split(parts: Iterable[bytes], rest: list[bytes]) -> Iterator[bytes]:
    """The lines in the parts of an answer; the pieces of the last one, which has not ended, are left in `rest`.

    They are joined once: a line of 10 MiB comes in thousands of parts.
    """
    for part in parts:
        end, newline, more = part.partition(b"\n")
        rest.append(end)
        if newline:
            *lines, begin = [b"".join(rest), *more.split(b"\n")]
            rest[:] = [begin]
            yield from lines


def follow(kube: Kube, pod: Json, container: str = "") -> Iterator[str]:
    """The lines of one run of a container (the only one, if not named) to its end, as they are written.

    Raises KubeError if the log does not exist, or if the API server is down for longer than `kube` is patient.
    """
    from urllib3.exceptions import HTTPError

    meta, run = pod["metadata"], restarts(pod, container)
    where = path("v1", "Pod", meta["namespace"], meta["name"])
    place, begun, pause = Place(), False, Pause(*PAUSES_S)
    rest: list[bytes] = []
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
        begun = True
        rest.clear()
        try:
            for raw in split(answer.stream(decode_content=True), rest):
                text = place.take(raw)
                if text is not None:
                    pause.reset()
                    yield text
            if over:
                break
        except (HTTPError, OSError):
            rest.clear()  # half a line, which comes again
        finally:
            answer.close()
    text = place.take(b"".join(rest)) if any(rest) else None
    if text is not None:
        yield text


def status_of(pod: Json, container: str) -> Json:
    """A container's status in its pod, the first container's if none is named; empty if the pod has no status yet."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    status: Json = next((item for item in statuses if container in ("", item.get("name"))), {})
    return status


def restarts(pod: Json, container: str) -> int:
    """How often a container was restarted."""
    return int(status_of(pod, container).get("restartCount") or 0)


def runs(pod: Json, container: str) -> bool:
    """Whether a container runs, as far as the cluster knows."""
    return "running" in (status_of(pod, container).get("state") or {})
