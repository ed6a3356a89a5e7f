"""Documentation of the action cluster_read, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_read
short_description: Read objects of the cluster, several kinds in one call
description:
  - A kind or object that the cluster does not know is an empty list, not an error.
  - With O(conditions) it waits until every path has objects and each of them has one of these conditions.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  paths:
    description: Paths of the API, as C(kubectl get --raw) takes them.
    type: list
    elements: str
    required: true
  conditions:
    description: Types of conditions, such as C(Established). One of them must be C("True") in the object's status, and
      the status must be about the object's present version.
    type: list
    elements: str
    default: []
  timeout_s:
    description: Seconds to wait for O(conditions).
    type: float
    default: 0
"""

EXAMPLES = r"""
---
- name: Wait until Volcano's scheduler runs
  gangplank.gangplank.cluster_read:
    paths: [/apis/apps/v1/namespaces/volcano-system/deployments/volcano-scheduler]
    conditions: [Available]
    timeout_s: 120
"""

RETURN = r"""
---
found:
  description: For each path a list of objects.
  type: list
  returned: always
"""
