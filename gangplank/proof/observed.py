"""What claims can be asked of a script that was watched from outside, by trainer/observe.py.

Such evidence has no epochs and no samples. It has totals at the end, and looks at some exchanges. What the script did
in a way that nobody outside can see is not claimed; what was seen and is wrong fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.proof.judgement import Judgement, judged
from gangplank.proof.log_lines import count
from gangplank.proof.records import Record
from gangplank.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.proof.records import Run
    from gangplank.proof.steps import Checked

NOT_CLAIMED = "not claimed: "
# Communication hooks of torch that average in another type than the gradients have.
LATE = 16  # a look at an exchange speaks for so many times as many; trainer/observe.py looks four times as often
HOOK_DTYPES = {"fp16_compress_hook": "float16", "bf16_compress_hook": "bfloat16"}


def ends(run: Run) -> dict[int, Record]:
    """The totals of each rank's last process."""
    return {rank: records[-1] for rank in sorted(run.chains) if (records := run.of("end", rank))}


def models_of(end: Record) -> list[Record]:
    """The totals of each model: the parameters of one DistributedDataParallel, or those of an optimizer without one."""
    models = end.get("models")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise end.refused("models", "a list of totals")
    return [Record({**model, **{key: end[key] for key in ("kind", "rank", "seq")}}) for model in models]


def blind(run: Run) -> str:
    """Why a rank could not be observed to its end, empty if all could."""
    return next((f"rank {rank} could not be observed to its end ({end['blind']})"
                 for rank, end in ends(run).items() if end.get("blind")), "")


def exchanges_of(end: Record) -> int:
    """How often a rank exchanged something with others: by DDP, and by operations of the script's own."""
    calls = end.get("collectives")
    if not isinstance(calls, dict) or not all(map(count, calls.values())):
        raise end.refused("collectives", "a number of calls for each kind")
    own = sum(int(number) for name, number in calls.items() if name != "barrier")
    return own + sum(model.whole("exchanges") for model in models_of(end) if model["by"] != "hand")


def uncounted(run: Run) -> str:
    """Where ranks may have exchanged gradients by an operation that nobody counts; "" if nowhere.

    The groups worked, but by no function of torch.distributed that is watched: a method of the group, as functional
    collectives and DTensor call it. Or from one rank to another alone, or within the optimizer's own step. Whether it
    brought gradients to all, a count does not say.
    """
    return next((f"{NOT_CLAIMED}before {number} of {model['steps']} steps of rank {end['rank']}, a process group "
                 f"worked in a way that may have been an exchange or not (model {model['model']})"
                 for end in ends(run).values() for model in models_of(end)
                 if (number := model.whole("uncounted") if "uncounted" in model else 0)), "")


def ranks_worked(run: Run) -> Judgement:
    """All ranks took the same number of optimizer steps, and each exchanged something with the others."""
    totals = ends(run)
    steps = {rank: end.whole("steps") for rank, end in totals.items()}
    if reason := blind(run):
        return None, NOT_CLAIMED + reason
    problems = [f"rank {rank} does not show its totals" for rank in sorted(run.chains.keys() - totals.keys())]
    problems += [f"steps differ: {steps}"] if len(set(steps.values())) > 1 else []
    counts = {rank: exchanges_of(end) for rank, end in totals.items()}
    unseen = uncounted(run)
    if not problems and unseen and not all(counts.values()):
        return None, unseen
    problems += [f"rank {rank} exchanged nothing with the others" for rank, number in counts.items() if not number]
    detail = f"steps of each rank: {listed(sorted(steps.items()))}; exchanges of each: {listed(sorted(counts.items()))}"
    return judged(problems, detail, proven=bool(totals))


def exchanged_at_every_step(run: Run) -> Judgement:
    """No optimizer took a step without an exchange since its last one."""
    totals = ends(run)
    if reason := blind(run):
        return None, NOT_CLAIMED + reason
    if not any(end.whole("steps") for end in totals.values()):
        return None, NOT_CLAIMED + "no step of an optimizer of torch was seen"
    problems, steps, exchanges, unwatched = [], 0, 0, dict[int, Record]()
    for rank, end in totals.items():
        models = models_of(end)
        if not any(model.whole("steps") for model in models):
            problems.append(f"rank {rank} exchanged nothing in {end['steps']} steps")
        # A step of several models counts for each, so the difference may hide steps that older evidence does not name.
        least = end.whole("steps") - sum(model.whole("steps") for model in models)
        unwatched.setdefault(max(least, end.whole("unwatched") if "unwatched" in end else 0), end)
        for model in models:
            steps, exchanges = steps + model.whole("steps"), exchanges + model.whole("exchanges")
            if model["steps"] and not model["exchanges"] and not model.whole("idle"):
                problems.append(f"rank {rank} shows no exchange in {model['steps']} steps (model {model['model']})")
            if model.whole("idle"):
                problems.append(f"rank {rank} took {model['idle']} of {model['steps']} steps without an exchange "
                                f"(model {model['model']})")
    most = max(unwatched, default=0)
    if most > 0 and not problems:
        return None, (f"{NOT_CLAIMED}{most} of {unwatched[most]['steps']} steps of rank {unwatched[most]['rank']} were "
                      "of no model that was watched: before the rank joined, or of too many models")
    if not problems and (unseen := uncounted(run)):
        return None, unseen
    return judged(problems, f"{exchanges} exchanges for {steps} steps of all ranks", proven=steps > 0)


def no_look(run: Run, tables: Sequence[Checked]) -> str:
    """Of which model the gradients were not looked at, or at its first exchanges alone, and why; "" if all were.

    A look at which a rank's gradient is zero, or those of all others, does not speak for that rank.
    """
    if reason := blind(run):
        return NOT_CLAIMED + reason
    models = [model for end in ends(run).values() for model in models_of(end) if model.whole("steps")]
    looks, shown = dict[int, int](), dict[tuple[int, int], int]()
    for checked in tables:
        compared = checked.compared
        for rank, record in checked.rows.items():
            number, step = record.whole("epoch"), record.whole("step")
            looks[number] = max(looks.get(number, 0), step)
            if rank in compared:
                shown[number, rank] = max(shown.get((number, rank), 0), step)
    reason = "" if models else "no step of an optimizer of torch was seen"
    for model in models:
        number, last = model.whole("model"), looks.get(model.whole("model"), 0)
        own = shown.get((number, model.whole("rank")), 0)
        if last and model.whole("exchanges") < LATE * own:
            continue
        if own < last:
            reason = (f"after exchange {own} of {model['exchanges']}, the gradient of rank {model['rank']} or those of "
                      f"all others were zero whenever anybody looked (model {number})")
        elif last:
            reason = f"nobody looked at model {number} after exchange {last} of {model['exchanges']}"
        elif model.get("whole") is False:
            reason = f"gradients are exchanged within a part of the ranks (model {number})"
        elif sum(bool(each.get("sharded")) for each in models) > len(ends(run)):
            reason = "an exchange does not name its model, and several models are sharded"
        else:
            reason = f"no exchange of gradients could be looked at (model {number})"
        break
    return NOT_CLAIMED + reason if reason else ""


def factor(after: Sequence[Sequence[float]], means: Sequence[float]) -> float:
    """By which number a script's own exchange multiplies the mean, at best: a sum has the number of ranks.

    A script may divide its loss instead of the sum, and clip gradients before it uses them.

    >>> factor([[3.0, -6.0, 9.0, 0.0]], [1.0, -2.0, 3.0, 0.0])
    3.0
    """
    square = sum(mean * mean for mean in means)
    along = sum(x * mean for x, mean in zip(after[0], means, strict=True))
    return along / square if square and along > 0 else 1.0


def hook_dtype(record: Record) -> str:
    """The type in which a rank's gradients were exchanged."""
    hooks = record.get("hooks")
    names = hooks if isinstance(hooks, list) else []
    return next((HOOK_DTYPES[name] for name in names if name in HOOK_DTYPES), record.text("dtype"))


def weights_agree(run: Run) -> Judgement:
    """Wherever weights were read, those ranks that have them have the same."""
    reads: dict[tuple[int, int, bool], dict[int, str]] = {}
    parts, changed = set[int](), set[tuple[int, int]]()  # models in parts; and models that a rank's script changed last
    for record in run.of("weights"):
        key = record.whole("epoch"), record.whole("step"), bool(record["last"])
        reads.setdefault(key, {})[record.whole("rank")] = record.text("parameters")
        if record.get("part") is True:
            parts.add(record.whole("epoch"))
        if record["last"] and record.get("changed") is True:
            changed.add((record.whole("epoch"), record.whole("rank")))
    # A script may load its best weights, or averaged ones, on one rank alone: nothing trains on them.
    for (model, _, last), hashes in reads.items():
        if last and (others := hashes.keys() - {rank for number, rank in changed if number == model}):
            for rank in hashes.keys() - others:
                del hashes[rank]
    reason = blind(run)
    problems = [f"{len(set(hashes.values()))} different sets of weights after exchange {step} of model {model}"
                for (model, step, _), hashes in reads.items() if model not in parts and len(set(hashes.values())) > 1]
    final = {model for (model, _, last), hashes in reads.items() if last and hashes.keys() >= run.chains.keys()}
    problems += [f"rank {rank} does not show its weights after exchange {step} of model {model}"
                 for (model, step, last), hashes in reads.items() if not last and not reason
                 for rank in sorted(run.chains.keys() - hashes.keys())]
    for model in sorted({model for model, _, _ in reads}):
        looks = [hashes for (number, _, last), hashes in sorted(reads.items()) if number == model and not last]
        if len(looks) > 1 and set(looks[0].values()) == set(looks[-1].values()):
            problems.append(f"the weights of model {model} never changed: nothing was learned")
    if not reads or (reason and not problems):
        return None, NOT_CLAIMED + (reason or "no rank held all weights when they could be read")
    stepped = {model.whole("model") for end in ends(run).values() for model in models_of(end) if model.whole("steps")}
    if not problems and (missing := sorted(stepped - {model for model, _, _ in reads})):
        return None, f"{NOT_CLAIMED}the weights of model {listed(missing)} were not read"
    if not problems and parts >= {model for model, _, _ in reads}:
        return None, f"{NOT_CLAIMED}each rank holds a part of the weights, which no other has"
    unread = sorted({model for model, _, _ in reads} - final)
    note = f"; not at the end: model {listed(unread)} was gone or changed by then" if unread else ", the end included"
    return judged(problems, f"the same on every rank, read {counted(len(reads), 'time')}{note}")
