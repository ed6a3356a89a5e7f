"""Amounts of resources as whole numbers, quick enough for ten thousand pods: thousandths of a core, byte or device."""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gangplank.k8s import quantity
from gangplank.k8s.pod_resources import pod_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gangplank.spec import Json

Amounts = dict[str, int]
MILLI = 1000
MI, GI = 2**20, 2**30
ONE_POD = {"pods": MILLI}


@functools.lru_cache(maxsize=65536)
def milli(text: str) -> int:
    """A quantity in thousandths, rounded up.

    >>> milli("250m"), milli("1Ki"), milli("1n")
    (250, 1024000, 1)
    """
    return -int(-quantity.parse(text) * MILLI // 1)


def amounts(resources: Mapping[str, Any] | None) -> Amounts:
    """A resource list."""
    return {name: milli(str(value)) for name, value in (resources or {}).items()}


_REQUESTS: dict[str, Amounts] = {}  # by what the sum depends on: thousands of pods have few shapes


def requests(pod: Json) -> Amounts:
    """What a pod takes from its node, itself among the pods that a node may run. Not to be changed by the caller."""
    start = [(one.get("resources"), one.get("restartPolicy")) for one in pod.get("initContainers") or ()]
    main = [one.get("resources") for one in pod["containers"]]
    shape = repr((main, start, pod.get("resources"), pod.get("overhead")))
    known = _REQUESTS.get(shape)
    if known is None:
        totals = {name: one.value for name, one in pod_sum(pod, "requests").items()}
        known = {name: -int(-value * MILLI // 1) for name, value in totals.items() if value} | ONE_POD
        _REQUESTS[shape] = known
    return known


def plus(left: Mapping[str, int], right: Mapping[str, int], times: int = 1) -> Amounts:
    """The sum of two lists, the right one several times; `times` may be negative."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total.get(name, 0) + times * value
    return total


def beyond(wanted: Mapping[str, int], limit: Mapping[str, int]) -> Amounts:
    """What is wanted beyond a limit, of the resources that the limit names."""
    return {name: value - limit[name] for name, value in wanted.items() if name in limit and value > limit[name]}


def shown(name: str, value: int, rounded: Callable[[Fraction], int] = round) -> str:
    """An amount for a message; the rest of a limit should be rounded down (math.floor), a need up (math.ceil).

    >>> shown("cpu", 1500), shown("memory", 3 * 2**30 * 1000), shown("nvidia.com/gpu", 2000), shown("pods", 1000)
    ('1500m cpu', '3Gi memory', '2 nvidia.com/gpu', '1 pod')
    >>> from math import ceil, floor
    >>> shown("memory", 32386776 * 2**10 * 1000, floor), shown("memory", 32386776 * 2**10 * 1000, ceil)
    ('30.88Gi memory', '30.89Gi memory')
    """
    amount = Fraction(value, MILLI)
    if is_bytes(name) and amount >= MI:
        size, unit = (GI, "Gi") if amount >= GI else (MI, "Mi")
        text = f"{rounded(amount / size * 100) / 100:.2f}".rstrip("0").rstrip(".") + unit
    else:
        text = quantity.canonical(amount)
    return f"{text} {'pod' if (name, text) == ('pods', '1') else name}"


def is_bytes(name: str) -> bool:
    """Whether a resource is counted in bytes."""
    return name.rpartition(".")[2] in {"memory", "ephemeral-storage", "storage"}


def exact(name: str, value: int) -> str:
    """An amount as Kubernetes writes it.

    >>> exact("memory", 32386776 * 2**10 * 1000), exact("cpu", 1500)
    ('32386776Ki', '1500m')
    """
    return quantity.canonical(Fraction(value, MILLI), binary=is_bytes(name))


def listed(some: Mapping[str, int]) -> str:
    """Amounts for a message, by name."""
    return ", ".join(shown(name, value) for name, value in sorted(some.items()))
