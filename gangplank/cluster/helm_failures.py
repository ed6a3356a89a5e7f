"""Why Helm failed, as far as the API server or the way to it may be better in a moment: then Helm is asked again."""

from __future__ import annotations

import re

# What client-go says of 429, 500, 502, 503 and 504, and of connections that break; not of a release that does not run.
CAUSES = (
    "cluster unreachable", "connection refused", "connection reset", "broken pipe", r"\bEOF\b", "TLS handshake timeout",
    "i/o timeout", "client connection lost", "server sent GOAWAY", "no route to host", "network is unreachable",
    "request canceled", "received too many requests", "Internal error occurred", "an error on the server",
    "currently unable to handle the request", "in the time allotted", "etcdserver: ", "too old resource version",
    "provided continue parameter is too old",
    "failed to delete release",  # whatever the cause: of a removal Helm does not say it
)  # fmt: skip
TEMPORARY = re.compile("|".join(CAUSES), re.IGNORECASE)


def temporary(output: str) -> str:
    r"""What Helm says is wrong, if the cause may pass; '' if it failed for another one.

    >>> temporary("stderr: Error: INSTALLATION FAILED: 1 error occurred:\n\t* Post \"https://k8s/api\": EOF\n\n")
    'INSTALLATION FAILED: 1 error occurred: * Post "https://k8s/api": EOF'
    >>> temporary("Error: UPGRADE FAILED: context deadline exceeded"), temporary("an EOF that is no error of Helm's")
    ('', '')
    >>> temporary("Error: failed to delete release: small")
    'failed to delete release: small'
    """
    said = " ".join(output.partition("Error: ")[2].split())
    return said if TEMPORARY.search(said) else ""
