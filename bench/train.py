"""How good the trainer is, beside plain peers: `make bench-train`. Run it with the lab down and nothing else running.

Every figure is the median of ABAB rounds with its spread (lowest to highest); batch sizes are below and were set
before the first measurement. Everything runs with the image's own Python, a thread per rank, without Python's start
and torch's import except where a line says so.

    GANGPLANK_TRAINER_ROOT=... bench/train.py [--rounds 15]
        [--only steps|evidence|observer|long|peer|checkpoint|start ...]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.trainer.harness import Rank, Root  # noqa: E402  # found by the line above

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Global batch, and flags: the digits job as shipped (two ranks share its 96 samples), and 1.1 M parameters.
MODELS = {
    "digits": (96, ["--data", "digits", "--epochs", "12"]),
    "large": (128, ["--data", "synthetic", "--model", "large", "--learning-rate", "0.01", "--epochs", "4"]),
    "digits, a minute": (96, ["--data", "digits", "--epochs", "400"]),
}
PLAIN = {"plain script of 6 epochs": "6", "plain script, a minute": "450"}
LONG_ROUNDS = 2  # of the runs that take a minute of CPU time
STEP = ("data", "compute", "update")
TARGET = 0.95  # accuracy on digits that both scripts have to reach
PEER_BATCH, RATE, MOMENTUM = 32, "0.05", "0.9"  # of each rank, as in jobs/digits.yml
QUIET = ["--log-interval", "0"]
Figure = dict[str, list[float]]


def ok(ranks: Sequence[Rank]) -> Sequence[Rank]:
    """The ranks, all of which ended well."""
    for rank in ranks:
        if rank.code:
            sys.exit(rank.text)
    return ranks


def epochs(rank: Rank) -> list[dict[str, dict[str, float]]]:
    """The epoch lines of a rank but for the first, in which everything is new."""
    return [event for event in rank.events if event["event"] == "epoch"][1:]


def step_ms(rank: Rank, kinds: Sequence[str] = STEP) -> float:
    """Milliseconds per step in these kinds of work."""
    rows = epochs(rank)
    return 1000 * sum(row["seconds"].get(kind, 0) for row in rows for kind in kinds) / sum(row["steps"] for row in rows)


def abba(run: Callable[[str], Sequence[Rank]]) -> tuple[float, float, float, float]:
    """Two runs with what is measured and two without it, ABBA.

    Seconds of CPU of all ranks: with it, without it, what it counts of itself, and what its loading takes of that.
    """
    spent, counted, loading = {"with": 0.0, "without": 0.0}, 0.0, 0.0
    for kind in ("with", "without", "without", "with"):
        rows = [rank.event("cpu") for rank in ok(run(kind))]
        spent[kind] += sum(row["run"] for row in rows)
        if kind == "with":
            counted += sum(row["counted"] for row in rows)
            loading += sum(row.get("loading", 0.0) for row in rows)
    return spent["with"], spent["without"], counted, loading


def evidence(root: Root, model: str) -> dict[str, float]:
    """A round: runs with and without evidence, ABBA, by the CPU time of all ranks; and what evidence counts of itself.

    CPU time of the same work varies by some percent while other work is going on; the median of many rounds does less.
    """
    batch, flags = MODELS[model]
    spent, bare, counted, _ = abba(lambda kind: root.train(
        2, kind, "--batch-size", str(batch // 2), *flags, *QUIET, "--output", root.new(),
        script="/out/evidence_cpu.py"))  # fmt: skip
    return {
        f"{model}: s of CPU with evidence": spent / 2,
        f"{model}: s of CPU without": bare / 2,
        f"{model}: evidence, share of the run's CPU time": spent / bare - 1,
        f"{model}: evidence, as it counts itself": counted / spent,
        f"{model}: evidence, ms of CPU of each rank": 1000 * counted / 4,
    }


def observer(root: Root, name: str) -> dict[str, float]:
    """A round: the plain script, observed and not, ABBA, by the CPU time of all ranks without torch's import."""
    spent, bare, counted, loading = abba(lambda kind: root.train(
        2, kind, "/out/plain.py", PLAIN[name], str(PEER_BATCH), RATE, MOMENTUM, env={
            "OUT": f"{root.new()}/model.pt", "TORCHELASTIC_USE_AGENT_STORE": "True", "GANGPLANK_OBSERVE": "0"},
        script="/out/observer_cpu.py"))  # fmt: skip
    return {
        f"{name}: s of CPU, observed": spent / 2,
        f"{name}: s of CPU, not": bare / 2,
        f"{name}: observer, share of the run's CPU time": spent / bare - 1,
        f"{name}: observer, as it counts itself": counted / spent,
        f"{name}: observer, ms of CPU of each rank": 1000 * counted / 4,
        f"{name}: of these, to load it": 1000 * loading / 4,
    }


def steps(root: Root, model: str) -> dict[str, float]:
    """A round: one rank, two independent ones and two together; the per-rank batch of both pairs is the same."""
    batch, flags = MODELS[model]
    half = ["--batch-size", str(batch // 2), *flags, *QUIET]
    alone = step_ms(ok(root.train(1, "--batch-size", str(batch), *flags, *QUIET))[0])
    stores = [root.store() for _ in range(2)]
    both = [root.start([0], 1, *half, port=store["port"]) for store in stores]
    independent = statistics.mean(step_ms(ok(running.wait())[0]) for running in both)
    for store in stores:
        root.close_store(store)
    pair = ok(root.train(2, *half))
    together = statistics.mean(map(step_ms, pair))
    return {
        f"{model}: ms a step, 1 rank": alone,
        f"{model}: ms a step, 2 independent": independent,
        f"{model}: ms a step, 2 ranks": together,
        f"{model}: speed-up, 2 independent": alone / independent,
        f"{model}: speed-up, 2 ranks": alone / together,
        f"{model}: DDP efficiency": independent / together,
        f"{model}: share of input": statistics.mean(step_ms(rank, ["data"]) for rank in pair) / together,
    }


def timed(work: Callable[[], Sequence[Rank]]) -> tuple[float, Rank]:
    """Seconds of a run from its first process to the end of its last, and rank 0."""
    began = time.monotonic()
    ranks = ok(work())
    return time.monotonic() - began, ranks[0]


def reached(rank: Rank) -> int:
    """The first epoch with the target accuracy."""
    numbers = [event["epoch"] for event in rank.events if event["event"] == "epoch" and event["accuracy"] >= TARGET]
    return min(numbers) if numbers else sys.exit(f"never reached {TARGET}: {rank.text}")


class Peer:
    """The trainer and the plain script, each trained for as many epochs as it needs to reach the target."""

    def __init__(self, root: Root) -> None:
        self.root = root
        for path in (ROOT / "bench/inside").glob("*.py"):
            shutil.copy(path, root.out)
        self.epochs = {name: reached(run(12)[0]) for name, run in (("ours", self.ours), ("plain", self.plain))}

    def ours(self, epochs: int) -> Sequence[Rank]:
        """The trainer as shipped, checkpoints, evidence and all."""
        return self.root.train(2, "--epochs", str(epochs), "--batch-size", str(PEER_BATCH), "--learning-rate", RATE,
                               "--sgd-momentum", MOMENTUM, "--output", self.root.new())  # fmt: skip

    def plain(self, epochs: int) -> Sequence[Rank]:
        """The peer."""
        arguments = [str(epochs), str(PEER_BATCH), RATE, MOMENTUM]
        return self.root.train(2, *arguments, script="/out/plain.py", env={
            "OUT": f"{self.root.new()}/model.pt", "TORCHELASTIC_USE_AGENT_STORE": "True"})  # fmt: skip

    def __call__(self) -> dict[str, float]:
        """A round."""
        ours, _ = timed(lambda: self.ours(self.epochs["ours"]))
        plain, _ = timed(lambda: self.plain(self.epochs["plain"]))
        return {
            f"to accuracy {TARGET}: s, trainer ({self.epochs['ours']} epochs)": ours,
            f"to accuracy {TARGET}: s, plain script ({self.epochs['plain']} epochs)": plain,
            f"to accuracy {TARGET}: trainer / plain": ours / plain,
        }


def checkpoint(root: Root, model: str) -> dict[str, float]:
    """A round: what a save costs the step loop, beside a copy of the same tensors; its share at default settings."""
    batch, flags = MODELS[model]
    every = ["--checkpoint-interval", "8", "--batch-size", str(batch // 2), *flags, *QUIET]
    rank = ok(root.train(2, *every, "--output", root.new()))[0]
    rows = epochs(rank)
    saves = sum(row["steps"] for row in rows) / 8
    stall = sum(row["seconds"].get("checkpoint", 0) for row in rows) / saves
    # In two processes, too: while rank 0 copies, rank 1 is at its next step and takes its share of the memory.
    size = "large" if model == "large" else "small"
    copies = ok(root.train(2, "memcpy", size, script="/out/alone.py"))
    copy = statistics.mean(each.event("alone")["memcpy"] for each in copies)
    step = step_ms(rank) / 1000
    return {
        f"{model}: checkpoint stall, ms": stall * 1000,
        f"{model}: memcpy of the state, ms": copy * 1000,
        f"{model}: stall / memcpy": stall / copy,
        f"{model}: stall at every 100th step, share of the run": stall / (100 * step + stall),
    }


def start(root: Root) -> dict[str, float]:
    """A round: two pods' torchrun, cold, from their start to the first step; beside its parts measured alone."""
    parts = root.command(["python3", "/out/alone.py", "start", "small"])
    output = subprocess.run(parts, capture_output=True, text=True, check=True).stdout
    alone = Rank(0, output).event("alone")
    port, began, pods, logs = root.free_port(), time.monotonic(), [], []
    for rank in range(2):
        wiring = {"WORLD_SIZE": "2", "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        logs.append(root.out / f"start-{time.monotonic_ns()}")
        command = ["python3", "/opt/gangplank/trainer/start.py", "--epochs", "1", "--log-interval", "1"]
        with logs[-1].open("w") as file:
            pods.append(subprocess.Popen(root.command(command, wiring), stdout=file, stderr=subprocess.STDOUT))
    Root.wait_for(lambda: '"event":"step"' in logs[0].read_text(), "the first step")
    took = time.monotonic() - began
    for pod in pods:
        pod.wait()
    parts_s = alone["import"] + alone["connect"] + alone["step"]
    return {
        "start: import torch alone, s": alone["import"],
        "start: store connect alone, s": alone["connect"],
        "start: first step alone, s": alone["step"],
        "start: torchrun to first step, s": took,
        "start: over the sum of the parts": took / parts_s,
        "start: over the sum, torchrun's own import counted too": took / (parts_s + alone["import"]),
    }


GOALS = {"DDP efficiency": ">= 0.95", "trainer / plain": "<= 0.25", "share of input": "<= 0.05",
         "stall / memcpy": "<= 1.5", "share of the run": "<= 0.01",
         "share of the run's CPU time": "<= 0.01", "as it counts itself": "<= 0.01",
         "over the sum of the parts": "<= 1.3"}  # fmt: skip


def main() -> None:
    """Measure and print; nothing is asserted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="+", choices=(
        "steps", "evidence", "observer", "long", "peer", "checkpoint", "start"))
    arguments = parser.parse_args()
    place = os.environ.get("GANGPLANK_TRAINER_ROOT") or sys.exit("GANGPLANK_TRAINER_ROOT is not set: make bench-train")
    with tempfile.TemporaryDirectory() as work:
        root = Root(Path(place), Path(work))
        try:
            peer = Peer(root)  # it copies the scripts, too
            rounds = {
                "steps": [lambda: steps(root, "digits"), lambda: steps(root, "large")],
                "evidence": [lambda: evidence(root, "digits"), lambda: evidence(root, "large")],
                "observer": [lambda: observer(root, "plain script of 6 epochs")],
                "long": [lambda: evidence(root, "digits, a minute"), lambda: observer(root, "plain script, a minute")],
                "peer": [peer],
                "checkpoint": [lambda: checkpoint(root, "digits"), lambda: checkpoint(root, "large")],
                "start": [lambda: start(root)],
            }
            chosen = [(name, work) for name, parts in rounds.items() if name in (arguments.only or rounds)
                      for work in parts]
            figures: Figure = {}
            for number in range(arguments.rounds):
                for one in (work for name, work in chosen if name != "long" or number < LONG_ROUNDS):
                    for name, value in one().items():
                        figures.setdefault(name, []).append(value)
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        finally:
            root.close()
    print(f"{'figure':64} {'median':>9} {'lowest':>9} {'highest':>9}  goal")
    for name, values in figures.items():
        goal = next((text for end, text in GOALS.items() if name.endswith(end)), "")
        print(f"{name:64} {statistics.median(values):9.4f} {min(values):9.4f} {max(values):9.4f}  {goal}")


if __name__ == "__main__":
    main()
