"""What the trainer does when storage is not as it should be: keys, full pipes, volumes that refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.trainer.harness import Root


def outcome(root: Root, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a case of inside/storage.py returns, and the events that it printed before."""
    *events, last = [json.loads(line) for line in root.inside("storage.py", *words).splitlines()]
    return last, events


@pytest.mark.parametrize("key", ["../../evil", "a/../../evil", "/tmp/absolute", ".."])
def test_d12_a_key_outside_the_folder_is_refused_and_nothing_is_written(root: Root, key: str) -> None:
    case, _ = outcome(root, "keys", key)
    assert case["refusal"] == (
        f"memory://runs has the key {key!r}, which is not a path in a folder. Fix: rename the object, or remove it")
    assert (case["files"], case["absolute"]) == ([], False)


def test_d12_other_keys_with_dots_are_downloaded(root: Root) -> None:
    case, _ = outcome(root, "keys", "a/..b/c..", "a/...")
    assert (case["refusal"], case["files"]) == ("", ["in/a/...", "in/a/..b/c..", "in/a/good"])


@pytest.mark.parametrize(("kind", "reason"), [
    ("permission", "Permission denied"), ("client", "the session is closed"), ("key", "KeyError"),
])
def test_d12_the_upload_goes_on_after_any_error_and_reports_it(root: Root, kind: str, reason: str) -> None:
    case, events = outcome(root, "thread", kind)
    assert case == {"alive": True, "uploaded": True}
    assert [event["event"] for event in events] == ["upload_failed"]
    assert reason in events[0]["reason"]


def test_d12_an_object_that_is_gone_already_can_be_removed(root: Root) -> None:
    assert outcome(root, "gone")[0] == {"refusal": "", "left": []}


def test_d12_an_old_checkpoint_stays_in_the_bucket_until_the_new_one_is_there(root: Root) -> None:
    assert outcome(root, "beside")[0]["after"] == [["/runs/old"], ["/runs/new"]]


def test_d13_lines_of_the_processes_of_a_pod_never_mix(root: Root) -> None:
    assert outcome(root, "lines")[0] == {"codes": [0, 0, 0], "lines": 120, "broken": 0}


def test_d15_an_old_checkpoint_that_cannot_be_removed_or_listed_is_no_failure_of_the_new_one(root: Root) -> None:
    case, events = outcome(root, "rotate")
    assert case == {"failure": "", "names": [".writing-step-00000001", "step-00000002", "step-00000003"]}
    kinds = ["checkpoint", "checkpoint", "rotation_failed", "checkpoint", "rotation_failed"]
    assert [event["event"] for event in events] == kinds
    assert all("Input/output error" in event["reason"] for event in events if event["event"] == "rotation_failed")


def test_d15_a_checkpoint_that_replaces_another_is_killed_anywhere_and_one_of_them_is_there(root: Root) -> None:
    outcomes = outcome(root, "replace")[0]["outcomes"]
    assert len(outcomes) > 5
    assert [code for code, _, _ in outcomes] == [-9] * (len(outcomes) - 1) + [0]
    wrong = {at: (first, left) for at, (_, first, left) in enumerate(outcomes) if first not in (0.0, 1.0)}
    assert not wrong
    assert outcomes[-1][1:] == [1.0, ["step-00000001"]]
