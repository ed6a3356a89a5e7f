"""`gangplank why` on each back-end: its first line names the one cause, and a healthy job is blamed at no moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from tests.support.raw_jobs import PYTORCHJOB, TRAINJOB, by_hand, selecting
from tests.support.teams_live import gangplank
from tests.support.why_stories import (
    APART,
    NO_IMAGE,
    RESOURCE,
    SMALL,
    WAITING,
    Story,
    accepted,
    healthy,
    ignored,
    in_container,
    manifests,
    named,
    named_cause,
    runs_by_hand,
    silent,
    story,
    submit,
    under_way,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gangplank.cluster.client import Kube
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
CAUSES: dict[str, Story] = {
    # under a gang scheduler, a PyTorchJob without room stays in state Created, without pods and events
    "no-device": Story("no-device", {"resources": {**SMALL, "gpus": 1}}, words="nvidia.com/gpu"),
    "selector": Story("selector", {"node_selector": {"disk": "ssd"}}),
    "quota": Story("quota", beside=(named("ResourceQuota", spec={"hard": {"requests.cpu": "15m"}}),)),
    "too-large": Story("pod-too-large", {"resources": {"cpu": "9", "memory": "32Mi"}}),
    "apart": APART,
    "image": Story("image", {"image": NO_IMAGE}),
    "secret": Story("secret", {"secrets": ["no-such-secret"]}),
    "exit-code": Story("failed|crash", {"command": ["sh", "-c", "echo last words; exit 7"]}, words="exit code 7"),
}
OPERATORS = {  # their Deployments, and the webhooks that these serve
    "pytorchjob": (
        ("kubeflow", "training-operator"),
        ("validatingwebhookconfiguration/validator.training-operator.kubeflow.org",),
    ),
    "trainjob": (
        ("kubeflow-system", "kubeflow-trainer-controller-manager"),
        (
            "validatingwebhookconfiguration/validator.trainer.kubeflow.org",
            "mutatingwebhookconfiguration/defaulter.trainer.kubeflow.org",
        ),
    ),
}
STORIES = {
    f"{name}-{backend}": Story(one.code, one.change, backend, one.beside, one.raw, words=one.words)
    for name, one in CAUSES.items()
    for backend in BACKENDS
    if not one.change.keys() & set(BACKENDS[backend].refuses)
    if one.raw is None or backend != "trainjob"  # its manifest has no pod
}
STORIES["pytorchjob-by-hand"] = Story("no-device", written=by_hand(PYTORCHJOB), words="nvidia.com/gpu")
STORIES["trainjob-by-hand"] = Story("selector", written=by_hand(TRAINJOB, selecting), words="disk=ssd")
STORIES["pytorchjob-by-hand-image"] = Story(
    "image", written=by_hand(PYTORCHJOB, in_container(image=NO_IMAGE, resources=RESOURCE))
)
STORIES["trainjob-by-hand-image"] = Story(
    "image", written=by_hand(TRAINJOB, lambda manifest: manifest["spec"]["trainer"].update(image=NO_IMAGE))
)
WELL = {
    "pytorchjob-runs": by_hand(PYTORCHJOB, in_container(command=WAITING, args=[], resources=RESOURCE)),
    "trainjob-runs": by_hand(TRAINJOB),
}
# Its pods restart in place; the Job's controller removes them, and their logs, when the retries are used up.
STORIES["exit-code-indexed"].words = ""


@pytest.fixture(scope="module")
def stories(lab: Lab) -> Iterator[None]:
    """All stories under way at once."""
    with under_way(lab, STORIES):
        yield


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", STORIES)
def test_the_first_line_names_the_cause_and_no_other(kube: Kube, name: str) -> None:
    one = STORIES[name]
    diagnosis = named_cause(kube, manifests(name, one)[-1], one.code)
    assert one.words in diagnosis.first_line
    assert diagnosis.cause is not None
    assert diagnosis.cause.fix


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_healthy_job_is_blamed_at_no_moment(lab: Lab, kube: Kube, backend: str) -> None:
    healthy(lab, kube, backend)


@pytest.mark.parametrize("name", WELL)
def test_a_job_by_hand_that_runs_is_well_and_its_pods_are_counted(lab: Lab, kube: Kube, name: str) -> None:
    runs_by_hand(lab, kube, name, WELL[name])


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_command_says_it_as_json_too(kubeconfig: str, backend: str) -> None:
    words = (f"selector-{backend}", "-n", f"why-selector-{backend}", "-o", "json")
    done = gangplank("why", *words, kubeconfig=kubeconfig)
    fields = json.loads(done.stdout)
    assert (done.returncode, fields["cause"], fields["proven"]) == (0, "selector", True), done.stderr
    assert gangplank("fit", *words[:3], kubeconfig=kubeconfig).returncode == 5


@pytest.mark.parametrize("backend", OPERATORS)
def test_an_operator_that_does_not_answer_is_named(lab: Lab, kube: Kube, backend: str) -> None:
    """A new job is refused, since its webhook is away too. Where that is ignored, no controller looks at the job."""
    deployment, webhooks = OPERATORS[backend]
    name, one = f"silent-{backend}", Story("controller", backend=backend, submitted=False)
    with silent(lab, *deployment, backend), story(lab, name, one) as job:
        diagnosis = named_cause(kube, job, "webhook", live=False)
        assert "failed calling webhook" in diagnosis.text()
        with ignored(lab, *webhooks):
            accepted(lab, backend)
            submit(lab, name, one)
        diagnosis = named_cause(kube, job, one.code)
        assert diagnosis.first_line == f"{name} does not start: the controller of {job['kind']}s does not answer"
        assert f"deployment {'/'.join(deployment)} has no ready pod" in diagnosis.text()
