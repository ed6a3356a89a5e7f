"""Documentation of the action cluster_apply, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_apply
short_description: Ensure that objects of the cluster are as defined
description:
  - Server-side apply of many objects in one call, in order.
  - Check mode asks the server and changes nothing. Secrets are not in the diff.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  definition:
    description: The objects.
    type: list
    elements: dict
    default: []
  files:
    description: Files with objects in YAML, or their addresses. That of a file in the folder C(crds/) of a chart in a
      registry is C(oci://REGISTRY/CHART:VERSION/FILE), for which helm must be on E(PATH).
    type: list
    elements: str
    default: []
  sha256:
    description: The sha256 of each file, by the last part of its path. An address needs one. If any file differs,
      nothing is applied.
    type: dict
    default: {}
  merge:
    description: Use a JSON merge patch instead of server-side apply. Lists are replaced, keys whose value is null are
      removed, and objects that do not exist are created.
    type: bool
    default: false
  create:
    description: Whether O(merge=true) creates objects that do not exist.
    type: bool
    default: true
"""

EXAMPLES = r"""
---
- name: Ensure a namespace
  gangplank.gangplank.cluster_apply:
    definition:
      - {apiVersion: v1, kind: Namespace, metadata: {name: vision}}

- name: Ensure the objects of a file, if it has these bytes
  gangplank.gangplank.cluster_apply:
    files: [/opt/site/crds/jobs.yaml]
    sha256: {jobs.yaml: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08}
"""

RETURN = ""
