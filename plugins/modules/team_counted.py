"""Documentation of the action team_counted, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: team_counted
short_description: Wait until the quotas of all teams count what they limit
description:
  - Until then the cluster refuses every job of such a kind.
author:
  - The Gangplank authors
options:
  timeout_s:
    description: Seconds to wait.
    type: float
    required: true
  kubeconfig:
    description: A kubeconfig. Without it that of E(K8S_AUTH_KUBECONFIG), else of E(KUBECONFIG), else C(~/.kube/config);
      the context is that of E(K8S_AUTH_CONTEXT), if set.
    type: path
"""

RETURN = ""
