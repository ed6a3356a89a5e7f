"""The progress of a running job, from its objects and logs: phase, ranks, epoch and loss. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplank import text
from gangplank.backends import BACKENDS
from gangplank.backends.base import Ends
from gangplank.proof import log_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REASON = 500  # characters of a reason that a message shows


def ends() -> Ends:
    """The end states of all back-ends together: no word is an end for one kind of job and not for another."""
    every = [backend.ends for backend in BACKENDS.values()]
    return Ends(
        succeeded=frozenset().union(*(one.succeeded for one in every)),
        failed=frozenset().union(*(one.failed for one in every)),
        early={early: end for one in every for early, end in one.early.items()},
    )


@dataclass(frozen=True)
class Phase:
    """The state of a job: its own word for it, the last one for an end that has two, and whether that is an end."""

    name: str
    reason: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it has ended well."""
        return self.name in ends().succeeded

    @property
    def failed(self) -> bool:
        """Whether it has ended otherwise."""
        return self.name in ends().failed

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.succeeded or self.failed


def phase(job: Mapping[str, Any]) -> Phase:
    """The phase of a Volcano Job, a PyTorchJob, a TrainJob or a batch Job.

    >>> phase({"status": {"state": {"phase": "Running"}}}).name
    'Running'
    >>> conditions = [{"type": "Created", "status": "True"}, {"type": "Failed", "status": "True"}]
    >>> phase({"status": {"conditions": conditions}}).failed
    True
    >>> phase({"status": {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}}).name
    'Complete'
    """
    status = job.get("status") or {}
    state = status.get("state") or {}
    if "phase" in state:
        return Phase(state["phase"], state.get("message") or state.get("reason") or "")
    true, early = [c for c in status.get("conditions") or [] if c.get("status") == "True"], ends().early
    for condition in true:
        name = early.get(condition["type"], condition["type"])
        end = Phase(name, condition.get("message") or condition.get("reason") or "")
        if end.ended:
            return end
    if true:
        return Phase(true[-1]["type"], true[-1].get("message") or "")
    # A TrainJob has no condition while it runs, only its JobSet's count of Jobs whose pods are all ready
    begun = status.get("active") or any(one.get("ready") for one in status.get("jobsStatus") or [])
    return Phase("Running" if begun else "Pending")


def events(text: str) -> list[dict[str, Any]]:
    r"""The trainer's events in a log; other lines are skipped.

    >>> events('hello\n{"event":"step","rank":0}\n{"half')
    []
    """
    lines = (log_lines.read(line) for line in text.split("\n"))
    return [fields for fields in lines if fields and log_lines.is_event(fields)]


@dataclass
class Progress:
    """The sum of all ranks' events so far."""

    started: set[int] = field(default_factory=set)
    world_size: int = 0
    epoch: int = 0
    epochs: int = 0
    step: int = 0
    steps_total: int = 0
    loss: float | None = None
    accuracy: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    unsaved: str = ""
    """Why the last checkpoint was not written; "" if it was."""
    refused: str = ""
    """Why a bucket could not be written, the last time that it could not."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Fold in one event, of the shape that log_lines.py checks."""
        kind = event["event"]
        if kind == "start":
            self.started.add(event["rank"])
            self.world_size = event["world_size"]
        elif kind == "step" and event["rank"] == 0:
            self.epoch, self.step, self.steps_total = event["epoch"], event["step"], event["steps_total"]
            self.loss = event["loss"]
        elif kind == "epoch" and event["rank"] == 0:
            self.epoch, self.epochs = event["epoch"], event["epochs"]
            self.loss, self.accuracy = event["loss"], event["accuracy"]
        elif kind == "result":
            self.rows = event["ranks"]
        elif kind == "checkpoint":
            self.unsaved = ""
        elif kind == "checkpoint_failed":
            self.unsaved = f"the checkpoint of step {event['step']} is not written: {reason_of(event)}"
        elif kind == "upload_failed":
            self.refused = reason_of(event)

    def text(self) -> str:
        """The training's part of a progress line, '' before a rank has started."""
        if not self.started:
            return ""
        parts = [f"{len(self.started)}/{self.world_size} ranks joined"]
        if self.epoch:
            parts.append(f"epoch {self.epoch}" + (f"/{self.epochs}" if self.epochs else ""))
        if self.steps_total:
            parts.append(f"step {self.step}/{self.steps_total}")
        parts += [f"loss {self.loss:.4f}"] if self.loss is not None else []
        parts += [f"accuracy {self.accuracy:.3f}"] if self.accuracy is not None else []
        return ", ".join(parts)


def reason_of(event: Mapping[str, Any]) -> str:
    r"""The reason in an event, which any script can print, as a message shows it.

    >>> reason_of({"reason": "\x1b[2J no space left"})
    '\\x1b[2J no space left'
    """
    return text.plain(event["reason"][:REASON])[:REASON]


COLUMNS = ("rank", "pod", "node", "world_size", "steps", "samples", "loss", "accuracy")
TITLES = ("RANK", "POD", "NODE", "WORLD_SIZE", "STEPS", "SAMPLES", "LOSS", "ACCURACY")


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The ranks' results as a table.

    >>> row = {"rank": 0, "pod": "a-0", "node": "n", "world_size": 1, "steps": 2, "samples": 3}
    >>> print(table([row | {"loss": 0.5, "accuracy": 1}]))
    RANK  POD  NODE  WORLD_SIZE  STEPS  SAMPLES  LOSS    ACCURACY
    0     a-0  n     1           2      3        0.5000  1.000
    """
    cells: list[tuple[str, ...]] = [TITLES]
    for row in sorted(rows, key=lambda row: int(row["rank"])):
        rounded = {**row, "loss": f"{row['loss']:.4f}", "accuracy": f"{row['accuracy']:.3f}"}
        cells.append(tuple(str(rounded[column]) for column in COLUMNS))
    return text.table(cells)


def nodes_by_uid(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The node of each pod by the pod's UID, '' before it is scheduled."""
    return {pod["metadata"]["uid"]: pod["spec"].get("nodeName") or "" for pod in pods}


def waiting_reasons(pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Why pods do not run yet, one line each: not scheduled, or a container that cannot start."""
    reasons: list[str] = []
    for pod in pods:
        status = pod.get("status") or {}
        name = pod["metadata"]["name"]
        reasons += [
            f"{name}: not scheduled: {condition.get('message', '')}"
            for condition in status.get("conditions") or []
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        ]
        for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                reasons.append(f"{name}: {waiting['reason']}: {waiting.get('message', '')}")
    return reasons
