"""Defaults that are tuned for speed, what they are upstream, and where their before and after are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from bench.part import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Tuned:
    """Values that are tuned together."""

    home: str
    """The folder whose README.md says why, and what they cost."""
    upstream: Mapping[str, int]
    figures: tuple[str, ...]
    """Ids of figures: each is after, its peer is before."""

    @property
    def ours(self) -> dict[str, Any]:
        """The same values of ours."""
        values = volcano() if self.home == "roles/volcano" else of_yaml(f"{self.home}/values.yaml")
        return {name: values[name] for name in self.upstream}


def of_yaml(path: str) -> dict[str, Any]:
    """A file of the checkout."""
    values: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return values


def volcano() -> dict[str, Any]:
    """What the role sets of the values that upstream's chart calls `custom`."""
    custom: dict[str, Any] = of_yaml("roles/volcano/vars/main.yml")["__volcano_own_values"]["custom"]
    return custom


SHAPES = ("10x100", "100x10")  # of the parts `gangs` and `tuning`
TUNED = {
    "requests": Tuned(
        "roles/volcano", {"controller_kube_api_qps": 50, "controller_kube_api_burst": 100},
        tuple(f"{part}.{shape}.running" for shape in SHAPES for part in ("tuning.requests", "gangs")),
    ),
    "logs": Tuned(
        "roles/volcano", {"admission_log_level": 4, "scheduler_log_level": 3, "controller_log_level": 4},
        tuple(f"tuning.logs.{shape}.running" for shape in SHAPES),
    ),
    "operator": Tuned("charts/training-operator", {"qps": 20, "burst": 30, "threads": 1}, ("operator.pods",)),
}  # fmt: skip
