"""Documentation of the action lab_node, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_node
short_description: Create or remove a node of the lab, or remove the whole lab
description:
  - V(present) creates what is missing and starts nothing.
  - V(absent) ends every process of the node and removes its namespaces and cgroup; its files stay.
  - V(no_lab) does so for all nodes, then removes the switch, the host's link and, without O(keep), O(folder).
author:
  - The Gangplank authors (!UNKNOWN)
options:
  name:
    description: The node; required but with V(no_lab).
    type: str
  state:
    description: What to ensure.
    type: str
    choices:
      - present
      - absent
      - no_lab
    default: present
  keep:
    description: Keep O(folder) with V(no_lab).
    type: bool
    default: false
  folder:
    description: Folder of the lab's data.
    type: path
    required: true
  tree:
    description: Root file system that the node shows, read-only; required with O(state=present).
    type: path
  address:
    description: The node's address with its prefix length; required with O(state=present).
    type: str
  host_address:
    description: The host's address on the lab's network, with its prefix length; required with O(state=present).
    type: str
  routes:
    description: 'How ranges are reached, such as C({198.18.65.0/24: via 198.18.0.2}).'
    type: dict
    default: {}
  binds:
    description: Folders of the host that the node sees.
    type: list
    elements: dict
    default: []
    suboptions:
      source:
        description: Folder of the host.
        type: path
        required: true
      target:
        description: Where the node sees it.
        type: path
        required: true
      writable:
        description: Whether the node may write to it.
        type: bool
        default: false
"""

RETURN = r"""
---
healed:
  description: What an existing node lacked and was created again, a line each.
  type: list
  returned: with V(present), not in check mode
"""
