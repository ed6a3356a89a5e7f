"""Documentation of the action cluster_nodes, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_nodes
short_description: Ensure that nodes have labels and taints, or no longer have them
description:
  - All other labels and taints of the nodes stay. A taint is known by its key and effect.
  - Check mode asks the server and changes nothing.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  names:
    description: Names of the nodes. With O(state=present) each must exist.
    type: list
    elements: str
    required: true
  labels:
    description: Labels. With O(state=absent) and without O(owner), their values do not count.
    type: dict
    default: {}
  taints:
    description: Taints.
    type: list
    elements: dict
    default: []
    suboptions:
      key:
        description: Its key, such as C(nvidia.com/gpu).
        type: str
        required: true
      value:
        description: Its value. With O(state=absent) and without O(owner), it does not count.
        type: str
        default: ''
      effect:
        description: What it does to pods that do not tolerate it.
        type: str
        required: true
        choices: [NoSchedule, PreferNoSchedule, NoExecute]
  state:
    description:
      - Whether the nodes have these labels and taints. With O(owner), V(absent) leaves those that were there before.
    type: str
    choices: [present, absent]
    default: present
  owner:
    description:
      - Name of who sets them. An annotation of the node keeps what was set in this name and was not there before.
      - What was set in this name and is no longer asked for is removed, also from nodes that O(names) does not have.
      - A node's kubelet may write that annotation. So no label is removed but those of O(labels) and O(owner_labels),
        and no taint with a key of Kubernetes, such as C(node-role.kubernetes.io/control-plane), that O(taints) does not
        have.
    type: str
    default: ''
  owner_labels:
    description: Keys of all labels that the owner may have set at some time, beside those of O(labels).
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
---
- name: Ensure that two nodes take nothing but GPU jobs
  gangplank.gangplank.cluster_nodes:
    names: [gpu-1, gpu-2]
    labels: {gangplank.dev/gpu: "true"}
    taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
"""

RETURN = ""
