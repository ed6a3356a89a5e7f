"""Defaults that are tuned for speed, what they are upstream, and where their before and after are measured."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from bench.part import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True)
class Tuned:
    """Values that are tuned together."""

    home: str
    """The folder whose README.md says why, and what they cost."""
    upstream: Mapping[str, int | str]
    figures: tuple[str, ...]
    """Ids of figures: each is after, its peer is before."""

    @property
    def ours(self) -> dict[str, Any]:
        """The same values of ours."""
        values = OURS[self.home]()
        return {name: values[name] for name in self.upstream}


def of_yaml(path: str) -> dict[str, Any]:
    """A file of the checkout."""
    values: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return values


def volcano() -> dict[str, Any]:
    """What the role sets of the values that upstream's chart calls `custom`."""
    custom: dict[str, Any] = of_yaml("roles/volcano/vars/main.yml")["__volcano_own_values"]["custom"]
    return custom


def control_plane() -> dict[str, Any]:
    """What the role sets of the programs of the lab's control plane: their flags, and Go's variable."""
    values = of_yaml("roles/lab_cluster/vars/main.yml")
    flags = re.findall(r"--([a-z-]+)=(\S+)", " ".join(values["__lab_cluster_control_plane_programs"].values()))
    return dict(flags) | {"GOGC": values["__lab_cluster_gogc"]}


OURS: dict[str, Callable[[], dict[str, Any]]] = {
    "roles/volcano": volcano, "roles/lab_cluster": control_plane,
    "charts/training-operator": functools.partial(of_yaml, "charts/training-operator/values.yaml"),
}  # fmt: skip
TUNED = {
    "requests": Tuned(
        "roles/volcano", {"controller_kube_api_qps": 50, "controller_kube_api_burst": 100},
        ("tuning.requests.100x10.running", "tuning.requests.1x1000.running",
         "gangs.100x10.running", "gangs.10x100.running"),
    ),
    "batches": Tuned(
        "roles/lab_cluster", {"endpoint-updates-batch-period": "0s", "endpointslice-updates-batch-period": "0s"},
        ("tuning.batches.1x1000.manager", "tuning.batches.1x1000.running"),
    ),
    "heap": Tuned("roles/lab_cluster", {"GOGC": 100}, ("tuning.heap.rest.memory",)),
    "operator": Tuned("charts/training-operator", {"qps": 20, "burst": 30, "threads": 1}, ("operator.pods",)),
}  # fmt: skip
