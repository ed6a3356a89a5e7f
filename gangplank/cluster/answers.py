"""What an API server answers, read as the object it has to be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gangplank.errors import KubeError, Problem, shown

if TYPE_CHECKING:
    from gangplank.spec import Json

BEGINNING = 60  # characters of a foreign answer that a message shows


def read(text: bytes, where: str) -> Json:
    """The object in an answer; raises KubeError if something else, such as a proxy's login page, has answered.

    Who is patient asks again: what stands before an API server may answer in its place while that one restarts.

    >>> read(b'{"items": []}', "https://k8s.example/api/v1/pods")
    {'items': []}
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        return answer
    beginning = text[:BEGINNING].decode("utf-8", "replace")
    fix = "check the server's address in the kubeconfig, and whether a proxy or a login page answers in its place"
    problem = Problem(where, f"the answer {shown(beginning)}", "a JSON object, as an API server sends", fix)
    raise KubeError(str(problem), silence="something else answers in its place")
