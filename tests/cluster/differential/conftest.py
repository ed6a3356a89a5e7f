"""A live cluster and a namespace of our own in it, gone again afterwards.

GANGPLANK_KUBECONFIG names an existing cluster; without it the tests' own lab is used, with every operator in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.differential.live import Cluster, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

@pytest.fixture(scope="session")
def kubeconfig(full_kubeconfig: str) -> str:
    """Of the cluster that is asked."""
    return full_kubeconfig


@pytest.fixture(scope="module")
def cluster(kubeconfig: str) -> Iterator[Cluster]:
    """A namespace for each back-end: pods of one name would meet in a shared one."""
    with opened(kubeconfig, "differential") as live:
        yield live
