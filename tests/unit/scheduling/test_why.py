"""why: the first line names one cause, proven by its removal; nobody is blamed for waiting or for being healthy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import UNFORESEEN, Demand, changed, edited
from gangplank.scheduling.fit import Answer, Verdict, fit
from gangplank.scheduling.pod_causes import waiting
from gangplank.scheduling.why import BUSY_S, Failure, Proof, Situation, diagnose, judged
from tests.unit.scheduling.states import cluster, job, node, pod, queue

Json = dict[str, Any]
CLOSED = (queue("root"), queue("default", state="Closed"))


def situation(**more: Any) -> Situation:
    return Situation("digits", **{"demand": job(), "state": cluster(), "age_s": 60.0, **more})


def own(index: int = 0, phase: str = "Running", **status: Any) -> Json:
    item = pod(f"digits-{index}", "a", namespace="vision")
    item["spec"]["containers"][0]["name"] = "pytorch"
    item["status"] = {"phase": phase, **status}
    return item


def running(*more: Json) -> tuple[Json, ...]:
    return (*more, *(own(index) for index in range(len(more), 3)))


def container(**state: Any) -> Json:
    return {"name": "pytorch", "image": "i:1", "state": state, "restartCount": 3}


def starved(code: int, *, now: Json | None = None, container_: Json | None = None, **spec: Any) -> Json:
    """A pod whose container ended on a node that was short of memory; `now` is what it does since."""
    end = {"terminated": {"reason": "OOMKilled", "exitCode": code}}
    item = own(containerStatuses=[{**container(), "state": now or end, "lastState": end if now else {}}])
    item["spec"] |= spec
    item["spec"]["containers"][0]["resources"] = container_ or {}
    return item


def waits(reason: str) -> Json:
    """A pod whose container waits."""
    return own(phase="Pending", containerStatuses=[container(waiting={"reason": reason})])


def event(reason: str, message: str, uid: str = "digits-0", kind: str = "Warning", at: int = 0, **more: Any) -> Json:
    """What happened to a pod, `at` seconds after noon."""
    when = {"lastTimestamp": f"2026-11-24T12:00:{at:02}Z"}
    return {"type": kind, "reason": reason, "message": message, "involvedObject": {"uid": uid}, **when, **more}


UNMOUNTED = event("FailedMount", 'MountVolume.SetUp failed for volume "data" : hostPath type check failed', at=1)
NO_SANDBOX = event(
    "FailedCreatePodSandBox",
    'Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "5f0c": plugin '
    'type="bridge" failed (add)',
    at=1,
)


def code(now: Situation) -> str | None:
    cause = diagnose(now).cause
    return cause.code if cause else None


@pytest.mark.parametrize(
    "now",
    [
        situation(pods=running(), phase="Running"),
        situation(pods=(), ended="succeeded", phase="Completed"),
        situation(pods=running(waits("ContainerCreating"))),
        situation(age_s=2.0, answered=False),
        situation(age_s=31.0, answered=False),
        situation(age_s=31.0, group={"status": {}}),
    ],
    ids=["running", "done", "starting", "new", "a busy controller", "a busy scheduler"],
)  # fmt: skip
def test_a_healthy_job_is_not_blamed(now: Situation) -> None:
    diagnosis = diagnose(now)
    assert diagnosis.cause is None
    assert diagnosis.first_line.startswith("digits: nothing is wrong")


def test_a_job_that_waits_for_others_waits() -> None:
    full = cluster(pods=(pod("x", "a", cpu="4"), pod("y", "b", cpu="4")))
    line = diagnose(situation(state=full)).first_line
    assert line.startswith("digits waits because 3 of its 3 pods have no place")


def test_a_proven_cause_comes_first_and_what_is_not_enough_alone_is_also() -> None:
    diagnosis = diagnose(situation(state=cluster(queues=CLOSED)))
    assert diagnosis.first_line == "digits does not start because its queue default is Closed"
    assert diagnosis.proven
    both = diagnose(situation(state=cluster(queues=CLOSED, quotas=(QUOTA,))))
    assert both.cause is not None
    assert both.cause.code == "quota"
    assert [cause.code for cause in both.also] == ["queue-closed"]


UNBOUND = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."


def test_what_a_scheduler_says_for_long_is_not_called_nothing() -> None:
    """Nothing is wrong, it said of a job that waited forever, for what is not computed here."""
    refused = own(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "message": UNBOUND}])
    del refused["spec"]["nodeName"]
    now = situation(pods=running(refused), age_s=600.0)
    diagnosis = diagnose(now)
    assert diagnosis.cause is None
    assert diagnosis.first_line == (
        "digits: it runs with 2 of 3 pods; digits-worker-1 would start now, as far as is computed here, after 600 s of "
        f"waiting; its scheduler says: {UNBOUND}"
    )
    assert "fit --exact" in diagnosis.missing[0]
    early = diagnose(dataclasses.replace(now, age_s=BUSY_S))
    assert (early.missing, "nothing is wrong" in early.first_line) == ((), True)


QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}, "status": {"used": {"pods": "0"}}}


def test_the_next_step_is_all_that_has_to_go_together_and_no_more() -> None:
    both = diagnose(situation(state=cluster(queues=CLOSED, quotas=(QUOTA,))))
    assert both.proven
    assert both.text().splitlines()[-3:] == [
        "next, together:",
        "  make the job smaller by 2 pods, or ask for a quota of 3 pods",
        "  open it: vcctl queue operate -n default -a open",
    ]
    assert both.fields()["needed"] == ["quota", "queue-closed"]
    assert both.fields()["next"] == "; ".join(cause.fix for cause in both.needed)


def test_a_cause_without_which_the_job_would_still_need_the_others_is_not_said_with_because() -> None:
    harmless = Cause("harmless", "a is odd", fix="leave it", removal=lambda job, state: (job, state))
    now = situation(state=cluster(queues=CLOSED, quotas=(QUOTA,)))
    causes = (harmless, *fit(job(), now.state).causes)
    diagnosis = judged(now, job(), Answer(Verdict.NO, causes=causes))
    assert diagnosis.proof is Proof.REMOVAL
    assert [cause.code for cause in diagnosis.needed] == ["quota", "queue-closed"]
    assert [cause.code for cause in diagnosis.also] == ["harmless", "queue-closed"]
    assert "leave it" not in diagnosis.text()


def test_the_next_step_is_the_first_cause_s_where_nothing_is_known_to_be_enough() -> None:
    unread = {"resourcequotas": "you may not list them"}
    diagnosis = diagnose(situation(state=cluster(queues=CLOSED, unread=unread)))
    assert (diagnosis.proof, [cause.code for cause in diagnosis.needed]) == (Proof.NONE, ["queue-closed"])


def test_what_is_not_proven_is_not_said_as_a_fact() -> None:
    unread = {"pods of all namespaces": "you may not list them"}
    diagnosis = diagnose(situation(state=cluster(queues=CLOSED, unread=unread)))
    assert not diagnosis.proven
    assert "cannot tell" in diagnosis.first_line
    assert diagnosis.missing == ("pods of all namespaces (you may not list them)",)


KEYS = {"secret": {"secretName": "keys"}}
CRASHED = {**container(waiting={"reason": "CrashLoopBackOff"}), "lastState": {"terminated": {"exitCode": 1}}}
POD_CASES: dict[str, tuple[Situation, str]] = {
    "image": (
        situation(pods=running(waits("ErrImagePull"))),
        "image",
    ),
    "secret": (situation(
        pods=running({**own(phase="Pending"), "spec": {**own()["spec"], "volumes": [KEYS]}}),
        absent={("Secret", "keys"): True},
    ), "secret"),
    "node lost": (
        situation(pods=running(), state=cluster({**node("a"), "status": {"allocatable": {}, "conditions": []}})),
        "node-lost",
    ),
    "controller": (situation(answered=False, age_s=11.0, unavailable=("a/b has no ready pod",)), "controller"),
    "controller that hangs": (situation(answered=False, age_s=61.0), "controller"),
    "suspended": (situation(suspended="it is suspended (spec.suspend is true)"), "suspended"),
    "scheduler": (situation(group={"status": {}}, age_s=61.0), "scheduler"),
    "evicted": (situation(ended="failed", pods=(own(phase="Failed", reason="Evicted", message="full"),)), "evicted"),
    "node shut down": (situation(ended="failed", failure=Failure("digits-0", "Error, exit code 143"), pods=(own(
        phase="Failed", reason="Terminated", message="Pod was terminated in response to imminent node shutdown.",
    ),)), "node-shutdown"),
    "memory": (situation(
        ended="failed", pods=(own(containerStatuses=[container(terminated={"reason": "OOMKilled", "exitCode": 137})]),)
    ), "memory"),
    "not memory, as it ended well on a node that was short of it": (situation(
        ended="failed", failure=Failure("digits-1", "exit code 7", status=7), pods=(starved(0),),
    ), "failed"),
    "not memory, as the script ended with a code of its own": (situation(
        ended="failed", failure=Failure("digits-0", "exit code 7", status=7), pods=(starved(1),),
    ), "failed"),
    "memory of a rank below its launcher": (situation(
        ended="failed", failure=Failure("digits-0", "signal 9", status=137), pods=(starved(1),),
    ), "memory"),
    "not memory, as that ended an earlier attempt": (situation(
        ended="failed", failure=Failure("digits-0", "exit code 7", status=7),
        pods=(starved(137, now={"terminated": {"reason": "Error", "exitCode": 7}}),),
    ), "failed"),
    "not memory of a pod that runs again": (situation(
        pods=running(starved(137, now={"running": {}}), own(1, containerStatuses=[CRASHED])),
    ), "crash"),
    "deadline": (situation(ended="failed", pods=(own(phase="Failed", reason="DeadlineExceeded"),)), "deadline"),
    "exit code": (situation(ended="failed", failure=Failure("rank 2 (digits-2)", "exit code 7", ("last",))), "failed"),
    "crash loop": (situation(pods=running(own(containerStatuses=[CRASHED]))), "crash"),
    "rendezvous": (situation(
        pods=running(own(containerStatuses=[CRASHED])), ranks=Cause("rendezvous", "a")
    ), "rendezvous"),
    "rendezvous that ended": (situation(
        ended="failed", failure=Failure("a", "exit code 1"), ranks=Cause("rendezvous", "a")
    ), "rendezvous"),
    "init container before a rendezvous": (situation(
        pods=running(own(phase="Pending", initContainerStatuses=[CRASHED])), ranks=Cause("rendezvous", "a")
    ), "crash"),
    "init container before a rendezvous that ended": (situation(
        ended="failed", failure=Failure("digits-0", "init container pytorch: Error, exit code 1"),
        pods=running(own(phase="Failed", initContainerStatuses=[container(terminated={"exitCode": 1})])),
        ranks=Cause("rendezvous", "a"),
    ), "failed"),
    "image of the second container": (situation(pods=running(own(phase="Pending", containerStatuses=[
        CRASHED, container(waiting={"reason": "ImagePullBackOff"}),
    ]))), "image"),
    "configuration of the second container": (situation(pods=running(own(phase="Pending", containerStatuses=[
        CRASHED, container(waiting={"reason": "CreateContainerConfigError"}),
    ]))), "config"),
    "stuck": (situation(pods=running(), ranks=Cause("stuck", "a")), "stuck"),
    "webhook": (situation(refusals=(Cause("webhook", "a webhook does not answer"),)), "webhook"),
}  # fmt: skip


AWAY = cluster({**node("b"), "status": {"conditions": []}})


def on(node: str, phase: str = "Running", **meta: Any) -> Json:
    """A pod of rank 0 on a node; its controller adds the end of its name."""
    item = own(phase=phase)
    item["metadata"] |= {"generateName": "digits-0-", **meta}
    item["spec"]["nodeName"] = node
    return item


@pytest.mark.parametrize(("pods", "lost"), [
    ([on("b")], True),
    ([on("b", "Succeeded")], False),
    ([on("b", "Failed"), on("a", name="digits-0-x")], False),
    ([on("b", deletionTimestamp="2026-11-24T12:00:00Z")], True),
    ([on("b", deletionTimestamp="2026-11-24T12:00:00Z"), on("a", name="digits-0-x")], False),
])  # fmt: skip
def test_a_node_is_lost_for_a_job_only_with_a_pod_that_nothing_replaces(pods: list[Json], lost: bool) -> None:
    """A job that ran was called one that does not, for a pod of an earlier attempt."""
    now = situation(pods=(*pods, own(1), own(2)), state=AWAY)
    assert code(now) == ("node-lost" if lost else None)


@pytest.mark.parametrize("name", POD_CASES)
def test_names_the_cause(name: str) -> None:
    now, expected = POD_CASES[name]
    assert code(now) == expected


@pytest.mark.parametrize("name", POD_CASES)
def test_only_what_its_removal_or_a_refusal_proves_is_said_with_because(name: str) -> None:
    diagnosis = diagnose(POD_CASES[name][0])
    refused = name == "webhook"
    assert diagnosis.proof is (Proof.REFUSAL if refused else Proof.OBSERVED)
    assert (" because " in diagnosis.first_line, diagnosis.proven) == (refused, refused)
    fields = diagnosis.fields()
    assert fields["proof"] == ("refusal" if refused else "observation")
    assert diagnosis.cause
    assert (fields["text"], fields["because"]) == (diagnosis.cause.text, diagnosis.cause.text if refused else None)


def test_what_is_observed_is_said_after_a_colon() -> None:
    lost = POD_CASES["secret"][0]
    assert diagnose(lost).first_line == "digits does not run: its Secret keys does not exist"


def test_a_cause_that_cannot_be_taken_away_is_proven_by_a_refusal_alone() -> None:
    """Every cause without a removal passed for proven."""
    now = situation()
    cause = Cause("someone", "someone says so")
    assert judged(now, job(), Answer(Verdict.NO, causes=(cause,))).proof is Proof.NONE
    assert diagnose(dataclasses.replace(now, refusals=(cause,))).proof is Proof.REFUSAL


def test_a_refusal_is_said_of_a_job_whose_pods_nobody_can_foresee() -> None:
    """Why said only that it cannot tell which pods the manifest becomes."""
    refusal = Cause("refused", "the API server refuses the job: quantities must match", fix="correct it")
    now = situation(demand=None, live=False, refusals=(refusal,))
    diagnosis = diagnose(now)
    assert diagnosis.first_line == f"digits would not start because {refusal.text}"
    assert (diagnosis.proof, diagnosis.missing) == (Proof.REFUSAL, (UNFORESEEN,))
    assert diagnose(dataclasses.replace(now, refusals=())).first_line == "digits: cannot tell"


@pytest.mark.parametrize(("refused", "first"), [("webhook", "webhook"), ("refused", "quota")])
def test_a_webhook_that_does_not_answer_comes_before_the_quota_and_other_refusals_are_that_quota_s(
    refused: str, first: str
) -> None:
    """The quota was named, and proven by a removal after which the webhook still did not answer."""
    refusal = Cause(refused, "the API server refuses it")
    diagnosis = diagnose(situation(state=cluster(quotas=(QUOTA,)), refusals=(refusal,)))
    assert [cause.code for cause in (*diagnosis.needed, *diagnosis.also)] == list(dict.fromkeys((first, "quota")))
    assert diagnosis.proof is (Proof.REFUSAL if first == "webhook" else Proof.REMOVAL)


def test_that_retries_are_used_up_stands_beside_the_rank_that_failed_first() -> None:
    used_up = "it failed 3 times, its `max_retries` are used up"
    now = situation(ended="failed", failure=Failure("rank 2 (digits-2)", "exit code 7"), retries=used_up)
    assert diagnose(now).first_line == f"digits failed: rank 2 (digits-2) failed first: exit code 7; {used_up}"
    gone = dataclasses.replace(now, failure=None, reason="Job has reached the specified backoff limit")
    assert diagnose(gone).first_line == f"digits failed: Job has reached the specified backoff limit; {used_up}"


def test_logs_that_are_gone_with_their_pods_are_not_pointed_at() -> None:
    diagnosis = diagnose(situation(ended="failed", reason="Job has reached the specified backoff limit"))
    assert "its pods are gone, and their logs with them" in diagnosis.text()
    assert "--previous" not in diagnosis.text()


def test_what_may_not_be_read_of_a_job_that_runs_is_said() -> None:
    diagnosis = diagnose(situation(pods=running(), unread=("whether its ranks stand still",)))
    assert (diagnosis.cause, diagnosis.missing) == (None, ("whether its ranks stand still",))


def test_skypilot_10379_a_stale_harmless_warning_does_not_win_over_the_cause() -> None:
    """https://github.com/skypilot-org/skypilot/issues/10379: the newest Warning was taken for the cause."""
    stale = (event("FailedCreate", "Internal error: conflict, retried", uid="job"), event("BackOff", "retrying"))
    now = situation(state=cluster(queues=CLOSED), events=stale)
    assert code(now) == "queue-closed"
    assert diagnose(dataclasses.replace(now, state=cluster(), pods=running())).cause is None


def test_skypilot_7925_a_failed_mount_is_not_called_pulling_images() -> None:
    """https://github.com/skypilot-org/skypilot/issues/7925: a pod in ContainerCreating was said to pull images."""
    creating = waits("ContainerCreating")
    others = (event("Pulling", "i:1", uid="digits-1", kind="Normal", at=2), event("Scheduled", "", kind="Normal", at=3))
    now = situation(pods=running(creating), events=(UNMOUNTED, *others))
    assert code(now) == "mount"
    assert "image" not in diagnose(now).text()
    mounted = own(containerStatuses=[{**container(running={}), "containerID": "c"}])
    assert code(dataclasses.replace(now, pods=running(mounted))) is None


PULLING = event("Pulling", 'Pulling image "i:1"', kind="Normal", at=2)
SANDBOX_IS_READY = {"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}
LATER_SERIES = {"lastTimestamp": None, "eventTime": "2026-11-24T11:59:59.000000Z",
                "series": {"count": 9, "lastObservedTime": "2026-11-24T12:00:09.000000Z"}}  # fmt: skip
NOBODY, MOUNT, SANDBOX = None, "mount", "sandbox"


@pytest.mark.parametrize(("events", "status", "expected"), [
    ((UNMOUNTED, PULLING), {}, NOBODY),
    ((PULLING, UNMOUNTED), {}, NOBODY),
    ((PULLING, {**UNMOUNTED, **LATER_SERIES}), {}, MOUNT),
    ((UNMOUNTED,), SANDBOX_IS_READY, NOBODY),
    ((UNMOUNTED, {**NO_SANDBOX, **LATER_SERIES}), {}, SANDBOX),
    ((NO_SANDBOX,), {}, SANDBOX),
    ((NO_SANDBOX, PULLING), {}, NOBODY),
    ((NO_SANDBOX,), SANDBOX_IS_READY, NOBODY),
    ((NO_SANDBOX,), {"podIP": "10.0.0.1"}, NOBODY),
], ids=[
    "it pulls now", "in another order", "its volume fails again", "its sandbox is there", "now its sandbox fails",
    "no sandbox", "a sandbox at last", "a sandbox says so", "a sandbox has an address",
])  # fmt: skip
def test_an_event_that_later_ones_overtook_blames_nobody(
    events: tuple[Json, ...], status: Json, expected: str | None
) -> None:
    """The kubelet mounts volumes, then makes the sandbox, then pulls images."""
    creating = own(phase="Pending", containerStatuses=[container(waiting={"reason": "ContainerCreating"})], **status)
    assert code(situation(pods=running(creating), events=events)) == expected


def test_the_address_of_a_pod_that_shares_its_host_s_says_nothing_of_its_volumes() -> None:
    creating = own(phase="Pending", podIP="172.16.0.2")
    creating["spec"]["hostNetwork"] = True
    assert code(situation(pods=running(creating), events=(UNMOUNTED,))) == "mount"


@pytest.mark.parametrize(("last", "expected"), [("12:00:04", None), ("12:01:03", "mount")])
def test_three_tries_within_seconds_are_those_of_a_busy_cluster(last: str, expected: str | None) -> None:
    words = 'MountVolume.SetUp failed for volume "v" : configmap "kube-root-ca.crt" not found'
    times = {"firstTimestamp": "2026-11-24T12:00:00Z", "lastTimestamp": f"2026-11-24T{last}Z"}
    one = event("FailedMount", words, count=3) | times
    assert code(situation(pods=running(waits("ContainerCreating")), events=(one,))) == expected


@pytest.mark.parametrize(("words", "count", "expected"), [
    ("failed to sync configmap cache: timed out waiting for the condition", 1, None),
    ('object "vision"/"digits-svc" not registered', 2, None),
    ('configmap "kube-root-ca.crt" not found', 1, None),
    ('configmap "kube-root-ca.crt" not found', 3, "mount"),
    ('configmap "mine" not found', 1, "mount"),
])  # fmt: skip
def test_what_a_kubelet_has_not_heard_of_yet_is_no_cause_before_it_has_tried_again(
    words: str, count: int, expected: str | None
) -> None:
    one = event("FailedMount", f'MountVolume.SetUp failed for volume "v" : {words}', count=count)
    assert code(situation(pods=running(waits("ContainerCreating")), events=(one,))) == expected


# https://github.com/kubernetes/kubernetes/blob/v1.35.0/pkg/controller/volume/attachdetach/reconciler/reconciler.go
def multi_attach(words: str) -> Json:
    return event("FailedAttachVolume", f'Multi-Attach error for volume "pvc-7c"  Volume is already {words}', at=1)


TIMED_OUT = event(
    "FailedMount",
    "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[]: "
    "timed out waiting for the condition",
    at=9,
)
ATTACHED = event("SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "pvc-7c"', kind="Normal", at=8)
ANOTHER = event("SuccessfulAttachVolume", 'AttachVolume.Attach succeeded for volume "pvc-8d"', kind="Normal", at=8)
ELSEWHERE = "volume pvc-7c of digits-0 is attached to another node, and only one node may have it"


@pytest.mark.parametrize(("events", "line", "fix"), [
    ((multi_attach("used by pod(s) other-0"),), f"digits waits: {ELSEWHERE}", "wait until other-0 has ended"),
    ((multi_attach("used by pod(s) digits-1"), TIMED_OUT), f"digits does not run: {ELSEWHERE}", "on one node"),
    ((multi_attach("used by 2 pod(s) in different namespaces"),), f"digits waits: {ELSEWHERE}", "has been detached"),
    ((TIMED_OUT, multi_attach("exclusively attached to one node and can't be attached to another")),
     f"digits waits: {ELSEWHERE}", "has been detached"),
    ((multi_attach("used by pod(s) other-0"), ANOTHER), f"digits waits: {ELSEWHERE}", "other-0"),
    ((multi_attach("used by pod(s) other-0"), ATTACHED), "digits: nothing is wrong", ""),
    ((multi_attach("used by pod(s) other-0"), ATTACHED, TIMED_OUT), "digits does not run: a volume of digits-0", ""),
], ids=[
    "others", "own", "another team's", "nobody's", "another volume", "attached", "attached, not mounted",
])  # fmt: skip
def test_a_volume_of_one_node_that_another_node_has_is_named(events: tuple[Json, ...], line: str, fix: str) -> None:
    diagnosis = diagnose(situation(pods=running(waits("ContainerCreating")), events=events))
    assert diagnosis.first_line.startswith(line)
    assert fix in (diagnosis.cause.fix if diagnosis.cause else "")


ATTACHES_TO_NO_NODE = event("FailedAttachVolume", 'AttachVolume.Attach failed for volume "pvc-7c" : rpc error', at=1)


def test_a_volume_that_no_node_gets_is_named_with_the_driver_s_words() -> None:
    text = diagnose(situation(pods=running(waits("ContainerCreating")), events=(ATTACHES_TO_NO_NODE,))).text()
    assert text.startswith("digits does not run: a volume of digits-0 cannot be attached to its node")
    assert 'FailedAttachVolume: AttachVolume.Attach failed for volume "pvc-7c" : rpc error' in text


@pytest.mark.parametrize(("reason", "words"), [
    ("FailedMount", 'failed for volume "v" : driver name a.b not found in the list of registered CSI drivers'),
    ("FailedAttachVolume", 'AttachVolume.Attach failed for volume "v" : CSINode a does not contain driver a.b'),
])  # fmt: skip
def test_a_volume_whose_driver_does_not_run_on_the_pod_s_node_is_named(reason: str, words: str) -> None:
    """Kubernetes' scheduler binds a pod to such a node."""
    diagnosis = diagnose(situation(pods=running(waits("ContainerCreating")), events=(event(reason, words, at=1),)))
    what = "a volume of digits-0 needs the CSI driver a.b, which does not run on its node a"
    assert diagnosis.first_line == f"digits does not run: {what}"
    assert diagnosis.cause
    assert diagnosis.cause.code == "volume-driver"


@pytest.mark.parametrize(("pods", "line"), [
    (running(waits("ContainerCreating")), "digits: cannot tell: it is Running, 2 of 3 pods run"),
    (running(), "digits: nothing is wrong: it is Running, 3 of 3 pods run"),
])  # fmt: skip
def test_pods_that_do_not_run_are_not_well_if_their_events_may_not_be_read(pods: tuple[Json, ...], line: str) -> None:
    now = situation(pods=pods, phase="Running", state=cluster(unread={"events": "you may not list them"}))
    diagnosis = diagnose(now)
    assert diagnosis.first_line == line
    text = "what keeps digits-0 from running: events (you may not list them)"
    assert diagnosis.missing == ((text,) if "cannot" in line else ())
    assert not diagnose(situation(pods=pods, phase="Running")).missing


def by(component: str) -> tuple[Json, ...]:
    return ({**event("Unknown", "an event of a scheduler", at=1), "source": {"component": component}},)


@pytest.mark.parametrize(("name", "more", "code"), [
    ("mine", {}, "scheduler-name"),
    ("mine", {"age_s": 59.0}, None),
    ("mine", {"age_s": 59.0, "unavailable": ("deployment a/b has no ready pod",)}, None),
    ("mine", {"events": by("mine")}, None),
    ("mine", {"events": by("default-scheduler")}, "scheduler-name"),
    ("mine", {"schedulers": {"mine"}}, "scheduler"),
    ("mine", {"schedulers": None}, "scheduler"),
    ("default-scheduler", {}, "scheduler"),
    ("volcano", {}, "scheduler"),
])  # fmt: skip
def test_a_scheduler_s_name_that_nobody_serves_is_named_once_it_had_a_minute(
    name: str, more: Json, code: str | None
) -> None:
    known = more.get("schedulers", {"default-scheduler"})
    more = {"age_s": 61.0, **{key: value for key, value in more.items() if key != "schedulers"}}
    state = cluster(schedulers=None if known is None else frozenset(known))
    wanted = edited(job("indexed"), schedulerName=name)
    pods = tuple({**own(index), "spec": {"containers": []}, "status": {"phase": "Pending"}} for index in range(3))
    cause = diagnose(Situation("digits", wanted, state, pods=pods, **more)).cause
    assert (cause.code if cause else None) == code


def test_fit_cannot_tell_of_a_scheduler_s_name_that_nobody_serves() -> None:
    wanted, known = edited(job("indexed"), schedulerName="mine"), cluster(schedulers=frozenset({"default-scheduler"}))
    (missing,) = fit(wanted, known).missing
    assert missing == "whether a scheduler named mine runs, and what it does: it has looked at no pod"
    assert fit(wanted, cluster(schedulers=frozenset({"mine"}))).verdict is Verdict.YES
    assert fit(job("indexed"), known).verdict is Verdict.YES


SPREAD = [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone", "maxSkew": 1}]
TERM = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}]


def scattered(**spec: Any) -> Demand:
    wanted = job()
    return changed(wanted, [{**part.spec, **spec} for part in wanted.parts])


def apart(kind: str) -> Demand:
    return scattered(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": TERM}})


@pytest.mark.parametrize(("wanted", "words", "expected"), [
    (scattered(topologySpreadConstraints=SPREAD), "2 node(s) didn't match pod topology spread constraints", "topology"),
    (apart("podAffinity"), "2 node(s) didn't match pod affinity rules", "pod-affinity"),
    (apart("podAntiAffinity"), "1 Insufficient cpu, 1 node(s) didn't match pod anti-affinity rules", "pod-affinity"),
    (job(), "2 node(s) didn't satisfy existing pods anti-affinity rules", "pod-affinity"),
    (apart("podAntiAffinity"), "2 Insufficient cpu", None),
    (scattered(topologySpreadConstraints=SPREAD), "", None),
    (job(), "2 node(s) didn't match pod topology spread constraints", None),
], ids=[
    "spread", "affinity", "anti-affinity", "of others", "another reason", "no words", "not of this job",
])  # fmt: skip
def test_a_rule_between_pods_is_what_the_scheduler_says_where_all_else_fits(
    wanted: Demand, words: str, expected: str | None
) -> None:
    message = f"0/2 nodes are available: {words}. preemption: 0/2 nodes are available: 2 Preemption is not helpful."
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]
    waiting = own(phase="Pending", conditions=conditions if words else [])
    del waiting["spec"]["nodeName"]
    diagnosis = diagnose(situation(demand=wanted, pods=(waiting,)))
    assert (diagnosis.cause.code if diagnosis.cause else None) == expected
    if expected:
        assert diagnosis.proof is Proof.OBSERVED
        assert words in diagnosis.text()
        assert diagnosis.missing == (), "the scheduler has said it"


def test_a_claim_of_one_pod_that_another_one_mounts_is_waited_for() -> None:
    spec = {"accessModes": ["ReadWriteOncePod"]}
    mounts = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    claim = {"metadata": {"name": "data"}, "spec": spec, "status": {"phase": "Bound"}}
    holder = pod("holder", "a", namespace="vision")
    holder["spec"]["volumes"] = mounts
    wanted = edited(job("indexed", workers=0), volumes=mounts)
    diagnosis = diagnose(situation(demand=wanted, state=cluster(pods=(holder,), claims=(claim,))))
    assert diagnosis.first_line.startswith("digits waits because its volume claim data is ReadWriteOncePod")
    assert "pod holder mounts it" in diagnosis.text()


def test_a_volume_of_another_zone_is_named() -> None:
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
    volume = {
        "metadata": {"name": "v"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}},
    }
    claim = {"metadata": {"name": "data"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}}
    labels = {"topology.kubernetes.io/zone": "b"}
    nodes = node("a"), node("b", cpu="2", labels=labels)
    mounts = [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]
    state = cluster(*nodes, claims=(claim,), volumes=(volume,))
    diagnosis = diagnose(situation(demand=scattered(volumes=mounts), state=state))
    assert diagnosis.cause
    assert (diagnosis.cause.code, diagnosis.proof) == ("volume-node", Proof.REMOVAL)


def test_the_newest_of_several_events_is_shown_whatever_their_order() -> None:
    older = event("FailedMount", "an older message", at=0)
    for events in ((older, UNMOUNTED), (UNMOUNTED, older)):
        text = diagnose(situation(pods=running(waits("ContainerCreating")), events=events)).text()
        assert "hostPath type check failed" in text
        assert "an older message" not in text


UNPREPARED = event("FailedPrepareDynamicResources", "Failed to prepare dynamic resources: it is not registered", at=1)


@pytest.mark.parametrize(("later", "expected"), [((), "device"), ((UNMOUNTED,), "device"), ((PULLING,), None)])
def test_devices_by_claim_that_a_node_cannot_prepare_are_named(later: tuple[Json, ...], expected: str | None) -> None:
    """The kubelet prepares them once the volumes are mounted, before it makes the sandbox."""
    now = situation(pods=running(waits("ContainerCreating")), events=(UNPREPARED, *later))
    assert code(now) == expected
    if expected:
        first = diagnose(now).text().splitlines()
        assert first[0] == "digits does not run: its node cannot prepare the devices that digits-0 claims"
        assert first[1] == f"  FailedPrepareDynamicResources: {UNPREPARED['message']}"


REFUSALS = {"UnexpectedAdmissionError": "device", "OutOfcpu": "device", "NodeAffinity": "device", "Evicted": "evicted"}


@pytest.mark.parametrize("reason", REFUSALS)
@pytest.mark.parametrize("again", [None, "created", "placed", "running"])
def test_a_pod_that_its_node_refused_or_evicted_is_named_while_the_job_has_retries(
    reason: str, again: str | None
) -> None:
    """Nothing was wrong, it said of a job whose every pod was refused. Once one runs in its place, nothing is."""
    failed = own(phase="Failed", reason=reason, message="no room")
    after = own(phase="Running" if again == "running" else "Pending")
    after["metadata"] = {**after["metadata"], "name": "digits-0-second", "uid": "second"}
    for one in (failed, after):
        one["metadata"]["generateName"] = "digits-0-"
    if again == "created":
        del after["spec"]["nodeName"]
    pods = (failed, own(1), own(2), *([after] if again else []))
    assert code(situation(pods=pods)) == (None if again == "running" else REFUSALS[reason])


def test_a_rank_that_failed_by_itself_and_is_tried_again_is_not_blamed() -> None:
    failed = own(phase="Failed", containerStatuses=[container(terminated={"reason": "Error", "exitCode": 1})])
    assert code(situation(pods=running(failed))) is None


def test_of_the_causes_of_several_pods_the_outermost_is_named_whichever_pod_has_it() -> None:
    """An image that one pod waits for hid the volume of another."""

    def at(index: int, reason: str = "ContainerCreating", **spec: Any) -> Json:
        item = own(index, "Pending", containerStatuses=[container(waiting={"reason": reason})])
        item["spec"] |= spec
        return item

    env: Json = {"containers": [{"name": "a", "env": [{"valueFrom": {"secretKeyRef": {"name": "token"}}}]}]}
    absent = {("Secret", "token"): True, ("Secret", "keys"): True}
    wrong = [  # a pod of each, from the inside out
        ("sandbox", at(0), {**NO_SANDBOX, "involvedObject": {"uid": "digits-0"}}),
        ("config", at(1, "CreateContainerConfigError"), None),
        ("secret", at(2, **env), None),
        ("image", at(3, "ErrImagePull"), None),
        ("mount", at(4), {**UNMOUNTED, "involvedObject": {"uid": "digits-4"}}),
        ("secret", at(5, volumes=[KEYS]), None),
    ]
    for count in range(1, len(wrong) + 1):
        pods = tuple(item for _, item, _ in wrong[:count])
        events = tuple(said for _, _, said in wrong[:count] if said)
        (cause,) = waiting(pods, events, absent)
        assert cause.code == wrong[count - 1][0]
    assert "keys" in cause.text


class Counted(dict[str, Any]):
    """JSON that counts how often it is read or compared."""

    work = 0

    def __getitem__(self, key: str) -> Any:
        Counted.work += 1
        return super().__getitem__(key)

    def __eq__(self, other: object) -> bool:
        Counted.work += 1
        return super().__eq__(other)

    __hash__ = None


def test_four_times_the_pods_are_about_four_times_the_work() -> None:
    """Of 4,000 pods with 12,000 events, each pod looked at all events and at all pods: 11 s."""
    work = []
    for size in (50, 200):
        creating = [container(waiting={"reason": "ContainerCreating"})]
        pods = [Counted(own(index, "Pending", containerStatuses=creating)) for index in range(size)]
        reasons = ("Scheduled", "Pulling", "Failed")
        events = [Counted(event(reason, "", f"digits-{index}")) for index in range(size) for reason in reasons]
        before = Counted.work
        assert not [*waiting(pods, events, {})]
        assert not [*waiting([*pods, *(Counted(own(index)) for index in range(size))], events, {})]
        work.append(Counted.work - before)
    assert work[1] < 6 * work[0]


def test_kblaunch_14_the_order_of_conditions_decides_nothing() -> None:
    """kblaunch's pull request 14: conditions[-1] was read, and the order of conditions is not that of time."""
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "no room"}
    conditions = [unscheduled, {"type": "Ready", "status": "True"}]
    for order in (conditions, conditions[::-1]):
        waiting = own(phase="Pending", conditions=order)
        del waiting["spec"]["nodeName"]
        now = situation(pods=running(waiting), state=cluster(queues=CLOSED))
        assert code(now) == "queue-closed"


def test_the_json_answer_has_the_same_cause() -> None:
    fields = diagnose(situation(state=cluster(queues=CLOSED))).fields()
    assert (fields["cause"], fields["proven"], fields["proof"]) == ("queue-closed", True, "removal")
    assert fields["cannot_tell"] == []


SMALL, LARGE = {"memory": "64Mi"}, {"memory": "1Gi"}


@pytest.mark.parametrize(("item", "says"), [
    (starved(137), "has no memory limit, and was killed as its node had too little memory for all pods"),
    (starved(137, container_={"limits": SMALL}), "used more than its limit of 64Mi memory"),
    (starved(137, container_={"limits": SMALL, "requests": SMALL}), "used more than its limit of 64Mi memory"),
    (starved(137, container_={"limits": LARGE, "requests": SMALL}),
     "was killed for its memory: it used more than its limit of 1Gi, or its node had too little"),
    (starved(137, resources={"limits": SMALL}), "used more than its limit of 64Mi memory"),
])  # fmt: skip
def test_memory_is_the_containers_the_pods_or_the_nodes(item: Json, says: str) -> None:
    assert f"digits-0 {says}" in str(diagnose(situation(ended="failed", pods=(item,))).text())


def test_memory_comes_second_if_the_script_ended_with_a_code_of_its_own() -> None:
    failure = Failure("rank 1 (digits-1)", "exit code 1", ("RuntimeError: DataLoader worker is killed by signal",), 1)
    text = diagnose(situation(ended="failed", failure=failure, pods=(starved(1),))).text()
    assert text.startswith("digits failed: rank 1 (digits-1) failed first: exit code 1")
    assert "also: digits-0 has no memory limit, and was killed" in text
