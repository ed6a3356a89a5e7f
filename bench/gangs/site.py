"""A lab that is ready for gangs: the namespace, the simulated nodes and the release."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from bench.gangs.place import HOME, LABELS, LIMIT_S, NODES, SIZE, cleared, removed
from bench.gangs.release import Volcano
from lab import simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.part import Setting


@contextlib.contextmanager
def prepared(setting: Setting, lasts: str = "", nodes: int = NODES) -> Iterator[Volcano]:
    """The namespace and the simulated nodes, with `lasts` of simulated.kwok; the release is as before afterwards."""
    kube = setting.kube.patient(seconds=LIMIT_S)  # it repeats reads, and what may be done twice
    volcano = Volcano(kube, setting)
    removed(kube)  # what a killed run has left
    kube.call("POST", "/api/v1/namespaces", {"metadata": {"name": HOME}})
    try:
        with (
            simulated.kwok(setting.kubeconfig, setting.folder, lasts),
            simulated.nodes(kube, "gangs", [SIZE] * nodes, LABELS),
        ):
            try:
                yield volcano
            finally:
                cleared(kube)
    finally:
        volcano.use(volcano.own)
        removed(kube)
