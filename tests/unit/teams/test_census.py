"""Every field that a member may set has been decided about, and every decision is about such a field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangplank.teams.access import rows
from gangplank.teams.admission import paths
from gangplank.teams.census import VERDICTS, Census, Field, Kind, fields, load, set_fields
from gangplank.teams.conditions import IN_OBJECTS, IN_PODS
from gangplank.teams.rules import RULES
from tests.support.teams_fields import ELSEWHERE
from tests.support.teams_ways import violations

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "molecule/teams/fields.txt"  # by molecule/teams/test_census.py, from a cluster
CENSUS = load()
WRITES = {"create", "update", "patch"}


def test_a_field_of_the_api_server_without_a_decision_fails() -> None:
    recorded = set(RECORDED.read_text().split())
    decided = {str(field) for field in CENSUS.verdicts}
    assert sorted(recorded - decided) == [], "decide about these in gangplank/teams/census.yml"
    assert sorted(decided - recorded) == [], "the API server has no such fields"
    assert len(recorded) > 600


def test_the_census_has_every_kind_that_a_member_may_write_and_no_other() -> None:
    writable = {
        (group, plural)
        for _, group, plurals, verbs in rows()
        for plural in plurals
        if WRITES & set(verbs) and "/" not in plural  # what is behind a slash connects, it stores nothing
    }
    assert {(kind.api_version.rpartition("/")[0], kind.plural) for kind in CENSUS.kinds} == writable


def test_every_reason_is_explained_and_every_verdict_is_one_of_a_few() -> None:
    kinds: dict[str, set[str]] = {}
    for text in CENSUS.verdicts.values():
        verdict, _, rest = text.partition(" ")
        kinds.setdefault(verdict, set()).add(rest)
    assert sorted(kinds) == sorted(VERDICTS)
    assert kinds["harmless"] == set(CENSUS.reasons)
    assert kinds["refused"] == {"", "by pod security", "by API server", "by volume type"}
    assert kinds["controller"] == {""}
    assert kinds["inside"] == {field.type for field in CENSUS.verdicts} - {kind.type for kind in CENSUS.kinds}


def test_every_rule_judges_a_field_and_every_judged_field_has_its_rule() -> None:
    judged = {rule for field in CENSUS.verdicts for rule in CENSUS.rules(field)}
    assert {*judged, "field", "volume type"} == {rule.name for rule in RULES}  # these judge what is refused


def test_every_kind_of_the_census_has_a_policy() -> None:
    judged = {(path.group, plural) for path in paths() for plural in path.resources}
    assert {(kind.api_version.rpartition("/")[0], kind.plural) for kind in CENSUS.kinds} - judged == set()


def test_every_field_that_is_not_harmless_has_a_hostile_object() -> None:
    """molecule/teams/test_admission.py posts each of them to a live cluster."""
    hostile = {Field(*item.field.split(".")) for item in violations() if item.field}
    for item in violations():
        hostile |= {field for field in set_fields(item.manifest, CENSUS) if item.rule in CENSUS.rules(field)}
    feared = {field for field, text in CENSUS.verdicts.items() if text.startswith(("judged", "refused"))}
    assert sorted(map(str, feared - hostile)) == sorted(ELSEWHERE)


def test_every_refused_field_is_asked_for_where_its_type_can_be() -> None:
    assert {field.type for field in CENSUS.with_verdict("refused")} == {*IN_PODS, *IN_OBJECTS}


SCHEMA: dict[str, Any] = {
    "x-kubernetes-group-version-kind": [{"group": "x.y", "version": "v1", "kind": "Toy"}],
    "properties": {
        "spec": {"properties": {"rooms": {"type": "array", "items": {"properties": {"door": {}, "window": {}}}}}},
    },
}
TOY = Kind("x.y/v1", "Toy", "toys", "Toy")
ROWS = {Field("Toy", "spec"): "inside Spec", Field("Spec", "rooms"): "inside Room", Field("Room", "door"): "refused"}


def documents(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"components": {"schemas": {"x.Toy": schema}}}]


def test_a_new_field_deep_in_a_custom_resource_has_no_row() -> None:
    seen = fields(documents(SCHEMA), Census((TOY,), {}, ROWS))
    assert {str(field) for field in seen - set(ROWS)} == {"Room.window"}


def test_a_row_never_stands_for_what_lies_below_it() -> None:
    rooms = Field("Spec", "rooms")
    seen = fields(documents(SCHEMA), Census((TOY,), {}, ROWS | {rooms: "harmless own"}))
    assert {str(field) for field in seen - set(ROWS)} == {"Spec.rooms.*"}
    assert seen - set(ROWS) == fields(documents(SCHEMA), Census((TOY,), {}, ROWS | {rooms: "judged x"})) - set(ROWS)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({**SCHEMA, "x-kubernetes-group-version-kind": []}, "x.y/v1 Toy: got no schema"),
        ({**SCHEMA, "properties": {"spec": {}}}, "Toy.spec: got a field without fields, expected those of Spec"),
        ({**SCHEMA, "properties": {"spec": {"$ref": "#/x.Toy"}}}, "Toy.spec: got inside Spec, expected inside Toy"),
    ],
    ids=["no kind", "no fields", "another type"],
)
def test_documents_that_do_not_match_the_census_are_reported(schema: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        fields(documents(schema), Census((TOY,), {}, ROWS))


def test_the_fields_of_a_manifest_are_found_in_lists_and_maps() -> None:
    pod = {"metadata": {}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    spec = {"pytorchReplicaSpecs": {"Master": {"template": pod}}}
    manifest = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": spec}
    assert "Container.image" in {str(field) for field in set_fields(manifest, CENSUS)}


def test_the_page_has_the_numbers_of_the_census() -> None:
    page = (ROOT / "docs/teams.md").read_text()
    assert f"each of the {len(CENSUS.verdicts)} fields of the {len(CENSUS.kinds)} kinds" in page
