"""Sweeps over one real checkpoint, in the image's Python: `checkpoints.py <what> <folder> [numbers...]`."""

import json
import random
import shutil
import sys
from pathlib import Path

import torch

sys.path.insert(0, "/opt/gangplank/trainer")
import checkpoint


def used(path: Path, file: Path, data: bytes) -> bool:
    """Whether a checkpoint with this one file replaced would be used."""
    original = file.read_bytes()
    file.write_bytes(data)
    try:
        checkpoint.read(path)
    except ValueError:
        return False
    finally:
        file.write_bytes(original)
    return True


def truncations(path: Path, step: int) -> dict[str, object]:
    """Cut every file at every multiple of `step` bytes."""
    cases = [(file, size) for file in sorted(path.iterdir()) for size in range(0, file.stat().st_size, step)]
    return {"cases": len(cases), "used": [(file.name, size) for file, size in cases
                                              if used(path, file, file.read_bytes()[:size])]}


def flips(path: Path, count: int, seed: int) -> dict[str, object]:
    """Flip one random bit, `count` times, the small files as often as the large one."""
    chance, files, bad = random.Random(seed), sorted(path.iterdir()), []  # chooses cases
    for number in range(count):
        file = files[number % len(files)]
        data = bytearray(file.read_bytes())
        bit = chance.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        if used(path, file, bytes(data)):
            bad.append((file.name, bit))
    return {"cases": count, "used": bad}


def saves(folder: Path) -> None:
    """Save as fast as possible until killed; every tensor of step n is full of n."""
    step = 0
    while True:
        step += 1
        values = {f"layer{i}": torch.full((64, 1024), float(step)) for i in range(4)}  # 1 MiB
        meta = {"format": 1, "step": step, "job_uid": "j"}
        checkpoint.write(folder, checkpoint.step_name(step), values, meta, b"e\n")
        for old in sorted(folder.glob("step-*"))[:-2]:
            shutil.rmtree(old)
        print(step, flush=True)


def survivors(folder: Path) -> dict[str, list[int]]:
    """The steps in the folder after a kill: whole checkpoints, refused ones, and (never) ones that mix two saves."""
    steps: dict[str, list[int]] = {"whole": [], "refused": [], "mixed": []}
    for path in sorted(folder.glob("step-*")):
        step = int(path.name.removeprefix("step-"))
        try:
            tensors = checkpoint.read(path).tensors()
        except ValueError:
            steps["refused"].append(step)
            continue
        steps["whole" if all(bool((value == step).all()) for value in tensors.values()) else "mixed"].append(step)
    return steps


what, path, *numbers = sys.argv[1:]
if what == "saves":
    saves(Path(path))
elif what == "truncations":
    print(json.dumps(truncations(Path(path), int(numbers[0]))))
elif what == "flips":
    print(json.dumps(flips(Path(path), int(numbers[0]), int(numbers[1]))))
else:
    print(json.dumps(survivors(Path(path))))
