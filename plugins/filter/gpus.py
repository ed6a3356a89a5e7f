"""Filters over gangplank/site/gpu_devices.py and gpu_node.py: a device plugin and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.jobs.site_gpus import toleration
from gangplank.site.gpu_devices import (
    PluginState,
    abandoned,
    by_claim,
    by_device_plugin,
    rolled_out,
    started,
    without_devices,
    without_slices,
)
from gangplank.site.gpu_node import nvml_path, unprepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def findings(nodes: Iterable[dict[str, Any]], resource: str, **state: Any) -> list[str]:
    """A line per node without devices; `state` has the fields of gangplank.site.gpu_devices.PluginState."""
    return [str(finding) for finding in without_devices(nodes, PluginState(**{"daemonset": None} | state), resource)]


def silent(nodes: Iterable[dict[str, Any]], slices: Iterable[dict[str, Any]], **state: Any) -> list[str]:
    """A line per node that publishes no devices for claims."""
    driver = PluginState(**{"daemonset": None, "role": "gpu_dra_driver"} | state)
    return [str(finding) for finding in without_slices(nodes, driver, slices)]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "without_devices": findings,
            "without_slices": silent,
            "by_device_plugin": by_device_plugin,
            "by_claim": by_claim,
            "abandoned": abandoned,
            "rolled_out": rolled_out,
            "tolerations": lambda taints: [toleration(taint) for taint in taints],
            "nvml_path": nvml_path,
            "unprepared": lambda *output: [str(problem) for problem in unprepared(*output)],
            "started": lambda pods: [pod for pod in pods if started(pod)],
        }
