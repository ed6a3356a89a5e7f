"""The fields that the cluster's API server documents are those that the census decides about."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gangplank.cluster.client import group_path
from gangplank.teams.census import fields, load

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube

RECORDED = Path(__file__).with_name("fields.txt")


@pytest.mark.usefixtures("crds")
def test_every_field_of_the_api_server_is_in_the_reviewed_list(kube: Kube) -> None:
    census = load()
    versions = dict.fromkeys(kind.api_version for kind in census.kinds)
    documents = [json.loads(kube.read("GET", f"/openapi/v3{group_path(version)}")) for version in versions]
    seen = "".join(f"{text}\n" for text in sorted(map(str, fields(documents, census))))
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        RECORDED.write_text(seen)
    assert seen.splitlines() == RECORDED.read_text().splitlines(), "GANGPLANK_GOLDEN=write, then decide in census.yml"
