"""The lines of a container's log as they are written: each exactly once, also across broken connections.

The API server adds the time to each line. After a break, the log is requested from one second before its last line,
since sinceTime is in whole seconds, and lines that were read before are dropped. If the last one does not come again,
the container has started again, as its status says a moment later, and the rest is in the log of the run before. Or the
node has rotated the log (at 10 MiB, by default), and what was written meanwhile is lost: a line says so.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter, deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gangplank.cluster.client import path
from gangplank.cluster.members import default_container
from gangplank.errors import KubeError
from gangplank.reading.files import LONGEST
from gangplank.wait import Pause, polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d) ")
OVERLAP_S = 1  # standard output and error get their times before they are merged into one file
STATUS_S = 3.0  # after which a status has a restart that the node knows
PAUSES_S = (0.1, 2.0)  # first and longest, before reading on after a log's end: the container's status comes later
GONE = {400, 404}  # no such pod, or no such container's log (any more)
MOST = 16 << 20  # characters that have been read and not yet processed, of all logs of a command
LINE = 64  # what Python needs for a line beside its characters
ROTATED = "(the node has rotated this log while it was not read: lines are missing here)"
KEPT = 64  # bytes of a line that are compared when it comes again; of a longer one, its hash


class Buffer:
    """The lines between the threads that read logs and the one that processes them; a full one stops the readers.

    So a script that prints faster than its lines are processed costs no memory here.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most, self.size = most, 0
        self.lines: deque[tuple[Any, str]] = deque()
        self.change = threading.Condition()

    def put(self, log: Any, line: str) -> None:
        """Add a line as soon as there is room; one that is longer than the buffer needs an empty one."""
        with self.change:
            self.change.wait_for(lambda: not self.lines or self.size + len(line) <= self.most)
            self.lines.append((log, line))
            self.size += len(line) + LINE
            self.change.notify_all()

    def take(self, wait_s: float = 0.0) -> list[tuple[Any, str]]:
        """All lines with their logs; waits for the first one, but not longer than `wait_s`."""
        with self.change:
            self.change.wait_for(lambda: self.lines, wait_s)
            lines = list(self.lines)
            self.lines.clear()
            self.size = 0
            self.change.notify_all()
        return lines


class Place:
    """How far a log was read: its lines of the last seconds, with their times."""

    def __init__(self) -> None:
        self.second = 0  # since 1970, of the latest line
        self.stamp = b""  # the text of that second
        self.seen: dict[int, Counter[bytes]] = {}
        self.again: Counter[bytes] = Counter()
        self.last = self.awaited = b""  # the last line, and whether it still has to come again
        self.rotated = False  # another line came in its place: the file that it was in is gone

    def since(self) -> dict[str, str]:
        """The query for lines that may be unread; lines that were read are expected to come again."""
        self.again, self.awaited = sum(self.seen.values(), Counter[bytes]()), self.last
        if not self.second:
            return {}
        return {"sinceTime": datetime.fromtimestamp(self.second - OVERLAP_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}

    def differs(self, raw: bytes) -> bool:
        """Whether a line is new although the last one has not come again, or although there was none."""
        return not self.last or (bool(self.awaited) and not self.again[_key(raw)])

    def take(self, raw: bytes) -> str | None:
        """A line without its time, None if it was read before."""
        key = _key(raw)
        if self.again and self.again[key] > 0:
            self.again[key] -= 1
            self.awaited = b"" if key == self.awaited else self.awaited
            return None
        self.rotated = bool(self.awaited)
        self.last, self.awaited = key, b""
        stamp, second = STAMP.match(raw), self.second
        if stamp and stamp[1] + stamp[2] != self.stamp:
            try:
                second = int(datetime.fromisoformat((stamp[1] + stamp[2]).decode()).timestamp())
                datetime.fromtimestamp(second, UTC)
            except (ValueError, OverflowError):  # a script's own: after a break, a line may begin in its middle
                stamp = None
            if stamp and second > self.second:
                self.second, self.stamp = second, stamp[1] + stamp[2]
                self.seen = {at: lines for at, lines in self.seen.items() if at >= second - OVERLAP_S}
        self.seen.setdefault(second, Counter())[key] += 1
        return raw[stamp.end() if stamp else 0 :].decode("utf-8", "replace")


def _key(raw: bytes) -> bytes:
    """What is compared of a line."""
    return raw if len(raw) <= KEPT else hashlib.blake2b(raw, digest_size=16).digest()


def split(parts: Iterable[bytes], rest: list[bytes]) -> Iterator[bytes]:
    """The lines in the parts of an answer; the pieces of the last one, which has not ended, are left in `rest`.

    They are joined once: a line of 10 MiB comes in thousands of parts. The server gives a line one time: each piece of
    a line that is cut begins with it, since a script may have printed a time of its own where the next piece begins.
    """
    size = 0
    for part in parts:
        end, newline, more = part.partition(b"\n")
        rest.append(end)
        size += len(end)
        if size > LONGEST:
            long = b"".join(rest)
            stamp = STAMP.match(long)
            while len(long) > LONGEST:
                yield long[:LONGEST]
                long = (stamp[0] if stamp else b"") + long[LONGEST:]
            rest[:] = [long]
            size = len(long)
        if newline:
            *lines, begin = [b"".join(rest), *more.split(b"\n")]
            rest[:] = [begin]
            size = len(begin)
            yield from lines


def never() -> bool:
    """There is never enough."""
    return False


def if_any(lines: Iterator[str]) -> Iterator[str]:
    """The lines of a log; none if it does not exist."""
    try:
        yield from lines
    except KubeError as error:
        if error.status not in GONE:
            raise


def follow(
    kube: Kube, pod: Json, container: str = "", *, on: bool = True, enough: Callable[[], bool] = never,
    place: Place | None = None,
) -> Iterator[str]:
    """The lines of one run of a container (the default one, if not named) to its end, as they are written.

    Without `on`, only those until now. `enough` is asked at the end of each answer, also of one that was cut: whether
    that was all. With the `place` of an earlier call, those after it.
    Raises KubeError if the log does not exist, or if the API server is down for longer than `kube` is patient.
    """
    from urllib3.exceptions import HTTPError

    container = container or default_container(pod)
    where = _where(pod)
    place, pause = place or Place(), Pause(*PAUSES_S)
    begun = bool(place.last)
    rest: list[bytes] = []
    while True:
        if begun:
            pause.take()
        live = kube.get(where) or {}
        if (since := _runs_since(live, pod, container)) > 1:
            break
        before = since > 0
        over = before or not on or not runs(live, container)
        query = _query(container, followed=not over, previous=before) | place.since()
        try:
            answer = kube.open("GET", f"{where}/log", query=query)
        except KubeError as error:
            if begun and error.status in GONE:
                break
            raise
        again, begun, all_read = begun and not before, True, False
        rest.clear()
        try:
            for raw in split(answer.stream(decode_content=True), rest):
                if again and place.differs(raw) and _another(kube, pod, container):
                    rest.clear()
                    break
                text = place.take(raw)
                if text is not None:
                    pause.reset()
                    yield from [ROTATED, text] if place.rotated else [text]
            else:
                all_read = over or enough()
        except (HTTPError, OSError):
            rest.clear()  # half a line, which comes again
            all_read = enough()
        finally:
            answer.close()
        if all_read:
            break
    text = place.take(b"".join(rest)) if any(rest) else None
    if text is not None:
        yield text


def _query(container: str, *, followed: bool, previous: bool) -> dict[str, str]:
    """The query for a log with the time of each line."""
    query = {"follow": str(followed).lower(), "timestamps": "true"}
    query |= {"container": container} if container else {}
    return query | ({"previous": "true"} if previous else {})


def _another(kube: Kube, pod: Json, container: str) -> bool:
    """Whether the container runs again by now, and its node's log is that of the new run."""
    return any(_runs_since(kube.get(_where(pod)) or {}, pod, container) for _ in polls(STATUS_S, PAUSES_S[0]))


def _where(pod: Json) -> str:
    return path("v1", "Pod", pod["metadata"]["namespace"], pod["metadata"]["name"])


def _runs_since(live: Json, pod: Json, container: str) -> int:
    """How many runs of a container have begun since; more than a node keeps logs of if its pod is gone."""
    if not live or live["metadata"].get("uid") != pod["metadata"].get("uid"):
        return 2
    return restarts(live, container) - restarts(pod, container)


def status_of(pod: Json, container: str) -> Json:
    """A container's status in its pod, the default one's if none is named; empty if the pod has no status yet."""
    container = container or default_container(pod)
    own = pod.get("status") or {}
    statuses = [*(own.get("containerStatuses") or ()), *(own.get("initContainerStatuses") or ())]
    status: Json = next((item for item in statuses if container in ("", item.get("name"))), {})
    return status


def restarts(pod: Json, container: str) -> int:
    """How often a container was restarted."""
    return int(status_of(pod, container).get("restartCount") or 0)


def state_of(pod: Json, container: str) -> Json:
    """A container's state, whatever others a webhook has added to its pod; empty if the cluster knows none."""
    return status_of(pod, container).get("state") or {}


def runs(pod: Json, container: str) -> bool:
    """Whether a container runs, as far as the cluster knows."""
    return "running" in state_of(pod, container)
