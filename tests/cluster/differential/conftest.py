"""A live cluster and a namespace of our own in it, gone again afterwards.

GANGPLANK_KUBECONFIG names an existing cluster; without it the tests' own lab is used, with every operator in it.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import STATE
from tests.cluster.differential.live import Cluster, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPONENTS = ["volcano", "storage", "training_operator", "trainer_v2"]


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> str:
    """Of the cluster that is asked."""
    path = os.environ.get("GANGPLANK_KUBECONFIG")
    if path:
        return path
    asked = json.dumps({"site_components": COMPONENTS})
    request.getfixturevalue("lab").playbook("playbooks/lab.yml", "playbooks/site.yml", "-e", asked)
    return str(STATE / "admin.kubeconfig")


@pytest.fixture(scope="module")
def cluster(kubeconfig: str) -> Iterator[Cluster]:
    """A namespace for each back-end: pods of one name would meet in a shared one."""
    with opened(kubeconfig, "differential") as live:
        yield live
