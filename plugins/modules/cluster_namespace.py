"""Documentation of the action cluster_namespace, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_namespace
short_description: What others keep in a namespace, of every kind that the cluster has
description:
  - Whether a namespace was created by a role, which its labels say, and which objects in it keep it from being removed.
  - What every namespace has, what another object owns, and what is being removed already keeps no namespace.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  name:
    description: Name of the namespace.
    type: str
    required: true
  labels:
    description: Labels that the namespace must have. One without them is not looked into.
    type: dict
    default: {}
"""

EXAMPLES = r"""
---
- name: Look for what others keep in the namespace
  gangplank.gangplank.cluster_namespace:
    name: volcano-system
    labels: {app.kubernetes.io/managed-by: gangplank}
"""

RETURN = r"""
---
ours:
  description: Whether the namespace exists and has the labels.
  type: bool
  returned: always
kept_by:
  description: The objects, as Kind/name. The last entries name kinds that could not be listed, and why.
  type: list
  elements: str
  returned: always
"""
