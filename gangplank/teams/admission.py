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
from gangplank.teams.metadata import metadata

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
    Path("pods", "", ("pods", "pods/ephemeralcontainers"), queues=of_pod("object"), templates="[object]", order=30),
    of_template("workloads", "apps", "deployments", "replicasets", "statefulsets", "daemonsets", order=50),
    Path(  # kube-proxy intercepts what is sent to such an address, on every node, the API server's included
        "services", "", ("services",), exposures=of_service("externalName", "loadBalancerIP"), order=90
    ),
)


def paths() -> list[Path]:
    """All kinds that are judged: those of the back-ends, of the queue system, and those that belong to neither."""
    every = [*OWN, *QUEUE_SYSTEM.admission, *(path for backend in BACKENDS.values() for path in backend.admission)]
    return sorted(every, key=lambda path: path.order)


NAMESPACE = "namespaceObject.metadata"
PATTERN = "'^' + p.replace('.', '[.]').replace('*', '.*') + '$'"  # RE2 takes every other allowed character literally
MARKED = "['" + "', '".join(QUEUE_SYSTEM.marks) + "']"
MARKABLE = ("annotations", "labels")
CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def annotation_items(annotation: str) -> str:
    """CEL: the items of a namespace's annotation."""
    return f"{NAMESPACE}.annotations['{annotation}'].split(',')"


def variables(path: Path) -> list[Json]:
    """What the validations of a kind share; the API server evaluates each at most once, when a validation reads it."""
    images = " + ".join(f"t.spec.?{part}.orValue([]).map(c, c.?image.orValue(''))" for part in CONTAINERS)
    images += " + t.spec.?volumes.orValue([]).filter(v, has(v.image)).map(v, v.image.?reference.orValue(''))"
    expressions = {
        "team": f"{NAMESPACE}.labels['{TEAM_LABEL}']",
        "queues": annotation_items(labels.QUEUES),
        "schedulers": annotation_items(labels.SCHEDULERS),
        "priorities": f"[''] + {annotation_items(labels.PRIORITIES)}",
        "accounts": annotation_items(labels.ACCOUNTS),
        "images": f"{annotation_items(labels.IMAGES)}.filter(i, i != '')",
        # Controllers remove finalizers and write status: an object is judged again only if its spec or marks change.
        # (A Command has no spec; members can create one but not change it.)
        "fresh": "oldObject == null || object.?spec != oldObject.?spec || "
        + " || ".join(
            f"object.metadata.?{part}.orValue({{}}) != oldObject.metadata.?{part}.orValue({{}})" for part in MARKABLE
        ),
        "templates": path.templates,
        "badQueues": f"({path.queues}).filter(q, !(q in variables.queues))",
        "badSchedulers": f"({path.schedulers} + "
        f"variables.templates.map(t, t.spec.?schedulerName.orValue('{labels.SCHEDULER}')))"
        ".filter(s, !(s in variables.schedulers))",
        "badPriorities": f"({path.priorities} + variables.templates.map(t, t.spec.?priorityClassName.orValue('')))"
        ".filter(p, !(p in variables.priorities))",
        "badAccounts": "variables.templates.map(t, t.spec.?serviceAccountName.orValue('default'))"
        ".filter(a, !(a in variables.accounts))",
        # A pod that names its node bypasses every scheduler and queue. On update, the scheduler itself names the node.
        "nodes": "['']",
        "badNodes": "oldObject != null ? [] : "
        "variables.templates.map(t, t.spec.?nodeName.orValue('')).filter(n, !(n in variables.nodes))",
        # CEL cannot flatten a list of lists, so the message names only the first image of each template.
        "badImages": "variables.images.size() == 0 ? [] : "
        f"([{path.images}] + variables.templates.map(t, {images}))"
        f".map(l, l.filter(i, !variables.images.exists(p, i.matches({PATTERN}))))"
        ".filter(l, l.size() > 0).map(l, l[0])",
        "marks": "['']",
        "badMarks": "([object] + variables.templates)"
        f".map(o, {MARKED}.filter(k, {' || '.join(f'k in o.?metadata.?{part}.orValue({{}})' for part in MARKABLE)}))"
        ".filter(l, l.size() > 0).map(l, l[0])",
        "targets": f"['{QUEUE_SYSTEM.commanded}']",
        "badTargets": f"({path.targets}).filter(t, !(t in variables.targets))",
        "exposures": "['type: ClusterIP']",
        "badExposures": f"({path.exposures}).filter(e, !(e in variables.exposures))",
    }
    return [{"name": name, "expression": text} for name, text in expressions.items()]


# (variable with the refused values, what they are, variable with the allowed values, the fix)
REFUSALS = (
    (
        "badQueues",
        "queue",
        "queues",
        f'say which queue: {QUEUE_SYSTEM.title} takes "{QUEUE_SYSTEM.default}" for work that names none',
    ),
    (
        "badSchedulers",
        "scheduler",
        "schedulers",
        f"say schedulerName: {QUEUE_SYSTEM.scheduler}, or have the team file grant it under schedulers",
    ),
    ("badPriorities", "priority", "priorities", "leave it out, or have the team file grant it under priorities"),
    (
        "badAccounts",
        "service account",
        "accounts",
        "leave it out, or have the team file grant it under service_accounts",
    ),
    ("badNodes", "node", "nodes", "leave nodeName out: the scheduler chooses, and nodeSelector narrows"),
    ("badImages", "image", "images", "take one that matches, or have the team file grant it under images"),
    (
        "badMarks",
        "annotation or label",
        "marks",
        "leave it out: what is above what its queue deserves is given back when another queue deserves it",
    ),
    (
        "badTargets",
        "target",
        "targets",
        f"name a {QUEUE_SYSTEM.title} Job: queues are opened and closed by an administrator",
    ),
    (
        "badExposures",
        "exposure",
        "exposures",
        "leave the field out: a Service of a team is reached from the cluster alone, at an address of its own",
    ),
)


def message(bad: str, what: str, allowed: str, fix: str) -> str:
    """The refusal as a CEL expression: the value, the allowed values, the fix."""
    named = f"variables.{allowed}.filter(a, a != '')"
    some = f"({named}.size() > 0 ? {named}.join(', ') : 'none')"
    start = f"'team ' + variables.team + ': {what} \"' + variables.{bad}[0] + '\" is none of its {allowed} ('"
    return f"{start} + {some} + '); {fix}'"


# The API server's defaults, written out, so that an object read back equals what was written.
EVERYTHING: Json = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}


def policy(path: Path) -> Json:
    """The policy that judges one kind."""
    validations = [
        {
            "expression": f"!variables.fresh || variables.{row[0]}.size() == 0",
            "messageExpression": message(*row),
            "reason": "Forbidden",
        }
        for row in REFUSALS
    ]
    rule = {
        "apiGroups": [path.group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [*path.resources],
        "scope": "*",
    }
    body = {
        "failurePolicy": "Fail",
        "matchConstraints": {**EVERYTHING, "resourceRules": [rule]},
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
