"""The fields of a job file that only the training operator has, and what contradicts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.base import block

if TYPE_CHECKING:
    from gangplank.backends.base import Bad
    from gangplank.reading.fields import Fields
    from gangplank.spec import JobSpec

CONTAINER = "pytorch"  # the operator wires, watches and opens ports only of the container with this name
PORT = "pytorchjob-port"  # and with this name, the port where the ranks meet


@dataclass(frozen=True)
class PyTorchJobBlock:
    """What only the training operator's PyTorchJob has."""

    restart_policy: str = ""  # empty: OnFailure, and Never without retries: the operator counts too late
    clean_pod_policy: str = "None"  # "Running" often takes workers, and their logs, that have just ended
    nproc: str = ""  # empty: the job's processes_per_node
    gang: bool = True  # False: the operator runs without --gang-scheduler-name=volcano
    suspend: bool = False


def read_block(fields: Fields) -> PyTorchJobBlock:
    """The training operator's own fields."""
    return PyTorchJobBlock(
        restart_policy=fields.choice("restart_policy", "", ("", "OnFailure", "Never", "Always", "ExitCode")),
        clean_pod_policy=fields.choice("clean_pod_policy", "None", ("None", "Running", "All")),
        nproc=fields.choice("nproc", "", ("", "auto", "cpu", "gpu")),
        gang=fields.flag("gang", default=True),
        suspend=fields.flag("suspend", default=False),
    )


def no_gang(spec: JobSpec, bad: Bad) -> None:
    """A job without a gang goes to no queue."""
    if block(spec, PyTorchJobBlock).gang:
        return
    for field, value in (("min_available", spec.min_available), ("queue", spec.queue.removeprefix(spec.team))):
        if value:
            bad(field, value, f"no {field} with pytorchjob.gang false", "remove it, or set pytorchjob.gang to true")
