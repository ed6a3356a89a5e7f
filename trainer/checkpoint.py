"""Checkpoints that are either whole or absent: tensors and JSON, checksummed, renamed into place.

checkpoints/step-00000024/state.safetensors   weights, optimizer state, every rank's random state
state.json          step, epoch, sampler position, schedule, whose it is
evidence.jsonl      every rank's records so far
SHA256SUMS          of the three; `sha256sum -c SHA256SUMS` checks them by hand
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from log import say
from safetensors.torch import load as tensors_from_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT = 1
REPLACED = ".replaced-"
FILES = ("state.safetensors", "state.json", "evidence.jsonl")
DTYPES = {torch.float64: "F64", torch.int64: "I64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16",
          torch.float16: "F16", torch.uint8: "U8", torch.bool: "BOOL"}  # by falling size, so that all lie aligned
Buffer = bytes | memoryview
Collect = Callable[[], "tuple[Mapping[str, torch.Tensor], Mapping[str, object], bytes] | None"]


class CheckpointError(RuntimeError):
    """No checkpoint can be used although one was demanded: why, and the fix."""


class VolumeError(RuntimeError):
    """The volume does not show which checkpoints it has: why, and the fix."""


@dataclass(frozen=True)
class Checkpoint:
    """The verified bytes of one checkpoint."""

    name: str
    state: bytes
    meta: dict[str, object]
    evidence: bytes

    def tensors(self) -> dict[str, torch.Tensor]:
        """The state, on the CPU, in memory of its own (in the file's bytes, tensors need not be aligned)."""
        return {name: value.clone() for name, value in tensors_from_bytes(self.state).items()}


def safetensors(tensors: Mapping[str, torch.Tensor]) -> list[Buffer]:
    """The parts of a safetensors file: header length, header, then each tensor's own memory.

    The library's `save` copies everything twice while no other thread can run; a step loop would stand still for it.
    https://github.com/huggingface/safetensors#format
    """
    header, parts, offset = {}, [], 0
    for name in sorted(tensors, key=lambda name: (list(DTYPES).index(tensors[name].dtype), name)):
        tensor = tensors[name]
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(data)]}
        parts.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little") + text, *parts]


def write_file(path: Path, parts: Iterable[Buffer]) -> None:
    """Write beside, sync, rename, sync the folder: at every instant either the old file or the new one exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.writing")
    try:
        _write_synced(beside, parts)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _write_synced(path: Path, parts: Iterable[Buffer]) -> str:
    """Write, sync, and return the sha256; both leave the other threads running."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
            digest.update(part)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(folder: Path, name: str, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, object],
          evidence: bytes) -> None:
    """Put one checkpoint into `folder`; a killed or failed write leaves only a `.writing-` folder, never a name."""
    folder.mkdir(parents=True, exist_ok=True)
    restore(folder)
    for left in folder.glob(".writing-*"):  # of a killed save
        shutil.rmtree(left, ignore_errors=True)
    beside, replaced = folder / f".writing-{name}", folder / f"{REPLACED}{name}"
    beside.mkdir()
    try:
        contents: list[list[Buffer]] = [safetensors(tensors), [json.dumps(meta).encode()], [evidence]]
        sums = [f"{_write_synced(beside / file, parts)}  {file}\n" for file, parts in zip(FILES, contents, strict=True)]
        _write_synced(beside / "SHA256SUMS", ["".join(sums).encode()])
        _sync_folder(beside)
        if (folder / name).exists():  # a bad or another run's checkpoint of the same step: the new one takes its place
            (folder / name).rename(replaced)
        beside.rename(folder / name)
        _sync_folder(folder)
        shutil.rmtree(replaced, ignore_errors=True)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)  # give a full volume its space back
        restore(folder)
        raise


def restore(folder: Path) -> None:
    """Give a checkpoint its name back if the save that was to replace it was killed, or remove it."""
    for path in folder.glob(f"{REPLACED}*"):
        name = path.name.removeprefix(REPLACED)
        if (folder / name).exists():
            shutil.rmtree(path)
        else:
            path.rename(folder / name)


def read(path: Path) -> Checkpoint:
    """One checkpoint, every byte verified; ValueError says what is wrong with it, OSError that the volume fails."""
    try:
        contents = {file: (path / file).read_bytes() for file in FILES}
        sums = (path / "SHA256SUMS").read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ValueError(f"cannot be read ({error.strerror}: {Path(str(error.filename)).name})") from error
    expected = "".join(f"{hashlib.sha256(data).hexdigest()}  {file}\n" for file, data in contents.items()).encode()
    if sums != expected:
        raise ValueError("checksums differ: truncated, changed, or put together from different saves")
    meta = json.loads(contents["state.json"])
    if meta.get("format") != FORMAT:
        raise ValueError(f"has format {meta.get('format')}, expected {FORMAT}")
    if path.name != step_name(meta["step"]):
        raise ValueError(f"says it is of step {meta['step']}: the folder was renamed or copied")
    return Checkpoint(path.name, contents["state.safetensors"], meta, contents["evidence.jsonl"])


def glance(path: Path) -> dict[str, object]:
    """What a checkpoint says of itself, not verified; empty if that cannot be read, which `read` judges."""
    try:
        meta = json.loads((path / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    is_ours = isinstance(meta, dict) and isinstance(meta.get("identity"), dict) and "job_uid" in meta
    return meta if is_ours else {}


def step_name(step: int) -> str:
    """The folder of a step, so that names sort as steps do."""
    return f"step-{step:08d}"


def steps_in(folder: Path) -> list[Path]:
    """The checkpoints of a folder by step, which may be missing; Path.glob would also show none if it is unreadable."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.startswith("step-"))
    except FileNotFoundError:
        return []


def find(folder: Path, resume: str, job_uid: str | None, identity: Mapping[str, object],
         loose: frozenset[str]) -> Checkpoint | None:
    """The newest good checkpoint of this run.

    `auto` takes this job's own, with every setting equal; `must` also takes another job's, and settings in `loose` may
    differ. What is passed over is reported, with the reason. Raises CheckpointError for `must` when nothing is left,
    OSError if the volume fails: a run from an earlier step would remove the checkpoints of later ones.
    """
    if resume == "never":
        return None
    restore(folder)
    usable: Checkpoint | None = None
    refused = []
    for path in reversed(steps_in(folder)):
        try:
            if meta := glance(path):  # of other jobs there may be very many, and each of any size
                _check_identity(meta, resume, job_uid, identity, loose)
                if usable and meta["job_uid"] != job_uid:
                    continue
            checkpoint = read(path)
            _check_identity(checkpoint.meta, resume, job_uid, identity, loose)
        except ValueError as error:
            refused.append(f"{path.name} {error}")
            say("checkpoint_refused", rank=0, checkpoint=path.name, reason=str(error))
            continue
        if checkpoint.meta["job_uid"] == job_uid:
            return checkpoint
        usable = usable or checkpoint  # of other jobs' the newest; a shared folder may have very many
    if usable:
        return usable
    if resume == "must":
        raise CheckpointError(f"--resume must: no usable checkpoint in {folder} "
                              f"({'; '.join(refused) or 'there are none'}). "
                              "Fix: check --output, or start with --resume auto")
    return None


def _check_identity(meta: Mapping[str, object], resume: str, job_uid: str | None, identity: Mapping[str, object],
                    loose: frozenset[str]) -> None:
    theirs = meta["identity"]
    assert isinstance(theirs, dict)  # noqa: S101  # checksummed, and of our format
    differ = [f"{key} {theirs.get(key)!r} instead of {value!r}" for key, value in identity.items()
              if theirs.get(key) != value and not (resume == "must" and key in loose)]
    if differ:
        raise ValueError(f"is of another run: {', '.join(differ)}")
    if resume == "auto" and meta["job_uid"] != job_uid:
        raise ValueError(f"is of job {meta['job_uid']}; --resume must would take it")


class Saver:
    """Copies the state at once; a thread collects the other ranks' part and writes: training waits for a copy."""

    def __init__(self, folder: Path, keep: int, job_uid: str | None) -> None:
        self.folder, self.keep, self.job_uid = folder, keep, job_uid
        self.tensors: Mapping[str, torch.Tensor] = {}
        self.buffers: dict[str, torch.Tensor] = {}
        self.pool = ThreadPoolExecutor(1)
        self.pending: Future[None] = self.pool.submit(lambda: None)  # starts the thread now: a start can be slow
        self.failure: OSError | None = None

    def watch(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Save these from now on, which are changed in place. Memory for the copies is made in the thread."""
        self.wait()
        self.tensors = tensors
        self.pending = self.pool.submit(self._allocate)

    def _allocate(self) -> None:
        self.buffers = {name: torch.empty_like(tensor, device="cpu", memory_format=torch.contiguous_format).zero_()
                        for name, tensor in self.tensors.items()}  # written to once, or the first copy would fault

    def save(self, collect: Collect) -> None:
        """Take a copy and return; waits for the save before, if that is still running.

        `collect` is called in the thread, for what a checkpoint holds besides the tensors; None: write nothing.
        """
        self.wait()
        if self.tensors:  # all by one call, as torch's own optimizers do
            torch._foreach_copy_(list(self.buffers.values()), list(self.tensors.values()))
        self.pending = self.pool.submit(self._write, collect)

    def wait(self) -> None:
        """Return when the last save is on the disk or has failed; RuntimeError: another rank was lost meanwhile."""
        self.pending.result()

    def is_writing(self) -> bool:
        """Whether the last save has not ended."""
        return not self.pending.done()

    def _write(self, collect: Collect) -> None:
        collected = collect()
        if collected is None:
            return
        began = time.perf_counter()
        more, meta, evidence = collected
        step = meta["step"]
        assert isinstance(step, int)  # noqa: S101  # our own
        try:
            write(self.folder, step_name(step), {**self.buffers, **more}, dict(meta, format=FORMAT), evidence)
            self.failure = None
        except OSError as error:  # a full or lost volume does not stop the training; the checkpoint before stays
            self.failure = error
            say("checkpoint_failed", rank=0, step=step, reason=str(error))
            return
        say("checkpoint", rank=0, step=step, checkpoint=step_name(step),
            write_seconds=round(time.perf_counter() - began, 4))
        try:
            self._rotate(step)
        except OSError as error:  # the new one is whole; the next save tries again
            say("rotation_failed", rank=0, step=step, reason=str(error))

    def _rotate(self, newest: int) -> None:
        """Remove this job's checkpoints beyond the last `keep`; those of later steps belong to abandoned work."""
        own = [path for path in steps_in(self.folder) if self._is_own(path)]
        past = [path for path in own if path.name <= step_name(newest)]
        for path in [*past[: -self.keep], *own[len(past):]]:
            # Killed in between, it leaves no half of a checkpoint under its name; the next save removes the rest.
            shutil.rmtree(path.rename(path.with_name(f".writing-{path.name}")))

    def _is_own(self, path: Path) -> bool:
        try:
            uid = json.loads((path / "state.json").read_bytes())["job_uid"]
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return bool(uid == self.job_uid)
