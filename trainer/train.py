#!/usr/bin/env python3
"""Train a small network with DistributedDataParallel; every rank reports what it does, one JSON object a line.

    torchrun --standalone --nproc-per-node=2 train.py --epochs 3 --output out
    torchrun --nnodes=3 --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT
        --nproc-per-node=1 train.py --epochs 3 --batch-size 64 --output out

Exit status: 0 trained, 1 a rank or the volume was lost or the loss is not a number, 2 refused (flags, wiring, data,
no checkpoint), 143 stopped by SIGTERM after saving.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import standstill
import torch
import torch.distributed as dist
from bucket import BucketError, staged
from checkpoint import Buffer, CheckpointError, Saver, VolumeError, safetensors, write_file
from config import Config, ConfigError, parse_args
from data import DataError, load, shard
from events import Events
from evidence import CPU_SECONDS, SHORT, ParameterSample, parameter_hash
from gradients import GradientWatch, mean_exchange_s
from launch import Wiring, WiringError, choose_device, join, patient_group, prepare_together, read_wiring
from log import say, say_lines
from model import STOP, WAIT, Net, Trainee, learning_rate, make_optimizer, wish_of
from run import (
    Progress,
    as_text,
    begin,
    checkpoint_meta,
    checkpoint_tensors,
    own_json,
    random_state,
    random_tensors,
    snapshot,
)
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

TIMELY = 0.75  # of a collective's time-out: a rank that stands still says where before the others give it up


class NotFiniteError(RuntimeError):
    """The mean loss or the gradient of a step is not finite; every rank sees the same and stops."""


class OutputError(RuntimeError):
    """The results cannot be written: where, why, and the fix."""


class StoppedError(RuntimeError):
    """A rank received SIGTERM; every rank has saved and leaves."""


class LostRanksError(RuntimeError):
    """Other ranks are gone, which is reported: the process group's own clean-up would wait for them."""


class Clock:
    """Seconds per kind of work in an epoch."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, kind: str, began: float) -> float:
        """Add the time since then to `kind`; returns now, when the next kind begins."""
        now = time.perf_counter()
        self.seconds[kind] = self.seconds.get(kind, 0.0) + now - began
        return now

    def take(self) -> dict[str, float]:
        """What was measured since the last call."""
        taken, self.seconds = self.seconds, {}
        return {kind: round(seconds, 6) for kind, seconds in taken.items()}


def make_exact(precision: str) -> None:
    """On a GPU: fp32 means fp32, and the same steps give the same weights, which a resume relies on.

    https://docs.pytorch.org/docs/stable/notes/randomness.html
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    torch.use_deterministic_algorithms(mode=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # which costs time; nothing here reads such memory
    arithmetic = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = arithmetic
    torch.backends.cudnn.conv.fp32_precision = arithmetic


class Training:
    """One rank's run, in the order in which it happens."""

    def __init__(self, config: Config, wiring: Wiring, device: torch.device) -> None:
        self.config, self.wiring, self.device = config, wiring, device
        self.clock, self.began = Clock(), time.monotonic()
        self.stop_wanted = self.waits = False  # waits: rank 0 was still writing, so that the others wait for it
        # All others wait in it while rank 0 writes.
        self.patient = patient_group(config.collective_timeout) if config.output else None
        signal.signal(signal.SIGTERM, self._want_stop)
        if config.on_gpu:
            make_exact(config.precision)
        say("start", rank=wiring.rank, world_size=wiring.world_size, host=wiring.host, pod=wiring.pod,
            node=wiring.node, job_uid=wiring.job_uid, pod_uid=wiring.pod_uid)

        self.data = load(config.data, config.seed, config.train_samples)
        self.x, self.y = self.data.train_x.to(self.device), self.data.train_y.to(self.device)
        torch.manual_seed(config.seed)  # the same first weights everywhere
        self.net = Net(config.model, self.data.classes, config.dropout).to(self.device)
        self.trainee = Trainee(self.net).to(self.device)
        self.ddp = DistributedDataParallel(self.trainee, device_ids=[device] if config.on_gpu else None,
                                           gradient_as_bucket_view=True)
        self.trains, self.batches = True, 0  # those of training and evaluation that are done
        self.ready = 0.0  # when the last gradient of its own was there
        if not config.on_gpu:
            next(self.net.parameters()).register_hook(self._gradients_ready)
        self.optimizer = make_optimizer(config, self.net)
        self._rehearse()
        self.progress, self.evidence = begin(config, self.data, wiring, self.net, self.optimizer, self.device,
                                             self.patient)
        self.watch = GradientWatch(self.ddp, self.evidence, ignore=[self.trainee.passengers])
        self.sample = ParameterSample(self.net)
        self.attested = self.progress.step  # when the ranks last exchanged heads
        self.saver = Saver(Path(config.output) / "checkpoints", config.keep_checkpoints, wiring.job_uid)
        self.events = Events(config.dir if wiring.rank == 0 else "")
        self.background = dist.new_group(backend="gloo", timeout=timedelta(seconds=config.collective_timeout))

    def _want_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop_wanted = True

    def _gradients_ready(self, _: torch.Tensor) -> None:
        """The first parameter's gradient comes last in a backward pass: what follows is the exchange."""
        self.ready = time.perf_counter()

    def _rehearse(self) -> None:
        """One backward pass on blanks, thrown away.

        DDP rebuilds its buckets after the first one, which changes the order of sums. So the first real step of an
        uninterrupted and of a resumed run must not be DDP's first.
        """
        blank = torch.zeros_like(self.x[: self.config.batch_size])
        with self._autocast():
            loss = self.ddp(blank, self.y[: len(blank)], len(blank), 0.0)
        loss.backward()
        self.ddp.zero_grad()

    def _autocast(self) -> contextlib.AbstractContextManager[object]:
        """The arithmetic of a forward pass."""
        if self.config.precision == "bf16":
            return torch.autocast(self.device.type, torch.bfloat16)
        return contextlib.nullcontext()

    def run(self) -> None:
        """All epochs that are left, then the results."""
        limit_s = standstill.limit_s()
        if self.wiring.world_size > 1:
            limit_s = min(limit_s, TIMELY * self.config.collective_timeout)
        if limit_s > 0:
            standstill.begin(limit_s, lambda: self.batches, say_lines, lambda: self.trains)
        accuracy = self.progress.accuracies[-1] if self.progress.accuracies else 0.0
        while self.progress.epoch < self.config.epochs:
            accuracy = self._epoch()
        self.trains = False
        weights = parameter_hash(self.net)
        self.evidence.add("end", steps=self.progress.step, samples=self.progress.own.samples,
                          loss=self.progress.own.loss, accuracy=accuracy, parameters=weights, spent=self.clock.take(),
                          seconds=round(time.monotonic() - self.began, 3),
                          evidence_seconds=round(CPU_SECONDS[0], 4))
        self.evidence.exchange_heads(None)
        self._finish(accuracy, weights)

    def _epoch(self) -> float:
        """From the progress's position to the end of its epoch; returns the accuracy on the held-out split."""
        config, wiring, progress, own = self.config, self.wiring, self.progress, self.progress.own
        ids = shard(len(self.y), config.seed, progress.epoch, progress.position, wiring.rank, wiring.world_size)
        batches = ids.split(config.batch_size * config.accumulate) if len(ids) else ()
        steps_total = progress.step + len(batches) * (config.epochs - progress.epoch)
        for number, batch in enumerate(batches, start=1):
            loss, mean_loss, norm, stop = self._step(batch)
            if number == 1:
                self._watch_state()  # the first step has made the optimizer's
            if config.log_interval and progress.step % config.log_interval == 0:
                own.epoch_losses.append([progress.step, loss])
                say("step", rank=wiring.rank, epoch=progress.epoch + 1, step=progress.step, steps_total=steps_total,
                    loss=loss, mean_loss=mean_loss, gradient_norm=norm)
                self.events.write("loss", mean_loss, progress.step)
            if stop:
                self._stop()
            if config.checkpoint_interval and progress.step % config.checkpoint_interval == 0 and number < len(batches):
                self._save()

        began = time.perf_counter()
        test_loss, accuracy = self._evaluate()
        self.clock.add("evaluate", began)
        own.loss = own.epoch_loss_sum / max(1, own.epoch_samples)
        if config.on_gpu:
            self.clock.seconds["allreduce"] = own.epoch_steps * mean_exchange_s(self.ddp)
        spent = self.clock.take()
        self.evidence.samples(progress.epoch + 1)
        own.epoch_exchanges += self.watch.take_exchanges()
        self.evidence.add("epoch", epoch=progress.epoch + 1, steps=own.epoch_steps, samples=own.epoch_samples,
                          exchanges=own.epoch_exchanges, loss=own.loss, accuracy=accuracy,
                          parameters=self.sample(), losses=own.epoch_losses, spent=spent)
        if progress.step >= self.attested + SHORT and progress.epoch + 1 < config.epochs:  # the end has one, too
            self.attested = progress.step
            self.evidence.exchange_heads(progress.epoch + 1)
        say("epoch", rank=wiring.rank, epoch=progress.epoch + 1, epochs=config.epochs, steps=own.epoch_steps,
            samples=own.epoch_samples, loss=own.loss, accuracy=accuracy, test_loss=test_loss, seconds=spent)
        self.events.write("accuracy", accuracy, progress.epoch + 1)
        progress.accuracies.append(accuracy)
        progress.epoch, progress.position = progress.epoch + 1, 0
        own.epoch_steps = own.epoch_samples = own.epoch_exchanges = 0
        own.epoch_loss_sum, own.epoch_losses = 0.0, []
        if progress.epoch == config.epochs or (
                config.checkpoint_interval and progress.step % config.checkpoint_interval == 0):
            self._save()
        return accuracy

    def _step(self, batch: torch.Tensor) -> tuple[float, float, float, bool]:
        """One optimizer step on `batch` [ids]; returns own loss, mean loss, gradient norm, and whether to stop."""
        config, progress, world_size = self.config, self.progress, self.wiring.world_size
        middle = progress.position + world_size * len(batch) / 2  # of this step, in samples of the epoch
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config, progress.epoch + min(1.0, middle / len(self.y)))
        self.ddp.zero_grad()
        own_loss = torch.zeros((), device=self.device)
        wish = STOP if self.stop_wanted else WAIT if self.saver.is_writing() else 0.0
        micro_batches, began = batch.split(config.batch_size), time.perf_counter()
        for number, ids in enumerate(micro_batches, start=1):
            at = ids.to(self.device)
            x, y = self.x[at], self.y[at]  # [n, 1, h, w], [n]
            self.evidence.saw(ids)
            began = self.clock.add("data", began)
            # Gradients of all but the last micro-batch add up on this rank alone.
            with contextlib.nullcontext() if number == len(micro_batches) else self.ddp.no_sync():
                with self._autocast():
                    loss = self.ddp(x, y, len(batch), wish)
                loss.backward()
            if not config.on_gpu and number == len(micro_batches):
                self.clock.add("allreduce", self.ready)
            own_loss += loss.detach()
            self.batches += 1
            began = self.clock.add("compute", began)
        norm = get_total_norm([p.grad for p in self.net.parameters() if p.grad is not None])
        passengers = self.trainee.passengers.grad
        mean_loss, mean_wish, norm_value, loss_value = torch.stack(
            [passengers[0], passengers[1], norm, own_loss]).tolist()  # a CPU-GPU sync point
        if not (math.isfinite(mean_loss) and math.isfinite(norm_value)):
            raise NotFiniteError(f"step {progress.step + 1}: got mean loss {mean_loss} and gradient norm "
                                 f"{norm_value}, expected finite numbers. "
                                 "Fix: lower --learning-rate, or add --warmup-epochs")
        self.optimizer.step()
        self.clock.add("update", began)
        own = progress.own
        progress.step, progress.position = progress.step + 1, progress.position + world_size * len(batch)
        own.steps, own.epoch_steps = own.steps + 1, own.epoch_steps + 1
        own.samples, own.epoch_samples = own.samples + len(batch), own.epoch_samples + len(batch)
        self.watch.stepped(progress.epoch + 1)
        own.epoch_loss_sum += loss_value * len(batch)
        wish = wish_of(mean_wish, world_size)
        self.waits = wish > 0
        return loss_value, mean_loss, norm_value, wish == STOP

    def _evaluate(self) -> tuple[float, float]:
        """(mean loss, accuracy) on the whole held-out split; each rank takes every world_size-th sample, none twice."""
        self.net.eval()
        mine = torch.arange(self.wiring.rank, len(self.data.test_y), self.wiring.world_size)
        sums = torch.zeros(2, dtype=torch.float64)  # loss, correct
        with torch.no_grad(), self._autocast():
            for ids in mine.split(self.config.test_batch_size):
                scores = self.net(self.data.test_x[ids].to(self.device)).float()
                y = self.data.test_y[ids].to(self.device)
                sums += torch.stack([cross_entropy(scores, y, reduction="sum"), (scores.argmax(1) == y).sum()]).cpu()
                self.batches += 1
        self.net.train()
        dist.all_reduce(sums)
        loss, accuracy = (sums / len(self.data.test_y)).tolist()
        return loss, accuracy

    def _watch_state(self) -> None:
        """Give the saver the tensors to copy, once, on the rank that writes."""
        if self.config.output and self.wiring.rank == 0 and not self.saver.tensors:
            self.saver.watch(checkpoint_tensors(self.net, self.optimizer))

    def _save(self) -> None:
        """A checkpoint of this instant; the step loop waits for the copy only."""
        if not self.config.output:
            return
        began = time.perf_counter()
        self.saver.wait()  # the thread may still be at the mark of the save before
        if self.waits:  # a volume may be slow, or stand still for a while: longer than a collective may take
            dist.barrier(self.patient)
        self.progress.own.epoch_exchanges += self.watch.take_exchanges()
        self.evidence.mark(self.progress.epoch + 1)
        self._watch_state()  # if no step was left to do
        self.saver.save(functools.partial(self._collect, snapshot(self.progress), random_state(self.device)))
        self.clock.add("checkpoint", began)

    def _collect(self, progress: Progress, random: dict[str, torch.Tensor],
                 ) -> tuple[dict[str, torch.Tensor], dict[str, object], bytes] | None:
        """Bring what the other ranks add to a checkpoint to rank 0; in the saver's thread, by a group of its own."""
        mine = {"random": as_text(random), "own": own_json(progress)}
        parts = self.evidence.hand_in(mine, self.evidence.take(), self.background)
        if self.wiring.rank != 0:
            return None
        meta = checkpoint_meta(self.config, self.data, self.wiring, progress)
        ranks = [part["own"] for part in parts]
        return random_tensors([part["random"] for part in parts]), {**meta, "ranks": ranks}, self.evidence.lines()

    def _stop(self) -> None:
        """Save because a rank has to stop, and stop."""
        self._save()  # all wait there: which rank had which wish is not known
        self.saver.wait()
        saved = bool(self.config.output) and self.saver.failure is None
        say("stopped", rank=self.wiring.rank, step=self.progress.step, saved=saved)
        dist.barrier(self.patient)  # no rank leaves before rank 0's checkpoint is on the disk
        raise StoppedError(f"SIGTERM: stopped after step {self.progress.step}, "
                           + ("saved" if saved else f"nothing saved ({self.saver.failure or 'no --output'})"))

    def _finish(self, accuracy: float, weights: str) -> None:
        """Bring results and evidence to rank 0, which writes them."""
        config, wiring, own = self.config, self.wiring, self.progress.own
        self.saver.wait()
        row = {"rank": wiring.rank, "pod": wiring.pod, "node": wiring.node, "world_size": wiring.world_size,
               "steps": self.progress.step, "samples": own.samples, "loss": own.loss, "accuracy": accuracy}
        self.evidence.mark(config.epochs)
        rows = self.evidence.hand_in(row, self.evidence.take(), self.patient)
        seconds = round(time.monotonic() - self.began, 3)
        if wiring.rank == 0 and config.output:
            folder = Path(config.output)
            result = {"epoch_accuracies": self.progress.accuracies, "accuracy": accuracy, "loss": own.loss,
                      "world_size": wiring.world_size, "steps": self.progress.step, "seconds": seconds,
                      "parameters": weights, "model_state": "model.safetensors",
                      "job_uid": wiring.job_uid, "ranks": rows}
            files: dict[str, list[Buffer]] = {
                "model.safetensors": safetensors(self.net.state_dict()),
                "evidence.jsonl": [self.evidence.lines()],
                "config.json": [(json.dumps(config.as_json(), indent=2) + "\n").encode()],
                "result.json": [(json.dumps(result, indent=2) + "\n").encode()]}
            for name, content in files.items():
                try:
                    write_file(folder / name, content)
                except OSError as error:
                    raise OutputError(f"{folder / name} cannot be written ({error.strerror}); the last checkpoint is "
                                      "kept. Fix: free space on the volume and start again") from error
        if wiring.rank == 0:  # the workers' pods, and their logs, may be gone later
            say("result", rank=0, world_size=wiring.world_size, accuracy=accuracy, loss=own.loss, seconds=seconds,
                ranks=rows)
        say("end", rank=wiring.rank, world_size=wiring.world_size, steps=self.progress.step, samples=own.samples,
            loss=own.loss, accuracy=accuracy, seconds=seconds)
        dist.barrier(self.patient)  # no pod ends, and takes its job with it, before the results are written


def lost_peer(error: RuntimeError) -> bool:
    """Whether an error of a collective operation says that another rank is gone or silent."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or any(
        word in text for word in ("gloo", "nccl", "connection closed", "connection reset", "timed out"))


def main(argv: list[str], download: Callable[[], None] | None = None) -> int:
    """Read, refuse or run; every foreseen failure is one line on standard error. `download` brings the files first."""
    training = None
    try:
        config = parse_args(argv)
        standstill.limit_s()  # refused before the ranks meet
        wiring = read_wiring(os.environ)
        torch.set_num_threads(config.threads)
        device = choose_device(wiring, config.backend, config.on_gpu)
        join(wiring, config.backend, config.rendezvous_timeout, config.collective_timeout)
        if download:
            prepare_together(download, config.collective_timeout)
        training = Training(config, wiring, device)
        training.run()
        dist.destroy_process_group()
    except (BucketError, ConfigError, WiringError, DataError, CheckpointError, standstill.SecondsError) as error:
        return refuse(error, 2)
    except StoppedError as error:
        return refuse(error, 128 + signal.SIGTERM)
    except (NotFiniteError, OutputError, VolumeError) as error:
        return refuse(error, 1)
    except RuntimeError as error:
        if not lost_peer(error):
            raise
        if training is not None:
            with contextlib.suppress(RuntimeError):  # a save that was waiting for the lost rank
                training.saver.wait()
        refuse(f"rank {wiring.rank} lost the others ({str(error).splitlines()[0]}); "
               "all ranks restart together from the last checkpoint", 1)
        raise LostRanksError from error
    return 0


def refuse(error: object, code: int) -> int:
    """One line on standard error, and the exit status."""
    print(f"train.py: {error}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    try:
        status = staged(main, sys.argv[1:])  # s3://… in the arguments becomes a folder for the time of the run
    except LostRanksError:
        os._exit(1)
    sys.exit(status)
