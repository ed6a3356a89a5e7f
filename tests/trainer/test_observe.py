"""Scripts that know nothing of evidence are judged by what can be seen from outside; what cannot be is not claimed."""

from __future__ import annotations

import functools
import json
import operator
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.pace import window
from gangplank.proof.verdict import Expected, prove, read_records
from tests.support.fakes import OBSERVED, Observed
from tests.support.sweeps import FULL

if TYPE_CHECKING:
    from gangplank.proof.records import Record, Records
    from gangplank.proof.verdict import Verdict
    from tests.trainer.harness import Rank, Root

OWN = "/tests/inside/own.py"
ON = {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCHELASTIC_USE_AGENT_STORE": "True"}  # as torchrun says it
NEVER_CLAIMED = {"all epochs", "samples are disjoint and complete", "global batch"}


def run(root: Root, kind: str, world_size: int = 3, env: dict[str, str] | None = None) -> list[Rank]:
    """All ranks of one run."""
    return root.train(world_size, kind, script=OWN, env={**ON, **(env or {})})


def records_of(ranks: list[Rank]) -> Records:
    """The evidence in their logs, each record once: rank 0 prints its own again."""
    return [*{record["hash"]: record for record in read_records("\n".join(rank.text for rank in ranks))}.values()]


def judge(ranks: list[Rank], world_size: int = 3) -> Verdict:
    """The verdict on their logs."""
    pods = {f"uid-{rank}": f"node-{rank % 2}" for rank in range(world_size)}
    return prove(records_of(ranks), Expected(world_size, job_uid="job-1", created=0.0, pods=pods))


def models(end: Record) -> list[dict[str, Any]]:
    """What a rank's last record says of its models."""
    listed = end["models"]
    assert isinstance(listed, list)
    return listed


def own_words(rank: Rank) -> list[str]:
    """What the script itself printed."""
    return [line for line in rank.text.splitlines() if '"event":"evidence"' not in line and "gloo" not in line]


@pytest.mark.parametrize("kind", ["ddp", "accumulate", "metrics", "hand", "hand-clip", "sum", "loader", "hand-flat",
                                  "hand-async", "hand-scatter", "hand-coalesced", "hand-mixed", "hand-kept", "mesh",
                                  "redirected", "checkpointed", "join", "complex", "hand-complex",
                                  "hand-lazy-complex", "hinge", "hinge-learned", "sum-hinge-0"])
def test_an_honest_script_is_proven_without_an_edit(root: Root, kind: str) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text() + ranks[0].text
    assert judge(ranks[:1]).word == "PROVEN"  # the log of rank 0 has the records of all
    newest = ranks[0].text.partition('"kind":"end"')[2]  # as of a log that was too long for its node
    assert judge([replace(ranks[0], text=newest)]).word == "PROVEN"
    assert {claim.name for claim in verdict.claims if claim.passed is None} == NEVER_CLAIMED
    assert all(claim.detail.startswith("not claimed: ") for claim in verdict.claims if claim.passed is None)
    ends = [record for record in records_of(ranks[:1]) if record["kind"] == "end"]
    assert [end["steps"] for end in ends] == [12, 12, 12]
    assert [(m["exchanges"], m["idle"]) for end in ends for m in models(end)] == [(12, 0)] * 3


def test_a_store_that_is_lost_at_the_end_costs_no_second_last_record(root: Root) -> None:
    ranks = run(root, "store-lost")
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    heads = [record for record in records_of(ranks) if record["kind"] == "heads" and record["epoch"] is None]
    assert sorted(record.whole("rank") for record in heads) == [0, 1, 2]
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text() + ranks[0].text


@pytest.mark.parametrize(("kind", "steps", "exchanges"), [
    ("zero", 24, [(24, 12, 0)]),  # each step is also one of the optimizer that has this rank's part
    ("wrapped-again", 12, [(6, 6, 0), (6, 6, 0)]),
])
def test_an_optimizer_in_parts_and_a_model_that_is_wrapped_again_are_proven(
        root: Root, kind: str, steps: int, exchanges: list[tuple[int, int, int]]) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text()
    ends = [record for record in records_of(ranks[:1]) if record["kind"] == "end"]
    assert [end["steps"] for end in ends] == [steps] * 3
    assert [[(m["steps"], m["exchanges"], m["idle"]) for m in models(end)] for end in ends] == [exchanges] * 3


@pytest.mark.parametrize(("words", "word"), [
    (["--rank", "{}", "--local_rank={}"], "PROVEN"), (["--learning-rate", "{}"], "NOT PROVEN")])
def test_the_ranks_have_the_same_arguments_but_for_those_that_name_a_rank(
        root: Root, words: list[str], word: str) -> None:
    store = root.store()
    started = [root.start([rank], 3, *(text.format(rank) for text in words), "ddp", port=store["port"], script=OWN,
                          env=ON) for rank in range(3)]
    verdict = judge([rank for one in started for rank in one.wait()])
    root.close_store(store)
    assert verdict.word == word, verdict.text()
    assert ("3 different scripts or arguments among the ranks" in verdict.text()) == (word != "PROVEN")


@pytest.mark.parametrize(("kind", "steps", "looks"), [
    ("state-first", 13, 3),  # torch.distributed.checkpoint makes an optimizer's state by a step with zeros
    ("clipped-by-hook", 12, 2),  # which the look at the first exchange does not see
])
def test_what_libraries_and_scripts_do_to_gradients_is_no_missing_exchange(
        root: Root, kind: str, steps: int, looks: int) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text()
    ends = [record for record in records_of(ranks[:1]) if record["kind"] == "end"]
    assert [[(m["steps"], m["exchanges"], m["idle"], m["looks"]) for m in models(end)] for end in ends] == [
        [(steps, 12, 0, looks)]] * 3


def test_weights_that_rank_0_alone_loads_at_the_end_need_not_agree(root: Root) -> None:
    ranks = run(root, "best-at-end")
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text()
    assert "; not at the end: model 1 was gone or changed by then" in verdict.text()


def test_layers_that_are_unfrozen_after_the_model_was_wrapped_are_not_proven(root: Root) -> None:
    """Their gradients are each rank's own: DDP does not know them."""
    ranks = run(root, "unfrozen")
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "NOT PROVEN", verdict.text()
    assert "different sets of weights" in verdict.text()


@pytest.mark.parametrize(("ending", "code"), [("raise ValueError", 1), ("sys.exit(3)", 3)])
def test_a_script_that_fails_with_its_model_keeps_its_exit_status(root: Root, ending: str, code: int) -> None:
    """What is released at Python's own end is not looked at any more."""
    folder = root.new()
    (root.host(folder) / "own.py").write_text(
        "import sys\nimport torch\nimport torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nmodel(torch.ones(1, 2)).sum().backward()\n"
        f"optimizer.step()\n{ending}\n")
    env = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(root.free_port()),
           "GANGPLANK_OBSERVE": "1"}
    done = subprocess.run(root.command(["python3", f"{folder}/own.py"], env), capture_output=True, text=True,
                          check=False, timeout=400)
    assert done.returncode == code, done.stderr


def test_two_models_in_one_group_exchange_each_for_itself(root: Root) -> None:
    ranks = run(root, "two")
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    assert judge(ranks).word == "PROVEN"
    ends = [record for record in records_of(ranks[:1]) if record["kind"] == "end"]
    assert [[(m["steps"], m["exchanges"], m["idle"]) for m in models(end)] for end in ends] == [[(12, 12, 0)] * 2] * 3


@pytest.mark.parametrize("kind", ["sharded", "sharded-layers", "sharded-wide", "sharded-accumulate",
                                  "sharded-converted"])
def test_fully_shard_is_proven_as_far_as_its_parts_show(root: Root, kind: str) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "PROVEN", verdict.text()
    unclaimed = {claim.name for claim in verdict.claims if claim.passed is None}
    assert unclaimed == {*NEVER_CLAIMED, "gradients agree after the all-reduce", "weights agree"}
    assert {claim.name: claim.detail for claim in verdict.claims}["gradients are averaged"] == (
        "the mean of all ranks' at 2 checked steps")  # the second and eighth exchange
    ends = [record for record in records_of(ranks[:1]) if record["kind"] == "end"]
    assert [(m["exchanges"], m["idle"]) for end in ends for m in models(end)] == [(12, 0)] * 3


@pytest.mark.parametrize("fake", OBSERVED, ids=lambda fake: fake.kind)
def test_a_fake_is_rejected_by_the_claim_that_names_it(root: Root, fake: Observed) -> None:
    ranks = run(root, fake.kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == fake.word, verdict.text()
    details = {outcome.name: outcome.detail for outcome in verdict.failed}
    assert fake.reason in details.get(fake.claim, ""), verdict.text()


UNCOUNTED = "before 12 of 12 steps of rank 0, a process group worked in a way that may have been an exchange or not"


@pytest.mark.parametrize(("kind", "reason"), [
    ("send-receive", "no step of an optimizer of torch was seen"),
    ("own-optimizer", "no step of an optimizer of torch was seen"),
    ("alone-first", "30 of 42 steps of rank 0 were of no model that was watched: before the rank joined"),
    ("two-alone-first", "30 of 42 steps of rank 0 were of no model that was watched: before the rank joined"),
    ("sharded-hybrid", "gradients are exchanged within a part of the ranks"),
    ("flat", "no exchange of gradients could be looked at (model 1)"),
    ("join-uneven", "could not be observed to its end (its inputs ended before those of others, within Join)"),
    ("hand-functional", UNCOUNTED),
    ("hand-dtensor", UNCOUNTED),
    ("hand-group", UNCOUNTED),
    ("inner-exchange", UNCOUNTED),
    ("pipeline", UNCOUNTED),
    ("hinders", "could not be observed to its end (TypeError: 'NoneType' object is not callable)"),
    ("hinders-own", "could not be observed to its end (TypeError: 'NoneType' object is not callable)"),
])
def test_what_cannot_be_seen_is_not_claimed(root: Root, kind: str, reason: str) -> None:
    ranks = run(root, kind)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks)
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert not verdict.passed
    assert any(reason in claim.detail for claim in verdict.unclaimed), verdict.text()


def test_a_model_that_all_exchange_does_not_speak_for_one_that_pairs_do(root: Root) -> None:
    ranks = run(root, "two-in-pairs", 4)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    verdict = judge(ranks, 4)
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert "exchanged within a part of the ranks (model 2)" in verdict.unclaimed[0].detail


@pytest.mark.parametrize("kind", ["ddp", "accumulate", "loader", "two", "named-hook", "hand-clip", "hand-functional",
                                  "sharded", "sharded-layers", "sharded-wide"])
def test_the_script_computes_the_same_to_the_last_bit_and_one_field_switches_it_off(root: Root, kind: str) -> None:
    """Weights, losses, and the next random number of torch, of Python and of numpy."""
    watched, alone = run(root, kind), run(root, kind, env={"GANGPLANK_OBSERVE": "0"})
    assert [own_words(rank) for rank in watched] == [own_words(rank) for rank in alone]
    assert all(len(line.split()) == 4 for rank in alone for line in own_words(rank) if line.startswith("next"))
    assert records_of(watched)
    assert records_of(alone) == []


WAITS = (  # for the late one's statistics, or gradients
    "loss = mse_loss((net if around else model)(inputs), targets)",
    "(loss * WEIGHT_OF_RANK_1 if rank == 1 else loss).backward()",
)


def test_a_rank_that_does_nothing_for_long_says_where_it_is(root: Root) -> None:
    ranks = run(root, "late", env={"GANGPLANK_STUCK_S": "2"})
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    lines = (Path(__file__).with_name("inside") / "own.py").read_text().splitlines()
    for rank, places in enumerate((WAITS, ("time.sleep(15)",), WAITS)):
        at = [f"own.py:{i}, in train: {line.strip()}" for i, line in enumerate(lines, 1) if line.strip() in places]
        expected = rf"gangplank: rank {rank}: no step and no exchange for \d+ s; it is at (.*)"
        shown = re.findall(expected, ranks[rank].text)
        assert set(shown) & set(at), (shown, at)
        main = f"gangplank: rank {rank}: thread MainThread: "
        assert {f"{main}{place}" for place in at} & {*ranks[rank].text.splitlines()}
        assert f"{main}own.py:{lines.index('kept = train()') + 1}, in <module>: kept = train()" in ranks[rank].text
        assert f"gangplank: rank {rank}: it continues" in ranks[rank].text
    assert judge(ranks).word == "PROVEN"
    assert "gangplank: rank" not in "".join(rank.text for rank in run(root, "ddp"))


def test_a_rank_that_is_late_to_join_says_where_it_is_and_so_do_those_that_wait_for_it(root: Root) -> None:
    """It has twice as long as a rank that has joined; a process that it starts is no rank."""
    ranks = run(root, "late-to-join", env={"GANGPLANK_STUCK_S": "2"})
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    said = r"gangplank: rank \d: (.*) for \d+ s; it is at (.*):\d+, in <module>: (.*)"
    places = [set(re.findall(said, rank.text)) for rank in ranks]
    waits = 'dist.init_process_group("gloo", timeout=timedelta(seconds=600))'  # each of them does, on a slow machine
    late = "time.sleep(9 + 2 * (time.monotonic() - BEGAN))"
    assert all(("no step and no exchange", "own.py", waits) in places[rank] for rank in (0, 2)), places
    assert ("not joined", "own.py", late) in places[1]
    every = set.union(*places)
    assert {file for _, file, _ in every} == {"own.py"}
    assert not every & {("not joined", "own.py", waits), ("no step and no exchange", "own.py", late)}
    assert all(f"gangplank: rank {number}: it continues" in rank.text for number, rank in enumerate(ranks))
    assert judge(ranks).word == "PROVEN"


@pytest.mark.parametrize("kind", ["slow", "slow-hand"])
def test_each_rank_says_where_the_time_of_its_steps_goes(root: Root, kind: str) -> None:
    """Rank 1 waits at least 0.2 s for each of its batches; the others wait for it, also where BatchNorm's sums are."""
    ranks = run(root, kind, env={"GANGPLANK_PACE_S": "0.5"})
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    sums = []
    for number, rank in enumerate(ranks):
        windows = [one for line in rank.text.splitlines() if (one := window(line))]
        assert windows, rank.text
        assert {one.rank for one in windows} == {number}
        assert sum(one.steps for one in windows) <= 11, "the first step has what was prepared for all of them"
        for one in windows:
            assert one.data + one.compute + one.exchange == pytest.approx(one.total, abs=0.01)
            assert number != 1 or one.data >= 0.2 * one.steps - 0.01, one
        sums.append(functools.reduce(operator.add, windows))
    assert all(one.data < sums[1].data and one.exchange > sums[1].exchange for one in (sums[0], sums[2])), sums
    assert judge(ranks).word == "PROVEN"
    off = "".join(rank.text for rank in run(root, kind, env={"GANGPLANK_PACE_S": "0"}))
    assert "steps in" not in off


@pytest.mark.parametrize("kind", ["between", "each-batch"])
def test_the_exchange_ends_with_the_backward_pass_and_every_pass_has_one(root: Root, kind: str) -> None:
    """Rank 1 takes at least 0.2 s longer for a step, after the exchange or before each of three: the others wait."""
    ranks = run(root, kind, env={"GANGPLANK_PACE_S": "0.5"})
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    windows = [[one for line in rank.text.splitlines() if (one := window(line))] for rank in ranks]
    assert all(windows), ranks[0].text
    sums = [functools.reduce(operator.add, own) for own in windows]
    assert sums[1].compute >= 0.2 * sums[1].steps - 0.01, sums
    assert all(one.exchange > one.compute and sums[1].exchange < one.exchange for one in (sums[0], sums[2])), sums


STATIC = ["--nnodes=1", "--node-rank=0", "--master-addr=127.0.0.1", "--master-port={}"]
ELASTIC = ["--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{}", "--rdzv-id=own",
           "--local-addr=127.0.0.1", "--rdzv-conf=last_call_timeout=1"]


@pytest.mark.parametrize(("launcher", "meeting", "env"), [
    (["-m", "torch.distributed.run"], STATIC, {}),
    (["-m", "torch.distributed.run"], ELASTIC, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}),  # rank 0 serves the store
    (["/opt/gangplank/trainer/torchrun.py"], STATIC, {}),
    (["-m", "torch.distributed.launch"], STATIC, {}),  # adds --local-rank to the arguments
], ids=["a fixed world", "an elastic rendezvous", "forked ranks", "the old launcher"])
def test_ranks_that_torchrun_starts_are_proven(
        root: Root, launcher: list[str], meeting: list[str], env: dict[str, str]) -> None:
    """Their script asks whether there is a torch before it imports it, as many libraries do."""
    folder, text = root.new(), (Path(__file__).with_name("inside") / "own.py").read_text()
    asks = "import importlib.util\nassert importlib.util.find_spec('torch')\n"
    (root.host(folder) / "own.py").write_text(asks + text)
    line = ["python3", *launcher, *(word.format(root.free_port()) for word in meeting),
            "--nproc-per-node=2", f"{folder}/own.py", "ddp"]
    env = {**ON, "GANGPLANK_POD": "pod", "GANGPLANK_POD_UID": "uid-0", "GANGPLANK_JOB_UID": "job-1", **env}
    del env["TORCHELASTIC_USE_AGENT_STORE"]
    done = subprocess.run(root.command(line, env), capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    records = read_records(done.stdout)
    verdict = prove(records, Expected(2, job_uid="job-1", created=0.0, pods={"uid-0": ""}, processes_per_pod=2))
    assert verdict.word == "PROVEN", verdict.text()
    ends = [end for end in records if end["kind"] == "end"]
    assert {end["rank"] for end in ends if end.number("evidence_seconds") > 0} == {0, 1}


def test_a_program_that_starts_torchrun_is_no_rank_and_its_ranks_are_observed(root: Root) -> None:
    """They never join, so each is alone; what started them waits for them, and does not stand still."""
    folder = root.new()
    line = ["python3", "-m", "torch.distributed.run", *(word.format(root.free_port()) for word in STATIC),
            "--nproc-per-node=2", "/tests/inside/own.py", "alone"]
    (root.host(folder) / "launch.py").write_text(
        f"import subprocess\nimport torch\nsubprocess.run({line!r}, check=True)\n"
        "other = subprocess.Popen(['sleep', '8'])\nother.wait()\n")
    env = {**ON, "GANGPLANK_POD_UID": "uid-0", "GANGPLANK_JOB_UID": "job-1", "GANGPLANK_STUCK_S": "2",
           "RANK": "0", "WORLD_SIZE": "2"}
    del env["TORCHELASTIC_USE_AGENT_STORE"]
    done = subprocess.run(root.command(["python3", f"{folder}/launch.py"], env), capture_output=True, text=True,
                          check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    begins = [record for record in read_records(done.stdout) if record["kind"] == "begin"]
    assert [(begin["joined"], begin["script"]) for begin in begins] == [(False, "own.py")] * 2
    assert "launch.py" not in done.stdout


@pytest.mark.parametrize("launcher", [[], ["/opt/gangplank/trainer/torchrun.py", *STATIC]], ids=["one", "forked"])
@pytest.mark.parametrize(("ending", "ended_well"), [
    ("raise SystemExit(0)", True), ("try:\n    sys.exit(1)\nexcept SystemExit:\n    pass", True),
    ("def main():\n    raise SystemExit(1)\nmain()", False), ("raise SystemExit('no data')", False),
    ("sys.exit('no data')", False), ("1 / 0", False),
])
def test_a_script_that_exits_with_a_failure_writes_no_last_record(
        root: Root, launcher: list[str], ending: str, ended_well: bool) -> None:
    folder = root.new()
    (root.host(folder) / "own.py").write_text(f"import sys\nimport torch\n{ending}\n")
    env = {} if launcher else {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "test"}
    line = ["python3", *(word.format(root.free_port()) for word in launcher), f"{folder}/own.py"]
    done = subprocess.run(root.command(line, {**env, "GANGPLANK_OBSERVE": "1"}), capture_output=True, text=True,
                          check=False, timeout=400)
    assert (done.returncode == 0) == ended_well, done.stderr
    assert [record["kind"] for record in read_records(done.stdout)] == ["begin", "end", "heads"] * ended_well


CALLS = 22  # of Python or C functions at a step: 19 of less than a microsecond each; a look has some 250


@pytest.mark.parametrize("pace_s", ["0", "3600"])  # no step is timed, or the first one alone
def test_the_observer_works_little_at_steps_that_it_does_not_look_at(root: Root, pace_s: str) -> None:
    """Counted in calls, which are the same on a busy machine; `make bench PARTS=evidence` measures CPU time."""
    ranks = root.train(2, script="/tests/inside/work.py", env={**ON, "GANGPLANK_PACE_S": pace_s})
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    assert judge(ranks, 2).word == "PROVEN"
    calls = json.loads(next(line for line in ranks[0].text.splitlines() if line.startswith('{"calls"')))["calls"]
    assert len(calls) == 40
    looks = {1, 2, 8, 32}
    few = {step: count for step, count in enumerate(calls, 1) if not {step, step + 1} & looks}  # or prepares a look
    assert max(few.values()) <= CALLS, few
    assert min(few.values()) > 0, "nothing was counted"
    assert all(calls[step - 1] > 10 * CALLS for step in looks), calls


@pytest.mark.parametrize(("epochs", "share"), [(40, 0.01)] if FULL else [(6, 0.1)])
def test_the_observer_takes_a_hundredth_of_the_cpu_time_of_a_training_that_is_not_short(
        root: Root, epochs: int, share: float) -> None:
    """As it counts itself, loading included; the test above has what it does not count."""
    for name in ("observer_cpu.py", "plain.py"):
        shutil.copy(Path(__file__).parents[2] / "bench/inside" / name, root.out)
    env = {**ON, "OUT": f"{root.new()}/model.pt", "GANGPLANK_OBSERVE": "0"}
    words = ["with", "/out/plain.py", str(epochs), "32", "0.05", "0.9"]
    ranks = root.train(2, *words, script="/out/observer_cpu.py", env=env)
    assert {rank.code for rank in ranks} == {0}, ranks[0].text
    figures = [rank.event("cpu") for rank in ranks]
    assert 0 < sum(one["counted"] for one in figures) < share * sum(one["run"] for one in figures), figures
