"""How a job's own status is read, whatever its controller leaves out."""

from __future__ import annotations

from gangplank.cluster.situation import decided, ending


def test_conditions_of_volcano_have_no_type() -> None:
    live = {"status": {"state": {"phase": "Running"}, "conditions": [{"status": "Pending"}, {"status": "Running"}]}}
    assert ending(live).name == "Running"


def test_a_job_whose_pods_are_being_removed_has_failed() -> None:
    target = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded", "message": "was too long"}
    assert ending({"status": {"active": 1, "conditions": [target]}}).failed
    assert ending({"status": {"active": 1, "conditions": [target]}}).reason == "was too long"


def test_a_pod_that_is_only_tried_has_nothing_that_a_controller_would_choose() -> None:
    """The API server refused the placeholder of a uid in a label, and that was called the cause."""
    assert decided({"labels": {"a": "<uid>"}, "env": ["x-<random>"]}) == {"labels": {"a": "0"}, "env": ["x-0"]}
