"""Each rule of the admission is removed on the live cluster: what it refused must then pass.

Parts smaller than a rule are sampled, and one kind stands for all, except in the sweep. All requests are dry runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends.pod_template import JOB_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM, VOLCANO
from gangplank.cluster.client import Kube
from gangplank.teams.admission import CHANGED, DELETIONS, GUARDS, deletions, paths, policy
from gangplank.teams.census import load
from gangplank.teams.conditions import ASKS_FOR_GPUS, BY_TYPE, MOST_AMOUNT, OTHER_VARIABLES, PREFERRED, REQUIRED, quoted
from gangplank.teams.rules import RULES
from tests.support.sweeps import sweeping
from tests.support.teams_fields import ELSEWHERE, OWNER
from tests.support.teams_live import allowing_admin_access, answer, pod, until
from tests.support.teams_ways import (
    ADMIN_ACCESS,
    BATCH,
    CONFIG_MAPS,
    POD_FIELDS,
    TEMPLATES,
    WAYS,
    WHERE,
    Violation,
    violations,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.backends.base import Path

Json = dict[str, Any]
Mutant = tuple[str, "Callable[[Path], Json]", Callable[[Violation], bool]]  # name, builder of a policy, what passes
Builder = Callable[["Path"], Json]
Selected = Sequence[Violation]
Passes = Callable[[Violation], bool]
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gangplank-team-{}"
POD_RULES = {rule for rule, _, _, _ in POD_FIELDS}
PATCHES = ("JobFlow", "TrainJob by a patch of pods")  # names of ways whose pods are patches of other pods
BY_THE_API_SERVER = "ExactDeviceRequest.adminAccess"  # which refuses it too, except in namespaces with a label
OF_PODS = " of its pods"  # ends the name of a violation that is in the pods of an object, not in the object itself


def without_rule(number: int) -> Callable[[Path], Json]:
    """Every policy without one of its validations."""

    def build(path: Path) -> Json:
        mutant = policy(path)
        del mutant["spec"]["validations"][number]
        return mutant

    return build


def without_part(name: str) -> Callable[[Path], Json]:
    """Every policy, blind to one part of an object."""
    blind: dict[str, Any] = {name: "[]"}
    return lambda path: policy(replace(path, **blind))


def without_text(*rows: tuple[str, str]) -> Callable[[Path], Json]:
    """Every policy with some text of its expressions removed or changed."""

    def build(path: Path) -> Json:
        mutant = policy(path)
        for variable in mutant["spec"]["variables"]:
            for old, new in rows:
                variable["expression"] = variable["expression"].replace(old, new)
        return mutant

    return build


def of_rule(rule: str) -> Callable[[Violation], bool]:
    return lambda violation: violation.rule == rule


def named(*words: str) -> Callable[[Violation], bool]:
    return lambda violation: violation.name in words


def ending(*words: str) -> Callable[[Violation], bool]:
    return lambda violation: violation.name.endswith(words)


def own_domains(part: str) -> Callable[[Violation], bool]:
    """Objects with an annotation or a label of their own; a pod is judged a second time, as what templates make."""
    return lambda item: (
        item.rule == "annotation or label" and item.name.endswith(f" {part}") and item.policy != "pods"
    )


def placed(field: str, *texts: str) -> Callable[[Violation], bool]:
    """Pods with a hostile field, in whose manifests all these texts are."""
    return lambda item: item.field.startswith(field) and all(text in str(item.manifest) for text in texts)


def of_job(rule: str) -> Callable[[Violation], bool]:
    """Volcano's own fields, in addition to those of pods."""
    return lambda violation: violation.name.endswith((f": {rule} of the job", f"PodGroup: {rule}"))


FAULTS = {  # that a rule is the fix of
    "target": "(A1)",
    "exposure": "(A2)",
    "resource": "(A3)",
    "mark": "(A4)",
    "grace period": "(A4)",
    "image": "(A5)",
    "environment variable": "(A6)",
    "runtime class": "(A6)",
    "toleration": "(A7)",
    "node label": "(A7)",
    "secret": "(A8)",
    "finalizer": "(A11)",
    "label": "(A13)",
    "owner": "(A13)",
}
FIRST, SECOND = VOLCANO.annotations
MUTANTS: tuple[Mutant, ...] = (
    *(
        (f"no rule about {rule.name} {FAULTS.get(rule.name, '')}".strip(), without_rule(index), of_rule(rule.name))
        for index, rule in enumerate(RULES)
    ),
    ("no image volumes", without_text(("has(v.image)", "false")), ending("image of a volume")),
    ("no queues", without_part("queues"), of_rule("queue")),
    (
        "no pods",
        without_part("templates"),
        lambda violation: (
            not violation.name.startswith(PATCHES)
            and (
                ending(OF_PODS, " in its pods")(violation)
                or (
                    violation.rule in POD_RULES
                    and not of_job(violation.rule)(violation)
                    and violation.name != "TrainJob: image"
                )
            )
        ),
    ),
    ("no schedulers of jobs", without_part("schedulers"), of_job("scheduler")),
    ("no priorities of jobs", without_part("priorities"), of_job("priority")),
    (
        "no first annotation",
        without_text((f"'{FIRST}', ", "")),
        lambda violation: (
            violation.rule == "queue"
            and violation.policy in {"pods", "jobs", "cronjobs", "workloads"}
            and violation.name != "pod by job key: queue"
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
    (
        "no address of a Service",
        without_text(("'f:clusterIP'", "'f:none'"), ("'f:clusterIPs'", "'f:none'")),
        ending("Service: clusterIP", "Service: clusterIPs"),
    ),
    (
        "no address of a Service without owners",
        without_text(("managedFields.orValue([]).size() == 0", "managedFields.orValue([]).size() < 0")),
        ending("Service: clusterIP without owners"),
    ),
    *(
        (
            f"no marks in {part}",
            without_text((f"k in o.?metadata.?{part}.orValue({{}})", "false")),
            ending(f"in {part}"),
        )
        for part in ("annotations", "labels")
    ),
    *(
        (f"no mark {mark}", without_text((f"'{mark}'", "'none'")), ending(f" {mark} in annotations"))
        for mark in QUEUE_SYSTEM.marks
    ),
    (
        "no marks of an object itself",
        without_text(("[object].map(o, ['volcano", "[{'metadata': {}}].map(o, ['volcano")),
        lambda violation: (
            violation.rule == "mark" and violation.policy != "pods" and not ending(OF_PODS)(violation)
        ),
    ),
    (
        "no patches",
        without_part("patches"),
        lambda violation: (
            violation.name.startswith(PATCHES) and ending(" in its pods", OF_PODS)(violation)
        ),
    ),
    ("no copied metadata", without_part("inner"), lambda violation: "copied metadata" in violation.name),
    ("no amounts of an object", without_part("amounts"), ending(" below 0", " above 8P")),
    (
        "no most of an amount",
        without_text((f"quantity('{MOST_AMOUNT}')", "quantity('1e30')")),
        lambda violation: "above 8P" in violation.name,
    ),
    ("no variables of an object", without_part("variables"), ending(": variable")),
    ("no secrets of a TrainJob", without_part("secrets"), ending("secret of dataset", "secret of model")),
    (
        "no hidden variables",
        without_text(
            ("p.startsWith('NVIDIA_')", "false"), ("'NVIDIA_'.startsWith(p)", "false"), ("v.startsWith(p)", "false")
        ),
        ending("EnvFromSource.prefix"),
    ),
    (
        "no variables of other makers",
        without_text((f"n in {quoted(*OTHER_VARIABLES)}", "false")),
        lambda v: placed("EnvVar.name", "'HABANA_")(v) or ending(f"{OTHER_VARIABLES[0]}: variable")(v),
    ),
    ("no projected Secrets", without_text((".?projected", ".?none")), ending("SecretProjection.name")),
    ("no Secrets of volumes", without_text((".?secretName", ".?none")), ending("SecretVolumeSource.secretName")),
    ("no Secrets of variables", without_text((".?secretKeyRef", ".?none")), ending("SecretKeySelector.name")),
    (
        "no Secrets of environments",
        without_text((".?secretRef.?name.orValue('')", ".?none.orValue('')")),
        ending("SecretEnvSource.name"),
    ),
    *(
        (
            f"no {when.partition('During')[0]} {part}",
            without_text((f"affinity.?{part}.?{when}", f"none.?{part}.?{when}")),
            placed("PodAffinityTerm.", f"'{part}'", when),
        )
        for part in ("podAffinity", "podAntiAffinity")
        for when in (REQUIRED, PREFERRED)
    ),
    *(
        (
            f"no {when.partition('During')[0]} nodeAffinity",
            without_text((f".?nodeAffinity.?{when}", f".?none.?{when}")),
            placed("NodeSelectorRequirement.", "nodeAffinity", when),
        )
        for when in (REQUIRED, PREFERRED)
    ),
    *(
        (f"no {part} of a node", without_text((f"m.?{part}", "m.?none")), placed("NodeSelectorRequirement.", part))
        for part in ("matchExpressions", "matchFields")
    ),
    *(
        (f"no grace period of a {probe}Probe", without_text((f"c.?{probe}Probe", "c.?none")),
         placed("Probe.terminationGracePeriodSeconds", f"{probe}Probe"))
        for probe in ("liveness", "startup")
    ),
    (
        "no GPUs for NVIDIA's variables",
        without_text((f" && {ASKS_FOR_GPUS}", "")),
        placed("EnvVar.name", "NVIDIA_DRIVER_CAPABILITIES"),
    ),
    (
        "no value of NVIDIA_VISIBLE_DEVICES",
        without_text((" && e.?value.orValue('') == 'void'", "")),
        lambda v: placed("EnvVar.name", "'all'", "'void'")(v) or placed("Toleration.key", "'value': 'none'")(v),
    ),
    (
        "no jobs' labels",
        without_text((f"labels[?'{JOB_LABEL}']", "labels[?'none']")),
        lambda violation: JOB_LABEL in violation.message,
    ),
    (
        "no finalizers of an object itself",
        without_text(("object.metadata.?finalizers.orValue([]).filter(f, ", "[''].filter(f, f != '' && ")),
        lambda violation: violation.rule == "finalizer" and not ending(OF_PODS)(violation),
    ),
    *(
        (
            f"no domains in {part} of an object itself",
            without_text((f"object.metadata.?{part}.orValue({{}}).filter(k, k", "{'a': ''}.filter(k, k")),
            own_domains(part),
        )
        for part in ("annotations", "labels")
    ),
    ("no node affinity", without_text((".?nodeAffinity", ".?none")), lambda v: ": NodeSelectorReq" in v.name),
    (
        "no node selector",
        without_text(("o.?spec.?nodeSelector", "o.?spec.?none")),
        ending("PodSpec.nodeSelector", ": node label in its pods"),
    ),
    (
        "large pods on GPU nodes",
        without_text(("quantity('64Mi')", "quantity('64Gi')"), ("quantity('100m')", "quantity('100')")),
        lambda v: "Toleration.key" in v.name and any(text in str(v.manifest) for text in ("65Mi", "101m")),
    ),
    ("no effect of a toleration", without_text((" == 'NoExecute'", " != 'x'")), ending("Toleration.effect")),
    (
        "no other teams' labels",
        without_text(("v != variables.team", "false")),
        lambda violation: "gangplank.dev/team" in violation.message,
    ),
    *(
        (f"no field {field}", without_text((f".?{field.name}.hasValue()", ".?none.hasValue()")), ending(str(field)))
        for field in load().with_verdict("refused")
        if str(field) not in {*ELSEWHERE, "ResourceRequirements.claims", BY_THE_API_SERVER}
        and field.type != "FlowProbe"
    ),
    *(
        (
            f"no volume type {field.name}",
            without_text((f"v.?{field.name}.hasValue() ? ", "false ? ")),
            named(f"Volcano Job: {field}"),
        )
        for field in load().with_verdict(BY_TYPE)
    ),
    ("no init containers", without_text(("initContainers", "none")), named("pod: image of an init container")),
)
ALL = sweeping("mutants")
SAMPLE = MUTANTS if ALL else (*MUTANTS[: len(RULES)], *MUTANTS[len(RULES) :: 6])


@pytest.fixture
def passes(kube: Kube, as_member: Callable[[str, str], Kube]) -> Passes:
    """Whether something is not refused with its own message, to who posts it."""
    posters = {"": kube} | {member: as_member("vision", member) for member in ("ada", "bob")}

    def ask(item: Violation) -> bool:
        return item.message not in answer(posters[item.poster], "POST", item.where, item.manifest, dryRun="All")

    return ask


@pytest.fixture
def put(kube: Kube, passes: Passes) -> Iterator[Callable[[Builder, Selected], None]]:
    """Replace all policies; afterwards the right ones are restored, and what they let pass is refused again."""
    let_pass: list[Violation] = []
    changed: list[Path] = []

    def write(build: Builder, selected: Selected = ()) -> None:
        let_pass.extend(selected)
        names = {item.policy for item in selected} or {path.name for path in paths()}
        changed.extend(path for path in paths() if path.name in names and build(path) != policy(path))
        for path in changed:
            kube.call("PATCH", POLICIES.format(path.name), {"spec": build(path)["spec"]})

    yield write
    for path in changed:
        kube.call("PATCH", POLICIES.format(path.name), {"spec": policy(path)["spec"]})
    until(lambda: not [item for item in let_pass if passes(item)], "everything is refused again")


def test_without_its_rule_admin_access_passes_where_the_namespace_allows_it(
    kube: Kube, as_member: Callable[[str, str], Kube], put: Callable[[Builder, Selected], None]
) -> None:
    bob, field = as_member("vision", "bob"), BY_THE_API_SERVER.rpartition(".")[2]
    mutant = without_text((f".?{field}.hasValue()", ".?none.hasValue()"))
    put(mutant, [item for item in violations() if item.field == BY_THE_API_SERVER])
    with allowing_admin_access(kube, "vision"):
        until(lambda: answer(bob, "POST", TEMPLATES, ADMIN_ACCESS, dryRun="All") == "", BY_THE_API_SERVER)


@pytest.mark.usefixtures("crds", "admin")
@pytest.mark.parametrize(("build", "selects"), [row[1:] for row in SAMPLE], ids=[row[0] for row in SAMPLE])
def test_without_a_rule_every_violation_of_it_passes(
    passes: Passes,
    put: Callable[[Builder, Selected], None],
    build: Builder,
    selects: Callable[[Violation], bool],
) -> None:
    selected = [item for item in violations() if selects(item)]
    assert selected
    if not ALL:  # one policy is enough to see that the rule is what refuses
        selected = [item for item in selected if item.policy == selected[0].policy]
    put(build, selected)
    until(lambda: all(passes(item) for item in selected), ", ".join(item.name for item in selected))


def job_template() -> Json:
    return next(build for name, _, build, _ in WAYS if name == "JobTemplate")("vision")


MARK = {"volcano.sh/preemptable": "false"}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe", "namespace": "vision"}}
# What a member does to an object that was accepted, by the part that is compared before an object is judged again
CHANGES: dict[str, tuple[str, Json, Json]] = {
    "object.?spec": (WHERE["JobTemplate"], job_template(), {"spec": {"queue": "speech"}}),
    "object.?data": (CONFIG_MAPS, CONFIG_MAP, {"data": {"NVIDIA_VISIBLE_DEVICES": "all"}}),
    "object.metadata.?annotations": (WHERE["JobTemplate"], job_template(), {"metadata": {"annotations": MARK}}),
    "object.metadata.?labels": (WHERE["JobTemplate"], job_template(), {"metadata": {"labels": MARK}}),
    "object.metadata.?finalizers": (CONFIG_MAPS, CONFIG_MAP, {"metadata": {"finalizers": ["a.b/c"]}}),
    "object.metadata.?ownerReferences": (CONFIG_MAPS, CONFIG_MAP, {"metadata": {"ownerReferences": [OWNER]}}),
}


def uncompared(part: str) -> Builder:
    """Every policy, blind to changes of one part of an object."""
    (clause,) = [text for text in CHANGED.split(" || ") if text.startswith((f"{part} ", f"{part}."))]
    return without_text((clause, "false"))


def test_every_part_that_is_compared_has_a_change() -> None:
    assert CHANGED.count(" || ") + 1 == len(CHANGES)
    assert all(uncompared(part) for part in CHANGES)


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("part", CHANGES if ALL else [*CHANGES][1::2])
def test_without_a_comparison_a_hostile_change_passes(
    kube: Kube,
    as_member: Callable[[str, str], Kube],
    put: Callable[[Builder], None],
    part: str,
) -> None:
    bob, (where, manifest, patch) = as_member("vision", "bob"), CHANGES[part]

    def reply() -> str:
        return answer(bob, "PATCH", f"{where}/probe", patch, dryRun="All")

    kube.call("POST", where, manifest)  # some kinds are created by administrators alone
    try:
        assert " is not one of its " in reply()
        put(uncompared(part))
        until(lambda: not reply(), f"a change of {part} passes")
    finally:
        kube.call("DELETE", f"{where}/probe")


def test_a4_without_the_rule_of_deletions_a_pod_is_deleted_slowly(
    kube: Kube, as_member: Callable[[str, str], Kube], start_pod: Callable[[Json, Callable[[Json], bool]], str]
) -> None:
    bob, slowly = as_member("vision", "bob"), {"dryRun": ["All"], "gracePeriodSeconds": 10**7}
    where = start_pod(pod("slow", "vision", "vision", "sleep", "600"), lambda status: status["phase"] == "Running")
    rule, place = deletions()[DELETIONS]["spec"], POLICIES.format(DELETIONS)

    def reply() -> str:
        return answer(bob, "DELETE", where, slowly)

    assert 'grace period "10000000" is not one of its gracePeriods' in reply()
    try:
        kube.call("PATCH", place, {"spec": {"validations": [{"expression": "true"}]}})
        until(lambda: not reply(), "it is deleted slowly")
    finally:
        kube.call("PATCH", place, {"spec": rule})
        until(reply, "it is refused again")


def test_without_the_guard_a_job_removes_the_network_policy_of_its_name(kube: Kube) -> None:
    """Nobody but Volcano's controller deletes one for a member, so this asks in its name."""
    controller, dry = Kube(), {"dryRun": ["All"]}
    controller.api.set_default_header("Impersonate-User", "system:serviceaccount:volcano-system:volcano-controllers")
    rule, place = deletions()[GUARDS]["spec"], POLICIES.format(GUARDS)
    where = "/apis/networking.k8s.io/v1/namespaces/vision/networkpolicies/gangplank-nothing"

    def reply() -> str:
        return answer(controller, "DELETE", where, dry)

    assert 'network policy "gangplank-nothing" belongs to no job' in reply()
    try:
        kube.call("PATCH", place, {"spec": {"validations": [{"expression": "true"}]}})
        until(lambda: not reply(), "the controller removes it")
    finally:
        kube.call("PATCH", place, {"spec": rule})
        until(reply, "it is refused again")
