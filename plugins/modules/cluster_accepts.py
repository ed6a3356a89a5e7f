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
  - The Gangplank authors
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

RETURN = r"""
---
msg:
  description: The server's last answer.
  type: str
  returned: always
"""
