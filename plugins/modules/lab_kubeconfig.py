"""Documentation of the action lab_kubeconfig, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_kubeconfig
short_description: Add the lab's context to the user's kubeconfig, or remove it
description:
  - Changes only the cluster, user and context of that name. The current context is set only where none was.
  - The lab's folder notes which files have it, so that it is removed from each, whatever the environment is by then.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  context:
    description: Name of the context.
    type: str
    required: true
  folder:
    description: The lab's folder.
    type: path
    required: true
  admin:
    description: The lab's own kubeconfig; required with O(state=present).
    type: path
  server:
    description: The URL of the lab's API server; required with O(state=free).
    type: str
  state:
    description:
      - Whether the context should exist. V(absent) leaves what another lab, or the user, has under that name.
      - V(free) changes nothing, and refuses a file with entries of that name that are not the lab's.
    type: str
    choices:
      - present
      - absent
      - free
    default: present
"""

RETURN = r"""
---
path:
  description: The user's kubeconfig.
  type: str
  returned: always
"""
