"""Each rule of the admission, taken out on the live cluster: what refuses by it must then be seen to fail.

GANGPLANK_FULL=1 takes out every one, else a sample. All is asked as a dry run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.teams.admission import PATHS, POD_QUEUES, REFUSALS, Path, policy
from tests.teams_live import answer, until
from tests.teams_ways import WHERE, Subject, group, subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.kube import Kube

Json = dict[str, Any]
Mutant = tuple[str, "Callable[[Path], Json]", "Callable[[Subject], bool]"]  # name, policy of a path, who then passes
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gangplank-team-{}"
POD_RULES = {what for _, what, _, _ in REFUSALS} - {"queue"}


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


def of_job(rule: str) -> Callable[[Subject], bool]:
    """Volcano's own fields beside those of pods."""
    return lambda subject: subject.name.endswith((f": {rule} of the job", f"PodGroup: {rule}"))


FIRST, SECOND = POD_QUEUES
MUTANTS: tuple[Mutant, ...] = (
    *((f"no rule about {row[1]}", without_rule(at), of_rule(row[1])) for at, row in enumerate(REFUSALS)),
    ("no queues", without_part("queues"), of_rule("queue")),
    (
        "no pods",
        without_part("templates"),
        lambda subject: subject.rule in POD_RULES and not of_job(subject.rule)(subject),
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
    ("no init containers", without_text(("initContainers", "none")), named("pod: image of an init container")),
)
SAMPLE = MUTANTS if os.environ.get("GANGPLANK_FULL") else MUTANTS[1::6]


@pytest.fixture
def put(kube: Kube) -> Iterator[Callable[[Callable[[Path], Json]], None]]:
    """Put other policies in the place of all; the right ones stand again afterwards, and are obeyed."""

    def write(made: Callable[[Path], Json]) -> None:
        for path in PATHS:
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
