"""Who may do what in a team's namespace: one ClusterRole per role of a member, bound by name in that namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.teams.metadata import metadata
from gangplank.teams.spec import ROLES

if TYPE_CHECKING:
    from gangplank.backends.base import JobKinds
    from gangplank.spec import Json
    from gangplank.teams.spec import Member, TeamSpec

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete")
GROUP = "rbac.authorization.k8s.io"

Rows = list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]


def job_kinds() -> list[JobKinds]:
    """All kinds that are jobs: what the back-ends submit, and their own kinds that repeat or chain jobs."""
    kinds = (kinds for backend in BACKENDS.values() for kinds in backend.job_kinds)
    return sorted(kinds, key=lambda kinds: kinds.group)


def rows() -> Rows:
    """Role, API group, resources and verbs; each role also has the rows of the roles before it."""
    jobs = [(kinds.group, kinds.plurals) for kinds in job_kinds()]
    gangs, commands = QUEUE_SYSTEM.pod_group, QUEUE_SYSTEM.command
    return [
        ("viewer", "", ("pods", "pods/log", "services", "configmaps", "persistentvolumeclaims", "events"), READ),
        ("viewer", "", ("resourcequotas", "limitranges"), READ),
        ("viewer", gangs.group, (gangs.plural,), READ),
        *(("viewer", group, kinds, READ) for group, kinds in jobs),
        *(("trainer", group, kinds, WRITE) for group, kinds in jobs),
        ("trainer", "", ("configmaps", "services"), WRITE),  # a job's script, and the name of its meeting point
        ("trainer", "", ("pods",), ("create", "delete")),  # the pod that reads a job's evidence from its claim
        ("trainer", commands.group, (commands.plural,), ("create",)),  # abort and resume
        ("lead", "", ("pods/exec", "pods/attach", "pods/portforward"), ("get", "create")),
        ("lead", "", ("secrets",), (*READ, *WRITE)),
    ]


def role_name(role: str) -> str:
    """The name of a role's ClusterRole and of its bindings.

    >>> role_name("lead")
    'gangplank-team-lead'
    """
    return f"gangplank-team-{role}"


def roles() -> list[Json]:
    """The three ClusterRoles; they grant nothing until they are bound, and are only bound in teams' namespaces."""
    cluster_roles = []
    for index, role in enumerate(ROLES):
        own = [row for row in rows() if row[0] in ROLES[: index + 1]]
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
            "subjects": sorted(members, key=lambda item: (item["kind"], item.get("namespace", ""), item["name"])),
        }
        role_bindings.append(binding)
    return role_bindings
