"""Who may do what: one ClusterRole per role of a member, bound by name in its team's namespace; one for the cluster."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.site.rights import LEASES, LOCK_VERBS
from gangplank.teams.metadata import metadata
from gangplank.teams.spec import ROLES

if TYPE_CHECKING:
    from gangplank.backends.base import JobKinds
    from gangplank.spec import Json
    from gangplank.teams.spec import Member, TeamSpec

LOOK = ("get", "list")
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete")
GROUP = "rbac.authorization.k8s.io"

CLUSTER = "cluster"  # ends the name of what all members may read of the cluster

Rows = list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]


def job_kinds() -> list[JobKinds]:
    """All kinds that are jobs: what the back-ends submit, and their own kinds that repeat or chain jobs."""
    kinds = (kinds for backend in BACKENDS.values() for kinds in backend.job_kinds)
    return sorted(kinds, key=lambda kinds: kinds.group)


def rows() -> Rows:
    """Role, API group, resources and verbs; each role also has the rows of the roles before it."""
    jobs = [(kinds.group, kinds.plurals) for kinds in job_kinds()]
    gangs, commands = QUEUE_SYSTEM.pod_group, QUEUE_SYSTEM.command
    lease_group, leases = LEASES
    return [
        ("viewer", "", ("pods", "pods/log", "services", "configmaps", "persistentvolumeclaims", "events"), READ),
        ("viewer", "", ("resourcequotas", "limitranges"), READ),
        ("viewer", gangs.group, (gangs.plural,), READ),
        ("viewer", "resource.k8s.io", ("resourceclaims", "resourceclaimtemplates"), READ),
        *(("viewer", group, kinds, READ) for group, kinds in jobs),
        *(("trainer", group, kinds, WRITE) for group, kinds in jobs),
        ("trainer", "", ("configmaps", "services"), WRITE),  # a job's script, and the name of its meeting point
        ("trainer", "resource.k8s.io", ("resourceclaimtemplates",), WRITE),  # the GPUs that each pod of a job claims
        ("trainer", "", ("pods",), ("create", "delete")),  # the pod that reads a job's evidence from its claim
        ("trainer", commands.group, (commands.plural,), ("create",)),  # abort and resume
        ("trainer", lease_group, (leases,), LOCK_VERBS),  # what keeps two runs of one job apart
        ("lead", "", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
        ("lead", "", ("secrets",), (*READ, *WRITE)),
    ]


def cluster_rows() -> Rows:
    """What every member may read of the whole cluster: what decides where jobs fit, and nothing that names a job.

    `gangplank why` and `gangplank fit` read it.
    """
    queues = QUEUE_SYSTEM.queue
    return [
        (CLUSTER, "", ("nodes",), LOOK),
        (CLUSTER, queues.group, (queues.plural,), LOOK),
        (CLUSTER, "resource.k8s.io", ("deviceclasses", "resourceslices", "devicetaintrules"), LOOK),
        (CLUSTER, "scheduling.k8s.io", ("priorityclasses",), LOOK),
        (CLUSTER, "storage.k8s.io", ("csinodes", "csidrivers"), LOOK),
    ]


def role_name(role: str) -> str:
    """The name of a role's ClusterRole and of its bindings.

    >>> role_name("lead")
    'gangplank-team-lead'
    """
    return f"gangplank-team-{role}"


def roles() -> list[Json]:
    """The ClusterRoles; they grant nothing until they are bound. Members' roles are bound in namespaces only."""
    cluster_roles = []
    by_role = {role: [row for row in rows() if row[0] in ROLES[: index + 1]] for index, role in enumerate(ROLES)}
    for role, own in {**by_role, CLUSTER: cluster_rows()}.items():
        rules = [{"apiGroups": [group], "resources": [*kinds], "verbs": [*verbs]} for _, group, kinds, verbs in own]
        cluster_roles.append(
            {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": metadata(role_name(role)), "rules": rules}
        )
    return cluster_roles


def subject(member: Member) -> Json:
    """A member as the subject of a binding."""
    if member.kind == "ServiceAccount":
        return {"kind": member.kind, "name": member.name, "namespace": member.namespace}
    return {"apiGroup": GROUP, "kind": member.kind, "name": member.name}


def bindings(team: TeamSpec) -> list[Json]:
    """A RoleBinding for each role, also for one without members: the last member to leave must lose access too."""
    role_bindings = []
    for role in ROLES:
        members = [subject(member) for member in team.members if member.role == role]
        binding: Json = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(role_name(role), team),
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role_name(role)},
            "subjects": sorted(members, key=in_order),
        }
        role_bindings.append(binding)
    return role_bindings


def cluster_binding(team: TeamSpec) -> Json:
    """The binding of a team's members to what they may read of the cluster; a team that left the inventory keeps it."""
    subjects = {json.dumps(subject(member), sort_keys=True) for member in team.members}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(f"{role_name(CLUSTER)}-{team.name}", team, cluster=True),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role_name(CLUSTER)},
        "subjects": sorted(map(json.loads, subjects), key=in_order),
    }


def in_order(one: Json) -> tuple[str, str, str]:
    """By kind, namespace and name."""
    return one["kind"], one.get("namespace", ""), one["name"]
