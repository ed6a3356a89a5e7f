"""Documentation of the action cluster_logs, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_logs
short_description: Read the logs of pods, several in one call
description:
  - Reads the log of each pod's last container. A pod without a log, because it is gone or has not started, is left out.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
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
"""

EXAMPLES = r"""
---
- name: Read the last lines of a pod
  gangplank.gangplank.cluster_logs:
    pods: [{metadata: {name: digits-worker-0, namespace: default}}]
    lines: 20
  register: last_lines
"""

RETURN = r"""
---
logs:
  description: The log of each pod, by the pod's name.
  type: dict
  returned: always
"""
