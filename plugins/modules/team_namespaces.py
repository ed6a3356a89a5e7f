"""Documentation of the action team_namespaces, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: team_namespaces
short_description: Create the namespaces of new teams
description:
  - A namespace that another user created since the plan is refused and stays as it is.
author:
  - The Gangplank authors
options:
  definition:
    description: The namespaces.
    type: list
    elements: dict
    required: true
  kubeconfig:
    description: A kubeconfig. Without it that of E(K8S_AUTH_KUBECONFIG), else of E(KUBECONFIG), else C(~/.kube/config);
      the context is that of E(K8S_AUTH_CONTEXT), if set.
    type: path
"""

RETURN = ""
