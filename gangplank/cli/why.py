"""The commands why and fit: why a job does not run, and whether one would start. They change nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends import submitted_kinds
from gangplank.cli import inputs, terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cluster.client import FORBIDDEN
from gangplank.cluster.situation import asked, situation
from gangplank.errors import KubeError, Problem
from gangplank.scheduling.demand import UNFORESEEN
from gangplank.scheduling.fit import Answer, Verdict
from gangplank.scheduling.fit import fit as answer_of
from gangplank.scheduling.remedy import Remedy, remedy, steps
from gangplank.scheduling.rest import rest
from gangplank.scheduling.why import Diagnosis, Situation, diagnose
from gangplank.shadow.exact import Exact, exact
from gangplank.text import listed, plain_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json


def why(args: argparse.Namespace) -> int:
    """Say why a job does not run."""
    kube = cluster_of(args)
    chosen = meant(kube, args)
    if isinstance(chosen, Unread):
        return chosen.said(args, Diagnosis(chosen.name, "cannot tell", missing=(chosen.reason,)).fields())
    now = situation(kube, chosen.job, live=chosen.live, others=chosen.others)
    diagnosis = diagnose(now)
    text = json.dumps(diagnosis.fields(), indent=2) if args.output == "json" else plain_lines(diagnosis.text())
    print(text)
    unsure = diagnosis.missing and not diagnosis.proven
    return terminal.CANNOT_TELL if unsure else terminal.OK


def fit(args: argparse.Namespace) -> int:
    """Say whether a job would start now, or what of it has no node yet."""
    options = {"--programs": args.programs, "--scheduler-config": args.scheduler_config}
    if (idle := [name for name, value in options.items() if value is not None]) and not args.exact:
        problem = Problem(listed(idle), "no --exact", "--exact beside it", f"add --exact, or leave out {listed(idle)}")
        raise terminal.UsageError(str(problem))
    kube = cluster_of(args)
    chosen = meant(kube, args)
    if isinstance(chosen, Unread):
        unread = Answer(Verdict.CANNOT_TELL, missing=(chosen.reason,))
        return chosen.said(args, fields(chosen.name, unread) | {"ends": []})
    now = situation(kube, chosen.job, live=chosen.live, others=chosen.others)
    way: Remedy | None = None
    if args.exact:
        _, objects = asked(kube, chosen.job, chosen.others)
        result = exact(kube, now, objects, args.programs, args.scheduler_config)
    else:
        now = rest(now)
        unknown = Answer(Verdict.CANNOT_TELL, missing=(UNFORESEEN,))
        own = answer_of(now.demand, now.state, dict(now.held)) if now.demand else unknown
        if now.refusals:  # which no change of the state takes away
            own = Answer(Verdict.NO, causes=(*now.refusals, *own.causes), missing=own.missing)
            way = Remedy(own.causes, enough=False)
        elif now.demand and own.causes:
            way = remedy(now.demand, now.state, own.causes, dict(now.held))
        result = Exact(own, own.ended)
    answer = result.answer
    if args.output == "json":
        more = {"answered_by": result.answered_by} if args.exact else {}
        more |= {"standing": now.standing} if now.standing else {}
        print(json.dumps(fields(now.name, answer, way) | {"ends": list(result.ended)} | more, indent=2))
    else:
        print(written(now, answer, result.ended, result.answered_by, way))
    codes = {Verdict.YES: terminal.OK, Verdict.NO: terminal.NO, Verdict.CANNOT_TELL: terminal.CANNOT_TELL}
    return codes[answer.verdict]


def written(
    now: Situation, answer: Answer, ended: Sequence[str] = (), answered_by: str = "", way: Remedy | None = None
) -> str:
    """An answer as text, which says how far the job has come if only the rest of it was asked about."""
    if answer.verdict is Verdict.YES:
        placement = sorted(answer.nodes.items())
        lines = [f"{now.name}: yes, {now.would}", *(f"  {pod} on {node}" for pod, node in placement)]
        lines += [f"  its scheduler would end {pod} for it" for pod in ended]
    else:
        standing = now.waits("")
        lines = [f"{now.name}: {answer.verdict.value}" + (f", it {standing}" if standing else "")]
        lines += [f"  {cause.text}" for cause in answer.causes]
        lines += [f"  cannot tell: {text}" for text in answer.missing]
        lines += what_would_do(way or Remedy(answer.causes), rest=bool(standing))
    lines += [f"answered by: {answered_by}"] if answered_by else []
    return plain_lines("\n".join(lines))


def what_would_do(way: Remedy, *, rest: bool = False) -> list[str]:
    """The lines about what helps a job, or the rest of one that runs in part."""
    if way.enough:
        lines = steps("what would do", way.causes)
    else:
        lines = steps("what is needed, and perhaps more", way.causes, more="")
    pods = f"pod{'s' if way.pods > 1 else ''}"
    now = f"{way.pods} more {pods}" if rest else f"a job of {way.pods} {pods} (workers: {way.pods - 1})"
    return [*lines, f"what would start now: {now}"] if way.pods else lines


def fields(name: str, answer: Answer, way: Remedy | None = None) -> Json:
    """An answer as JSON."""
    return {
        "job": name,
        "fits": answer.verdict.value,
        "placement": dict(sorted(answer.nodes.items())),
        "causes": [{"cause": one.code, "text": one.text, "what_would_do": one.fix} for one in answer.causes],
        "cannot_tell": list(answer.missing),
        **({"needed": [one.code for one in way.causes], "enough": way.enough, "pods_now": way.pods} if way else {}),
    }


@dataclass(frozen=True)
class Meant:
    """The job that a file or a name means."""

    job: Json
    live: bool
    others: Sequence[Json]  # what its file submits beside it


@dataclass(frozen=True)
class Unread:
    """A job that may not be read."""

    name: str
    reason: str

    def said(self, args: argparse.Namespace, fields: Json) -> int:
        """Print that nobody can tell, as text or as these fields; the exit status."""
        text = plain_lines(f"{self.name}: cannot tell: {self.reason}")
        print(json.dumps(fields, indent=2) if args.output == "json" else text)
        return terminal.CANNOT_TELL


def meant(kube: Kube, args: argparse.Namespace) -> Meant | Unread:
    """The job that a file or a name means."""
    others: list[Json] = []
    job: Json | None = None
    own = kube.namespace_of(args.namespace)
    if inputs.is_path(args.job):
        others, jobs, other_kinds = inputs.gather([args.job], None, args.site, lambda: own, named=args.namespace)
        if not jobs:
            raise KubeError(str(inputs.jobless(args.job, other_kinds)))
        job = jobs[-1][1]
        name, namespace = job["metadata"]["name"], job["metadata"].get("namespace") or own
        job["metadata"]["namespace"] = namespace
        kinds = [(job["apiVersion"], job["kind"])]
    else:
        inputs.refuse_site(args)
        name, namespace, kinds = args.job, own, list(submitted_kinds())
    try:
        live = kube.find(namespace, name, kinds)
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return Unread(name, f"you may not read jobs in namespace {namespace}")
    if live is None and job is None:
        raise inputs.nothing(name, namespace, "its file")
    return Meant(live or job or {}, live is not None, others)
