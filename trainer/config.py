"""What a run is asked to do: one frozen dataclass, filled from flags, checked once.

Every field is a flag (`batch_size` is `--batch-size`); the string under a field is its help text.
Standard library only, so that a wrong flag is answered before torch is imported.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn


class ConfigError(ValueError):
    """A flag that cannot be honoured: what was given, and the fix, in one line."""


@dataclass(frozen=True)
class Config:
    """Everything that decides a run's result, apart from how many ranks there are."""

    data: str = "digits"
    """digits (ships with scikit-learn), mnist:<dir> (the four idx files, plain or .gz) or synthetic."""

    train_samples: int = 0
    """Train on the first N samples of the training split only; 0 takes them all."""

    model: str = "small"
    """small (about 38,000 parameters), large (about 1,100,000) or huge (about 35,000,000, work for a GPU)."""

    dropout: float = 0.0
    """Share of hidden activations dropped in training, 0 to below 1."""

    epochs: int = 3
    """Passes over the training split."""

    batch_size: int = 64
    """Samples per rank and micro-batch; the global batch is this times accumulate times ranks."""

    test_batch_size: int = 512
    """Samples per rank and forward pass on the held-out split."""

    accumulate: int = 1
    """Micro-batches per optimizer step."""

    optimizer: str = "sgd"
    """sgd or adamw."""

    learning_rate: float = 0.05
    """Highest learning rate."""

    sgd_momentum: float = 0.9
    """Momentum of sgd, 0 to below 1; adamw does not read it."""

    weight_decay: float = 0.0
    """Weight decay, as the chosen optimizer means it."""

    schedule: str = "constant"
    """constant, cosine (down to 0 at the last sample) or linear (likewise)."""

    warmup_epochs: float = 0.0
    """The learning rate climbs from 0 during this many epochs."""

    precision: str = "fp32"
    """fp32, tf32 (on a GPU) or bf16 (autocast; weights and gradients stay fp32)."""

    seed: int = 1
    """Decides initial weights, sample order and dropout."""

    backend: str = "gloo"
    """What carries the gradients: gloo, or nccl, for which every rank needs a GPU of its own."""

    device: str = "auto"
    """auto (with nccl a GPU, with gloo the CPU), cpu or cuda; with gloo, ranks of one pod may share a GPU."""

    threads: int = 1
    """CPU threads of each rank."""

    log_interval: int = 10
    """Optimizer steps between two `step` lines; 0 prints none."""

    dir: str = ""
    """Folder for TensorBoard's event files, which rank 0 writes while it trains; empty writes none."""

    output: str = ""
    """Folder for the results and checkpoints. Only rank 0 touches it; empty writes nothing."""

    resume: str = "auto"
    """auto (this job's newest good checkpoint, else start), must (fail without one) or never."""

    checkpoint_interval: int = 100
    """Optimizer steps between checkpoints; 0 leaves the one at the end and the one at SIGTERM."""

    keep_checkpoints: int = 3
    """How many of this job's newest checkpoints to keep."""

    rendezvous_timeout: int = 60
    """Seconds the ranks wait for each other at the start."""

    collective_timeout: int = 60
    """Seconds a collective operation may take before a rank considers the others lost."""

    def __post_init__(self) -> None:
        problems = [f"{flag(name)}: got {getattr(self, name)!r}, expected {rule}"
                    for name, (rule, holds) in RULES.items() if not holds(getattr(self, name))]
        problems += [text for text, broken in CONTRADICTIONS if broken(self)]
        if problems:
            raise ConfigError("; ".join(problems))

    @property
    def on_gpu(self) -> bool:
        """Whether the ranks train on GPUs."""
        return self.device == "cuda" or (self.device == "auto" and self.backend == "nccl")

    def as_json(self) -> dict[str, object]:
        """The resolved values, in field order."""
        return dataclasses.asdict(self)


Rule = tuple[str, Callable[[Any], bool]]


def one_of(*names: str) -> Rule:
    """The rule of a choice."""
    return "one of " + ", ".join(names), lambda value: value in names


def at_least(low: float) -> Rule:
    """The rule of a lower bound."""
    return f"a number >= {low}", lambda value: value >= low


RULES: dict[str, Rule] = {
    "data": ("digits, synthetic or mnist:<dir>",
             lambda v: v in ("digits", "synthetic") or (v.startswith("mnist:") and len(v) > len("mnist:"))),
    "train_samples": at_least(0),
    "model": one_of("small", "large", "huge"),
    "dropout": ("0 <= dropout < 1", lambda v: 0 <= v < 1),
    "epochs": at_least(1),
    "batch_size": at_least(1),
    "test_batch_size": at_least(1),
    "accumulate": at_least(1),
    "optimizer": one_of("sgd", "adamw"),
    "learning_rate": ("a finite number > 0", lambda v: 0 < v < float("inf")),
    "sgd_momentum": ("0 <= momentum < 1", lambda v: 0 <= v < 1),
    "weight_decay": ("a finite number >= 0", lambda v: 0 <= v < float("inf")),
    "schedule": one_of("constant", "cosine", "linear"),
    "warmup_epochs": ("a finite number >= 0", lambda v: 0 <= v < float("inf")),
    "precision": one_of("fp32", "tf32", "bf16"),
    "seed": ("0 <= seed < 2**31, so that seed + epoch and seed + rank stay valid", lambda v: 0 <= v < 2**31),
    "backend": one_of("gloo", "nccl"),
    "device": one_of("auto", "cpu", "cuda"),
    "threads": at_least(1),
    "log_interval": at_least(0),
    "resume": one_of("auto", "must", "never"),
    "checkpoint_interval": at_least(0),
    "keep_checkpoints": at_least(1),
    "rendezvous_timeout": at_least(1),
    "collective_timeout": at_least(1),
}

CONTRADICTIONS: list[tuple[str, Callable[[Config], bool]]] = [
    ("--precision tf32 is a GPU's format. Fix: add --backend nccl or --device cuda, or use fp32 or bf16",
     lambda c: c.precision == "tf32" and not c.on_gpu),
    ("--backend nccl has nothing to carry on --device cpu. Fix: leave one of them out",
     lambda c: c.backend == "nccl" and c.device == "cpu"),
    ("--warmup-epochs is longer than the run. Fix: make it smaller than --epochs",
     lambda c: c.warmup_epochs >= c.epochs),
    ("--resume must needs the checkpoints' folder. Fix: add --output",
     lambda c: c.resume == "must" and not c.output),
]


def flag(name: str) -> str:
    """The flag of a field.

    >>> flag("batch_size")
    '--batch-size'
    """
    return "--" + name.replace("_", "-")


def field_docs() -> dict[str, str]:
    """Help text per field, read from the strings under the fields."""
    lines = [line for node in ast.parse(inspect.getsource(Config)).body if isinstance(node, ast.ClassDef)
             for line in node.body]
    return {field.target.id: doc.value.value
            for field, doc in itertools.pairwise(lines)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            and isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str)}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (every flag: train.py --help)")


def parse_args(argv: list[str]) -> Config:
    """The run that the flags describe.

    >>> parse_args(["--epochs", "2"]).epochs
    2
    """
    parser = _Parser(prog="train.py", allow_abbrev=False, description="Distributed training, proven.")
    docs = field_docs()
    for field in dataclasses.fields(Config):
        kind = type(field.default)
        parser.add_argument(flag(field.name), type=kind, default=field.default, metavar=kind.__name__.upper(),
                            help=f"{docs[field.name]} Default: {field.default!r}.".replace("%", "%%"))
    return Config(**vars(parser.parse_args(argv)))
