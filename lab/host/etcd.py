"""etcd's space alarm, noticed and ended.

Once its file has reached its quota, etcd refuses writes until its alarm is ended, however much space there is again.
https://etcd.io/docs/v3.6/op-guide/maintenance/#space-quota
"""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem
from gangplank.wait import late, polls
from lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

ADDRESS = "https://127.0.0.1:2379"  # in the network namespace of the node with the control plane
POLL_S = 0.1
REQUEST_S = 60  # to defragment 2 GiB on a slow disk
FULL = 0.9  # a file that is larger than this share of its quota after all was done: the objects themselves fill it
SPACE = "NOSPACE"
FAILURES = (OSError, http.client.HTTPException, ValueError)  # of a request; also an answer that breaks off
COMPACTED = 11  # OUT_OF_RANGE: this revision was compacted already


class Etcd:
    """Requests to the JSON gateway of one etcd, with the API server's certificate."""

    def __init__(self, pki: Path, address: str = ADDRESS) -> None:
        """Load the certificates; raises OSError."""
        self.address = address
        context = ssl.create_default_context(cafile=pki / "etcd-ca.crt")
        context.load_cert_chain(pki / "etcd-client.crt", pki / "etcd-client.key")
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        self.opener = urllib.request.build_opener(*handlers)

    def call(self, method: str, **arguments: object) -> dict[str, Any]:
        """One request; the answer. Raises one of FAILURES."""
        url, body = f"{self.address}/v3/{method}", json.dumps(arguments).encode()
        with self.opener.open(url, body, timeout=REQUEST_S) as answer:
            fields: dict[str, Any] = json.loads(answer.read())
        return fields

    def alarms(self) -> list[dict[str, Any]]:
        """The alarms that are on: member and kind."""
        return list(self.call("maintenance/alarm", action="GET").get("alarms", []))

    def compact(self) -> None:
        """Forget every revision but the present ones."""
        revision = self.call("maintenance/status")["header"]["revision"]
        try:
            self.call("kv/compaction", revision=revision, physical=True)
        except urllib.error.HTTPError as error:
            with error:
                if json.loads(error.read()).get("code") != COMPACTED:
                    raise

    def size(self) -> tuple[int, int]:
        """The size of its file, and the quota, in bytes."""
        status = self.call("maintenance/status")
        return int(status["dbSize"]), int(status["dbSizeQuota"])


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def wait(etcd: Etcd, timeout_s: float) -> list[dict[str, Any]]:
    """The alarms, as soon as etcd answers; raises LabError at the time limit."""
    problem = ""
    for _ in polls(timeout_s, POLL_S):
        try:
            return etcd.alarms()
        except FAILURES as error:
            problem = str(error)
    fix = "correct what logs/etcd.log in the lab's folder reports, then run it again"
    raise LabError(late("etcd", f"no answer ({problem})", "an answer", timeout_s, fix))


def heal(etcd: Etcd, timeout_s: float) -> str:
    """End a space alarm: compact, defragment, disarm. Return what was done, '' without an alarm.

    Raises LabError if that makes no space, or if etcd does not answer.
    """
    alarms = [alarm for alarm in wait(etcd, timeout_s) if alarm["alarm"] == SPACE]
    if not alarms:
        return ""
    try:
        return _make_space(etcd, alarms)
    except FAILURES as error:
        fix = "free as much of the disk as its file has, or correct what logs/etcd.log in the lab's folder reports"
        problem = Problem("etcd", _reason(error), "space in its file", f"{fix}, then run it again")
        raise LabError(str(problem)) from error


def _reason(error: Exception) -> str:
    """Why a request failed: what etcd says of it, if it answered."""
    if isinstance(error, urllib.error.HTTPError):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError), error:
            return str(json.loads(error.read())["message"])
    return str(error)


def _make_space(etcd: Etcd, alarms: list[dict[str, Any]]) -> str:
    """Compact, defragment, disarm; what was done. Raises one of FAILURES."""
    before, quota = etcd.size()
    etcd.compact()
    etcd.call("maintenance/defragment")
    after, _ = etcd.size()
    if after > FULL * quota:
        got, fix = f"{_mib(after)} of objects", "raise lab_cluster_etcd_quota_mib, then run it again and remove objects"
        raise LabError(str(Problem("etcd", got, f"at most {FULL:.0%} of its quota of {_mib(quota)}", fix)))
    for alarm in alarms:
        etcd.call("maintenance/alarm", action="DEACTIVATE", memberID=alarm["memberID"], alarm=SPACE)
    return (
        f"etcd: it refused writes, with {_mib(before)} in its file and a quota of {_mib(quota)}; "
        f"compacted and defragmented to {_mib(after)}, it takes them again"
    )
