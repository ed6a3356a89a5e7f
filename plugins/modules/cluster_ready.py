"""Documentation of the action cluster_ready, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_ready
short_description: Name the cluster that a run will change, and refuse one that it cannot change to the end
description:
  - All that is missing is reported in one message, before anything is changed.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors
options:
  programs:
    description: Programs that must be on E(PATH).
    type: list
    elements: str
    default: []
  may:
    description: Rights that the account must have in the whole cluster, such as C(create namespaces).
    type: list
    elements: str
    default: []
"""

RETURN = ""
