"""The trainer on this machine's GPUs: an average that is proven, a resume that is exact, and samples per second.

    make gpu-check [PYTHON=python3] [RESULT=file.json]

Needs a Python with torch, numpy and safetensors; no lab, no root, no network. For each kind of group and precision one
training runs to its end, and another is killed in the middle and resumed. Their weights must be equal to the bit. The
evidence is judged as `gangplank proof` does. Then the trainer's samples per second are set beside a bare loop's.
Exit status: 0 everything holds; 1 something does not; 3 this machine has no GPU, so that nothing was checked.
"""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import itertools
import json
import os
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem
from gangplank.proof.verdict import Expected, prove, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parents[1]
TRAINER, BARE = ROOT / "trainer", ROOT / "bench/inside/bare.py"
OK, FAILED, NO_GPU = 0, 1, 3
JOB_UID = "gpu-check"
PRECISIONS = ("fp32", "tf32", "bf16")

# The interrupted training: long enough to be killed in its middle, with dropout, whose random state must come back too.
EPOCHS, GLOBAL_BATCH, EVERY, KILL_AFTER = 8, 128, 25, 100
TRAINING = ["--data", "synthetic", "--model", "large", "--learning-rate", "0.01", "--dropout", "0.2",
            "--epochs", str(EPOCHS), "--checkpoint-interval", str(EVERY), "--log-interval", "1"]  # fmt: skip

# The timed training: images of MNIST's size, of noise, and a network whose steps keep a large GPU at work.
IMAGES, SIDE, TIMED_BATCH, TIMED_EPOCHS = 122_880, 28, 1024, 4
TIMED = ["--model", "huge", "--learning-rate", "0.001", "--epochs", str(TIMED_EPOCHS), "--batch-size", str(TIMED_BATCH),
         "--log-interval", "0"]  # fmt: skip
STEP = ("data", "compute", "update")

# What this Python and its torch say of the machine; `reason` if the checks cannot run.
PROBE = """
import importlib.util, json
facts = {"gpus": []}
missing = [name for name in ("torch", "numpy", "safetensors") if importlib.util.find_spec(name) is None]
if missing:
    facts["reason"] = "no " + ", ".join(missing)
else:
    import torch
    facts |= {"torch": torch.__version__, "cuda": torch.version.cuda}
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not torch.version.cuda:
        facts["reason"] = f"torch {torch.__version__}, which is built without CUDA"
    elif not count:
        facts["reason"] = f"torch {torch.__version__}, which finds no CUDA device"
    for index in range(count):
        card = torch.cuda.get_device_properties(index)
        facts["gpus"].append({"name": card.name, "id": f"GPU-{card.uuid}", "memory_mib": card.total_memory >> 20})
    if count:
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
print(json.dumps(facts))
"""


class CheckError(Exception):
    """A check that does not hold: what was seen."""


@dataclass(frozen=True)
class Group:
    """Ranks that train together: how many, how they communicate, and on which GPUs."""

    name: str
    ranks: int
    flags: tuple[str, ...]
    gpus: tuple[str, ...]

    @property
    def batch(self) -> int:
        """Samples per rank and step of the interrupted training, so that any number of ranks takes as many steps."""
        return max(1, GLOBAL_BATCH // self.ranks)


@dataclass
class Check:
    """One line of the table."""

    name: str
    passed: bool
    detail: str

    @property
    def line(self) -> str:
        """How it is printed."""
        return f"{'ok' if self.passed else 'FAILED':7} {self.name}: {self.detail}"


@dataclass
class Figure:
    """Samples per second at one precision, of all GPUs together and of a bare loop on one."""

    precision: str
    trainer_steps: float
    trainer_epochs: float
    """With everything that an epoch has besides its steps: evaluation, evidence, exchange of heads."""
    bare: float
    share_steps: float
    share_epochs: float


@dataclass
class Result:
    """What `--json` writes."""

    date: str
    machine: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)


def probe(python: str) -> dict[str, Any]:
    """The machine as this Python's torch sees it."""
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return {"gpus": [], "reason": f"a Python that fails: {last}"}
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def driver() -> str:
    """The version of NVIDIA's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "unknown"


def groups(gpus: Sequence[str]) -> list[Group]:
    """One rank per GPU by nccl; and two by gloo on the first GPU, since one rank alone has nothing to average."""
    return [Group("nccl, a rank per GPU", len(gpus), ("--backend", "nccl"), tuple(gpus)),
            Group("gloo, two ranks on one GPU", 2, ("--backend", "gloo", "--device", "cuda"), (gpus[0],))]


def command(python: str, ranks: int, flags: Sequence[str]) -> list[str]:
    """The trainer as a pod starts it: torchrun.py, which forks its ranks."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        number = port.getsockname()[1]
    return [python, str(TRAINER / "torchrun.py"), "--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1",
            f"--master-port={number}", f"--nproc-per-node={ranks}", str(TRAINER / "train.py"), *flags]


def environment(group: Group) -> dict[str, str]:
    """The group's GPUs alone; the ranks of one machine meet on its loopback."""
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(group.gpus), "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "GANGPLANK_JOB_UID": JOB_UID}


class Training:
    """A training that runs; it waits while nobody reads its events."""

    def __init__(self, python: str, group: Group, flags: Sequence[str]) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the process
        self.process = subprocess.Popen(
            command(python, group.ranks, [*group.flags, *flags]), env=environment(group), text=True,
            stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True)

    def events(self) -> Iterator[dict[str, Any]]:
        """Its JSON lines, as they come."""
        assert self.process.stdout  # noqa: S101  # a pipe, as asked for
        for line in self.process.stdout:
            if line.startswith("{"):
                yield json.loads(line)

    def finish(self) -> list[dict[str, Any]]:
        """All events; CheckError with the end of its output if it did not end well."""
        events = list(self.events())
        if self.process.wait():
            self.errors.seek(0)
            lines = [line.strip() for line in self.errors if line.strip()]
            own = [line for line in lines if line.startswith("train.py: ")]
            said = " | ".join(own or lines[-6:])
            raise CheckError(f"the training ended with status {self.process.returncode}: {said}")
        return events

    def kill_in_the_middle(self) -> int:
        """SIGKILL to all ranks at once, some steps after a checkpoint; returns the checkpoint's step."""
        saved = 0
        for event in self.events():
            if event["event"] == "checkpoint" and event["step"] >= KILL_AFTER:
                saved = event["step"]
            elif saved and event["event"] == "step" and event["step"] > saved:
                os.killpg(self.process.pid, signal.SIGKILL)
                break
        list(self.events())
        if self.process.wait() != -signal.SIGKILL:
            raise CheckError(f"the training ended with status {self.process.returncode} before it could be killed")
        return saved


def weights(folder: Path) -> str:
    """The sha256 of a training's weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def exact(python: str, group: Group, precision: str, work: Path) -> str:
    """A killed and resumed training beside an uninterrupted one, judged; returns the numbers that show it."""
    flags = [*TRAINING, "--batch-size", str(group.batch), "--precision", precision]
    whole, torn = (Path(tempfile.mkdtemp(dir=work)) for _ in range(2))
    with ThreadPoolExecutor(1) as beside:
        uninterrupted = beside.submit(Training(python, group, [*flags, "--output", str(whole)]).finish)
        saved = Training(python, group, [*flags, "--output", str(torn)]).kill_in_the_middle()
        if (torn / "model.safetensors").exists():
            raise CheckError("the killed training has a result")
        events = Training(python, group, [*flags, "--output", str(torn)]).finish()
        uninterrupted.result()
    resumed = [event["step"] for event in events if event["event"] == "resume"]
    if len(resumed) != group.ranks or min(resumed, default=0) < saved:
        raise CheckError(f"resumed at steps {resumed}, expected {group.ranks} ranks at {saved} or later")
    steps = json.loads((torn / "result.json").read_text())["steps"]
    if steps <= resumed[0]:
        raise CheckError(f"nothing was left to do after the resume at step {resumed[0]}")
    if weights(whole) != weights(torn):
        raise CheckError(f"the weights differ after a resume at step {resumed[0]} of {steps}")
    return f"{judge(group, torn)}; killed, resumed at step {resumed[0]} of {steps}: weights equal to the bit"


def judge(group: Group, folder: Path) -> str:
    """The proof of a training's evidence, and the devices in it."""
    records = read_records((folder / "evidence.jsonl").read_text())
    expected = Expected(group.ranks, epochs=EPOCHS, global_batch=group.ranks * group.batch, job_uid=JOB_UID,
                        processes_per_pod=group.ranks)
    verdict = prove(records, expected)
    if not (verdict.passed or (group.ranks == 1 and verdict.alone)):
        failed = "; ".join(f"{claim.name} ({claim.detail})" for claim in verdict.failed)
        raise CheckError(f"{verdict.word}: {failed or 'no claim was asked'}")
    used = {str(record["device"]) for record in records if record["kind"] == "begin"}
    if used != set(group.gpus):
        raise CheckError(f"the ranks trained on {sorted(used)}, expected {sorted(group.gpus)}")
    held = f"{len(verdict.asked) - len(verdict.failed)} of {len(verdict.asked)} claims hold"
    return held + (" (one rank has nobody to average with)" if verdict.alone else "")


def refusal(python: str, gpus: Sequence[str]) -> str:
    """Nccl with one rank more than there are GPUs: refused with the reason, not stuck."""
    group = Group("nccl, a rank too many", len(gpus) + 1, ("--backend", "nccl"), tuple(gpus))
    try:
        Training(python, group, ["--data", "synthetic"]).finish()
    except CheckError as error:
        reason = f"--backend nccl needs a GPU for each rank: got {len(gpus)} in this pod"
        if reason in str(error):
            return reason
        raise
    raise CheckError("ranks shared a GPU")


def write_images(folder: Path) -> None:
    """Noise in the shape of MNIST's four files."""
    for name, count in (("train", IMAGES), ("t10k", 1024)):
        header = b"".join(number.to_bytes(4, "big") for number in (0x803, count, SIDE, SIDE))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(header + secrets.token_bytes(count * SIDE * SIDE))
        labels = bytes(index % 10 for index in range(count))
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            (0x801).to_bytes(4, "big") + count.to_bytes(4, "big") + labels)


def speed(python: str, group: Group, precision: str, images: Path) -> Figure:
    """The trainer's samples per second on all GPUs, and a bare loop's on one; the first epoch warms up."""
    bare = subprocess.run(
        [python, str(BARE), str(TRAINER), str(images), precision, str(TIMED_BATCH), str(TIMED_EPOCHS)],
        env=environment(group), capture_output=True, text=True, check=False)
    if bare.returncode:
        raise CheckError(f"the bare loop failed: {(bare.stderr.strip().splitlines() or ['nothing'])[-1]}")
    events = Training(python, group, [*group.flags, *TIMED, "--data", f"mnist:{images}",
                                      "--precision", precision]).finish()
    rows = [event for event in events if event["event"] == "epoch" and event["rank"] == 0][1:]
    ends = [event["time"] for event in events
            if event["event"] == "evidence" and event["kind"] == "epoch" and event["rank"] == 0]
    samples = rows[0]["samples"] * group.ranks
    steps = samples / statistics.median(sum(row["seconds"][kind] for kind in STEP) for row in rows)
    epochs = samples / statistics.median(end - begin for begin, end in itertools.pairwise(ends))
    peer = statistics.median(json.loads(bare.stdout.splitlines()[-1])["samples_per_second"])
    return Figure(precision, round(steps), round(epochs), round(peer), round(steps / group.ranks / peer, 3),
                  round(epochs / group.ranks / peer, 3))


def run(python: str, machine: Mapping[str, Any], say: Callable[[str], None]) -> Result:
    """Every check, each reported as it ends; then the figures, one after the other."""
    result = Result(dt.datetime.now(dt.UTC).date().isoformat(), dict(machine))
    gpus = [gpu["id"] for gpu in machine["gpus"]]
    kinds = groups(gpus)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        checks: dict[str, Callable[[], str]] = {
            f"{group.name} ({group.ranks}), {precision}": partial(exact, python, group, precision, work)
            for group in kinds for precision in PRECISIONS}
        checks[f"nccl, a rank too many ({len(gpus) + 1})"] = partial(refusal, python, gpus)
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // (4 * len(gpus)))) as pool:
            for done in pool.map(outcome, checks, checks.values()):
                say(done.line)
                result.checks.append(done)
        write_images(work)
        for precision in PRECISIONS:
            name = f"samples per second, {precision}"
            result.checks.append(outcome(name, partial(add_figure, result.figures, python, kinds[0], precision, work)))
            say(result.checks[-1].line)
    return result


def outcome(name: str, check: Callable[[], str]) -> Check:
    """A check's line, whether it holds or not."""
    try:
        return Check(name, True, check())
    except CheckError as error:
        return Check(name, False, str(error))


def add_figure(figures: list[Figure], python: str, group: Group, precision: str, images: Path) -> str:
    """Measure one precision."""
    figures.append(speed(python, group, precision, images))
    return f"measured over {TIMED_EPOCHS - 1} epochs of {IMAGES} images"


def table(figures: Sequence[Figure]) -> str:
    """The figures, a precision a line."""
    lines = [f"{'samples per second':20} {'bare loop':>10} {'steps':>10} {'share':>6} {'epochs':>10} {'share':>6}"]
    lines += [f"{row.precision:20} {row.bare:10,.0f} {row.trainer_steps:10,.0f} {row.share_steps:6.2f} "
              f"{row.trainer_epochs:10,.0f} {row.share_epochs:6.2f}" for row in figures]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Check, print, and write the result if asked; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the result there")
    arguments = parser.parse_args(argv)
    machine = probe(sys.executable)
    if not machine["gpus"]:
        fix = ("run it on a machine with an NVIDIA GPU, with PYTHON=a Python that has a torch for CUDA and the rest of "
               "requirements-trainer.txt")
        print(f"gpu-check: nothing was checked: {Problem(sys.executable, machine['reason'], 'a GPU', fix)}",
              file=sys.stderr)
        return NO_GPU
    machine["driver"] = driver()
    gpus = machine["gpus"]
    print(f"{len(gpus)} x {gpus[0]['name']}, driver {machine['driver']}, torch {machine['torch']}, nccl "
          f"{machine['nccl']}", flush=True)
    result = run(sys.executable, machine, partial(print, flush=True))
    if result.figures:
        print(table(result.figures))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(asdict(result), indent=2) + "\n")
    failed = [check.name for check in result.checks if not check.passed]
    print(f"gpu-check: {len(failed)} of {len(result.checks)} checks failed" if failed
          else f"gpu-check: all {len(result.checks)} checks hold")
    return FAILED if failed else OK


if __name__ == "__main__":
    sys.exit(main())
