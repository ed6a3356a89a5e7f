"""A checkpoint is whole or it is not used."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.trainer.harness import Root

FLAGS = ["--epochs", "1", "--train-samples", "500", "--batch-size", "32", "--checkpoint-interval", "4"]
SWEEP = "/tests/inside/checkpoints.py"


@pytest.fixture(scope="module")
def trained(root: Root) -> str:
    """A run's folder with checkpoints of the steps 4 and 8."""
    out = root.new()
    ranks = root.train(2, *FLAGS, "--output", out)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    return out


def copy(root: Root, trained: str) -> str:
    out = root.new()
    shutil.copytree(root.host(trained), root.host(out), dirs_exist_ok=True)
    return out


def test_no_truncated_checkpoint_is_used(root: Root, trained: str, full: bool) -> None:
    step = 4096 if full else 32768
    path = f"{trained}/checkpoints/step-00000008"
    outcome = json.loads(root.inside("checkpoints.py", "truncations", path, str(step)))
    assert outcome["cases"] >= 12
    assert outcome["used"] == []


def test_no_checkpoint_with_a_flipped_bit_is_used(
    root: Root, trained: str, full: bool, chance: random.Random
) -> None:
    count, seed = (200 if full else 40), chance.randrange(2**31)
    path = f"{trained}/checkpoints/step-00000008"
    outcome = json.loads(root.inside("checkpoints.py", "flips", path, str(count), str(seed)))
    assert outcome == {"cases": count, "used": []}


def test_sigkill_in_a_save_leaves_the_save_before(root: Root, full: bool, chance: random.Random) -> None:
    """The kill comes at a random instant after a random number of saves."""
    for _ in range(200 if full else 12):
        out = root.new()
        running = root.start([0], 1, "saves", out, port=0, script=SWEEP)
        saves = chance.randrange(1, 6)
        root.wait_for(lambda: running.text(0).count("\n") >= saves, f"{saves} saves")  # noqa: B023  # used at once
        time.sleep(chance.uniform(0, 0.02))  # nothing is waited for: this chooses the instant
        running.kill(0)
        last = max(int(line) for line in running.wait()[0].text.splitlines() if line.isdigit())
        survivors = json.loads(root.inside("checkpoints.py", "survivors", out))
        assert survivors["mixed"] == []
        assert max(survivors["whole"]) >= last
        assert all(step < last for step in survivors["refused"])


def spoil_flip(path: Path) -> None:
    data = bytearray((path / "state.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "state.safetensors").write_bytes(data)


def spoil_truncate(path: Path) -> None:
    data = (path / "state.json").read_bytes()
    (path / "state.json").write_bytes(data[: len(data) // 2])


def spoil_stale(path: Path) -> None:
    """The tensors of the save before, under this one's name."""
    shutil.copy(path.with_name("step-00000004") / "state.safetensors", path / "state.safetensors")


def spoil_missing(path: Path) -> None:
    (path / "SHA256SUMS").unlink()


@pytest.mark.parametrize("spoil", [spoil_flip, spoil_truncate, spoil_stale, spoil_missing])
def test_the_newest_good_checkpoint_is_used_when_a_newer_one_is_bad(
    root: Root, trained: str, spoil: Callable[[Path], None]
) -> None:
    out = copy(root, trained)
    spoil(root.host(out) / "checkpoints/step-00000008")
    ranks = root.train(2, *FLAGS, "--output", out)
    assert ranks[0].event("checkpoint_refused")["checkpoint"] == "step-00000008"
    assert [rank.event("resume")["step"] for rank in ranks] == [4, 4]
    assert [rank.code for rank in ranks] == [0, 0]
    weights = [(root.host(run) / "model.safetensors").read_bytes() for run in (out, trained)]
    assert weights[0] == weights[1], "a run that resumes from the checkpoint before must end with the same weights"


def unread_file(checkpoints: Path) -> Path:
    """A file that the volume has and does not hand out; as root, a link to itself is one."""
    return checkpoints / "step-00000008/state.safetensors"


def unread_folder(checkpoints: Path) -> Path:
    return checkpoints


@pytest.mark.parametrize("place", [unread_file, unread_folder])
def test_a_volume_that_cannot_be_read_ends_the_start_and_costs_no_checkpoint(
    root: Root, trained: str, place: Callable[[Path], Path]
) -> None:
    out = copy(root, trained)
    path = place(root.host(out) / "checkpoints")
    kept = path.rename(path.with_name("kept"))
    path.symlink_to(path.name)
    ranks = root.train(2, *FLAGS, "--output", out)
    for rank in ranks:
        assert rank.code == 1, rank.text
        assert f"{path.name} cannot be read (Too many levels of symbolic links)" in rank.text.splitlines()[-1]
    path.unlink()
    kept.rename(path)  # the volume is back
    ranks = root.train(2, *FLAGS, "--output", out)
    assert [rank.event("resume")["step"] for rank in ranks] == [8, 8]


def test_a_renamed_checkpoint_is_refused(root: Root, trained: str) -> None:
    out = copy(root, trained)
    (root.host(out) / "checkpoints/step-00000008").rename(root.host(out) / "checkpoints/step-00000099")
    ranks = root.train(2, *FLAGS, "--output", out)
    assert ranks[0].event("checkpoint_refused")["checkpoint"] == "step-00000099"
    assert ranks[1].event("resume")["step"] == 4


@pytest.mark.parametrize(("flags", "env", "reason"), [
    (["--seed", "2"], {}, "seed 1 instead of 2"),
    (["--model", "large"], {}, "model 'small' instead of 'large'"),
    (["--train-samples", "400"], {}, "of another run: train_samples 500 instead of 400, dataset"),
    ([], {"GANGPLANK_JOB_UID": "job-2"}, "is of job job-1; --resume must would take it"),
])
def test_a_foreign_checkpoint_is_not_used(
    root: Root, trained: str, flags: list[str], env: dict[str, str], reason: str
) -> None:
    out = copy(root, trained)
    ranks = root.train(2, *FLAGS, *flags, "--output", out, env=env)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].text
    assert reason in str(ranks[0].event("checkpoint_refused")["reason"])
    assert not [event for event in ranks[0].events if event["event"] == "resume"]


def test_resume_must_takes_another_jobs_checkpoint_and_other_rates(root: Root, trained: str) -> None:
    out = copy(root, trained)
    ranks = root.train(2, *FLAGS, "--epochs", "2", "--learning-rate", "0.01", "--resume", "must", "--output", out,
                       env={"GANGPLANK_JOB_UID": "job-2"})
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].text
    assert ranks[1].event("resume")["step"] == 8


def test_resume_must_without_a_good_checkpoint_is_one_clear_error(root: Root, trained: str) -> None:
    out = copy(root, trained)
    for path in (root.host(out) / "checkpoints").iterdir():
        spoil_flip(path)
    ranks = root.train(2, *FLAGS, "--resume", "must", "--output", out)
    assert [rank.code for rank in ranks] == [2, 2]
    for rank in ranks:
        lines = [line for line in rank.text.splitlines() if line.startswith("train.py: ")]
        assert len(lines) == 1
        assert "no usable checkpoint" in lines[0]
        assert "step-00000004 checksums differ" in lines[0]


@pytest.mark.parametrize(("size", "codes"), [("640k", [0, 0]), ("420k", [1, 1])])
def test_a_full_volume_costs_a_checkpoint_but_never_a_good_one(root: Root, size: str, codes: list[int]) -> None:
    """A checkpoint takes 340 kB, the results 170 kB: the second checkpoint never fits, the results only in 640 kB."""
    out = root.new()
    inside = root.merged / out.lstrip("/")
    enter = ["nsenter", f"--mount=/proc/{root.keeper.pid}/ns/mnt"]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(inside)], check=True)
    ranks = root.train(2, *FLAGS, "--output", out)
    look = [*enter, "ls", "-A", str(inside / "checkpoints")]
    listed = subprocess.run(look, check=True, capture_output=True, text=True)
    subprocess.run([*enter, "umount", str(inside)], check=True)
    assert "No space left" in str(ranks[0].event("checkpoint_failed")["reason"])
    assert listed.stdout.split() == ["step-00000004"], "the good one stays, and nothing half-written beside it"
    assert [rank.code for rank in ranks] == codes, ranks[0].text
    if codes[0]:
        assert "cannot be written (No space left on device)" in ranks[0].text.splitlines()[-1]


@pytest.fixture
def volume(root: Root) -> Iterator[tuple[str, Callable[[str], object]]]:
    """A folder on a file system of its own, and what freezes (`-f`) and thaws (`-u`) that."""
    out, image = root.new(), root.out / "volume.img"
    inside = root.merged / out.lstrip("/")
    enter = ["nsenter", f"--mount=/proc/{root.keeper.pid}/ns/mnt"]
    image.write_bytes(bytes(16 << 20))
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run([*enter, "mount", "-o", "loop", str(image), str(inside)], check=True)
    yield out, lambda how: subprocess.run([*enter, "fsfreeze", how, str(inside)], check=True)
    subprocess.run([*enter, "umount", str(inside)], check=True)
    image.unlink()


@pytest.mark.parametrize(("until", "epochs", "stops", "code"), [
    ('"event":"checkpoint"', 200, False, 0), ('"event":"start"', 1, False, 0), ('"event":"checkpoint"', 200, True, 143),
], ids=["while it trains", "at the end", "as it is to stop"])
def test_a_volume_that_stands_still_for_longer_than_a_collective_may_take_loses_no_rank(
        root: Root, volume: tuple[str, Callable[[str], object]], until: str, epochs: int, stops: bool,
        code: int) -> None:
    """As a file server does whose other half takes over: 90 s with NFS. Reads and writes wait, and then continue."""
    out, freeze = volume
    store = root.store()
    flags = [*FLAGS, "--epochs", str(epochs), "--output", out, "--collective-timeout", "12"]
    running = root.start([0, 1, 2], 3, *flags, port=store["port"])
    try:
        assert running.until(lambda: until in running.text(0)), f"rank 0 prints {until}"
        freeze("-f")
        if stops:
            running.kill(1, signal.SIGTERM)
        time.sleep(27)
        said = "".join(map(running.text, range(3)))
        freeze("-u")
        assert "lost the others" not in said
        assert '"event":"end"' not in said, "the volume stood still too late"
        ranks = running.wait()
    finally:
        root.close_store(store)
    assert [rank.code for rank in ranks] == [code] * 3, ranks[0].text
    assert "checkpoint_failed" not in ranks[0].text


def test_sigkill_of_a_rank_in_the_step_loop_is_noticed_by_the_others_at_once(root: Root) -> None:
    ranks = root.interrupt(3, '"event":"step","rank":0', {0: signal.SIGKILL, 1: signal.SIGKILL}, "--epochs", "100",
                           "--log-interval", "1", "--collective-timeout", "3600")
    assert [rank.code for rank in ranks] == [-9, -9, 1]
    assert "lost the others" in ranks[2].text


@pytest.mark.parametrize("flags", [["--seed", "2"], ["--optimizer", "adamw"], ["--train-samples", "400"]])
def test_resume_must_never_takes_weights_that_mean_something_else(root: Root, trained: str, flags: list[str]) -> None:
    ranks = root.train(2, *FLAGS, *flags, "--resume", "must", "--output", copy(root, trained))
    assert [rank.code for rank in ranks] == [2, 2], ranks[0].text
    assert "is of another run" in ranks[1].text
