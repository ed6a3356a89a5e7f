"""Removing Volcano's release keeps the CRDs of its chart: each is annotated, and the role lists its name."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.build.parts import build

ROLE = Path(__file__).resolve().parents[2] / "roles/volcano"
KEEP = "helm.sh/resource-policy"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def plain() -> str:
    """Upstream's chart as Helm renders it."""
    parts = build(["helm", "volcano"], print)
    command = [f"{parts['bin']['helm']}/helm", "template", "volcano", parts["charts"]["volcano"]]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def kept(plain: str) -> list[Json]:
    """The same through the role's post-renderer."""
    command = [str(ROLE / "files/keep-crds")]
    done = subprocess.run(command, input=plain, capture_output=True, text=True, check=True, timeout=60)
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def is_crd(item: Json) -> bool:
    return bool(item["kind"] == "CustomResourceDefinition")


def test_every_crd_is_kept_and_nothing_else_is_changed(plain: str, kept: list[Json]) -> None:
    before = [item for item in yaml.safe_load_all(plain) if item]
    assert any(map(is_crd, before))
    for item in before:
        if is_crd(item):
            item["metadata"]["annotations"][KEEP] = "keep"
    assert kept == before


def test_the_role_lists_every_crd(kept: list[Json]) -> None:
    names = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__volcano_crds"]
    assert sorted(item["metadata"]["name"] for item in kept if is_crd(item)) == sorted(names)
