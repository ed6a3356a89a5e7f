"""The log of one run of a container, whose node knows of the next run before its status does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from urllib3.exceptions import HTTPError

from gangplank.cluster import logs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangplank.spec import Json

OLD = [b"2026-11-25T04:00:00.1Z old 1\n", b"2026-11-25T04:00:00.2Z old 2\n", b"2026-11-25T04:00:00.3Z old 3\n"]
NEW = [b"2026-11-25T04:00:02.1Z new 1\n"]
POD: Json = {"metadata": {"name": "a", "namespace": "d", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}


class Node:
    """Answers as a kubelet does: `cut` lines of the first run, then the second run's, and its status comes later."""

    def __init__(self, cut: int, late: int) -> None:
        self.cut, self.late, self.opened = cut, late, 0

    def get(self, _: str) -> Json:
        if self.opened > 1:
            self.late -= 1
        state = {"name": "c", "restartCount": int(self.late < 0), "state": {"running": {}}}
        return {**POD, "status": {"containerStatuses": [state]}}

    def open(self, _method: str, _where: str, query: Mapping[str, str]) -> Any:
        self.opened += 1
        if query.get("previous"):
            return Answer(OLD)
        return Answer(OLD[: self.cut] if self.opened == 1 else NEW)


class Answer:
    """The body of an answer."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def stream(self, *, decode_content: bool) -> Iterator[bytes]:
        assert decode_content
        yield from self.parts

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("cut", [0, 1, 3])
@pytest.mark.parametrize("late", [0, 3])
def test_each_line_of_a_run_comes_once_and_none_of_the_next_run(
    monkeypatch: pytest.MonkeyPatch, cut: int, late: int
) -> None:
    monkeypatch.setattr(logs, "PAUSES_S", (0.001, 0.002))
    kube: Any = Node(cut, late)
    lines = logs.follow(kube, POD, "c")
    assert [*lines] == ["old 1", "old 2", "old 3"]


def test_a_log_that_stands_still_is_given_up_once_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """`proof` and `report` waited for as long as the pod lived."""
    class Silent(Answer):
        def stream(self, *, decode_content: bool) -> Iterator[bytes]:
            assert decode_content
            yield from self.parts
            raise HTTPError("no byte within 30 s")

    monkeypatch.setattr(logs, "PAUSES_S", (0.001, 0.002))
    kube: Any = Node(3, 1_000_000)
    monkeypatch.setattr(kube, "open", lambda *_, **__: Silent(OLD))
    asked = iter([False, False, True])
    assert [*logs.follow(kube, POD, "c", enough=lambda: next(asked))] == ["old 1", "old 2", "old 3"]


def test_a_log_that_was_rotated_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSES_S", (0.001, 0.002))
    monkeypatch.setattr(logs, "STATUS_S", 0.01)
    kube: Any = Node(2, 1_000_000)
    lines = logs.follow(kube, POD, "c")
    assert [next(lines) for _ in range(4)] == ["old 1", "old 2", logs.ROTATED, "new 1"]
