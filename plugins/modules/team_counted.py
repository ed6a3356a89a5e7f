"""Documentation of the action team_counted, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: team_counted
short_description: Wait until the quotas of all teams count what they limit
description:
  - Until then the cluster refuses every job of such a kind.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  timeout_s:
    description: Seconds to wait.
    type: float
    required: true
"""

EXAMPLES = r"""
---
- name: Wait until every quota is counted
  gangplank.gangplank.team_counted:
    timeout_s: 60
"""

RETURN = ""
