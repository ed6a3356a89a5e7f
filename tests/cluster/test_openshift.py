"""A cluster that answers OpenShift's API groups is known by them; on any other, nothing of OpenShift is ever made.

The groups are real, their kinds are empty: nothing here admits a pod. No real OpenShift was asked.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.conftest import COMPONENTS, Lab
from tests.support.openshift_site import constraints

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = {
    "security.openshift.io": ("securitycontextconstraints", "SecurityContextConstraints"),
    "project.openshift.io": ("projects", "Project"),
}


def crd(group: str) -> dict[str, Any]:
    """A kind of that group which takes anything."""
    plural, kind = KINDS[group]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Cluster", "names": names, "versions": [version]},
    }


@pytest.fixture
def openshift(full_kubeconfig: str) -> Iterator[Lab]:  # noqa: ARG001  # the lab is up
    lab = Lab()
    lab.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(crd(group)) for group in KINDS))
    try:
        for group in KINDS:
            lab.kubectl("wait", "--for=condition=Available", f"apiservice/v1.{group}", "--timeout=60s")
        yield lab
    finally:
        names = (f"{plural}.{group}" for group, (plural, _) in KINDS.items())
        lab.kubectl("delete", "crd", "--ignore-not-found", *names)


def changed(said: str) -> bool:
    return "changed=0" not in said


def role(lab: Lab, state: str) -> bool:
    """Whether the role's part for OpenShift changes anything."""
    return changed(lab.playbook("tests/cluster/openshift.yml", "-e", f"openshift_state={state}"))


def would_change(lab: Lab, component: str) -> bool:
    """Whether site.yml would change a component that it has installed."""
    asked = json.dumps({"site_components": COMPONENTS})
    return changed(lab.playbook("playbooks/site.yml", "--check", "--tags", component, "-e", asked))


def test_the_grant_comes_once_and_goes_again(openshift: Lab, full_kubeconfig: str) -> None:
    """As OpenShift's own client reads the site."""
    assert constraints(full_kubeconfig) == []
    assert role(openshift, "present")
    assert not role(openshift, "present")
    (binding,) = constraints(full_kubeconfig) or []
    accounts = openshift.get("serviceaccounts", "-n", "volcano-system")
    names = {f"system:serviceaccount:volcano-system:{item['metadata']['name']}" for item in accounts}
    # that of the installation's hook went with the hook
    assert {*binding["users"]} - names == {"system:serviceaccount:volcano-system:volcano-admission-init"}
    assert role(openshift, "absent")
    assert constraints(full_kubeconfig) == []


def test_both_roles_know_where_they_are(openshift: Lab) -> None:
    assert would_change(openshift, "volcano"), "the grant is missing"
    assert would_change(openshift, "training_operator"), "the operator still names a user"


def test_a_cluster_that_is_none_is_left_as_it_is(full_kubeconfig: str) -> None:
    lab = Lab()
    assert constraints(full_kubeconfig) is None
    assert not role(lab, "present")
    assert not would_change(lab, "volcano")
    assert not would_change(lab, "training_operator")


def test_one_group_alone_is_no_openshift(openshift: Lab) -> None:
    openshift.kubectl("delete", "crd", "projects.project.openshift.io")
    openshift.wait("it is gone", lambda: "NotFound" in openshift.kubectl("get", "apiservice", "v1.project.openshift.io",
                                                                         check=False))  # fmt: skip
    assert not role(openshift, "present")
