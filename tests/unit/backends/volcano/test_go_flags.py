"""Arguments of plugins are understood as Go's flag package does, its silences included."""

from __future__ import annotations

import pytest

from gangplank.backends.volcano import go_flags

FLAGS: dict[str, go_flags.Value] = {"port": 1, "name": "n", "on": False}


@pytest.mark.parametrize(
    ("words", "values", "trouble"),
    [
        ([], (1, "n", False), ""),
        (["--port=5"], (5, "n", False), ""),
        (["-port=5"], (5, "n", False), ""),
        (["--port", "5"], (5, "n", False), ""),
        (["-port", "0x10"], (16, "n", False), ""),
        (["--port=1_000"], (1000, "n", False), ""),
        (["--port=010"], (8, "n", False), ""),
        (["--port=-3"], (-3, "n", False), ""),
        (["--port= 5"], (0, "n", False), "not a value for"),
        (["--port=5.0", "--name=x"], (0, "n", False), "not a value for"),
        (["--port=99999999999999999999"], (2**63 - 1, "n", False), "not a value for"),
        (["--port"], (1, "n", False), "has no value"),
        (["--name="], (1, "", False), ""),
        (["--name", "--port=5"], (1, "--port=5", False), ""),
        (["--name=a=b"], (1, "a=b", False), ""),
        (["--on"], (1, "n", True), ""),
        (["--on=T", "--port=2"], (2, "n", True), ""),
        (["--on", "true", "--port=2"], (1, "n", True), "it is not a flag"),
        (["--on=yes"], (1, "n", False), "not a value for"),
        (["word", "--port=2"], (1, "n", False), "it is not a flag"),
        (["-", "--port=2"], (1, "n", False), "it is not a flag"),
        (["", "--port=2"], (1, "n", False), "it is not a flag"),
        (["--port=2", "--", "--port=3"], (2, "n", False), "is ignored"),
        (["--port=2", "--"], (2, "n", False), ""),
        (["---port=2"], (1, "n", False), "is not a flag"),
        (["--=2"], (1, "n", False), "is not a flag"),
        (["--nope", "--port=2"], (1, "n", False), "not a flag of the plugin"),
        (["--port=2 --name=x"], (0, "n", False), "not a value for"),
    ],
)
def test_sets_what_go_would_set(words: list[str], values: tuple[int, str, bool], trouble: str) -> None:
    parsed = go_flags.parse(words, FLAGS)
    assert tuple(parsed.values.values()) == values
    assert trouble in parsed.trouble
    assert bool(trouble) == bool(parsed.trouble)


def test_leaves_the_defaults_alone() -> None:
    go_flags.parse(["--port=5"], FLAGS)
    assert FLAGS == {"port": 1, "name": "n", "on": False}
