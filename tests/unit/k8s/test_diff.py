"""One walk with two rules: for a job, to which others add, and for parts of objects that are ours alone."""

from __future__ import annotations

from typing import Any

import pytest

from gangplank.k8s.diff import differences, spelled, unlike


@pytest.mark.parametrize(
    ("described", "live"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),  # a webhook has added b
        ({"a": []}, {}),
        ({"a": {}}, {"a": None}),
        ({"a": None}, {"a": ""}),
        ({"a": {"b": {}}}, {"a": {"b": {"added": 1}}}),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "added": 2}]}),
    ],
)
def test_what_others_add_and_what_is_empty_is_no_difference_of_a_job(described: Any, live: Any) -> None:
    assert list(differences(described, live)) == []


@pytest.mark.parametrize(
    ("described", "live", "line"),
    [
        ({"a": 0}, {}, "a: got None, described 0"),
        ({"a": False}, {}, "a: got None, described False"),
        ({"a": [1]}, {"a": []}, "a: got a list of 0, described a list of 1"),
        ({"a": []}, {"a": [1]}, "a: got a list of 1, described a list of 0"),
        ({"a": [{"b": [1, 2]}]}, {"a": [{"b": [3]}]}, "a[0].b: got a list of 1, described a list of 2"),
        ({"a": {"b": 1}}, {"a": 1}, "a: got 1, described {'b': 1}"),
        ({"labels": {"a/b.c": "x"}}, {"labels": {"a/b.c": "y"}}, "labels.a/b.c: got 'y', described 'x'"),
    ],
)
def test_what_differs_is_one_line(described: Any, live: Any, line: str) -> None:
    assert [*differences(described, live)] == [line]


def test_a_part_that_is_ours_has_no_more_than_we_put_there() -> None:
    described, live = {"a": {"x": 1}, "b": [1, 2]}, {"a": {"x": 1, "y/z": 2}, "b": [1], "c": [], "d": 0}
    unequal = unlike(described, live, ("spec",), exact=True, entries=True)
    places = [(spelled(path), *values) for path, *values in unequal]
    assert places == [('spec.a["y/z"]', None, 2), ("spec.b[1]", 2, None), ("spec.d", None, 0)]
