"""Documentation of the action cluster_accepts, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_accepts
short_description: Wait until the cluster accepts an object, or refuses it for the expected reason
description:
  - Asks the server's dry run, and so every webhook, its certificate and its answer; nothing is created.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  definition:
    description: The object.
    type: dict
    required: true
  refusal:
    description: Words that the refusal must have. Without them the object must be accepted.
    type: str
    default: ''
  timeout_s:
    description: Seconds to wait for the right answer.
    type: float
    required: true
"""

EXAMPLES = r"""
---
- name: Wait until Volcano's webhooks answer
  gangplank.gangplank.cluster_accepts:
    definition: {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: probe}, spec: {weight: 1}}
    timeout_s: 120
"""

RETURN = r"""
---
msg:
  description: The server's last answer.
  type: str
  returned: always
"""
