"""An etcd that refuses writes and cannot be helped: the message has its reason."""

from __future__ import annotations

import http.client
import io
import json
import urllib.error
from email.message import Message
from typing import Any

import pytest

from lab.errors import LabError
from lab.host.etcd import Etcd, heal

FULL = "write /mnt/etcd/data/member/snap/db.tmp: no space left on device"


class Full(Etcd):
    """One with a space alarm that fails while it defragments."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def call(self, method: str, **_: object) -> dict[str, Any]:
        if method == "maintenance/defragment":
            raise self.failure
        alarms = [{"memberID": "1", "alarm": "NOSPACE"}]
        return {"alarms": alarms, "header": {"revision": "1"}, "dbSize": "9", "dbSizeQuota": "10"}


@pytest.mark.parametrize(("failure", "reason"), [
    (urllib.error.HTTPError("u", 500, "Error", Message(), io.BytesIO(json.dumps({"message": FULL}).encode())), FULL),
    (urllib.error.HTTPError("u", 502, "Bad Gateway", Message(), io.BytesIO(b"")), "HTTP Error 502: Bad Gateway"),
    (TimeoutError("timed out"), "timed out"),
    (http.client.IncompleteRead(b"{"), "IncompleteRead(1 bytes read)"),
    (json.JSONDecodeError("Expecting value", "", 0), "Expecting value: line 1 column 1 (char 0)"),
])  # fmt: skip
def test_d11_an_etcd_that_cannot_defragment_is_named_with_its_reason(failure: Exception, reason: str) -> None:
    with pytest.raises(LabError) as refusal:
        heal(Full(failure), 0)
    assert str(refusal.value).startswith(f"etcd: got {reason}, expected space in its file. Fix: free as much of")


def test_d11_an_answer_that_breaks_off_is_waited_past(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = Full(OSError())
    answers = iter([http.client.IncompleteRead(b"{"), http.client.BadStatusLine(""), None])

    def call(*_: object, **__: object) -> dict[str, Any]:
        if failure := next(answers):
            raise failure
        return {"alarms": []}

    monkeypatch.setattr(etcd, "call", call)
    assert heal(etcd, 10) == ""
