"""What may be submitted in a team's namespace: only its own queues, schedulers, priorities, accounts and images.

Each kind that reaches beyond the namespace has one ValidatingAdmissionPolicy, which serves all teams: what a team has
is read from the annotations of its namespace.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
How a kind names its queue: docs/teams.md, "Every way to a queue".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS
from gangplank.backends.admission import of_pod, of_template
from gangplank.backends.base import Path
from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.teams import metadata as labels
from gangplank.teams.conditions import MARKABLE, NAMESPACE
from gangplank.teams.metadata import metadata
from gangplank.teams.rules import RULES

if TYPE_CHECKING:
    from gangplank.spec import Json

API = "admissionregistration.k8s.io/v1"


def of_service(*fields: str) -> str:
    """How a Service is reached: its type, and every address in these fields and in externalIPs."""
    texts = "".join(
        f" + [object.spec.?{name}.orValue('')].filter(v, v != '').map(v, '{name}: ' + v)" for name in fields
    )
    addresses = "object.spec.?externalIPs.orValue([]).map(v, 'externalIPs: ' + v)"
    return f"['type: ' + object.spec.?type.orValue('ClusterIP')] + {addresses}{texts}"


# Kinds that neither a back-end nor the queue system brings.
OWN = (
    Path("pods", "", ("pods", "pods/ephemeralcontainers"), queues=of_pod("object"), templates="[object]"),
    of_template("workloads", "apps", "deployments", "replicasets", "statefulsets", "daemonsets"),
    # kube-proxy intercepts what is sent to such an address, on every node, the API server's included
    Path("services", "", ("services",), exposures=of_service("externalName", "loadBalancerIP")),
    Path("configmaps", "", ("configmaps",), variables="object.?data.orValue({}).map(k, k)"),
    Path("secrets", "", ("secrets",), variables="object.?data.orValue({}).map(k, k)"),  # it has stringData by then
)


def paths() -> list[Path]:
    """All kinds that are judged: those of the back-ends, of the queue system, and those that belong to neither."""
    every = [*OWN, *QUEUE_SYSTEM.admission, *(path for backend in BACKENDS.values() for path in backend.admission)]
    return sorted(every, key=lambda path: path.name)


CHANGED = " || ".join(
    [f"object.?{part} != oldObject.?{part}" for part in ("spec", "data")]
    + [f"object.metadata.?{part}.orValue({{}}) != oldObject.metadata.?{part}.orValue({{}})" for part in MARKABLE]
    + [
        f"object.metadata.?{part}.orValue([]).exists(i, !(i in oldObject.metadata.?{part}.orValue([])))"
        for part in ("finalizers", "ownerReferences")
    ]
)
TRUSTED = (
    "(request.operation == 'CREATE' ? ['create'] : ['update', 'patch']).exists(v, authorizer.group("
    "request.resource.group).resource(request.resource.resource).check(v).allowed())"
)


def variables(path: Path) -> list[Json]:
    """What the validations of a kind share; the API server evaluates each at most once, when a validation reads it."""
    expressions = {
        "team": f"{NAMESPACE}.labels['{TEAM_LABEL}']",
        # Controllers remove finalizers and write status: an object is judged again only if anything else changes.
        # (A Command has no spec; members can create one but not change it.)
        "fresh": f"oldObject == null || {CHANGED}",
        # Who may write this kind in every namespace is an administrator or a controller, and not a member.
        "trusted": TRUSTED,
        "templates": path.templates,
        "pods": f"[variables.templates] + {path.patches}",
        "inner": path.inner,
        **{rule.plural: rule.allowed for rule in RULES},  # all before the first that reads one
        **{rule.bad: rule.refused(path) for rule in RULES},
    }
    return [{"name": name, "expression": text} for name, text in expressions.items()]


# The API server's defaults, written out, so that an object read back equals what was written.
EVERYTHING: Json = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}


def policy(path: Path) -> Json:
    """The policy that judges one kind."""
    validations = [
        {
            "expression": rule.holds(),
            "messageExpression": rule.message(),
            "reason": "Forbidden",
        }
        for rule in RULES
    ]
    judged = {
        "apiGroups": [path.group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [*path.resources],
        "scope": "*",
    }
    body = {
        "failurePolicy": "Fail",
        "matchConstraints": {**EVERYTHING, "resourceRules": [judged]},
        "variables": variables(path),
        "validations": validations,
    }
    meta = metadata(f"gangplank-team-{path.name}")
    return {"apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": body}


def binding(path: Path) -> Json:
    """The binding of a policy to the namespaces of all teams."""
    name = f"gangplank-team-{path.name}"
    body = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {**EVERYTHING, "namespaceSelector": {"matchLabels": dict(labels.TEAM_PART)}},
    }
    return {"apiVersion": API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata(name), "spec": body}


def policies() -> list[Json]:
    """Every policy with its binding."""
    return [make(path) for path in paths() for make in (policy, binding)]
