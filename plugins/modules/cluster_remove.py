"""Documentation of the action cluster_remove, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_remove
short_description: Remove named objects of the cluster, and wait until they are gone
description:
  - Removes the objects that O(definition) and O(paths) name, one after the other, and nothing else. Objects that do not
    exist, and kinds that the cluster does not know, count as removed.
  - Looks for all of them before the first is deleted. An object that is created under the same name meanwhile stays.
  - Check mode asks the server and removes nothing.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  definition:
    description: Objects, of which only C(apiVersion), C(kind), C(metadata.name) and C(metadata.namespace) are read.
    type: list
    elements: dict
    default: []
  paths:
    description: Paths of the API, as C(kubectl get --raw) takes them. A path of all objects of a kind needs a
      C(labelSelector) or a C(fieldSelector).
    type: list
    elements: str
    default: []
  propagation:
    description: Whether the objects that belong to one are removed after it (V(Background)) or before it
      (V(Foreground)).
    type: str
    choices: [Background, Foreground]
    default: Background
  timeout_s:
    description: Seconds to wait until each object is gone; V(0) does not wait.
    type: float
    default: 0
"""

EXAMPLES = r"""
---
- name: Ensure that a volume claim is gone
  gangplank.gangplank.cluster_remove:
    paths: [/api/v1/namespaces/vision/persistentvolumeclaims/data]
    timeout_s: 60
"""

RETURN = r"""
---
removed:
  description: The objects whose removal was requested, such as C(Secret default/token).
  type: list
  elements: str
  returned: always
"""
