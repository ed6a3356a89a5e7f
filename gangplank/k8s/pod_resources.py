"""What a pod counts as in a ResourceQuota, and sums of it: what a gang's admission looks at.

Follows k8s.io/kubernetes/pkg/quota/v1/evaluator/core/pods.go and component-helpers/resource/helpers.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gangplank.k8s import quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.spec import Json

POD_LEVEL = ("cpu", "memory")  # and hugepages-*: what spec.resources of a whole pod may set


@dataclass(frozen=True)
class Sum:
    """An amount and whether it is spelled with powers of 1024, which the first summand decides."""

    value: Fraction = Fraction(0)
    binary: bool | None = None

    def plus(self, other: Sum) -> Sum:
        """The sum of two amounts."""
        first = self.binary if self.value else None
        return Sum(self.value + other.value, other.binary if first is None else first)

    def times(self, count: int) -> Sum:
        """The same amount several times."""
        return Sum(self.value * count, self.binary)

    def __str__(self) -> str:
        return quantity.canonical(self.value, binary=bool(self.binary))


Amounts = dict[str, Sum]


def amounts(quantities: Mapping[str, Any] | None) -> Amounts:
    """A resource list as exact sums."""
    sums = {}
    for name, value in (quantities or {}).items():
        text = value if isinstance(value, str) else repr(value)
        sums[name] = Sum(quantity.parse(text), quantity.is_binary(text))
    return sums


def add(left: Amounts, right: Amounts) -> Amounts:
    """Two resource lists together."""
    total = dict(left)
    for name, value in right.items():
        total[name] = total[name].plus(value) if name in total else value
    return total


def most(left: Amounts, right: Amounts) -> Amounts:
    """The greater of two resource lists, name by name."""
    largest = dict(left)
    for name, value in right.items():
        if name not in largest or value.value > largest[name].value:
            largest[name] = value
    return largest


def pod_sum(pod: Json, side: str) -> Amounts:
    """What a pod requests ("requests") or may use ("limits") in all: its containers, or its largest init container."""
    total: Amounts = {}
    for container in pod.get("containers", []):
        total = add(total, amounts(container.get("resources", {}).get(side)))
    sidecars: Amounts = {}
    start: Amounts = {}
    for container in pod.get("initContainers", []):
        needs = amounts(container.get("resources", {}).get(side))
        if container.get("restartPolicy") == "Always":
            total, sidecars = add(total, needs), add(sidecars, needs)
            start = most(start, sidecars)
        else:
            start = most(start, add(needs, sidecars))
    total = most(total, start)
    for name, value in amounts(pod.get("resources", {}).get(side)).items():
        if name in POD_LEVEL or name.startswith("hugepages-"):
            total[name] = value
    overhead = amounts(pod.get("overhead"))
    if side == "limits":  # overhead counts only for resources with a limit
        overhead = {name: value for name, value in overhead.items() if name in total}
    return add(total, overhead)


def is_extended(name: str) -> bool:
    """Whether a resource is a device or the like: it has a domain that is not Kubernetes' own.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu")
    (True, False)
    """
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def usage(pod: Json) -> Amounts:
    """What one pod counts as in a quota, with devices also under their plain names, as Volcano expects."""
    one = Sum(Fraction(1), binary=False)
    counted: Amounts = {"count/pods": one, "pods": one}
    for name, value in pod_sum(pod, "requests").items():
        if name in {"cpu", "memory", "ephemeral-storage"} or name.startswith("hugepages-") or is_extended(name):
            counted[name] = counted[f"requests.{name}"] = value
    for name, value in pod_sum(pod, "limits").items():
        if name in {"cpu", "memory", "ephemeral-storage"}:
            counted[f"limits.{name}"] = value
    return counted


def written(total: Amounts) -> dict[str, str]:
    """A resource list as a manifest has it, sorted by name."""
    return {name: str(total[name]) for name in sorted(total)}
