"""Quantities are exact, and spelled as the API server spells them."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangplank.k8s import quantity


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1e3", "1k"),
        ("1000000", "1M"),
        ("0", "0"),
        ("1025Mi", "1025Mi"),
        ("100Ki", "100Ki"),
        ("1500m", "1500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("0.1n", "1n"),
    ],
)
def test_spells_as_the_api_server(text: str, normal: str) -> None:
    assert quantity.normal(text) == normal


@pytest.mark.parametrize(
    "text", ["", "1 Gi", "Gi", "1gi", "0x10", "1_000", "１", "--1", "1e99", "9" * 40, "NaN", "1KiB"]
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a quantity|out of range"):
        quantity.parse(text)


@given(st.integers(0, 2**62), st.booleans())
def test_what_is_spelled_is_read_back(value: int, binary: bool) -> None:
    assert quantity.parse(quantity.canonical(Fraction(value), binary=binary)) == value


@given(st.integers(0, 10**15), st.sampled_from(["n", "u", "m"]))
def test_fractions_are_read_back(value: int, suffix: str) -> None:
    exact = quantity.parse(f"{value}{suffix}")
    assert quantity.parse(quantity.canonical(exact)) == exact
