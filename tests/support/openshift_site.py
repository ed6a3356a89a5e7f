"""What an OpenShift site has granted, as that platform's own dynamic client reads it."""

from __future__ import annotations

import tempfile
from typing import Any

from kubernetes import config
from openshift import dynamic

GROUP, KIND = "security.openshift.io", "SecurityContextConstraints"


def constraints(kubeconfig: str) -> list[dict[str, Any]] | None:
    """All SecurityContextConstraints of a cluster; None where it does not have that kind."""
    api = config.new_client_from_config(kubeconfig)
    with tempfile.TemporaryDirectory() as fresh:  # of what an earlier run has seen, kinds may be gone
        client = dynamic.DynamicClient(api, cache_file=f"{fresh}/kinds.json")
        kinds = client.resources.search(group=GROUP, kind=KIND)
        return list(client.get(kinds[0]).to_dict()["items"]) if kinds else None
