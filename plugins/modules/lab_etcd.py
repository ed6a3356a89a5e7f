"""Documentation of the action lab_etcd, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_etcd
short_description: Ensure that the lab's etcd takes writes
description:
  - Waits until etcd answers. If its space alarm is on, it compacts and defragments etcd, and ends the alarm.
  - Fails if the objects themselves fill the quota.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  node:
    description: The node with the control plane.
    type: str
    required: true
  pki:
    description: Folder of the lab's certificates.
    type: path
    required: true
  timeout_s:
    description: Seconds to wait for etcd.
    type: int
    required: true
"""

RETURN = r"""
---
healed:
  description: What was done about the alarm; empty if it is off.
  type: str
  returned: always
"""
