"""The rights that are asked for are those of what roles and charts install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gangplank.backends import BACKENDS, job_resources
from gangplank.site.components import COMPONENTS
from gangplank.site.rights import installation, removal

ROOT = Path(__file__).resolve().parents[3]
OURS = {"training_operator": "training-operator", "gpu_device_plugin": "simulated-gpu"}  # component -> chart
OPTIONAL = {"ServiceMonitor"}  # of a site that has its CRD


def plural(kind: str) -> str:
    """A kind as RBAC calls it."""
    name = kind.lower()
    return re.sub("y$", "ie", name) + ("es" if name.endswith("s") else "s")


@pytest.mark.parametrize("component", OURS)
def test_every_kind_of_our_charts_is_asked_for(component: str) -> None:
    folder = ROOT / "charts" / OURS[component] / "templates"
    texts = [path.read_text() for path in folder.rglob("*.yaml")]
    kinds = {kind for text in texts for kind in re.findall(r"(?m)^kind: (\w+)$", text)} - OPTIONAL
    asked = {right.partition(" ")[2].partition(".")[0] for right in installation([component])}
    assert kinds
    assert {plural(kind) for kind in kinds} <= asked


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_has_its_rights(component: str) -> None:
    rights = installation([component])
    kinds = COMPONENTS[component].kinds
    assert {f"{verb} {kind}" for kind in kinds for verb in ("create", "patch", "delete")} <= {*rights}
    assert "update secrets" in rights
    assert ("patch nodes" in rights) == component.startswith("gpu_") == ("patch nodes" in removal([component], []))
    assert ("list nodes" in removal([component], [])) == component.startswith("gpu_")
    assert {right.split()[0] for right in removal([component], [])} <= {"delete", "update", "patch", "list"}


def test_the_jobs_that_keep_a_namespace_may_be_listed() -> None:
    asked = {*removal(["storage"], job_resources())}
    assert {f"list {one.plural}.{one.api_version.partition('/')[0]}" for one in BACKENDS.values()} <= asked


def test_volume_claims_are_never_removed() -> None:
    assert "create persistentvolumeclaims" in installation(["storage"])
    assert "delete persistentvolumeclaims" not in (*installation(COMPONENTS), *removal(COMPONENTS, job_resources()))


def test_a_site_without_components_needs_no_rights() -> None:
    assert installation([]) == removal([], job_resources()) == ()
