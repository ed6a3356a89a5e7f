"""Documentation of the action lab_images, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_images
short_description: Ensure that a node of the lab has images
description:
  - With O(store), places a prepared image store before the node starts. Else imports the images that the store
    lacks, also those that were removed from it.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  folder:
    description: The node's image store.
    type: path
    required: true
  store:
    description: A prepared store, placed where O(folder) does not exist.
    type: path
  seen:
    description: Where the node sees the folder of all stores.
    type: str
    default: ''
  images:
    description: Images with C(name) and C(archive), to import.
    type: list
    elements: dict
    default: []
  ctr:
    description: The command that runs containerd's C(ctr) for this node.
    type: list
    elements: str
    default: []
"""

RETURN = r"""
---
imported:
  description: Names of the imported images.
  type: list
  returned: without store
"""
