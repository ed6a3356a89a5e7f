"""Documentation of the action lab_images, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_images
short_description: Ensure that the nodes of the lab have images
description:
  - With O(prepared), places a prepared image store where a node has none, before it starts.
  - Else imports the images that a store lacks, also those that were removed from it.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  stores:
    description: Folder of each node's own image store, by the node's name.
    type: dict
    required: true
  prepared:
    description: A prepared store.
    type: path
  seen:
    description: Where a node sees the folder of all prepared stores.
    type: str
    default: ''
  images:
    description: Images with C(name) and C(archive), to import.
    type: list
    elements: dict
    default: []
  commands:
    description: Folder of containerd's commands, as a node sees it; required with O(images).
    type: str
    default: ''
"""

RETURN = r"""
---
imported:
  description: Names of the imported images, by node.
  type: dict
  returned: without prepared
"""
