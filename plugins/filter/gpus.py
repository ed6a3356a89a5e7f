"""Filters over gangplank/site/gpu_devices.py and gpu_node.py: a device plugin and its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplank.jobs.site_gpus import toleration
from gangplank.site.gpu_devices import Seen, rolled_out, started, without_devices
from gangplank.site.gpu_node import unprepared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def findings(nodes: Iterable[dict[str, Any]], resource: str, **seen: Any) -> list[str]:
    """A line per node without devices; `seen` are the fields of gangplank.site.gpu_devices.Seen."""
    return [str(finding) for finding in without_devices(nodes, Seen(**{"daemonset": None} | seen), resource)]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by name."""
        return {
            "without_devices": findings,
            "rolled_out": rolled_out,
            "tolerations": lambda taints: [toleration(taint) for taint in taints],
            "unprepared": lambda *seen: [str(problem) for problem in unprepared(*seen)],
            "started": lambda pods: [pod for pod in pods if started(pod)],
        }
