"""What a team's pods may talk to: each other, the cluster's DNS, and what the team's file names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.teams.metadata import metadata

if TYPE_CHECKING:
    from gangplank.spec import Json
    from gangplank.teams.spec import TeamSpec

DNS_NAMESPACE = "kube-system"
DNS_PORTS = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
NAME = "kubernetes.io/metadata.name"  # a label that every namespace has


def spaces(*names: str) -> Json:
    """All pods of some namespaces, as a peer of a rule."""
    return {"namespaceSelector": {"matchExpressions": [{"key": NAME, "operator": "In", "values": [*names]}]}}


def policy(name: str, team: TeamSpec, ingress: list[Json], egress: list[Json]) -> Json:
    """A NetworkPolicy for all pods of a team, in both directions."""
    body = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    rules = {**({"ingress": ingress} if ingress else {}), **({"egress": egress} if egress else {})}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    return {**kind, "metadata": metadata(name, team), "spec": {**body, **rules}}


def network(team: TeamSpec) -> list[Json]:
    """One policy that allows nothing, one with what is allowed. Volcano adds one per job, which allows nothing more."""
    ingress: list[Json] = [{"from": [{"podSelector": {}}]}]
    if team.talk_in:
        ingress.append({"from": [spaces(*team.talk_in)]})
    egress: list[Json] = [{"to": [{"podSelector": {}}]}, {"to": [spaces(DNS_NAMESPACE)], "ports": [*DNS_PORTS]}]
    for outside in team.talk_out:
        ports = [{"protocol": "TCP", "port": port} for port in outside.ports]
        egress.append({"to": [{"ipBlock": {"cidr": outside.cidr}}], **({"ports": ports} if ports else {})})
    return [policy("gangplank-nothing", team, [], []), policy("gangplank-allowed", team, ingress, egress)]
