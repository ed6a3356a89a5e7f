"""D10: a node is Ready by the word of the kubelet that runs now, not of one from before a reboot."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

import pytest

from lab.host.ready import unready

START = 1_763_800_000.7  # 2025-11-22T08:26:40Z, and a fraction


@pytest.mark.parametrize(
    ("heartbeat", "starts", "problem"),
    [
        ("2025-11-22T08:26:39Z", {"node-0": START}, "node node-0 has not reported since its kubelet started"),
        ("2025-11-22T08:26:40Z", {"node-0": START}, ""),
        ("2025-11-22T08:27:00Z", {"node-0": START, "node-1": START + 900}, ""),
        ("2025-11-22T08:27:00Z", {"node-1": START}, "node node-0 has not reported since its kubelet started"),
    ],
)
def test_d10_a_condition_of_before_the_start_is_not_believed(
    heartbeat: str, starts: dict[str, float], problem: str
) -> None:
    condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}
    nodes = {"items": [{"metadata": {"name": "node-0"}, "status": {"conditions": [condition]}}]}
    api: Any = type("Api", (), {"get": lambda _, path: json.dumps(nodes).encode() if path != "/readyz" else b"ok"})()
    assert unready(api, ["node-0"], starts) == problem


ERRORS = [http.client.IncompleteRead(b"{"), TimeoutError("slow"), ssl.SSLError("cut"), ValueError()]


@pytest.mark.parametrize("error", ERRORS)
def test_d4_an_answer_that_breaks_off_is_not_the_end_of_the_wait(error: Exception) -> None:
    def get(*_: object) -> bytes:
        raise error

    api: Any = type("Api", (), {"get": get})()
    assert unready(api, ["node-0"], {}).startswith("the API does not answer (")
