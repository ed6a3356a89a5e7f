"""An elastic job's nodes come and go while it trains: it resumes from its checkpoint, and sees no sample twice."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from gangplank.backends.pod_template import env
from gangplank.backends.wiring import launch
from gangplank.proof.records import read_records, select, unpack_ids
from gangplank.proof.verdict import Expected, prove
from gangplank.spec import Elastic, JobSpec, Script

if TYPE_CHECKING:
    from tests.trainer.harness import Root

SAMPLES, EPOCHS = 1200, 40
# Multiples of 6 leave nothing over for two ranks nor for three: not one sample has to be repeated to make them even.
FLAGS = ["--epochs", str(EPOCHS), "--train-samples", str(SAMPLES), "--batch-size", "6", "--log-interval", "1",
         "--rendezvous-timeout", "20", "--collective-timeout", "20"]
SPEC = JobSpec("elastic", "img", script=Script("/opt/gangplank/trainer/train.py"), backend="pytorchjob", masters=0,
               workers=2, elastic=Elastic(2, 3))


class Node:
    """What a pod of an elastic PyTorchJob runs, with shorter waits than upstream's."""

    def __init__(self, root: Root, index: int, port: int, out: str) -> None:
        values = {"PET_NNODES": "2:3", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}"}
        line = [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in launch(SPEC)]
        at = next(number for number, word in enumerate(line) if word.startswith("--rdzv-conf"))
        line[at] += ",last_call_timeout=2,keep_alive_interval=1"
        line.insert(at, "--local-addr=127.0.0.1")
        variables = {item["name"]: item["value"] for item in env(SPEC, "worker") if "value" in item}
        pod = {**variables, "GANGPLANK_POD": f"elastic-worker-{index}", "GANGPLANK_POD_UID": f"uid-{index}"}
        self.log = root.out / f"elastic-{index}.log"
        with self.log.open("w") as file:
            self.process = subprocess.Popen(root.command([*line, *FLAGS, "--output", out], pod), stdout=file,
                                            stderr=subprocess.STDOUT)

    def events(self, kind: str) -> list[dict[str, object]]:
        """The events of one kind that its ranks have printed."""
        events = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith('{"event"')
                  and line.endswith("}")]
        return [event for event in events if event["event"] == kind]

    def leave(self) -> None:
        """As the kubelet ends a pod."""
        os.kill(self.process.pid, signal.SIGTERM)


# Of 60 samples in batches of 5, one rank takes 12 steps an epoch, and three take 4.
@pytest.mark.parametrize(("sizes", "step", "how", "reason"), [
    ((1, 2), 12, "works", ""), ((1, 2), 24, "works", ""), ((3, 2), 4, "works", ""), ((1, 2), 8, "works", ""),
    ((1, 2), 8, "idles", "rank 1 had nothing to do in epoch 1 (2 ranks, samples 40 to 60), but its share was 10"),
    ((1, 2), 12, "idles", "rank 1 had nothing to do in epoch 2, but its share was 30"),
], ids=["E4: nothing left", "E4: an epoch later", "E4: one leaves", "E4: 20 left", "E4: idle, 20 left",
        "E4: idle, an epoch later"])
def test_a_rank_that_joins_within_an_epoch_has_to_work_unless_nothing_is_left(
        root: Root, sizes: tuple[int, int], step: int, how: str, reason: str) -> None:
    """A rank that joins after an epoch's last step was called idle before."""
    out, texts = root.new(), list[str]()
    for stop_at, size in zip((step, 0), sizes, strict=True):
        ranks = root.train(size, str(stop_at), how, "--epochs", "3", "--batch-size", "5", "--train-samples", "60",
                           "--resume", "auto", "--output", out, script="/tests/inside/stops.py")
        assert {rank.code for rank in ranks} == {143 if stop_at else 0}, ranks[0].text
        texts += [rank.text for rank in ranks]
    verdict = prove(read_records("\n".join(texts)), Expected(2, epochs=3, global_batch=10, job_uid="job-1"))
    assert verdict.passed is (how == "works"), verdict.text()
    assert reason in {claim.name: claim.detail for claim in verdict.claims}["every rank worked"], verdict.text()


def test_two_nodes_become_three_and_two_again(root: Root) -> None:
    out, port = root.new(), root.free_port()
    nodes = [Node(root, index, port, out) for index in range(2)]
    try:
        root.wait_for(lambda: all(node.events("step") for node in nodes), "two nodes train")
        nodes.append(Node(root, 2, port, out))
        root.wait_for(lambda: nodes[2].events("step"), "three nodes train")
        nodes[2].leave()
        assert nodes[2].process.wait(60) != 0
        assert [node.process.wait(180) for node in nodes[:2]] == [0, 0], nodes[0].log.read_text()[-3000:]
    finally:
        for node in nodes:
            node.process.kill()
            node.process.wait(30)

    resumes = [event for node in nodes for event in node.events("resume") if event["rank"] == 0]
    assert [event["world_size_before"] for event in resumes] == [2, 3]
    run = read_records((root.host(out) / "evidence.jsonl").read_text())
    verdict = prove(run, Expected(2, epochs=EPOCHS, global_batch=12, job_uid="elastic"))
    assert verdict.passed, verdict.text()
    for epoch in range(1, EPOCHS + 1):
        ids = Counter(i for r in select(run).of("samples") if r["epoch"] == epoch for i in unpack_ids(r))
        assert ids == Counter(range(SAMPLES)), f"epoch {epoch}"
