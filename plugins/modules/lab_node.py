"""Documentation of the action lab_node, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_node
short_description: Ensure the nodes of the lab, remove one, or remove the whole lab
description:
  - V(present) creates what is missing and starts nothing.
  - V(absent) ends every process of a node and removes its namespaces, its cgroup and, without O(keep), O(folder).
  - V(no_lab) does so for all nodes, then removes the switch, the host's link and, without O(keep), O(folder).
author:
  - The Gangplank authors (!UNKNOWN)
options:
  state:
    description: What to ensure.
    type: str
    choices:
      - present
      - absent
      - no_lab
    default: present
  nodes:
    description: All nodes; required with O(state=present).
    type: list
    elements: dict
    suboptions:
      name:
        description: Its name.
        type: str
        required: true
      folder:
        description: Folder of its data.
        type: path
        required: true
      address:
        description: Its address. The prefix length is that of O(host_address).
        type: str
        required: true
      pods:
        description: The range of its pods, to which the other nodes get a route.
        type: str
        required: true
      binds:
        description: Folders of the host that it sees.
        type: list
        elements: dict
        default: []
        suboptions:
          source:
            description: Folder of the host; without a leading C(/), below the folder of the node.
            type: str
            required: true
          target:
            description: Where the node sees it.
            type: path
            required: true
          writable:
            description: Whether the node may write to it.
            type: bool
            default: false
  tree:
    description: Root file system that the nodes show, read-only; required with O(state=present).
    type: path
  host_address:
    description: The host's address on the lab's network, with its prefix length; required with O(state=present).
    type: str
  services:
    description: The range of the cluster's Services; required with O(state=present).
    type: str
  name:
    description: The node to remove; required with O(state=absent).
    type: str
  folder:
    description: Folder of the lab's data, or of the node's with V(absent); required with both.
    type: path
  keep:
    description: Keep O(folder) with V(absent) and V(no_lab).
    type: bool
    default: false
"""

RETURN = r"""
---
healed:
  description: What existing nodes lacked and was created again, a line each.
  type: list
  returned: with V(present), not in check mode
"""
