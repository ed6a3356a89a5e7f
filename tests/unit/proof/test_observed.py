"""`prove` on evidence of scripts that were observed from outside: made up, sound or with one thing wrong."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.proof.records import FORMAT
from gangplank.proof.report.page import page
from gangplank.proof.verdict import CLAIMS, Expected, Verdict, prove
from tests.unit.proof.test_claims import PODS, World, gradient, where
from tests.unit.proof.test_formats import DOCS_OBSERVED, STRANGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.proof.test_claims import Record

EXPECTED = Expected(3, job_uid="job-1", created=800.0, pods=PODS)
ROWS = re.findall(r"^\| `(\w+)` \| .* \| (`.*`) \|$", DOCS_OBSERVED, re.MULTILINE)
NEEDED = [(kind, key) for kind, fields in ROWS for key in re.findall(r"`(\w+)`", fields)]
OPTIONAL = {("begin", "observed"), ("end", "blind"), ("gradients", "by"), ("gradients", "hooks"),
            ("gradients", "part"), ("weights", "changed"), ("weights", "part")}


class Observed(World):
    """Ranks of a script with DDP, looked at twice."""

    by = "DistributedDataParallel"
    factor = 1.0

    def begin(self, resumed: Record | None = None) -> None:
        for rank in range(self.size):
            self.add(rank, "begin", format=3, observed=True, world_size=self.size, pod=f"pod-{rank}", node="n",
                     pod_uid=f"uid-{rank}", job_uid=self.job, attempt=self.attempt, settings="s", resumed=resumed)

    def train(self) -> list[Record]:
        self.begin()
        for step in (1, 2):
            sums = [gradient(step, other) for other in range(self.size)]
            for rank in range(self.size):
                self.add(rank, "gradients", epoch=1, step=step, before=f"{step}-{rank}", after=f"{step}", elements=1000,
                         dtype="float32", norm=10.0 + rank, sums_before=sums[rank], by=self.by, hooks=[],
                         sums_after=[self.factor * sum(column) / self.size for column in zip(*sums, strict=True)])
                self.add(rank, "weights", epoch=1, step=step, parameters=f"w{step}", last=step == 2)
            self.exchange(0)
        for rank in range(self.size):
            self.add(rank, "end", steps=4, collectives={"all_reduce": 2}, blind=None, models=[
                {"model": 1, "by": self.by, "sharded": False, "whole": True, "steps": 4, "exchanges": 4, "idle": 0}])
        self.exchange(None)
        return self.records()


def judge(change: Callable[[Record], None] = lambda _: None) -> Verdict:
    return prove(Observed(change=change).train(), EXPECTED)


def every(kind: str, **fields: object) -> Callable[[Record], None]:
    """The records of a kind, on every rank."""
    return where(kind, None, **fields)


def unseen_others(record: Record) -> None:
    """Rank 1 never read what the others had published."""
    if record["kind"] == "heads" and record["rank"] == 1:
        record["heads"] = [None, record["prev"], None]


def ends_early(record: Record) -> None:
    """Rank 1 was observed until its first look."""
    where("end", 1, blind="OSError: no")(record)
    if record["rank"] == 1 and record["kind"] in {"gradients", "weights"} and record["step"] == 2:
        record["kind"] = "other"


def of_hand(record: Record, scale: float) -> None:
    """A script that hands out rank 0's gradient times a number, which another factor makes good."""
    if record["kind"] == "gradients":
        record |= {"by": "hand", "sums_after": [scale * value for value in gradient(record["step"], 0)]}


def of_16_bits(record: Record, size: float) -> None:
    """Gradients of such a size, of which all get rank 0's, as if a hook had rounded them."""
    if record["kind"] == "gradients":
        sums = [size * value / 3 for value in gradient(record["step"], 0)]
        record |= {"elements": 8192, "norm": size * record["norm"], "hooks": ["fp16_compress_hook"], "sums_after": sums,
                   "sums_before": [size * value for value in record["sums_before"]]}


@dataclass
class Learned(Observed):
    """Ranks that are looked at more often, and have no gradient at some of the looks."""

    zeros: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    """Ranks, by model and step."""
    models: int = 1
    exchanges: int = 40
    hand: bool = False
    """Whether they add up their gradients themselves."""

    def train(self) -> list[Record]:
        self.by, self.factor = ("hand", 3.0) if self.hand else (self.by, self.factor)
        self.begin()
        for number, step in itertools.product(range(1, self.models + 1), (1, 2, 8, 32)):
            self.look(number, step)
        for rank in range(self.size):
            totals = [model(model=number, by=self.by, steps=self.exchanges, exchanges=self.exchanges)
                      for number in range(1, self.models + 1)]
            self.add(rank, "end", steps=self.models * self.exchanges, collectives={"all_reduce": 2}, blind=None,
                     models=totals)
        self.exchange(None)
        return self.records()

    def look(self, number: int, step: int) -> None:
        none = self.zeros.get((number, step), set())
        own = [[0.0 if rank in none else number * step**2 * x for x in gradient(step, rank)]
               for rank in range(self.size)]
        sums = [self.factor * sum(column) / self.size for column in zip(*own, strict=True)]
        before = ["0" if rank in none else f"{number}-{step}-{rank}" for rank in range(self.size)]
        others = sorted({*before} - {"0"})
        after = f"{number}-{step}" if len(others) > self.hand else "".join(others) or "0"
        for rank in range(self.size):
            self.add(rank, "gradients", epoch=number, step=step, before=before[rank], elements=1000, dtype="float32",
                     norm=0.0 if rank in none else number * step**2 * (10.0 + rank), sums_before=own[rank], by=self.by,
                     hooks=[], sums_after=sums, after=after)
            self.add(rank, "weights", epoch=number, step=step, parameters=f"w{number}-{step}", last=step == 32)
        self.exchange(0)


def model(**fields: object) -> dict[str, object]:
    return {"model": 1, "by": "hand", "sharded": False, "whole": True, "steps": 4, "exchanges": 4, "idle": 0, **fields}


def test_sound_evidence_is_proven_and_says_what_is_not_claimed() -> None:
    verdict = judge()
    assert verdict.text().endswith(f"PROVEN: {len(CLAIMS) - 3} of {len(CLAIMS) - 3} claims hold, 3 not claimed")
    assert [claim.name for claim in verdict.claims if claim.passed is None] == [
        "all epochs", "samples are disjoint and complete", "global batch"]
    assert "not claimed: which samples a rank saw cannot be seen from outside" in verdict.text()


@pytest.mark.parametrize(("change", "claim"), [
    (where("begin", 1, settings="other"), "one job"),
    (where("end", 1, steps=3), "every rank worked"),
    (where("end", 1, collectives={"barrier": 3}, models=[]), "every rank worked"),
    (where("end", 1, models=[model(idle=1)]), "gradients are exchanged at every step"),
    (where("end", 1, models=[model(exchanges=0)]), "gradients are exchanged at every step"),
    (where("end", 1, models=[]), "gradients are exchanged at every step"),
    (where("gradients", 1, before="1-0"), "gradients differ before the all-reduce"),
    (where("gradients", 1, after="x"), "gradients agree after the all-reduce"),
    (every("gradients", sums_after=[1.0, 1.0, 1.0, 1.0]), "gradients are averaged"),
    (every("gradients", by="hand", sums_after=[1.0, 1.0, 1.0, 1.0]), "gradients are averaged"),
    (where("gradients", 1, kind="other"), "gradients are averaged"),
    (lambda record: of_hand(record, 1e-10), "gradients are averaged"),
    (lambda record: of_16_bits(record, 1e-2), "gradients are averaged"),
    (where("gradients", 1, hooks=["fp16_compress_hook"]), "gradients are averaged"),
    (where("end", 1, kind="other"), "every rank worked"),
    (where("weights", 1, parameters="x"), "weights agree"),
    (where("weights", 1, kind="other"), "weights agree"),
    (unseen_others, "ranks attest each other"),
])
def test_each_claim_fails_for_what_breaks_it(change: Callable[[Record], None], claim: str) -> None:
    verdict = judge(change)
    assert claim in {outcome.name for outcome in verdict.failed}, verdict.text()
    assert verdict.word == "NOT PROVEN"


ALL, LAST = {0, 1, 2}, (1, 32)


@pytest.mark.parametrize(("zeros", "fields", "word"), [
    ({}, {}, "PROVEN"),
    ({LAST: {1}}, {}, "PROVEN"),
    ({LAST: {0, 1}}, {}, "PROVEN"),
    ({LAST: ALL}, {}, "PROVEN"),
    ({LAST: ALL, (1, 8): ALL}, {}, "NOT CLAIMED"),  # of 40 exchanges, none after the second
    ({LAST: {1}}, {"exchanges": 8 * 16}, "NOT CLAIMED"),
    ({(1, step): {1} for step in (1, 2, 8, 32)}, {}, "NOT PROVEN"),
    ({(1, step): ALL for step in (1, 2, 8, 32)}, {}, "NOT PROVEN"),
    ({(2, step): {1} for step in (1, 2, 8, 32)}, {"models": 2}, "NOT PROVEN"),
    ({(2, step): ALL for step in (1, 2, 8, 32)}, {"models": 2}, "NOT PROVEN"),
    ({LAST: {0, 2}}, {"hand": True}, "PROVEN"),  # the sum is the gradient of the only rank that has one
])
def test_a_loss_may_be_zero_once_its_samples_are_learned(
        zeros: dict[tuple[int, int], set[int]], fields: dict[str, Any], word: str) -> None:
    verdict = prove(Learned(zeros=zeros, **fields).train(), EXPECTED)
    assert verdict.word == word, verdict.text()


@pytest.mark.parametrize("zeros", [
    {(1, 1): {1, 2}, (1, 2): {0}, (1, 8): {1, 2}, LAST: {0}},
    {(1, 2): {1, 2}, (1, 8): {0}, LAST: {1, 2}},  # compared once, at the first exchange
    {(2, 1): {1, 2}, (2, 2): {0}, (2, 8): {1, 2}, (2, 32): {0}},  # the other model does not speak for it
])
def test_a_gradient_that_is_compared_with_none_is_not_claimed(zeros: dict[tuple[int, int], set[int]]) -> None:
    verdict = prove(Learned(zeros=zeros, models=max(number for number, _ in zeros)).train(), EXPECTED)
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert " of 40, the gradient of rank 0 or those of all others were zero whenever anybody looked" in verdict.text()


def test_a_verdict_says_at_how_many_steps_not_all_ranks_had_a_gradient() -> None:
    text = prove(Learned(zeros={LAST: {1}}).train(), EXPECTED).text()
    assert "different on every rank at 4 checked steps, at 1 of which not all had a gradient" in text
    assert "the mean of all ranks' at 4 checked steps, at 1 of which not all had a gradient" in text


def test_a_gradient_that_is_zero_has_no_checksums() -> None:
    verdict = judge(where("gradients", 1, norm=0.0))
    assert "step 1: rank 1 says that absolute values add up to 0, which its checksums exclude" in verdict.text()


@pytest.mark.parametrize(("fields", "calls", "word", "unclaimed"), [
    ({}, 2, "PROVEN", set()),
    ({"uncounted": 0}, 2, "PROVEN", set()),
    ({"uncounted": 1}, 2, "NOT CLAIMED", {"gradients are exchanged at every step"}),
    ({"uncounted": 1}, 0, "NOT CLAIMED", {"every rank worked", "gradients are exchanged at every step"}),
    ({"uncounted": 0}, 0, "NOT PROVEN", set()),
    ({"uncounted": 1, "idle": 1}, 0, "NOT PROVEN", {"every rank worked"}),
])
def test_an_exchange_that_nobody_counts_is_neither_claimed_nor_denied(
        fields: dict[str, int], calls: int, word: str, unclaimed: set[str]) -> None:
    verdict = judge(where("end", 1, collectives={"all_reduce": calls}, models=[model(**fields)]))
    assert verdict.word == word, verdict.text()
    reason = ("not claimed: before 1 of 4 steps of rank 1, a process group worked in a way that may "
              "have been an exchange or not (model 1)")
    assert {claim.name for claim in verdict.claims if claim.passed is None and claim.detail == reason} == unclaimed


def test_a_rank_of_an_observed_script_whose_clock_is_behind_is_named() -> None:
    """It has no epochs, so its clock is seen at an exchange that all ranks looked at."""
    def behind(record: Record) -> None:
        if record["rank"] == 1:
            record["time"] = record["time"] - 300

    verdict = prove(Observed(change=behind).train(), replace(EXPECTED, created=990.0))
    assert verdict.word == "NOT PROVEN"
    assert "s older than the job (the clock of rank 1 was 300 s behind another's). Fix: " in verdict.text()


@pytest.mark.parametrize(("norm", "word"), [(1e-9, "NOT PROVEN"), (0.2, "PROVEN")])
def test_a_rank_that_adds_next_to_nothing_is_named(norm: float, word: str) -> None:
    def change(record: Record) -> None:
        every("begin", format=FORMAT)(record)
        where("gradients", 1, norm=norm)(record)

    verdict = judge(change)
    assert verdict.word == word, verdict.text()
    assert ("rank 1 adds next to nothing: at most 8e-11 of what another adds" in verdict.text()) == (norm < 1e-3)


@pytest.mark.parametrize(("change", "reason"), [
    (every("end", blind="OSError: no"), "rank 0 could not be observed to its end (OSError: no)"),
    (ends_early, "rank 1 could not be observed to its end (OSError: no)"),
    (every("end", steps=0, models=[]), "no step of an optimizer of torch was seen"),
])
def test_what_was_not_seen_is_not_claimed(change: Callable[[Record], None], reason: str) -> None:
    verdict = judge(change)
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert not verdict.passed
    assert any(reason in claim.detail for claim in verdict.unclaimed)


@pytest.mark.parametrize(("facts", "reason"), [
    ([model(), model(model=2, whole=False)], "gradients are exchanged within a part of the ranks (model 2)"),
    ([model(), model(model=2)], "no exchange of gradients could be looked at (model 2)"),
    ([model(steps=1000, exchanges=1000)], "nobody looked at model 1 after exchange 2 of 1000"),
])
def test_a_look_at_one_model_or_at_the_beginning_does_not_speak_for_all(
        facts: list[dict[str, object]], reason: str) -> None:
    verdict = judge(every("end", models=facts, steps=sum(int(str(fact["steps"])) for fact in facts)))
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert [claim.name for claim in verdict.unclaimed] == ["gradients are averaged"]
    assert reason in verdict.unclaimed[0].detail


def test_steps_of_no_model_that_was_watched_are_not_claimed() -> None:
    """Those before the rank joined, or those of more models than are watched."""
    verdict = judge(every("end", steps=1000))
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert "996 of 1000 steps of rank 0 were of no model that was watched" in verdict.unclaimed[0].detail


def test_steps_of_several_models_do_not_hide_those_that_a_rank_took_alone() -> None:
    """One optimizer steps two models four times, after four steps before the rank joined."""
    verdict = judge(every("end", models=[model(), model(model=2)], steps=8, unwatched=4))
    details = {claim.name: claim.detail for claim in verdict.unclaimed}
    reason = "4 of 8 steps of rank 0 were of no model that was watched: before the rank joined"
    assert reason in details.get("gradients are exchanged at every step", ""), verdict.text()


@pytest.mark.parametrize(("began", "lost", "word"), [(2000.0, {0}, "PROVEN"), (2000.0, set(), "NOT PROVEN"),
                                                      (1000.0, {0}, "NOT PROVEN")])
def test_a_start_that_one_rank_did_not_end_is_followed_by_another(began: float, lost: set[int], word: str) -> None:
    """Rank 0 failed when the others had finished; but not two trainings that ended, or that ran at a time."""
    first, second = Observed(clock=1000.0), Observed(clock=began, attempt="a2")
    first.train()
    for rank in lost:
        del first.chains[rank][-2:]
    verdict = prove([*first.records(), *second.train()], EXPECTED)
    assert verdict.word == word, verdict.text()
    assert ("rank 1 finished 2 times" in verdict.text()) == (word != "PROVEN")


def test_the_page_of_what_is_not_claimed_names_it_and_no_failure() -> None:
    text = page("own", Observed(change=every("end", blind="OSError: no")).train(), EXPECTED)
    assert '<span class="bad">Not claimed</span>: ' in text
    assert "among them gradients are exchanged at every step; gradients are averaged." in text
    assert "claims fail" not in text


def test_weights_of_a_model_that_nobody_read_are_not_claimed() -> None:
    verdict = judge(every("end", models=[model(), model(model=2)], steps=8))
    details = {claim.name: claim.detail for claim in verdict.claims if claim.passed is None}
    assert "the weights of model 2 were not read" in details["weights agree"]


def test_weights_that_one_rank_has_given_up_do_not_count_as_read_at_the_end() -> None:
    def given_up(record: Record) -> None:
        if record["kind"] == "weights" and record["rank"] == 1 and record["last"]:
            record["kind"] = "other"

    verdict = judge(given_up)
    assert verdict.word == "PROVEN", verdict.text()
    assert "not at the end: model 1 was gone or changed by then" in verdict.text()


@pytest.mark.parametrize(("changed", "word"), [(True, "PROVEN"), (False, "NOT PROVEN")])
def test_weights_that_a_script_changed_after_its_last_step_need_not_agree(changed: bool, word: str) -> None:
    def loads(record: Record) -> None:
        if record["kind"] == "weights" and record["rank"] == 0 and record["last"]:
            record.update({"parameters": "0" * 64, "changed": changed})

    verdict = judge(loads)
    assert verdict.word == word, verdict.text()
    assert ("not at the end: model 1 was gone or changed by then" in verdict.text()) == changed

    def all_load(record: Record) -> None:
        if record["kind"] == "weights" and record["last"]:
            record.update({"parameters": str(record["rank"]) * 64, "changed": True})

    assert judge(all_load).word == "NOT PROVEN", "weights that all ranks changed are compared"


def test_averages_of_parts_are_not_claimed_but_their_exchange_is() -> None:
    def sharded(record: Record) -> None:
        if record["kind"] in {"gradients", "weights"}:
            record["kind"] = "other"
        if record["kind"] == "end":
            record["models"] = [model(sharded=True), model(sharded=True)]

    verdict = judge(sharded)
    assert verdict.word == "NOT CLAIMED", verdict.text()
    assert [claim.name for claim in verdict.unclaimed] == ["gradients are averaged"]
    assert "several models are sharded" in verdict.unclaimed[0].detail


@pytest.mark.parametrize(("error", "word"), [(0.0, "PROVEN"), (0.1, "NOT PROVEN")])
def test_parts_of_an_average_add_up_to_it(error: float, word: str) -> None:
    turn = iter((0.2, 0.3, 0.5) * 2)

    def in_parts(record: Record) -> None:
        record["part"] = True
        if record["kind"] == "gradients":
            share = next(turn)
            record |= {"by": "fully_shard", "after": f"{record['after']}-{record['rank']}"}
            record["sums_after"] = [share * value for value in record["sums_after"]]
            record["sums_after"][0] += error
        if record["kind"] == "weights":
            record["parameters"] = f"{record['parameters']}-{record['rank']}"

    verdict = judge(in_parts)
    assert verdict.word == word, verdict.text()
    unclaimed = {claim.name for claim in verdict.claims if claim.passed is None}
    assert unclaimed >= {"gradients agree after the all-reduce", "weights agree"}


@pytest.mark.parametrize(("by", "factor", "word"), [
    ("hand", 3.0, "PROVEN"), ("hand", 0.1, "PROVEN"), ("hand", -1.0, "NOT PROVEN"),
    ("DistributedDataParallel", 3.0, "NOT PROVEN")])
def test_a_scripts_own_exchange_may_sum_and_clip_but_ddp_averages(by: str, factor: float, word: str) -> None:
    world = Observed()
    world.by, world.factor = by, factor
    assert prove(world.train(), EXPECTED).word == word


def test_a_hook_of_16_bits_may_round_and_no_other() -> None:
    def rounded(hooks: list[str]) -> Callable[[Record], None]:
        def change(record: Record) -> None:
            if record["kind"] == "gradients":
                record["hooks"] = hooks
                sums = record["sums_after"]
                assert isinstance(sums, list)
                record["sums_after"] = [value + 0.005 for value in sums]
        return change

    assert judge(rounded(["fp16_compress_hook"])).word == "PROVEN"
    assert judge(rounded(["mine"])).word == judge(rounded([])).word == "NOT PROVEN"


def test_evidence_of_which_only_a_part_was_observed_is_judged_as_the_trainers() -> None:
    assert judge(where("begin", 1, observed=False)).word == "NOT PROVEN"


@pytest.mark.parametrize(("kind", "key"), [pair for pair in NEEDED if pair not in OPTIONAL])
def test_a_missing_field_fails_a_claim_that_names_record_and_field(kind: str, key: str) -> None:
    def without(record: Record) -> None:
        if record["kind"] == kind:
            record.pop(key)

    verdict = judge(without)
    message = rf"rank \d record \d+ \({kind}\) {key}: got nothing, expected .*\. Fix: write it as docs/proof.md"
    assert [claim for claim in verdict.failed if re.search(message, claim.detail)], verdict.text()


def test_the_docs_list_the_fields_of_every_kind() -> None:
    assert {kind for kind, _ in NEEDED} == {"begin", "gradients", "weights", "heads", "end"}
    assert set(NEEDED) >= OPTIONAL


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["begin", "gradients", "weights", "heads", "end"])
def test_a_field_of_another_type_is_judged_and_shown(kind: str) -> None:
    keys = {key for record in Observed().train() if record["kind"] == kind for key in record}
    for key in sorted(keys - {"format", "kind"}):
        for value in STRANGE:
            records = Observed(2, change=where(kind, **{key: value})).train()
            prove(records, EXPECTED).text().encode()
            page("own", records, EXPECTED).encode()
