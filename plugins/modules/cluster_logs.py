"""Documentation of the action cluster_logs, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_logs
short_description: Read the logs of pods, several in one call
description:
  - Reads the log of each pod's last container. A pod without a log, because it is gone or has not started, is left out.
author:
  - The Gangplank authors
options:
  pods:
    description: The pods, as C(cluster_read) returns them.
    type: list
    elements: dict
    required: true
  lines:
    description: Only that many lines, the last ones; V(0) reads all of them.
    type: int
    default: 0
  kubeconfig:
    description: A kubeconfig. Without it that of E(K8S_AUTH_KUBECONFIG), else of E(KUBECONFIG), else C(~/.kube/config);
      the context is that of E(K8S_AUTH_CONTEXT), if set.
    type: path
"""

RETURN = r"""
---
logs:
  description: The log of each pod, by the pod's name.
  type: dict
  returned: always
"""
