"""The policies of the admission are accepted by the oldest Kubernetes that preflight accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gangplank.k8s import quantity
from gangplank.site.preflight import OLDEST
from gangplank.teams.admission import OWN, of_service, policies
from gangplank.teams.census import load
from gangplank.teams.conditions import MOST_AMOUNT, VOLUME_TYPES, volume_types
from tests.support.teams_ways import WRONG, violations

if TYPE_CHECKING:
    from collections.abc import Iterator

# https://kubernetes.io/docs/reference/using-api/cel/: functions and macros that every supported version knows. The
# extensions of lists (slice, flatten, distinct, sort …) are not among them, nor are format, ip and cidr.
KNOWN = {
    *("all", "exists", "filter", "has", "map"),
    *("contains", "endsWith", "int", "matches", "size", "startsWith", "string", "sum"),
    *("join", "replace", "split"),
    *("hasValue", "orValue"),
    *("isGreaterThan", "isLessThan", "quantity"),
    *("allowed", "check", "group", "resource"),
}


def texts(value: object) -> Iterator[str]:
    """All text in an object."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


def test_calls_only_functions_that_the_oldest_version_knows() -> None:
    assert OLDEST == (1, 30)
    expressions = (re.sub(r"'[^']*'", "''", text) for text in texts([item["spec"] for item in policies()]))
    calls = {name for text in expressions for name in re.findall(r"\b([A-Za-z_]+)\(", text)}
    assert calls >= {"filter", "orValue", "check"}
    assert calls <= KNOWN, sorted(calls - KNOWN)


def test_the_most_of_an_amount_fits_into_the_scheduler_s_64_bits_and_the_hostile_one_does_not() -> None:
    assert quantity.parse(MOST_AMOUNT) * 1000 < 2**63
    _, amount, _ = WRONG[-1]
    assert 2**63 < int(amount.removesuffix("P")) * 10**15 < 2**64, "as 64 bits, it is below 0"


def test_an_annotation_that_gets_a_job_ahead_in_line_is_judged_also_without_a_domain() -> None:
    """JobWaitingTime in pkg/scheduler/api/job_info.go of Volcano 1.15, and in its apis."""
    names = {item.name for item in violations() if item.rule == "mark"}
    for key in ("sla-waiting-time", "volcano.sh/sla-waiting-time"):
        assert f"pod: {key} in annotations" in names
        assert all(f"'{key}'" in str(item["spec"]) for item in policies() if "badMarks" in str(item["spec"]))


def test_an_address_of_a_service_is_judged_where_no_owner_of_a_field_is_listed_and_when_one_is_added() -> None:
    text = of_service()
    assert "managedFields.orValue([]).size() == 0 ||" in text, "the API server clears those that it cannot convert"
    assert "oldObject.spec.?clusterIPs" in text, "a Service takes its second address when it is changed"


def test_every_type_of_volume_is_an_ordinary_one_refused_to_all_or_judged() -> None:
    verdicts = {field.name: verdict for field, verdict in load().verdicts.items() if field.type == "Volume"}
    by_type = {name for name, verdict in verdicts.items() if verdict == "refused by volume type"}
    refused = {name for name, verdict in verdicts.items() if verdict.startswith("refused")} - by_type
    assert refused == {"csi", "ephemeral", "hostPath"}, "Pod Security refuses host paths below privileged"
    assert set(re.findall(r"hasValue\(\) \? '(\w+)'", volume_types(OWN[0]))) == by_type
    assert {*verdicts} - refused - {*VOLUME_TYPES, "name"} == by_type
    assert {"nfs", "iscsi"} < by_type
