"""A live cluster and a namespace of our own in it, gone again afterwards; GANGPLANK_KUBECONFIG says which."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.differential.live import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    path = os.environ.get("GANGPLANK_KUBECONFIG")
    if not path:
        pytest.exit(
            "these tests ask a live cluster: set GANGPLANK_KUBECONFIG to the path of its kubeconfig", returncode=2
        )
    live = Cluster(path, f"gangplank-differential-{uuid.uuid4().hex[:8]}")
    live.open()
    try:
        yield live
    finally:
        live.close()
