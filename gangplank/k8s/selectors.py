"""Which objects a label selector chooses, and which nodes an expression about labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangplank.spec import Json


def chosen(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector chooses an object; none chooses none, and an empty one chooses all.

    >>> chosen({"matchLabels": {"app": "db"}}, {"app": "db"}), chosen({}, {}), chosen(None, {})
    (True, True, False)
    """
    if selector is None:
        return False
    wanted = (selector.get("matchLabels") or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and matches(
        selector.get("matchExpressions") or (), labels
    )


def matches(expressions: Iterable[Json], labels: Mapping[str, str]) -> bool:
    """Whether all expressions hold."""
    return all(holds(one["operator"], labels.get(one["key"]), one.get("values") or []) for one in expressions)


def holds(operator: str, value: str | None, values: list[str]) -> bool:
    """Whether one expression holds for a label's value, None if there is no such label.

    >>> holds("In", "ssd", ["ssd", "nvme"]), holds("NotIn", None, ["ssd"]), holds("Gt", "8", ["4"])
    (True, True, True)
    """
    if operator in {"Exists", "DoesNotExist"}:
        return (value is not None) == (operator == "Exists")
    if operator in {"In", "NotIn"}:
        return (value in values) == (operator == "In")
    try:
        left, right = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right
