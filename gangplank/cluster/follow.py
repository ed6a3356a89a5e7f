"""Follow one job to its end: the job, its pods, and their logs as they are written.

It changes nothing, but for what keeps a gang from starting again. A lost node keeps some pods, and no other can take
their names. Others failed while the controller was down, or it has lost their PodGroup.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplank.backends import BACKENDS, backend_of
from gangplank.cluster import failure, logs, standstill
from gangplank.cluster.attempts import replaced
from gangplank.cluster.client import TIMEOUT_S
from gangplank.cluster.ends import End, ends, latest, run_of
from gangplank.cluster.failure import LastWords
from gangplank.cluster.gaps import Gaps, Numbers
from gangplank.cluster.progress import Phase, Progress, nodes_by_uid, phase
from gangplank.cluster.situation import explanation, of_container, of_process
from gangplank.errors import KubeError, Problem
from gangplank.k8s.conditions import failed_init, has_condition
from gangplank.k8s.events import when
from gangplank.proof import log_lines
from gangplank.proof.expected import job_uid
from gangplank.proof.records import record
from gangplank.text import plain, plain_lines
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gangplank.cluster.client import Kube
    from gangplank.proof.records import Records
    from gangplank.scheduling.why import Failure
    from gangplank.spec import Json

POLL_S = 1.0
EXPLAINED_S = 30.0  # that a job waits before it is asked why, and between two such questions
REGROUPED_S = 10.0  # between two looks at whether its PodGroup exists
MOST = 400  # characters of an event that is shown
QUIET_S = 10.0  # without a line, after which the log of a container that outlives its job is given up
SILENT_S = TIMEOUT_S + QUIET_S  # and that of one that has ended: a request without an answer has failed by then
LAST_S = 60.0  # after a job's end, then the log of a container that runs on is given up, whatever it prints


@dataclass
class Log:
    """One run of a container: its pod, who reads it, whether that one waits for the API server, and the last lines."""

    pod: Json
    last: LastWords
    numbers: Numbers = field(default_factory=Numbers)
    thread: threading.Thread | None = None
    away: bool = False
    unread: bool = False  # as this account may not, or the node does not answer
    given_up: bool = False  # its reader has waited as long as anybody waits, and tries again

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod["metadata"]["name"])


def ttl_s(job: Json) -> int | None:
    """After how many seconds a job is removed once it has ended, None if never."""
    spec = job.get("spec") or {}
    seconds = (spec.get("runPolicy") or spec).get("ttlSecondsAfterFinished")
    return None if seconds is None else int(seconds)


class JobWatch:
    """One job: call `poll` until its phase is an end. A thread follows the log of each container."""

    def __init__(self, manifest: Mapping[str, Any], kube: Kube) -> None:
        """Take the submitted manifest and its cluster."""
        self.kube, self.kind = kube, (manifest["apiVersion"], manifest["kind"])
        self.name, self.namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        self.job: Json = {}
        self.pods: list[Json] = []
        self.nodes: dict[str, str] = {}  # of every pod that was seen, by uid
        self.gangs: dict[str, str] = {}  # of every such pod, by uid: how often all were replaced before it
        self.ends: dict[str, End] = {}  # of runs that failed, by key: the pod itself may be gone at the end
        self.logs: dict[str, Log] = {}  # pod uid/container/restart
        self.fresh = logs.Buffer()  # lines not yet processed
        self.records: Records = []
        self.training = Progress()
        self.gaps = Gaps(self.name, self.namespace)
        self.unsaved = False  # whether it is reported that the last checkpoint was not written
        self.refused = {""}  # the reasons why a bucket could not be written that are reported
        self.size: tuple[Any, int] = (None, 0)  # of which generation of the job, and how many pods that has
        self.next_why_s = EXPLAINED_S  # seconds after the start
        self.last_why = ""
        self.next_regroup_s = 0.0
        self.ended = threading.Event()  # the job has: a log that cannot be read is not waited for again
        self.ttl_s: int | None = None  # of a job that is gone, and had one

    @property
    def job_uid(self) -> str:
        """The id in the job's evidence, '' if the job does not determine it."""
        return (job_uid(self.job) or "") if self.job else ""

    def poll(self) -> Phase:
        """Read the job and its pods once, and start to follow new containers; raises KubeError."""
        job = self.kube.find(self.namespace, self.name, [self.kind])
        if job is None or (self.job and job["metadata"]["uid"] != self.job["metadata"]["uid"]):
            how = "was deleted and submitted again" if job else "does not exist (deleted?)"
            self.ttl_s = None if job else ttl_s(self.job)
            if self.ttl_s is None:
                self.job = {}  # its last state does not explain its end
            return Phase("Failed", f"{self.kind[1]} {self.namespace}/{self.name} {how}")
        self.job, self.pods = job, self.kube.pods(job)
        self.nodes |= nodes_by_uid(self.pods)
        self.gangs |= {pod["metadata"]["uid"]: replaced(job, pod) for pod in self.pods}
        # One that is Pending may recover: its init container starts again
        begun = [pod for pod in self.pods if (pod.get("status") or {}).get("phase") != "Pending"]
        self.ends |= {end.run: end for end in ends(begun)}
        for pod in self.pods:
            for container in [*failed_init(pod), *((pod.get("status") or {}).get("containerStatuses") or [])]:
                state = container.get("state") or {}
                if "running" in state or "terminated" in state:
                    self._follow(pod, container)
        return phase(self.job)

    def _follow(self, pod: Json, container: Mapping[str, Any]) -> None:
        key = run_of(pod, container["name"], container.get("restartCount", 0))
        if key not in self.logs:
            log = self.logs[key] = Log(pod, LastWords(pod["metadata"]["name"]))
            log.thread = threading.Thread(target=self._read, args=(log, pod, container["name"]), daemon=True)
            log.thread.start()

    def _read(self, log: Log, pod: Json, container: str) -> None:
        def turn(_: str) -> None:
            log.away = not log.away  # patience reports the beginning of an outage, and its end

        place = logs.Place()
        while True:
            try:
                for line in logs.follow(self.kube.patient(turn), pod, container, place=place):
                    log.given_up = False
                    self.fresh.put(log, line)
            except KubeError as error:
                again = error.outage and not self.ended.is_set()  # a node that is cut off may come back
                what = f"the log of {log.name} for now" if again else f"more of the log of {log.name}"
                log.unread = error.status not in logs.GONE
                if not again or not log.given_up:
                    self.fresh.put(log, f"(cannot read {what}: {error})")
                log.away, log.given_up = False, True
                if again:
                    continue
            return

    def finish(self) -> Iterator[tuple[Json, str]]:
        """The pod and the text of each line until all logs have ended.

        A container may outlive its job: its log is given up when it has been quiet for a while, or after LAST_S. That
        of a container that has ended is read whole, however long it is.
        """
        self.ended.set()
        quiet_since = looked = time.monotonic()
        limit_s = QUIET_S
        while True:
            if time.monotonic() - quiet_since >= limit_s:
                if not self._cut_short():
                    return
                if limit_s == SILENT_S:
                    break
                limit_s = SILENT_S
            unread = [log for log in self.logs.values() if log.thread and log.thread.is_alive()]
            for item in self.lines(0.1 if unread else 0.0):
                quiet_since, limit_s = time.monotonic(), QUIET_S
                yield item
            if not unread:
                return
            if any(log.away and not log.given_up for log in unread):
                quiet_since = looked = time.monotonic()
            if time.monotonic() - looked > LAST_S:
                if not self._cut_short():
                    return
                looked = time.monotonic()
        for log in self._cut_short():
            self.fresh.put(log, f"(the log of {log.name} was not read to its end: its node does not answer)")
        yield from self.lines()

    def _cut_short(self) -> list[Log]:
        """The logs that are still read although their container does not run."""
        pods = self.pods
        with contextlib.suppress(KubeError):
            pods = self.kube.pods(self.job) if self.job else pods
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        reading = {key: log for key, log in self.logs.items() if log.thread and log.thread.is_alive()}
        runs = {key for key in reading for uid, container, _ in [key.split("/")]
                if uid in by_uid and logs.runs(by_uid[uid], container)}  # fmt: skip
        return [log for key, log in reading.items() if key not in runs]

    def end(self, last: Phase) -> Phase:
        """How the job has ended, once all its lines are read: its `ttl_s` may have removed it before a poll saw it."""
        if self.ttl_s is None:
            return last
        succeeded = [(pod.get("status") or {}).get("phase") == "Succeeded" for pod in self.pods]
        if self.training.rows or (succeeded and all(succeeded)):
            return Phase(min(BACKENDS[str(backend_of(self.job))].ends.succeeded), f"removed by its ttl_s, {self.ttl_s}")
        self.job = {}
        how = f"it was deleted, or its ttl_s of {self.ttl_s} is over; its logs do not say how it ended"
        return Phase("Failed", f"{self.kind[1]} {self.namespace}/{self.name} does not exist: {how}")

    def drain(self) -> None:
        """Process all lines until all logs have ended."""
        for _ in self.finish():
            pass

    def progress(self) -> Progress:
        """The sum of the trainer's events; each line is processed once, and evidence is kept in `records`."""
        for _ in self.lines():
            pass
        return self.training

    def lines(self, wait_s: float = 0.0) -> Iterator[tuple[Json, str]]:
        """The pod and the text of each line that has not been processed yet; evidence is kept in `records`."""
        for log, line in self.fresh.take(wait_s):
            fields = log_lines.read(line)
            if fields:
                self.gaps.take(log.numbers, log.name, fields)
            if fields and log_lines.is_event(fields):
                self.training.take(fields)
            elif fields:
                self.records.append(record(fields))
            if not fields or log_lines.is_event(fields):
                log.last.take(line)
            yield log.pod, line

    def losses(self) -> list[str]:
        """What did not reach its place since the last call: lines of logs, the first checkpoint of several, uploads."""
        texts = self.gaps.texts()
        if self.training.unsaved and not self.unsaved:
            texts.append(f"{self.training.unsaved}. Fix: free space on the volume of `output`; the training continues")
        self.unsaved = bool(self.training.unsaved)
        if self.training.refused not in self.refused:
            self.refused.add(self.training.refused)
            why, _, fix = self.training.refused.partition(". Fix: ")
            fix = fix or "check the bucket's credentials and its address"
            texts.append(f"output is not uploaded: {why}. Fix: {fix}; the training continues, and its end tries again")
        return texts

    def running(self) -> int:
        """How many pods have all their containers ready."""
        return sum(has_condition(pod, "Ready") for pod in self.pods)

    def reasons(self) -> list[str]:
        """Why the job stands still, as far as its pods and the events about it say."""
        if not self.job:
            return []
        generation = self.job["metadata"].get("generation")
        if generation is None or generation != self.size[0]:  # to expand a large job takes too long for every poll
            self.size = (generation, standstill.size_of(self.job))
        return standstill.reasons(self.kube, self.job, self.pods, self.size[1])

    def why(self, waited_s: float) -> str:
        """Why a job that has waited so long does not run; "" if it runs, is healthy, or was explained before."""
        whole = self.pods and self.running() >= max(len(self.pods), self.size[1])
        if not self.job or waited_s < self.next_why_s or whole:
            return ""
        self.next_why_s = waited_s + EXPLAINED_S
        text = explanation(self.kube, self.job)
        if text.partition("\n")[0] == self.last_why:
            return ""
        self.last_why = text.partition("\n")[0]
        return text

    def restart(self, waited_s: float) -> list[str]:
        """Take away what keeps the job from starting again; what was done, one line each."""
        now = {self.gangs[pod["metadata"]["uid"]] for pod in self.pods}
        nodes = {uid: node for uid, node in self.nodes.items() if self.gangs[uid] in now}
        done = standstill.release(self.kube, self.pods, nodes)
        done += standstill.restart(self.kube, self.job, self.pods)
        if self.job and waited_s >= self.next_regroup_s:
            self.next_regroup_s = waited_s + REGROUPED_S
            done += standstill.regroup(self.kube, self.job, self.pods)
        return done

    def trouble(self) -> str:
        """What explains why a job does not run: one cause, conditions, events, the first failure's last lines."""
        failed = self.failed_first()
        parts = [f"why: {text}"] if self.job and (text := explanation(self.kube, self.job, failed)) else []
        parts += self.reasons()
        if failed:
            cause = failure.hint(failed.lines)
            parts += [f"{failed.who}: {cause}"] if cause else []
            parts += [f"{failed.who} failed first ({failed.how}); its last lines:"]
            parts += [f"  {line}" for line in failed.lines]
        parts += self._events()
        return "\n".join(map(plain_lines, parts))  # an event quotes what a probe printed

    def failed_first(self) -> Failure | None:
        """Who failed first in the last attempt in which something failed, as far as pods say theirs; None if nothing.

        A container that ended without torchrun's report was itself what failed, for lack of memory for example.
        """
        self.progress()
        for gang in sorted({*self.gangs.values()}, key=lambda text: (len(text), text), reverse=True):
            every = [end for end in self.ends.values() if self.gangs[end.run.partition("/")[0]] == gang]
            last = latest(every)
            past = {end.run for end in every} - {end.run for end in last}
            words = {key: log.last for key, log in self.logs.items()
                     if self.gangs[log.pod["metadata"]["uid"]] == gang and key not in past}  # fmt: skip
            failed, reported = min(last, default=None), failure.first(words.values())
            own = words.get(failed.run) if failed else None
            if reported and (own is None or own.time):
                return of_process(reported)
            if failed:
                return of_container(failed, own.lines if own else ())
        return None

    def _events(self) -> list[str]:
        mine = {self.name, *(pod["metadata"]["name"] for pod in self.pods)}
        try:
            events = self.kube.items("v1", "Event", self.namespace)
        except KubeError:
            return []
        uids = {None, *self.nodes, (self.job.get("metadata") or {}).get("uid")}  # the job before had the same names
        named = [(item["involvedObject"], item) for item in sorted(events, key=when) if item.get("type") == "Warning"]
        warnings = [(about["name"], item) for about, item in named
                    if about.get("name") in mine and about.get("uid") in uids]  # fmt: skip
        return [f"event {standstill.said(name, item)[:MOST]}" for name, item in warnings[-8:]]


def follow(watch: JobWatch, say: Callable[[str], None], timeout_s: float) -> Phase | None:
    """Poll until the job ends, and report each change; its last phase, None after `timeout_s`.

    The API server may be down meanwhile: the job trains without it.
    """
    start, last_line = time.monotonic(), ""

    def report(text: str) -> None:
        say(f"{time.monotonic() - start:4.0f} s  {watch.name}: {plain(text)}")

    watch.kube = watch.kube.patient(report, limit_s=timeout_s)
    for _ in polls(timeout_s, POLL_S):
        try:
            current = watch.poll()
            for text in [] if current.ended else watch.restart(time.monotonic() - start):
                report(text)
            reasons = [] if current.ended else watch.reasons()
        except KubeError as error:
            if error.outage:
                got = f"no answer from the API server ({error.silence or error})"
                fix = "run this again to follow it; it continues to train"
                message = str(Problem(f"job {watch.name}", got, "its state", fix))
                raise KubeError(message, error.status, error.silence) from None
            raise
        if current.ended:
            watch.drain()
            current = watch.end(current)
        line = f"{current.name}, {watch.running()}/{len(watch.pods)} pods ready"
        training = watch.progress().text()
        line += f", {training}" if training else ""
        line += f" ({reasons[0]})" if reasons else ""
        if line != last_line:
            report(line)
            last_line = line
        for text in watch.losses():
            report(text)
        if current.ended:
            return current
        if why := watch.why(time.monotonic() - start):
            for text in why.splitlines():
                report(text)
    return None
