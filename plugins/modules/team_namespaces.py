"""Documentation of the action team_namespaces, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: team_namespaces
short_description: Create the namespaces of new teams
description:
  - A namespace that another user created since the plan is refused and stays as it is.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  definition:
    description: The namespaces.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
---
- name: Create a namespace together with its quota
  gangplank.gangplank.team_namespaces:
    definition:
      - {apiVersion: v1, kind: Namespace, metadata: {name: vision}}
"""

RETURN = ""
