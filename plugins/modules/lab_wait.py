"""Documentation of the action lab_wait, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_wait
short_description: Wait until the lab's API answers and its nodes are Ready
description:
  - On timeout it names what is not ready, and shows the last lines of the programs that matter for it.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  kubeconfig:
    description: The administrator's kubeconfig.
    type: path
    required: true
  nodes:
    description: Names of the nodes.
    type: list
    elements: str
    required: true
  timeout_s:
    description: Seconds to wait.
    type: int
    required: true
  logs:
    description: Folder of the programs' logs.
    type: path
    required: true
  socket:
    description: Socket of the lab's supervisord. A node's condition counts only from when its kubelet was started.
    type: path
    required: true
"""

RETURN = r"""
---
waited_s:
  description: Seconds that it took.
  type: float
  returned: always
"""
