"""Print every object of every resource of the cluster, one a line, but for those that come and go by themselves."""

from __future__ import annotations

import os
import tempfile

from kubernetes import config
from openshift import dynamic

# Events and reports of what happened, the name server's view of Services, heartbeats and elections.
FLEETING = {"events", "endpoints", "endpointslices", "leases", "componentstatuses", "controllerrevisions"}
ACCEPT = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def main() -> None:
    """Read the cluster of K8S_AUTH_KUBECONFIG."""
    api = config.new_client_from_config(os.environ["K8S_AUTH_KUBECONFIG"])
    with tempfile.TemporaryDirectory() as fresh:  # what was found before, here or in another run, may be gone
        show(dynamic.DynamicClient(api, cache_file=f"{fresh}/kinds.json"))


def show(client: dynamic.DynamicClient) -> None:
    """Print what a cluster has."""
    found = set()
    for resource in client.resources.search():
        listed = isinstance(resource, dynamic.resource.Resource) and "list" in (resource.verbs or [])
        if not listed or resource.name in FLEETING:
            continue
        for item in client.get(resource, header_params={"Accept": ACCEPT}).to_dict()["items"]:
            meta = item["metadata"]
            owner = meta.get("ownerReferences") or meta.get("generateName")
            if not (resource.name in ("pods", "replicasets") and owner):  # what controllers make has changing names
                found.add(f"{resource.group}/{resource.name} {meta.get('namespace', '')}/{meta['name']}")
    print("\n".join(sorted(found)))


if __name__ == "__main__":
    main()
