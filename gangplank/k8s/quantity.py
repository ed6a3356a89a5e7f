"""Kubernetes quantities ("500m", "1Gi") as exact numbers, and back in the API server's own spelling.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from fractions import Fraction

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
LIMIT = 2**63 - 1  # the API server stores a quantity in 64 bits and silently cuts what is larger
PATTERN = r"(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d{1,3})?"  # without a sign
_FORM = re.compile(rf"([+-]?){PATTERN}", re.ASCII)


def parse(text: str) -> Fraction:
    """The exact value of a quantity in its base unit (cores, bytes, pieces); ValueError if it is not one.

    >>> parse("500m"), parse("1Gi"), parse("1e3")
    (Fraction(1, 2), Fraction(1073741824, 1), Fraction(1000, 1))
    """
    match = _FORM.fullmatch(text) if len(text) <= 64 else None
    if not match:
        raise ValueError(f"{text!r} is not a quantity")
    sign, digits, suffix = match.group(1), match.group(2), match.group(3) or ""
    value = Fraction(digits + "0" if digits.endswith(".") else digits)
    if suffix in BINARY:
        value *= BINARY[suffix]
    elif suffix in DECIMAL:
        value *= DECIMAL[suffix]
    else:
        exponent = int(suffix[1:])
        if abs(exponent) > 30:
            raise ValueError(f"{text!r} is out of range")
        value *= Fraction(10) ** exponent
    if value > LIMIT:
        raise ValueError(f"{text!r} is out of range")
    return -value if sign == "-" else value


def is_binary(text: str) -> bool:
    """Whether a quantity is written with a power of 1024, which its canonical form then keeps.

    >>> is_binary("1Gi"), is_binary("1G")
    (True, False)
    """
    return text[-2:] in BINARY


def canonical(value: Fraction, *, binary: bool = False) -> str:
    """The API server's spelling of a value: the largest suffix without a fraction, finer than n rounded up.

    >>> canonical(Fraction(1, 2)), canonical(Fraction(1000)), canonical(Fraction(2**30), binary=True)
    ('500m', '1k', '1Gi')
    """
    if binary and value.denominator == 1 and abs(value) >= 1024:
        for suffix, size in reversed(BINARY.items()):
            if value % size == 0:
                return f"{value // size}{suffix}"
        return str(value)
    if value == 0:
        return "0"
    nano = -((-value * 10**9) // 1)  # rounded up, as the API server does
    for suffix, unit in reversed(DECIMAL.items()):
        if nano % (unit * 10**9) == 0:
            return f"{nano // (unit * 10**9)}{suffix}"
    return f"{nano}n"


def normal(text: str) -> str:
    """A quantity as the API server returns it.

    >>> normal("0.5"), normal("1000m"), normal("1024Mi"), normal("1024")
    ('500m', '1', '1Gi', '1024')
    """
    return canonical(parse(text), binary=is_binary(text))
