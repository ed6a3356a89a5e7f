"""Flyte's eighth input, `dir`: TensorBoard's event files, written while it trains, here on images of MNIST's size."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.event_files import scalars
from tests.support.mnist_files import write_mnist
from tests.trainer.harness import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.harness import Root


@pytest.fixture(scope="module")
def data(root: Root) -> str:
    """A data set in MNIST's shape."""
    place = root.new()
    write_mnist(root.host(place), 192, 64)
    return f"mnist:{place}"


def event_files(root: Root, folder: str) -> list[Path]:
    return sorted(root.host(folder).rglob("events.out.tfevents.*"))


def test_rank_0_writes_loss_and_accuracy_of_28_by_28_images(root: Root, data: str) -> None:
    out = root.new()
    flags = ["--data", data, "--epochs", "2", "--batch-size", "16", "--test-batch-size", "64", "--log-interval", "2",
             "--dir", f"{out}/events", "--output", f"{out}/result"]
    ranks = root.train(2, *flags)
    assert [rank.code for rank in ranks] == [0, 0], ranks[0].text
    (path,) = event_files(root, f"{out}/events")
    rows = scalars(path)
    losses = [(event["step"], round(event["mean_loss"], 4)) for event in ranks[0].events if event["event"] == "step"]
    assert [(step, pytest.approx(value, abs=2e-4)) for tag, step, value in rows if tag == "loss"] == losses
    result = json.loads(root.host(f"{out}/result/result.json").read_text())
    accuracies = [value for tag, _, value in rows if tag == "accuracy"]
    assert accuracies == pytest.approx(result["epoch_accuracies"], abs=1e-4)
    assert len(losses) == 6, "192 images, 2 ranks, 16 a batch: 6 steps an epoch, every other one"
    assert (root.host(f"{out}/result") / "model.safetensors").is_file(), "the page's other output"


def test_the_events_are_there_while_it_trains_and_it_trains_on_without_them(root: Root, data: str) -> None:
    out, store = root.new(), root.store()
    running = root.start([0], 1, "--data", data, "--epochs", "500", "--log-interval", "1", "--batch-size", "16",
                         "--dir", f"{out}/events", port=store["port"])
    try:
        wait_for(lambda: [row for path in event_files(root, out) for row in scalars(path)][20:], "20 points")
        assert not running.ended(0)
        shutil.rmtree(root.host(out) / "events")
        wait_for(lambda: '"events_failed"' in running.text(0), "it says that they cannot be written any more")
        epochs = running.text(0).count('"event":"epoch"')
        wait_for(lambda: running.text(0).count('"event":"epoch"') > epochs + 1, "it trains on")
    finally:
        running.kill(0)
        running.wait()
        root.close_store(store)


def test_a_disk_that_takes_no_events_does_not_end_the_training(root: Root) -> None:
    out = root.new()
    (root.host(out) / "file").write_text("")
    (rank,) = root.train(1, "--epochs", "1", "--dir", f"{out}/file/events")
    assert rank.code == 0, rank.text
    assert "Not a directory" in rank.event("events_failed")["reason"]
    assert len([event for event in rank.events if event["event"] == "events_failed"]) == 1
