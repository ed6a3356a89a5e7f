"""Each rule of the admission, taken out on the live cluster: what refuses by it must then be seen to fail.

Of what is smaller than a rule it is a sample, unless GANGPLANK_FULL=1. All is asked as a dry run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends.queueing import VOLCANO
from gangplank.teams.admission import MARKS, REFUSALS, paths, policy
from tests.support.teams_live import answer, until
from tests.support.teams_ways import BATCH, POD_FIELDS, WHERE, Subject, group, subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.backends.admission import Path
    from gangplank.cluster.client import Kube

Json = dict[str, Any]
Mutant = tuple[str, "Callable[[Path], Json]", "Callable[[Subject], bool]"]  # name, policy of a path, who then passes
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gangplank-team-{}"
POD_RULES = {rule for rule, _, _, _ in POD_FIELDS}
OF_PODS = " of its pods"  # what a subject's name ends with that is about the pods of an object, not about itself


def without_rule(number: int) -> Callable[[Path], Json]:
    """Every policy without one of its validations."""

    def made(path: Path) -> Json:
        found = policy(path)
        del found["spec"]["validations"][number]
        return found

    return made


def without_part(name: str) -> Callable[[Path], Json]:
    """Every policy that does not look at one part of an object."""
    return lambda path: policy(replace(path, **{name: "[]"}))


def without_text(*rows: tuple[str, str]) -> Callable[[Path], Json]:
    """Every policy with some text of its expressions left out or changed."""

    def made(path: Path) -> Json:
        found = policy(path)
        for variable in found["spec"]["variables"]:
            for old, new in rows:
                variable["expression"] = variable["expression"].replace(old, new)
        return found

    return made


def of_rule(rule: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.rule == rule


def named(*words: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.name in words


def ending(*words: str) -> Callable[[Subject], bool]:
    return lambda subject: subject.name.endswith(words)


def of_job(rule: str) -> Callable[[Subject], bool]:
    """Volcano's own fields beside those of pods."""
    return lambda subject: subject.name.endswith((f": {rule} of the job", f"PodGroup: {rule}"))


FIRST, SECOND = VOLCANO.annotations
MUTANTS: tuple[Mutant, ...] = (
    *((f"no rule about {row[1]}", without_rule(at), of_rule(row[1])) for at, row in enumerate(REFUSALS)),
    ("no image volumes", without_text(("t.spec.?volumes", "t.spec.?none")), ending("image of a volume")),
    ("no queues", without_part("queues"), of_rule("queue")),
    (
        "no pods",
        without_part("templates"),
        lambda subject: (
            ending(OF_PODS)(subject)
            or (subject.rule in POD_RULES and not of_job(subject.rule)(subject) and subject.name != "TrainJob: image")
        ),
    ),
    ("no schedulers of jobs", without_part("schedulers"), of_job("scheduler")),
    ("no priorities of jobs", without_part("priorities"), of_job("priority")),
    (
        "no first annotation",
        without_text((f"'{FIRST}', ", "")),
        lambda subject: (
            subject.rule == "queue"
            and subject.policy in {"pods", "jobs", "cronjobs", "workloads"}
            and subject.name != "pod by job key: queue"
        ),
    ),
    ("no second annotation", without_text((f", '{SECOND}'", "")), named("pod by job key: queue")),
    ("no patches of a TrainJob", without_text(("runtimePatches", "none")), named("TrainJob by a patch: queue")),
    ("no TrainJob's own", without_text(("[object.metadata, object.spec]", "[object.spec]")), named("TrainJob: queue")),
    ("no image of a TrainJob", without_part("images"), named("TrainJob: image")),
    ("no kind of target", without_text(("object.?target.?kind.orValue('')", "'Job'")), ending(f"{BATCH} Queue")),
    (
        "no API of a target",
        without_text(("object.?target.?apiVersion.orValue('')", f"'{BATCH}'")),
        named("Command: batch/v1 Job"),
    ),
    (
        "no type of a Service",
        without_text(("object.spec.?type", "object.spec.?none")),
        ending("type: NodePort", "type: LoadBalancer"),
    ),
    *(
        (f"no {field} of a Service", without_text((f"object.spec.?{field}", "object.spec.?none")), ending(text))
        for field, text in (
            ("externalName", "externalName: api.example.com"),
            ("loadBalancerIP", "loadBalancerIP: 198.18.0.1"),
        )
    ),
    *(
        (
            f"no marks in {part}",
            without_text((f"k in o.?metadata.?{part}.orValue({{}})", "false")),
            ending(f"in {part}"),
        )
        for part in ("annotations", "labels")
    ),
    *((f"no mark {mark}", without_text((f"'{mark}'", "'none'")), ending(f"{mark} in annotations")) for mark in MARKS),
    (
        "no marks of an object itself",
        without_text(("[object] + variables.templates", "variables.templates")),
        lambda subject: (
            subject.rule == "annotation or label" and subject.policy != "pods" and not ending(OF_PODS)(subject)
        ),
    ),
    ("no init containers", without_text(("initContainers", "none")), named("pod: image of an init container")),
)
SAMPLE = MUTANTS if os.environ.get("GANGPLANK_FULL") else (*MUTANTS[: len(REFUSALS)], *MUTANTS[len(REFUSALS) :: 6])


@pytest.fixture
def put(kube: Kube) -> Iterator[Callable[[Callable[[Path], Json]], None]]:
    """Put other policies in the place of all; the right ones stand again afterwards, and are obeyed."""

    def write(made: Callable[[Path], Json]) -> None:
        for path in paths():
            kube.call("PATCH", POLICIES.format(path.name), {"spec": made(path)["spec"]})

    yield write
    write(policy)
    until(lambda: not [item for item in subjects() if passes(kube, item)], "everything is refused again")


def passes(kube: Kube, subject: Subject) -> bool:
    """Whether something is not refused for what it has to be refused for."""
    return subject.told not in answer(kube, "POST", subject.where, subject.manifest, dryRun="All")


@pytest.mark.usefixtures("crds", "admin")
@pytest.mark.parametrize(("made", "who"), [row[1:] for row in SAMPLE], ids=[row[0] for row in SAMPLE])
def test_a_rule_that_is_taken_out_is_missed_by_every_way_that_needs_it(
    kube: Kube,
    put: Callable[[Callable[[Path], Json]], None],
    made: Callable[[Path], Json],
    who: Callable[[Subject], bool],
) -> None:
    asked = [item for item in subjects() if who(item)]
    assert asked
    put(made)
    until(lambda: all(passes(kube, item) for item in asked), ", ".join(item.name for item in asked))


@pytest.mark.usefixtures("crds", "admin")
def test_a_pod_group_moves_where_changes_are_not_judged(
    kube: Kube, put: Callable[[Callable[[Path], Json]], None]
) -> None:
    kube.call("POST", WHERE["PodGroup"], group("vision"))

    def blind(path: Path) -> Json:
        found = policy(path)
        found["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["CREATE"]
        return found

    try:
        put(blind)
        other = {"spec": {"queue": "speech"}}
        until(lambda: not answer(kube, "PATCH", f"{WHERE['PodGroup']}/probe", other, dryRun="All"), "it moves")
    finally:
        kube.call("DELETE", f"{WHERE['PodGroup']}/probe")
