"""Which requests to an API server change nothing."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

OWN_RIGHTS = re.compile(r"/apis/authorization\.k8s\.io/v1/selfsubject(access|rules)reviews")


def reads(request: str) -> bool:
    """Whether a request changes nothing. A DELETE has its dryRun in its body: the API server ignores its query."""
    method, _, address = request.partition(" ")
    where, _, query = address.partition("?")
    dry = method in {"POST", "PATCH"} and parse_qs(query).get("dryRun") == ["All"]
    return method in {"GET", "HEAD"} or dry or (method == "POST" and bool(OWN_RIGHTS.fullmatch(where)))
