"""What is written elsewhere about kinds of storage and access modes agrees with gangplank/site/storage.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.k8s.names import ACCESS_MODES
from gangplank.site.storage import COMMON, KINDS

ROOT = Path(__file__).resolve().parents[2]
INPUTS: dict[str, Any] = yaml.safe_load((ROOT / "roles/storage/meta/argument_specs.yml").read_text())
OPTIONS: dict[str, Any] = INPUTS["argument_specs"]["main"]["options"]
CLASS, CLAIM = OPTIONS["storage_classes"]["options"], OPTIONS["storage_claims"]["options"]


def test_the_role_accepts_the_kinds_and_says_what_they_are() -> None:
    assert CLASS["kind"]["choices"] == list(KINDS)
    described = ", ".join(f"C({name}) is {kind.title}" for name, kind in KINDS.items())
    assert CLASS["kind"]["description"] == f"{described}."


def test_the_role_accepts_the_fields_of_the_kinds() -> None:
    assert CLASS.keys() == {*COMMON, *(field for kind in KINDS.values() for field in (*kind.needs, *kind.takes))}


def test_the_role_accepts_the_binding_modes_of_the_kinds() -> None:
    assert CLASS["binding_mode"]["choices"] == sorted({mode for kind in KINDS.values() for mode in kind.binding_modes})


@pytest.mark.parametrize("options", [CLASS, CLAIM])
def test_the_role_accepts_the_access_modes(options: dict[str, Any]) -> None:
    assert options["access_modes"]["choices"] == list(ACCESS_MODES)
    assert {mode for kind in KINDS.values() for mode in kind.access_modes} <= set(ACCESS_MODES)


def test_volcano_ignores_the_provisioners_that_are_not_csi_drivers() -> None:
    defaults = yaml.safe_load((ROOT / "roles/volcano/defaults/main.yml").read_text())
    provisioners = dict.fromkeys(kind.provisioner for kind in KINDS.values() if not kind.csi)
    assert defaults["volcano_ignored_provisioners"] == list(provisioners)


def test_a_chart_of_ours_is_in_the_repository() -> None:
    charts = [kind.release.chart for kind in KINDS.values() if kind.release.chart.startswith("{charts}")]
    assert charts
    assert all((ROOT / chart.format(charts="charts") / "Chart.yaml").is_file() for chart in charts)
