"""What may be submitted in a team's namespace: only its own queues, schedulers, priorities, accounts and images.

Each kind that reaches beyond the namespace has one ValidatingAdmissionPolicy, which serves all teams: what a team has
is read from the annotations of its namespace.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
How a kind names its queue: docs/teams.md, "Every way to a queue".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS
from gangplank.backends.admission import PROBE_POD, of_pod, of_template
from gangplank.backends.base import Path
from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.site.rights import LEASES
from gangplank.teams import metadata as labels
from gangplank.teams.conditions import MARKABLE, MOST_GRACE_S, NAMESPACE, PODS, TEMPLATES
from gangplank.teams.metadata import metadata
from gangplank.teams.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplank.spec import Json

API = "admissionregistration.k8s.io/v1"
DELETIONS, GUARDS = "deletions", "network-policies"


def of_service(*fields: str) -> str:
    """How a Service is reached: its type, and every address in these fields, in externalIPs and new in clusterIPs.

    A free address may be one that others still use, such as the name server's while that is installed again. The API
    server has filled in an address where none was asked for: nobody owns that field. An object whose managedFields are
    empty shows no owner of any field: the API server clears those that it cannot convert.
    """
    texts = "".join(
        f" + [object.spec.?{name}.orValue('')].filter(v, v != '').map(v, '{name}: ' + v)" for name in fields
    )
    addresses = "object.spec.?externalIPs.orValue([]).map(v, 'externalIPs: ' + v)"
    chosen = " || ".join(f"m.?fieldsV1[?'f:spec'][?'f:{name}'].hasValue()" for name in ("clusterIP", "clusterIPs"))
    owners = "object.metadata.?managedFields.orValue([])"
    own = f"{owners}.size() == 0 || {owners}.exists(m, {chosen})"
    new = "v != 'None' && (oldObject == null || !(v in oldObject.spec.?clusterIPs.orValue([])))"
    texts += f" + ({own} ? object.spec.?clusterIPs.orValue([]) : []).filter(v, {new}).map(v, 'clusterIP: ' + v)"
    return f"['type: ' + object.spec.?type.orValue('ClusterIP')] + {addresses}{texts}"


def of_claims(name: str, kind: str, requests: str, spec: Json, inner: str = "[]") -> Path:
    """Claims of devices, or their templates. Before resource.k8s.io/v1, a request had no `exactly` in between."""
    mode, name_of = (
        f"r.?exactly.?{field}.orValue(r.?{field}.orValue(''))" for field in ("allocationMode", "deviceClassName")
    )
    return Path(
        name,
        "resource.k8s.io",
        (name,),
        devices=f"{requests}.orValue([]).map(r, ({mode} == 'All' ? 'all of ' : '') + {name_of})",
        inner=inner,
        probe={"apiVersion": "resource.k8s.io/v1", "kind": kind, "spec": spec},
    )


# Kinds that neither a back-end nor the queue system brings.
OWN = (
    Path(
        "pods",
        "",
        ("pods", "pods/ephemeralcontainers"),
        queues=of_pod("object"),
        templates="[object]",
        probe={"apiVersion": "v1", "kind": "Pod", "spec": PROBE_POD},
    ),
    of_template(
        "workloads",
        "apps",
        "deployments",
        "replicasets",
        "statefulsets",
        "daemonsets",
        probe={
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "spec": {
                "selector": {"matchLabels": {"app": "probe"}},
                "template": {
                    "metadata": {"labels": {"app": "probe"}},
                    "spec": {**PROBE_POD, "restartPolicy": "Always"},
                },
            },
        },
    ),
    # kube-proxy intercepts what is sent to such an address, on every node, the API server's included
    Path(
        "services",
        "",
        ("services",),
        exposures=of_service("externalName", "loadBalancerIP"),
        probe={"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"}},
    ),
    Path(
        "configmaps",
        "",
        ("configmaps",),
        variables="object.?data.orValue({}).map(k, k)",
        probe={"apiVersion": "v1", "kind": "ConfigMap"},
    ),
    Path(
        "secrets",
        "",
        ("secrets",),
        variables="object.?data.orValue({}).map(k, k)",  # it has stringData by then
        names="[object.metadata.?name.orValue('')]",
        probe={"apiVersion": "v1", "kind": "Secret"},
    ),
    # Its other fields are read by runs of the same job, and by nothing else in this namespace
    Path(
        "leases",
        LEASES[0],
        (LEASES[1],),
        probe={"apiVersion": f"{LEASES[0]}/v1", "kind": "Lease"},
    ),
    # Kubernetes makes a claim of a template for each pod; a template that an administrator wrote is judged then.
    of_claims("resourceclaims", "ResourceClaim", "object.?spec.?devices.?requests", {}),
    of_claims(
        TEMPLATES, "ResourceClaimTemplate", "object.?spec.?spec.?devices.?requests", {"spec": {}}, "[[object.spec]]"
    ),
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


PROBE = "gangplank-probe"


def probe(path: Path, namespace: str) -> Json:
    """An object that the policy of a kind refuses to everybody, as soon as the API server enforces it."""
    meta = {"name": PROBE, "namespace": namespace, "annotations": {QUEUE_SYSTEM.marks[0]: "false"}}
    return {**path.probe, "metadata": meta}


def probes(namespaces: Sequence[str], served: Callable[[Json], bool]) -> list[Json]:
    """What asks every policy whose kind is served in the first namespace, and one of them in each of the others.

    A policy is bound to all namespaces at once, and each namespace is known to all policies at once.
    """
    first = [probe(path, namespace) for path in paths() for namespace in namespaces[:1]]
    others = [probe(path, namespace) for path in paths() for namespace in namespaces[1:] if path.name == PODS]
    return [*filter(served, first), *others]


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
    meta = metadata(policy_name(path.name))
    return {"apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": body}


def deletions() -> dict[str, Json]:
    """The policies that judge how pods and network policies are deleted, by their names.

    A pod that is ending slowly is not evicted again, and holds its place. The controller of a job removes the network
    policy that has the job's name, even one that it did not make. A member could name a job like the team's policy.
    https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
    """
    seconds = "request.?options.?gracePeriodSeconds.orValue(0)"
    trusted = "authorizer.group('').resource('pods').check('delete').allowed()"
    slow = deletion(
        DELETIONS,
        ("", "pods"),
        f"{seconds} <= {MOST_GRACE_S} || {trusted}",
        f"'grace period \"' + string({seconds}) + '\" is not one of its gracePeriods ({MOST_GRACE_S} or less);"
        " give the deletion less'",
    )
    group, kind = API.partition("/")[0], "validatingadmissionpolicies"
    administrator = f"authorizer.group('{group}').resource('{kind}').check('delete').allowed()"
    guard = deletion(
        GUARDS,
        ("networking.k8s.io", "networkpolicies"),
        f"oldObject.metadata.?ownerReferences.orValue([]).size() > 0 || {administrator}",
        "'network policy \"' + oldObject.metadata.name + '\" belongs to no job; give the job another name'",
    )
    return {DELETIONS: slow, GUARDS: guard}


def deletion(name: str, kind: tuple[str, str], holds: str, message: str) -> Json:
    """A policy that judges how objects of a kind, its group and plural, are deleted."""
    validation = {
        "expression": holds,
        "messageExpression": f"'team ' + {NAMESPACE}.labels['{TEAM_LABEL}'] + ': ' + {message}",
        "reason": "Forbidden",
    }
    judged = {
        "apiGroups": [kind[0]],
        "apiVersions": ["*"],
        "operations": ["DELETE"],
        "resources": [kind[1]],
        "scope": "*",
    }
    body = {
        "failurePolicy": "Fail",
        "matchConstraints": {**EVERYTHING, "resourceRules": [judged]},
        "validations": [validation],
    }
    meta = metadata(policy_name(name))
    return {"apiVersion": API, "kind": "ValidatingAdmissionPolicy", "metadata": meta, "spec": body}


def policy_name(name: str) -> str:
    """The name of a policy, and of its binding.

    >>> policy_name("pods")
    'gangplank-team-pods'
    """
    return f"gangplank-team-{name}"


def binding(path_name: str) -> Json:
    """The binding of a policy to the namespaces of all teams."""
    name = policy_name(path_name)
    body = {
        "policyName": name,
        "validationActions": ["Deny"],
        "matchResources": {**EVERYTHING, "namespaceSelector": {"matchLabels": dict(labels.TEAM_PART)}},
    }
    return {"apiVersion": API, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata(name), "spec": body}


def policies() -> list[Json]:
    """Every policy with its binding."""
    judged = [(path.name, policy(path)) for path in paths()]
    return [item for name, body in [*judged, *deletions().items()] for item in (body, binding(name))]
