"""Which cluster is meant: one order for kubeconfigs everywhere, and the cluster that a site's inventory names."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gangplank.errors import KubeError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gangplank.cluster.client import Kube

FILES = ("K8S_AUTH_KUBECONFIG", "KUBECONFIG")  # in this order; without both it is the file in the home
CONTEXT = "K8S_AUTH_CONTEXT"
ORDER = f"{', else of '.join(FILES)}, else ~/.kube/config"
HASH = "sha256:"
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
NAMED = "the cluster that site_cluster names in the inventory"


def chosen(
    kubeconfig: str | None, context: str | None, environment: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The kubeconfig and context to use; None stands for the file in the home, and for its current context.

    >>> chosen(None, None, {"KUBECONFIG": "/b", "K8S_AUTH_KUBECONFIG": "/a"})
    ('/a', None)
    >>> chosen("/c", None, {"K8S_AUTH_KUBECONFIG": "/a", "K8S_AUTH_CONTEXT": "lab"})
    ('/c', 'lab')
    """
    files = (environment.get(name) for name in FILES)
    return kubeconfig or next(filter(None, files), None), context or environment.get(CONTEXT) or None


def hashes(certificates: str) -> list[str]:
    """The sha256 of each certificate, as `openssl x509 -fingerprint -sha256` prints it, but in our notation."""
    ders = (base64.b64decode("".join(body.split())) for body in CERTIFICATE.findall(certificates))
    return [f"{HASH}{hashlib.sha256(der).hexdigest()}" for der in ders]


def address(text: str) -> tuple[str, int, str] | None:
    """Host, port and path of an API server's address; None if it is not one. Behind one host can be many clusters.

    >>> address("https://Api.example.org/k8s/clusters/c-1/"), address("api.example.org:6443"), address("api")
    (('api.example.org', 443, '/k8s/clusters/c-1'), ('api.example.org', 6443, ''), None)
    """
    try:
        parts = urlsplit(text if "//" in text else f"//{text}")
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port, parts.path.rstrip("/")) if parts.hostname and port else None


def other_cluster(kube: Kube, expected: str) -> Iterator[Problem]:
    """The problem with a cluster that is not the one that `expected` names by its address or by the hash of its CA."""
    settings = kube.api.configuration
    wanted = expected.strip()
    if wanted.lower().startswith(HASH):
        digest = wanted.lower().replace(":", "").removeprefix("sha256")
        own = ca_hashes(kube)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            fix = "write sha256: and 64 hexadecimal digits, as `gangplank preflight` prints them"
            yield Problem("site_cluster", wanted, "an address, or the sha256 of a CA's certificate", fix)
        elif f"{HASH}{digest}" not in own:
            got = f"one whose CA is {', '.join(own) or 'not in the kubeconfig, or not checked'}"
            yield Problem(str(kube), got, f"{NAMED}, {wanted}", _fix())
    elif (place := address(wanted)) is None:
        fix = "write it as the kubeconfig does, for example https://api.example.org:6443"
        yield Problem("site_cluster", wanted, "an API server's address, or the sha256 of its CA's certificate", fix)
    elif place != address(settings.host):
        yield Problem(str(kube), "another cluster", f"{NAMED}, {wanted}", _fix())


def ca_hashes(kube: Kube) -> list[str]:
    """The hashes of the authorities that this kubeconfig trusts; none if it does not check the server."""
    settings = kube.api.configuration
    if not settings.verify_ssl or not settings.ssl_ca_cert:
        return []
    try:
        return hashes(Path(settings.ssl_ca_cert).read_text())
    except (OSError, ValueError) as error:
        problem = Problem(settings.ssl_ca_cert, str(error), "certificates", "correct the kubeconfig")
        raise KubeError(str(problem)) from None


def _fix() -> str:
    return f"choose it (the kubeconfig is that of {ORDER}; the context that of {CONTEXT}), or correct site_cluster"
