"""YAML's traps are refused with their line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangplank.errors import SpecError
from gangplank.reading.strict_yaml import documents


def refusal(text: str, *, strict: bool = True) -> str:
    with pytest.raises(SpecError) as caught:
        documents(text, "a.yml", strict=strict)
    return str(caught.value)


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("no", "a boolean"),
        ("On", "a boolean"),
        ("y", "a boolean"),
        ("True", "a boolean"),
        ("1_000", "underscores"),
        ("12:30", "base 60"),
        ("190:20:30", "base 60"),
        ("010", "octal"),
        ("0x1F", "another base"),
        ("2024-01-01", "a date"),
        (".inf", "a number that is not finite"),
        (".nan", "a number that is not finite"),
    ],
)
def test_refuses_bare_words_that_readers_read_differently(word: str, kind: str) -> None:
    text = refusal(f"a: 1\nb: {word}\n")
    assert "line 2" in text
    assert kind in text
    assert documents(f'b: "{word}"', "a.yml", strict=True) == [{"b": word}]


def test_keeps_what_all_readers_agree_on() -> None:
    text = "a: true\nb: 1\nc: 1.10\nd: text\ne: -3\nf: ~\n"
    assert documents(text, "a.yml", strict=True) == [{"a": True, "b": 1, "c": 1.1, "d": "text", "e": -3, "f": None}]


def test_takes_a_bare_on_as_the_name_of_a_field() -> None:
    assert documents("on: master", "a.yml", strict=True) == [{"on": "master"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &t {name: x, b: 1}\nl: {<<: *t, name: w}", {"b": 1, "name": "w"}),
        ("a: &p {a: 1}\nb: &q {a: 2, b: 3}\nl: {<<: [*p, *q], c: 1}", {"a": 1, "b": 3, "c": 1}),
        ("a: &p {a: 1}\nb: &q {<<: *p, a: 2}\nl: {<<: *q, b: 4}", {"a": 2, "b": 4}),
    ],
)
def test_takes_a_key_that_overrides_a_merged_one(text: str, value: object) -> None:
    assert documents(text, "a.yml", strict=False)[0]["l"] == value
    with pytest.raises(SpecError, match="twice"):
        documents(f"{text[:-1]}, c: 1, c: 2}}", "a.yml", strict=False)


@pytest.mark.parametrize("strict", [True, False])
def test_refuses_a_key_that_stands_twice(strict: bool) -> None:
    assert "line 3" in refusal("a:\n  b: 1\n  b: 2\n", strict=strict)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 1"),
        ("a:\n\t- b", "tabs do not indent"),
        ("a: &x [1]\nb: *x", "anchors hide"),
        ("a: !!python/object:os.system x", "constructor"),
        ("a:\n  b: !!bool yesno", "line 2, column 6: got a value that its tag bool does not have"),
        ("a: !!int ''", "remove the word that begins with !"),
        ("a: !!float _", "its tag float"),
        ("a: !!binary aGVsbG8=", "line 1, column 4: got the tag !!binary, expected YAML without tags"),
        ("a: !!timestamp today", "its tag timestamp"),
        ("a: !!map [1]", "its tag map"),
        ("? [a]\n: 1", "not a plain word"),
        ("\x00", "UTF-8"),
        ("[" * 5000, "recursion"),
        ("a: " + "b" * 5_000_000, "at most"),
    ],
)
def test_refuses_what_is_no_yaml_with_one_message(text: str, said: str) -> None:
    assert said in refusal(text)


def test_a_nest_of_aliases_is_refused_or_small() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{after}: &{after} [*{before},*{before},*{before},*{before},*{before},*{before}]\n"
        for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert "anchors hide" in refusal(bomb)
    assert "stand for each other" in refusal(bomb, strict=False)
    assert "stand for each other" in refusal("a: &a [*a]", strict=False)
    assert documents("a: &a [1]\nb: *a", "a.yml", strict=False) == [{"a": [1], "b": [1]}]


def test_reads_many_documents_and_leaves_empty_ones_out() -> None:
    assert documents("a: 1\n---\n---\nb: 2\n", "a.yml", strict=False) == [{"a": 1}, {"b": 2}]


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        documents(text, "a.yml", strict=True)
    except SpecError as error:
        assert str(error).startswith("a.yml: ")
