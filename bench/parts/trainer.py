"""How good the trainer is, beside plain peers.

Batch sizes are below and were set before the first measurement. Everything runs with the image's own Python, a thread
per rank, without Python's start and torch's import except where a figure says so.

Two ranks that exchange their gradients cannot be as fast as two independent ones where both cores are busy: an exchange
takes time of these cores, too. So a step stands beside the bound: computing and a bare exchange of the same bytes, side
by side on the same cores (bench/inside/bound.py). Where computing dominates, independent ranks are a goal as well. A
plain script with DDP shows what the trainer adds to it: losses and norms of all ranks, the wish to stop, evidence.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.figures import Beside, Better, figure
from bench.part import BenchError, Lab, Part
from bench.training import QUIET, in_rounds, ok, training
from tests.trainer.harness import Rank, Root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("The trainer beside plain peers", minutes=13, lab=Lab.DOWN)
ROUNDS = 5
LARGE = ["--data", "synthetic", "--model", "large", "--learning-rate", "0.01"]


class Model(NamedTuple):
    """A training whose steps are measured."""

    title: str
    batch: int
    """Samples of all ranks together."""
    flags: Sequence[str]
    linear: float | None = None
    """The goal beside independent ranks, where computing dominates."""


MODELS = {
    "digits": Model("digits", 96, ["--data", "digits", "--epochs", "12"]),  # the job as shipped: two ranks share its 96
    "large": Model("1.1 million parameters", 128, [*LARGE, "--epochs", "4"]),
    "busy": Model("1.1 million parameters, 512 samples a rank", 1024, [*LARGE, "--epochs", "6"], linear=0.95),
}
SAVED = ("digits", "large")
BOUND = 0.95
UNOBSERVED = {"GANGPLANK_OBSERVE": "0"}  # a script that is no trainer of ours would be watched, as in a pod
TIMED = "/out/step.py"
STEP = ("data", "compute", "update")
ALONE = {"import": "import torch", "connect": "connect to a store", "data": "data and network", "step": "first step"}
TARGET = 0.95  # accuracy on digits that both scripts have to reach
PEER_BATCH, RATE, MOMENTUM = 32, "0.05", "0.9"  # of each rank, as in jobs/digits.yml


def epochs(rank: Rank) -> list[dict[str, Any]]:
    """The epoch lines of a rank but for the first, in which everything is new."""
    return [event for event in rank.events if event["event"] == "epoch"][1:]


def step_ms(rank: Rank, kinds: Sequence[str] = STEP) -> float:
    """Milliseconds per step in these kinds of work."""
    rows = epochs(rank)
    seconds: float = sum(row["seconds"].get(kind, 0.0) for row in rows for kind in kinds)
    return 1000 * seconds / int(sum(row["steps"] for row in rows))


def whole_ms(rank: Rank) -> float:
    """Milliseconds of a step with all that the trainer does for it; the rank ran TIMED."""
    return float(rank.event("steps")["step"])


def steps(root: Root, model: str) -> dict[str, float]:
    """A round: one rank, two independent ones, two together, the bound; the per-rank batch of all pairs is the same."""
    _, batch, flags, _ = MODELS[model]
    half = ["--batch-size", str(batch // 2), *flags, *QUIET]
    alone = whole_ms(ok(root.train(1, "--batch-size", str(batch), *flags, *QUIET, script=TIMED, env=UNOBSERVED))[0])
    stores = [root.store() for _ in range(2)]
    both = [root.start([0], 1, *half, port=store["port"], script=TIMED, env=UNOBSERVED) for store in stores]
    independent = statistics.mean(whole_ms(ok(running.wait())[0]) for running in both)
    for store in stores:
        root.close_store(store)
    pair = ok(root.train(2, *half, script=TIMED, env=UNOBSERVED))
    together = statistics.mean(map(whole_ms, pair))
    bare = ok(root.train(2, *half, script="/out/bound.py", env=UNOBSERVED))
    bound, plain = (statistics.mean(rank.event("bound")[kind] for rank in bare) for kind in ("step", "plain"))
    return {
        f"step.{model}.alone": alone,
        f"step.{model}.independent": independent,
        f"step.{model}.ranks": together,
        f"step.{model}.least": bound,
        f"step.{model}.plain": plain,
        f"step.{model}.bound": bound / together,
        f"step.{model}.like_plain": plain / together,
        f"step.{model}.linear": independent / together,
        f"step.{model}.input": 100 * statistics.mean(step_ms(rank, ["data"]) for rank in pair) / together,
    }


def timed(work: Callable[[], Sequence[Rank]]) -> tuple[float, float]:
    """Seconds of a run from its first process to the end of its last, and how many of them its imports took."""
    began = time.monotonic()
    ranks = ok(work())
    return time.monotonic() - began, max(rank.event("imports")["seconds"] for rank in ranks)


def inherited_s(root: Root) -> float:
    """Seconds until an interpreter has the imports that the ranks here inherit, torch's among them."""
    began = time.monotonic()
    with subprocess.Popen(root.command(["python3", "/tests/warm.py"]), stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE) as process:  # fmt: skip
        for line in process.stdout or ():
            if line.startswith("@"):
                return time.monotonic() - began
    raise BenchError(f"tests/trainer/warm.py: got exit status {process.returncode}, expected it ready")


def reached(rank: Rank) -> int:
    """The first epoch with the target accuracy."""
    numbers = [event["epoch"] for event in rank.events if event["event"] == "epoch" and event["accuracy"] >= TARGET]
    if not numbers:
        raise BenchError(f"accuracy: got less, expected {TARGET} within 12 epochs. Fix: see\n{rank.text}")
    return int(min(numbers))


class Peer:
    """The trainer and the plain script, each trained for as many epochs as it needs to reach the target."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.epochs = {name: reached(ok(run(12))[0]) for name, run in (("ours", self.ours), ("plain", self.plain))}

    def ours(self, epochs: int) -> Sequence[Rank]:
        """The trainer as shipped, checkpoints, evidence and all."""
        return self.run("train", "--epochs", str(epochs), "--batch-size", str(PEER_BATCH), "--learning-rate", RATE,
                        "--sgd-momentum", MOMENTUM, "--output", self.root.new())  # fmt: skip

    def plain(self, epochs: int) -> Sequence[Rank]:
        """The peer."""
        return self.run("plain", str(epochs), str(PEER_BATCH), RATE, MOMENTUM)

    def run(self, *words: str) -> Sequence[Rank]:
        """One whole run."""
        env = {"OUT": f"{self.root.new()}/model.pt", "TORCHELASTIC_USE_AGENT_STORE": "True", **UNOBSERVED}
        return self.root.train(2, *words, script="/out/without_imports.py", env=env)

    def __call__(self) -> dict[str, float]:
        """A round; what the ranks inherit is added to their imports, and is no part of the rest."""
        ours, ours_imports = timed(lambda: self.ours(self.epochs["ours"]))
        plain, plain_imports = timed(lambda: self.plain(self.epochs["plain"]))
        inherited = inherited_s(self.root)
        return {
            "accuracy": ours - ours_imports,
            "accuracy.plain": plain - plain_imports,
            "accuracy.imports": inherited + ours_imports,
            "accuracy.imports.plain": inherited + plain_imports,
        }


def checkpoint(root: Root, model: str) -> dict[str, float]:
    """A round: what a save costs the step loop, beside a copy of the same tensors; its share at default settings."""
    _, batch, flags, _ = MODELS[model]
    every = ["--checkpoint-interval", "8", "--batch-size", str(batch // 2), *flags, *QUIET]
    rank = ok(root.train(2, *every, "--output", root.new()))[0]
    rows = epochs(rank)
    saves = sum(row["steps"] for row in rows) / 8
    stall = sum(row["seconds"].get("checkpoint", 0) for row in rows) / saves
    # In two processes, too: while rank 0 copies, rank 1 is at its next step and takes its share of the memory.
    size = "large" if model == "large" else "small"
    copies = ok(root.train(2, "memcpy", size, script="/out/alone.py", env=UNOBSERVED))
    copy = statistics.mean(each.event("alone")["memcpy"] for each in copies)
    step = step_ms(rank) / 1000
    return {
        f"save.{model}.stall": stall * 1000,
        f"save.{model}.copy": copy * 1000,
        f"save.{model}.share": 100 * stall / (100 * step + stall),
    }


def start(root: Root) -> dict[str, float]:
    """A round: two pods' torchrun, cold, from their start to the first step; beside its parts measured alone."""
    command = root.command(["python3", "/out/alone.py", "start", "small"])
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    alone = Rank(0, output).event("alone")
    port, began, pods, logs = root.free_port(), time.monotonic(), [], []
    for rank in range(2):
        wiring = {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        logs.append(root.out / f"start-{time.monotonic_ns()}")
        command = ["python3", "/opt/gangplank/trainer/start.py", "--epochs", "1", "--log-interval", "1"]
        with logs[-1].open("w") as file:
            pods.append(subprocess.Popen(root.command(command, wiring), stdout=file, stderr=subprocess.STDOUT))
    try:
        Root.wait_for(lambda: '"event":"step"' in logs[0].read_text(), "the first step")
        took = time.monotonic() - began
        for pod in pods:
            pod.wait()
    finally:
        for pod in pods:
            pod.terminate()  # no pod of a start that took too long is left
            pod.wait(60)
    parts = {f"start.{name}": alone[name] for name in ALONE}
    return parts | {"start.first": took, "start.parts": sum(parts.values())}


@dataclass(frozen=True)
class Row:
    """How a name of the rounds above is shown; one that is only beside others has no row."""

    title: str
    unit: str
    better: Better = "less"
    peer: tuple[str, str] | None = None
    """What it is, and its name; so for the floor."""
    floor: tuple[str, str] | None = None
    goal: float | None = None
    times: float | None = None
    """The goal, as a multiple of the peer or the floor."""


def rows() -> Iterator[tuple[str, Row]]:
    """Every figure."""
    for model, (title, _, _, linear) in MODELS.items():
        least = ("computing and a bare exchange", f"step.{model}.least")
        pair = ("2 independent ranks", f"step.{model}.independent")
        yield f"step.{model}.alone", Row(f"a step of 1 rank, {title}", "ms")
        yield f"step.{model}.ranks", Row(f"a step of 2 ranks, {title}", "ms", peer=pair, floor=least)
        yield f"step.{model}.plain", Row(f"a step of 2 ranks of a plain script with DDP, {title}", "ms", floor=least)
        yield f"step.{model}.bound", Row(f"the bound over 2 ranks, {title}", "x", "more", goal=BOUND)
        yield f"step.{model}.like_plain", Row(f"a plain script over 2 ranks, {title}", "x", "more")
        yield f"step.{model}.linear", Row(f"2 independent ranks over 2 ranks, {title}", "x", "more", goal=linear)
        yield f"step.{model}.input", Row(f"input's share of a step, {title}", "%", goal=5)
    for model in SAVED:
        title = MODELS[model].title
        copy = ("a copy of the state", f"save.{model}.copy")
        yield f"save.{model}.stall", Row(f"stall of a save, {title}", "ms", floor=copy, times=1.5)
        yield f"save.{model}.share", Row(f"a save at every 100th step, {title}", "%", goal=1)
    plain = ("plain script", "accuracy.plain")
    yield "accuracy", Row(f"to an accuracy of {TARGET}, without imports", "s", peer=plain, times=1)
    imports = ("plain script", "accuracy.imports.plain")
    yield "accuracy.imports", Row("interpreter and imports before that", "s", peer=imports)
    whole = ("sum of its parts", "start.parts")
    yield "start.first", Row("torchrun to the first step", "s", floor=whole, times=1.3)
    for name, title in ALONE.items():
        yield f"start.{name}", Row(f"{title}, alone", "s")


def figures(values: dict[str, list[float]]) -> Iterator[Figure]:
    """The rounds, summed up."""
    for name, row in rows():
        more: dict[str, Any] = {"better": row.better, "goal": row.goal}
        for kind, it in (("peer", row.peer), ("floor", row.floor)):
            if it:
                more[kind] = Beside.of(it[0], values[it[1]])
                if row.times:
                    more |= {"goal": row.times * more[kind].value, "why": f"{row.times:g} x {it[0]}"}
        yield figure(f"trainer.{name}", row.title, row.unit, values[name], **more)


def measure(setting: Setting) -> Iterator[Figure]:
    """All rounds, one after the other."""
    with training(setting) as root:
        works: list[Callable[[], dict[str, float]]] = [
            *(functools.partial(steps, root, model) for model in MODELS),
            Peer(root),
            *(functools.partial(checkpoint, root, model) for model in SAVED),
            functools.partial(start, root),
        ]
        rounds = in_rounds(ROUNDS, works, setting.say)
    yield from figures(rounds)
