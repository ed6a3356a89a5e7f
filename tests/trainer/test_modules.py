"""Data, sampler, schedule and the linear demo, in the image's Python."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.proof.records import unpack_ids
from gangplank.proof.steps import due_steps, samples_until

if TYPE_CHECKING:
    from tests.trainer.harness import Root

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def facts(root: Root) -> Facts:
    facts: Facts = json.loads(root.inside("facts.py").splitlines()[-1])
    return facts


def test_the_digits_are_scikit_learns(facts: Facts) -> None:
    assert facts["digits"] == {"same_images": True, "same_labels": True, "sizes": [1536, 261]}


def test_ranks_share_samples_as_distributed_sampler_does(facts: Facts) -> None:
    assert facts["shards"] == []


def test_another_number_of_ranks_deals_out_the_rest_of_the_same_shuffle(facts: Facts) -> None:
    assert facts["continued"]


def test_a_checkpoint_is_of_a_backend_and_its_device_and_older_ones_stay_good(facts: Facts) -> None:
    identities = facts["identities"]
    assert identities["auto"] == identities["cpu"]
    assert identities["nccl"] == identities["nccl on cuda"]
    assert [identities[name]["backend"] for name in ("auto", "shared", "nccl")] == ["gloo", "gloo on cuda", "nccl"]
    assert "device" not in identities["shared"]


def test_windows_pooled_one_by_one_are_those_of_adaptive_pooling(facts: Facts) -> None:
    assert facts["pools"] == {"largest": [], "gradients": []}


def test_an_error_that_repeats_from_block_to_block_does_not_cancel_in_a_checksum(facts: Facts) -> None:
    assert facts["periodic"] > 1e-4  # rounding explains less than a millionth


def test_the_proof_knows_which_steps_the_trainer_checks(facts: Facts) -> None:
    for token, steps in facts["checked"].items():
        assert steps["looks"] == list(itertools.islice(due_steps(token), len(steps["looks"])))
        last = steps["samples"][-1]
        assert last > 1000
        assert [step for step in range(1, last + 1) if samples_until(token, step) > samples_until(token, step - 1)] == (
            steps["samples"])


def test_the_safetensors_library_reads_what_the_trainer_writes(facts: Facts) -> None:
    assert facts["tensors"]


def test_mnist_files_are_read_plain_and_gzipped(facts: Facts) -> None:
    assert json.loads(facts["mnist"]["good"]) == [[4, 1, 28, 28], [3, 1, 4, 1], [5, 9, 2, 6], round(3 / 255, 4)]
    assert facts["mnist"]["plain"] == facts["mnist"]["good"]


@pytest.mark.parametrize(("case", "reason"), [
    ("missing", "DIR/train-labels-idx1-ubyte[.gz] does not exist. Fix: put the four"),
    ("empty", "starts with nothing, expected 00000801"),
    ("short", "holds 3135 bytes of data, its header says 3136. Fix: fetch it again"),
    ("wrong_magic", "starts with 00000d03, expected 00000803"),
    ("count", "train has 4 images and 3 labels"),
    ("label", "train has label 77, expected 0 to 9"),
    ("broken", "idx3-ubyte.gz: cannot be read (Error -3 while decompressing data: invalid block type). Fix: fetch it"),
])
def test_refuses_mnist_files_that_are_not(facts: Facts, case: str, reason: str) -> None:
    assert reason in facts["mnist"][case]


def test_the_proof_unpacks_what_the_trainer_packs(facts: Facts) -> None:
    assert [unpack_ids(record) for record in facts["bitmaps"]] == [[], [0], [3, 7, 8], [5, 5, 5, 900]]


def test_schedules(facts: Facts) -> None:
    assert facts["rates"] == {"constant": [0.0, 0.5, 1.0, 1.0, 1.0], "cosine": [0.0, 0.5, 1.0, 0.5, 0.0],
                              "linear": [0.0, 0.5, 1.0, 0.5, 0.0]}


def test_the_linear_demo_runs_from_the_plugins_environment_alone(root: Root) -> None:
    """Volcano's pytorch plugin sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, and nothing of torchrun's."""
    port = root.free_port()
    bare = {"TORCHELASTIC_RUN_ID": "", "LOCAL_RANK": ""}
    ranks = root.start(range(3), 3, port=port, script="linear.py", env=bare).wait()
    assert [rank.code for rank in ranks] == [0, 0, 0], ranks[0].text
    for number, rank in enumerate(ranks):
        wiring = f"[Init] RANK={number}, WORLD_SIZE=3\n[Init] MASTER_ADDR=127.0.0.1\n[Init] MASTER_PORT={port}\n"
        assert wiring in rank.text
        assert f"[Rank {number}] training finished" in rank.text
        assert ("Epoch [5/5], Average Loss: " in rank.text) == (number == 0)
        assert ("Final parameters:" in rank.text) == (number == 0)
        said = [line for line in rank.text.splitlines() if not line.startswith("{")]  # without the observer's evidence
        assert said[-1] == f"[Rank {number}] process group destroyed"


def test_the_linear_demo_without_wiring_explains_how_to_run_it(root: Root) -> None:
    rank = root.start([0], 1, port="", script="linear.py").wait()[0]
    assert rank.code == 2
    assert "MASTER_PORT not set. Fix: run `torchrun --standalone" in rank.text


def test_nothing_in_the_trainer_pickles() -> None:
    """Checkpoints and messages are data: torch.save, torch.load and the *_object_* collectives would run code."""
    pickling = re.compile(r"import pickle|pickle\.|torch\.(save|load)\(|_object(_list)?\(")
    files = sorted((Path(__file__).parents[2] / "trainer").glob("*.py"))
    assert len(files) >= 11
    assert [file.name for file in files if pickling.search(file.read_text())] == []
