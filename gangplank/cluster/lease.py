"""One run at a time changes a cluster, or runs one of its jobs: a Lease names the process that does.

On this machine the Lease counts while that process lives, or a fork of it. Of a process elsewhere it counts until
nobody has renewed it for its duration, as this run observes it: clocks of machines differ. lease_keeper.py renews it.
Every trainer of a team may write anything into the Leases of its jobs, and an administrator's run reads them.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

from gangplank.cluster.client import CONFLICT, FORBIDDEN, NOT_FOUND, WRITER
from gangplank.errors import GangplankError, KubeError, Problem
from gangplank.processes import boot, is_hidden, living
from gangplank.runs import cut, pid_space, title, way_out
from gangplank.site.rights import LOCK
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

GROUP = "coordination.k8s.io/v1"
OF_CLUSTER = ("default", "gangplank")  # namespace and name: every cluster has the first, and no platform manages it
HOLDER = "gangplank.dev/holder"  # annotation: what identifies the process
IDENTITY = ("pid", "started", "boot", "pids")
NUMBERS, TEXTS = ("pid", "started"), ("boot", "pids", "user", "host", "since")  # of a record
DURATION_S = 60  # also the most that a Lease counts without a change, whatever it says itself
POLL_S = 1.0
LEFT_S = 3600  # without renewal, by the clock of this machine
PATIENCE_S = 900  # for another run, where nobody says how long
FREE_S = 10.0
QUOTA = "exceeded quota"  # in a refusal: a team's quota counts its Leases
REFUSED = {400, FORBIDDEN, 422}  # a webhook of a policy that names no status; a ValidatingAdmissionPolicy


class Lock:
    """The lock of a cluster, or of one job in it."""

    def __init__(self, kube: Kube, job: str = "", namespace: str = "") -> None:
        self.kube, self.title = kube, f"job {namespace}/{job}" if job else f"cluster {kube.api.configuration.host}"
        self.namespace, self.name = (namespace, f"gangplank-job-{job}") if job else OF_CLUSTER
        self.collection = f"/apis/{GROUP}/namespaces/{self.namespace}/leases"
        self.where = f"{self.collection}/{self.name}"

    @property
    def place(self) -> str:
        """What distinguishes it from any other lock."""
        return f"{self.kube.api.configuration.host}{self.where}"

    def hold(self, record: dict[str, Any], say: Callable[[str], None], limit_s: float) -> bool:
        """Take the lock for a process, and wait for another that has it; false if it was the process's already.

        Also false without a namespace, which leaves nothing to lock. A run that may not write Leases, or on a machine
        without /proc, says so and continues. Raises GangplankError at the time limit.
        """
        if "started" not in record:
            say(f"{self.title}: other runs are not kept out meanwhile, since this machine has no /proc")
            return False
        try:
            return self._hold(record, say, limit_s)
        except KubeError as error:
            if error.status in REFUSED:
                say(self.unlocked(error))
            elif error.status != NOT_FOUND:
                raise
            return False

    def unlocked(self, error: KubeError) -> str:
        """Why a run continues without the lock."""
        got = f"an account that may not lock it ({error})"
        fix = f"let it {', '.join(LOCK)} in the namespace {self.namespace}"
        if QUOTA in str(error):
            left = f"kubectl get leases -n {self.namespace}"
            fix = f"have an administrator delete Leases of jobs that nobody runs ({left})"
        fix += "; otherwise start no other run meanwhile"
        return str(Problem(self.title, got, "one that keeps other runs out meanwhile", fix))

    def wait(self, record: dict[str, Any], say: Callable[[str], None], limit_s: float) -> None:
        """Wait while another process than the recorded one has the lock, and do not take it.

        An account that may not read Leases waits for nobody. Raises GangplankError at the time limit.
        """
        try:
            next(self._turns(record, say, limit_s, takes=False), None)
        except KubeError as error:
            if error.status not in {*REFUSED, NOT_FOUND}:
                raise

    def _hold(self, record: dict[str, Any], say: Callable[[str], None], limit_s: float) -> bool:
        tried = False
        for lease in self._turns(record, say, limit_s, takes=True):
            tried = True
            if self._take(lease, record):
                return True
        return tried  # a request of its own was carried out, and only the answer lost

    def _turns(
        self, record: dict[str, Any], say: Callable[[str], None], limit_s: float, *, takes: bool
    ) -> Iterator[Json | None]:
        """The Lease each time that nobody has the lock, until the process itself has it."""
        name, said, fix = "another run, which was faster", "", ""
        seen, unchanged_s = "", 0.0
        for _ in polls(limit_s, POLL_S):
            lease = self.kube.get(self.where)
            other = holder_of(lease) if lease else {}
            if other and is_same(other, record):
                return
            version = lease["metadata"].get("resourceVersion", "") if lease else ""
            # Counted in answers: while the API server is away, nobody can renew.
            unchanged_s = unchanged_s + POLL_S if version == seen else 0.0
            seen = version
            if lease is None or not counts(lease, other, unchanged_s) or (not takes and is_left(lease)):
                yield lease
                continue
            alive = bool(lives(other))
            if alive:
                other = living(other) or other  # perhaps a fork
            name, fix = names(lease, other, alive=alive)
            if name != said:
                say(f"{self.title} is in use by {name}: waiting for it up to {limit_s:.0f} s")
            said = name
        raise GangplankError(late(self.title, name, "its end", limit_s, f"{fix or 'wait for it'}, then run it again"))

    def _take(self, lease: Json | None, record: dict[str, Any]) -> bool:
        """Write the record unless another run was faster."""
        now = _now()
        spec = {"holderIdentity": title(record), "leaseDurationSeconds": DURATION_S, "acquireTime": now}
        meta = {"name": self.name, "namespace": self.namespace, "annotations": {HOLDER: json.dumps(record)}}
        manifest: Json = {
            "apiVersion": GROUP,
            "kind": "Lease",
            "metadata": meta,
            "spec": {**spec, "renewTime": now},
        }
        try:
            if lease is None:
                self.kube.post(self.collection, manifest, {"fieldManager": WRITER})
            else:
                meta["resourceVersion"] = lease["metadata"]["resourceVersion"]
                self.kube.call("PATCH", self.where, manifest)
        except KubeError as error:
            if error.status == CONFLICT or (lease and error.status == NOT_FOUND):
                return False
            raise
        return True

    def renew(self, record: dict[str, Any]) -> bool:
        """Note that the process still lives; false if the lock is no longer its own."""
        lease = self.kube.get(self.where)
        if lease is None or not is_same(holder_of(lease), record):
            return False
        meta = {"resourceVersion": lease["metadata"]["resourceVersion"]}
        try:
            self.kube.call("PATCH", self.where, {"metadata": meta, "spec": {"renewTime": _now()}})
        except KubeError as error:
            if error.status not in {CONFLICT, NOT_FOUND}:
                raise
            return error.status == CONFLICT  # another run wrote it meanwhile: looked at again next time
        return True

    def free(self, record: dict[str, Any]) -> None:
        """Remove the Lease if it is this process's."""
        try:
            for _ in polls(FREE_S, 0.0):  # its keeper may renew it at the same moment
                lease = self.kube.get(self.where)
                if lease is None or not is_same(holder_of(lease), record):
                    return
                meta = lease["metadata"]
                self.kube.delete_at(self.where, meta["uid"], version=meta["resourceVersion"])
        except KubeError as error:
            if error.status != FORBIDDEN:  # said when it was to be taken
                raise


def holder_of(lease: Json) -> dict[str, Any]:
    """The record in a Lease; empty if there is none that a run may have written."""
    try:
        record = json.loads(lease["metadata"]["annotations"][HOLDER])
        numbers = [record[key] for key in NUMBERS]
        texts = [*(record[key] for key in TEXTS), record.get("playbooks", "")]
    except (ValueError, LookupError, TypeError, RecursionError):
        return {}
    usable = {type(number) for number in numbers} == {int} and {type(text) for text in texts} == {str}
    return dict(record) if usable and 0 < record["pid"] < 2**31 else {}


def is_same(record: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records are of one process."""
    return bool(record) and all(record.get(key) == other.get(key) for key in IDENTITY)


def lives(record: dict[str, Any]) -> bool | None:
    """Whether a recorded process of this machine lives; None if that cannot be known from here."""
    try:
        here = record["boot"] == boot() and record["pids"] == pid_space()
    except (OSError, LookupError):
        return None
    if not here or is_hidden(record["pid"]):
        return None
    return bool(living(record))


def counts(lease: Json, record: dict[str, Any], unchanged_s: float) -> bool:
    """Whether a Lease counts that has not changed for so long."""
    spec = lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return False
    alive = lives(record)
    duration_s = min(spec.get("leaseDurationSeconds") or DURATION_S, DURATION_S)
    return unchanged_s < duration_s if alive is None else alive


def is_left(lease: Json) -> bool:
    """Whether a Lease is of a process that was lost so long ago that clocks cannot differ as much.

    Who takes the lock does not rely on that. Who only waits would wait for a minute at each command.
    """
    renewed = (lease.get("spec") or {}).get("renewTime")
    if not renewed or lives(holder_of(lease)):
        return False
    return (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(renewed)).total_seconds() > LEFT_S


def names(lease: Json, record: dict[str, Any], *, alive: bool) -> tuple[str, str]:
    """A holder, and how to be rid of it."""
    if not record:
        return cut(str(lease["spec"]["holderIdentity"])), "wait for it or end it"
    return title(record), way_out(record, alive=alive)


def _now() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
