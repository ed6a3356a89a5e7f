"""A member's kubeconfig: a client certificate of a few hours from the cluster, with the member's name and no group.

Rights come only from bindings by name: a certificate that is still valid grants nothing once no binding has the name.
https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/
"""

from __future__ import annotations

import base64
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.errors import KubeError, Problem, SpecError, shown
from gangplank.k8s.dump import as_yaml
from gangplank.reading import files
from gangplank.teams.metadata import PART_LABEL, TEAM_PART
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

LEAST_S, MOST_S = 600, 8 * 3600  # Kubernetes signs for at least ten minutes
SIGNER = "kubernetes.io/kube-apiserver-client"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CONFLICT = 409
LONGEST = 64  # bytes of a certificate's common name (RFC 5280, ub-common-name)
SIGNED_S, POLL_S = 60, 0.1  # the longest that signing may take; the pause between two requests


@dataclass(frozen=True)
class MemberKubeconfig:
    """A kubeconfig's text, which is secret, and when its certificate expires."""

    text: str
    until: str


def seconds(text: str) -> int:
    """A time like 8h, 90m or 600s in seconds.

    >>> seconds("8h"), seconds("90m")
    (28800, 5400)
    """
    match = re.fullmatch(r"(\d{1,6})([hms])", text, re.ASCII)
    value = int(match[1]) * {"h": 3600, "m": 60, "s": 1}[match[2]] if match else 0
    if not LEAST_S <= value <= MOST_S:
        raise SpecError([Problem("--ttl", shown(text), "a time from 10m to 8h, e.g. 8h or 90m")], "team kubeconfig")
    return value


def plain_name(text: str) -> str:
    """A name as part of a file name.

    >>> plain_name("ada@example.org"), plain_name("../x")
    ('ada-example.org', '..-x')
    """
    return re.sub(r"[^\w.-]", "-", text, flags=re.ASCII)


def namespace_of(kube: Kube, team: str) -> str:
    """The namespace of a team: of those that it has left, which stay, no member has access."""
    selector = ",".join(f"{key}={value}" for key, value in {**TEAM_PART, TEAM_LABEL: team}.items())
    namespaces = kube.call("GET", "/api/v1/namespaces", query={"labelSelector": selector})["items"]
    if not namespaces:
        fix = "name a team that has a file, and run playbooks/teams.yml, which creates it"
        raise KubeError(str(Problem(f"team {team}", "nothing", "a team of this cluster", fix)), 404)
    names = [str(item["metadata"]["name"]) for item in namespaces]
    return next((name for name in names[:-1] if bindings_in(kube, name)), names[-1])


def bindings_in(kube: Kube, namespace: str) -> list[Json]:
    """The bindings of a team's members in a namespace."""
    where = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"
    query = {"labelSelector": f"{PART_LABEL}={TEAM_PART[PART_LABEL]}"}
    bindings: list[Json] = kube.call("GET", where, query=query)["items"]
    return bindings


def check_member(kube: Kube, namespace: str, team: str, member: str) -> None:
    """Refuse a name that is not a user of the team: the certificate could impersonate anyone."""
    subjects = [one for item in bindings_in(kube, namespace) for one in item.get("subjects") or []]
    users = sorted({one["name"] for one in subjects if one["kind"] == "User"})
    if member not in users or member.startswith("system:"):
        expected = f"one of {', '.join(users) or 'nobody yet'}"
        fix = "add the user to the team's team_members and run playbooks/teams.yml"
        raise SpecError([Problem("MEMBER", shown(member), expected, fix)], f"team {team}")


def issue_certificate(kube: Kube, member: str, request: bytes, ttl_s: int) -> str:
    """The certificate that the cluster issues for a request, in PEM; the request itself is deleted again."""
    spec = {
        "request": base64.b64encode(request).decode(),
        "signerName": SIGNER,
        "expirationSeconds": ttl_s,
        "usages": ["client auth", "digital signature"],
    }
    meta = {"name": f"gangplank-team-{secrets.token_hex(6)}"}  # no other run has it: it can be sent again
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": meta, "spec": spec}
    pending = kube.post(REQUESTS, body, unique=True)
    where = f"{REQUESTS}/{pending['metadata']['name']}"
    try:
        approved = {"type": "Approved", "status": "True", "reason": "Gangplank", "message": f"kubeconfig of {member}"}
        try:
            kube.call("PUT", f"{where}/approval", {**pending, "status": {"conditions": [approved]}}, repeat=True)
        except KubeError as error:
            if error.status != CONFLICT:  # it was carried out before its answer was lost
                raise
        for _ in polls(SIGNED_S, POLL_S):
            status = kube.call("GET", where).get("status") or {}
            if text := status.get("certificate"):
                return base64.b64decode(text).decode()
            if refusals := [one for one in status.get("conditions", []) if one["type"] in {"Failed", "Denied"}]:
                got, fix = str(refusals[0].get("message")), f"ask an administrator what refuses requests for {SIGNER}"
                expected = "one that the cluster has signed"
                raise KubeError(str(Problem(f"the certificate of {member}", got, expected, fix)))
    finally:
        kube.delete_at(where, pending["metadata"]["uid"])
    fix = "check that kube-controller-manager has a signing key (--cluster-signing-key-file)"
    raise KubeError(late(f"the certificate of {member}", "none", "one that the cluster has signed", SIGNED_S, fix))


def refuse_another(name: str, team: str, member: str) -> None:
    """Refuse to replace an existing file, unless it is an earlier kubeconfig of this member: names may collide."""
    place = Path(name)
    if not place.exists() or not place.stat().st_size:
        return
    try:
        content = yaml.safe_load(place.read_text())
        contexts = [one["name"] for one in content["contexts"]]
    except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
        contexts = []
    if contexts != [context_of(member, team)]:
        expected = f"none, or an earlier kubeconfig of {member} in team {team}"
        fix = "name another file with --output, or move this one away"
        raise SpecError([Problem(name, "a file with other content", expected, fix)], "team kubeconfig")


def context_of(member: str, team: str) -> str:
    """What the context of a member's kubeconfig is called."""
    return f"{member}@{team}"


def make(kube: Kube, team: str, member: str, ttl_s: int) -> MemberKubeconfig:
    """The kubeconfig of one member of a team."""
    if len(member.encode(errors="replace")) > LONGEST:
        fix = "let this member log in by other means (e.g. OIDC), or use a shorter name in team_members"
        expected = f"a name of at most {LONGEST} bytes, all that a certificate has room for"
        raise SpecError([Problem("MEMBER", shown(member), expected, fix)], f"team {team}")
    namespace = namespace_of(kube, team)
    check_member(kube, namespace, team, member)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, member)])  # an organisation would be a group
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    certificate = issue_certificate(kube, member, request.public_bytes(serialization.Encoding.PEM), ttl_s)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    own = x509.load_pem_x509_certificate(certificate.encode())
    settings = kube.api.configuration
    cluster: Json = {"server": settings.host}
    if settings.ssl_ca_cert:
        cluster["certificate-authority-data"] = base64.b64encode(Path(settings.ssl_ca_cert).read_bytes()).decode()
    if getattr(settings, "tls_server_name", None):
        cluster["tls-server-name"] = settings.tls_server_name
    user = {
        "client-certificate-data": base64.b64encode(certificate.encode()).decode(),
        "client-key-data": base64.b64encode(private).decode(),
    }
    context = context_of(member, team)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": team, "cluster": cluster}],
        "users": [{"name": member, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": team, "user": member, "namespace": namespace}}],
        "current-context": context,
    }
    return MemberKubeconfig(as_yaml([content]), f"{own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")


def write(name: str, text: str) -> None:
    """Write a secret to a file that only its owner can ever read."""
    try:
        files.write(Path(name), text, 0o600)
    except OSError as error:
        expected = f"a file that can be written ({error.strerror})"
        problem = Problem("--output", shown(name), expected, "choose another file with --output")
        raise SpecError([problem], "team kubeconfig") from None
