"""D4: an answer with status 200 that no API server gave, such as a login page's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli import main
from gangplank.cluster import patience
from gangplank.cluster.client import Kube
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from tests.unit.conftest import Api

LINEAR = str(Path(__file__).resolve().parents[3] / "jobs/linear.yml")
FOREIGN = {
    "a page": b"<!DOCTYPE html><title>Sign in</title>",
    "nothing": b"",
    "a list": b"[]",
    "text": b"null",
    "half an object": b'{"items": [',
    "bytes": b"\xff\xfe\x00",
    "nested without an end": b"[" * 100_000,
}


def replaces(api: Api, monkeypatch: pytest.MonkeyPatch, text: bytes, times: int = 10**6, code: int = 200) -> None:
    """Something else answers so many requests in the server's place; the server carries them out."""
    ours, left = api.answer, times

    def answer(*words: Any) -> tuple[int, bytes]:
        nonlocal left
        left -= 1
        return (code, text) if left >= 0 and ours(*words) else ours(*words)

    monkeypatch.setattr(api, "answer", answer)


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(
    "words", [("submit", LINEAR), ("status",), ("status", "digits"), ("logs", "digits"), ("delete", "digits"),
              ("scale", "digits", "2"), ("proof", "digits"), ("fetch", "digits")], ids=" ".join
)  # fmt: skip
def test_d4_a_command_says_in_one_message_that_something_else_answers(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: bytes
) -> None:
    replaces(api, monkeypatch, text)
    code, err = main(words), capsys.readouterr().err
    lines = [line for line in err.splitlines() if not line.startswith("cluster: ")]  # named before it is changed
    assert (code, len(lines)) == (4, 1), err
    assert "expected a JSON object, as an API server sends. Fix: check the server's address" in err


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_d4_who_is_patient_asks_again(api: Api, monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(patience, "RETRY_S", 0.01)
    replaces(api, monkeypatch, text, times=3)
    said: list[str] = []
    assert Kube().patient(said.append).call("GET", "/version")["gitVersion"]
    assert "something else answers in its place" in said[0]


def test_d4_an_object_whose_creation_was_not_confirmed_is_found(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "RETRY_S", 0.01)
    replaces(api, monkeypatch, FOREIGN["a page"], times=1)
    where = "/api/v1/namespaces/x/pods"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"}}
    assert Kube().patient().post(where, pod)["metadata"]["name"] == "a"
    assert [*api.objects] == [f"{where}/a"]


def test_d4_a_write_is_not_sent_twice(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    replaces(api, monkeypatch, FOREIGN["a page"])
    with pytest.raises(KubeError, match="as an API server sends"):
        Kube().patient().call("DELETE", "/api/v1/namespaces/x")
    assert len(api.seen) == 1
