"""Who may do what: every member, verb, resource and namespace, as in can-i.txt; GANGPLANK_GOLDEN=write rewrites it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.teams.read_cluster import KINDS
from tests.support.teams_live import answer, gangplank

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
GOLDEN = Path(__file__).parent / "can-i.txt"
# a member of the files: user and groups in the cluster
PEOPLE: dict[str, tuple[str, list[str]]] = {
    "ada": ("ada", []),
    "bob": ("bob", []),
    "eve": ("eve", []),
    "one of sso:vision": ("guest", ["sso:vision"]),
    "zoe": ("zoe", []),
    "a stranger": ("mallory", []),
}
SPACES = ("vision", "speech", "default", "")  # the last one is the whole cluster
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")
GROUPS = {plural: version.rpartition("/")[0] for version, _, plural in KINDS}
RESOURCES = (
    *(f"{plural}.{group}".rstrip(".") for plural, group in GROUPS.items()),
    "pods pods/log pods/exec pods/attach pods/portforward pods/ephemeralcontainers services configmaps secrets".split(),
    "services/status endpoints endpointslices.discovery.k8s.io".split(),
    "events nodes persistentvolumes serviceaccounts/token".split(),
    "roles.rbac.authorization.k8s.io deviceclasses.resource.k8s.io resourceslices.resource.k8s.io".split(),
    "devicetaintrules.resource.k8s.io resourceclaims.resource.k8s.io".split(),
    "resourceclaimtemplates.resource.k8s.io".split(),
    "jobs.batch cronjobs.batch deployments.apps jobs.batch.volcano.sh cronjobs.batch.volcano.sh".split(),
    "jobflows.flow.volcano.sh jobtemplates.flow.volcano.sh podgroups.scheduling.volcano.sh".split(),
    "commands.bus.volcano.sh pytorchjobs.kubeflow.org trainjobs.trainer.kubeflow.org".split(),
    ["certificatesigningrequests.certificates.k8s.io", "leases.coordination.k8s.io"],
)
FLAT = [name for part in RESOURCES for name in ([part] if isinstance(part, str) else part)]


def test_every_member_may_do_what_can_i_txt_lists_and_nothing_else(kube: Kube) -> None:
    def may(person: str, space: str, resource: str, verb: str) -> bool:
        plural, _, group = resource.partition(".")
        name, _, below = plural.partition("/")
        attributes = {"verb": verb, "resource": name, "group": group, "subresource": below, "namespace": space}
        user, groups = PEOPLE[person]
        spec = {"user": user, "groups": [*groups, "system:authenticated"], "resourceAttributes": attributes}
        where = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(kube.call("POST", where, {"spec": spec})["status"]["allowed"])

    questions = list(product(PEOPLE, SPACES, FLAT, VERBS))
    with ThreadPoolExecutor(8) as pool:
        allowed = dict(zip(questions, pool.map(lambda question: may(*question), questions), strict=True))
    lines = [f"# {len(questions)} questions; what is not here is refused."]
    for person, space, resource in product(PEOPLE, SPACES, FLAT):
        verbs = [verb for verb in VERBS if allowed[person, space, resource, verb]]
        if verbs:
            lines.append(f"{person} in {space or 'the cluster'}: {resource}: {' '.join(verbs)}")
    text = "\n".join(lines) + "\n"
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_a_member_sees_nothing_of_another_team(as_member: Callable[[str, str], Kube]) -> None:
    ada = as_member("vision", "ada")
    assert answer(ada, "GET", "/api/v1/namespaces/vision/pods") == ""
    for where in (
        "/api/v1/namespaces/speech/pods",
        "/api/v1/namespaces/speech/secrets",
        "/apis/batch.volcano.sh/v1alpha1/namespaces/speech/jobs",
        "/apis/batch.volcano.sh/v1alpha1/jobs",
        "/apis/scheduling.volcano.sh/v1beta1/podgroups",
        "/api/v1/pods",
        "/api/v1/namespaces",
    ):
        assert 'forbidden: User "ada"' in answer(ada, "GET", where).replace(
            'is forbidden: User "ada"', 'forbidden: User "ada"'
        )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("team", "kubeconfig", "vision", "mallory"), "expected one of ada, bob, eve"),
        (("team", "kubeconfig", "vision", "zoe"), "expected one of ada, bob, eve"),
        (("team", "kubeconfig", "nobody", "ada"), "team nobody: got nothing, expected a team of this cluster"),
        (("team", "kubeconfig", "vision", "ada", "--ttl", "9h"), "expected a time from 10m to 8h"),
        (("team", "kubeconfig", "vision", "ada", "-o", "/nowhere/x"), "expected a file that can be written"),
    ],
    ids=["stranger", "other team", "no team", "too long", "no folder"],
)
def test_refuses_a_kubeconfig(words: tuple[str, ...], message: str) -> None:
    done = gangplank(*words)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_member_cannot_create_a_kubeconfig(kubeconfigs: Callable[[str, str], str]) -> None:
    done = gangplank("team", "kubeconfig", "vision", "ada", kubeconfig=kubeconfigs("vision", "bob"))
    assert done.returncode != 0
    assert 'User "bob" cannot list' in done.stderr


def test_no_request_for_a_certificate_is_left_behind(kube: Kube, kubeconfigs: Callable[[str, str], str]) -> None:
    kubeconfigs("vision", "eve")
    items = kube.call("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests")["items"]
    assert [one["metadata"]["name"] for one in items if one["metadata"]["name"].startswith("gangplank-team-")] == []
