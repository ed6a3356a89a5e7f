"""What `make gpu-check` does to a training, here with ranks on the CPU: killed, resumed, compared, judged."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.trainer.harness import REPOSITORY
from tools.gpu_check import PROBE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.harness import Root

CALL = """
import pathlib, sys
sys.path.insert(0, {place!r})
from tools.gpu_check import TRAINING, CheckError, Group, exact, judge
TRAINING[TRAINING.index("large")] = "small"  # work for a CPU
place = pathlib.Path({place!r})
flags = ("--backend", "gloo")
try:
    print("held:", exact("python3", Group("cpu", 2, flags, ("cpu",)), "fp32", place))
    judge(Group("elsewhere", 2, flags, ("GPU-1",)), next(place.glob("*/evidence.jsonl")).parent)
except CheckError as error:
    print("broken:", error)
"""


@pytest.fixture
def copy(root: Root) -> tuple[str, Path]:
    """A copy of what gpu-check needs: its path inside the root, and outside."""
    inside = root.new()
    outside = root.host(inside)
    for name in ("gangplank", "tools", "trainer"):
        shutil.copytree(REPOSITORY / name, outside / name, ignore=shutil.ignore_patterns("__pycache__", ".mypy_cache"))
    return inside, outside


def answer(root: Root, place: str) -> str:
    done = subprocess.run(root.command(["python3", "-c", CALL.format(place=place)]), capture_output=True, text=True,
                          check=True, timeout=1800)
    return done.stdout


def test_a_killed_training_is_resumed_to_the_same_weights_and_judged(root: Root, copy: tuple[str, Path]) -> None:
    text = answer(root, copy[0])
    assert text.startswith("held: "), text
    assert "weights equal to the bit" in text
    assert " claims hold; killed, resumed at step " in text
    assert "broken: the ranks trained on ['cpu'], expected ['GPU-1']" in text


def test_a_resume_without_the_random_state_is_caught(root: Root, copy: tuple[str, Path]) -> None:
    inside, outside = copy
    run = outside / "trainer/run.py"
    text = run.read_text()
    call = "restore_random(tensors, wiring.rank, device)"
    assert call in text
    run.write_text(text.replace(call, "pass"))
    assert "broken: the weights differ after a resume at step " in answer(root, inside)


def test_the_probe_says_why_there_is_no_gpu(root: Root) -> None:
    done = subprocess.run(root.command(["python3", "-c", PROBE]), capture_output=True, text=True, check=True,
                          timeout=600)
    facts = json.loads(done.stdout)
    assert facts["gpus"] == []
    assert facts["reason"].startswith(f"torch {facts['torch']}, which is built without CUDA")
