"""OpenShift's own client tells a site with grants from one without, and from a cluster that is no OpenShift."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.openshift_site import GROUP, KIND, constraints

if TYPE_CHECKING:
    from tests.unit.conftest import Api

VERSION = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
SITE: dict[str, Any] = {
    "kind": "APIGroupList",
    "groups": [{"name": GROUP, "versions": [VERSION], "preferredVersion": VERSION}],
}
RESOURCE = {"name": "securitycontextconstraints", "kind": KIND, "namespaced": False, "verbs": ["get", "list"]}


@pytest.mark.parametrize(("groups", "names"), [
    (SITE, ["gangplank-volcano"]),
    ({"kind": "APIGroupList", "groups": []}, None),
], ids=["OpenShift", "another cluster"])  # fmt: skip
def test_only_an_openshift_site_has_constraints(
    api: Api, monkeypatch: pytest.MonkeyPatch, groups: dict[str, Any], names: list[str] | None
) -> None:
    items = [{"apiVersion": f"{GROUP}/v1", "kind": KIND, "metadata": {"name": "gangplank-volcano"}}]
    answers: dict[str, dict[str, Any]] = {
        "/version": {"kind": "Info", "major": "1", "minor": "35"},
        "/api/v1": {"kind": "APIResourceList", "resources": []},
        "/apis": groups,
        f"/apis/{GROUP}/v1": {"kind": "APIResourceList", "resources": [RESOURCE]},
        f"/apis/{GROUP}/v1/securitycontextconstraints": {"kind": f"{KIND}List", "items": items},
    }
    monkeypatch.setattr(api, "listed", lambda at, _: json.dumps(answers[at]).encode() if at in answers else b"")
    listed = constraints(api.kubeconfig)
    assert (listed if listed is None else [item["metadata"]["name"] for item in listed]) == names
