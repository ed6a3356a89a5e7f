"""Documentation of the action cluster_ready, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: cluster_ready
short_description: >-
  Name the cluster that a run will change, wait for other runs, and refuse one that it cannot change to the end
description:
  - All that is missing is reported in one message, before anything is changed.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  cluster:
    description: The cluster that the inventory names, by the address of its API server, with its path if it has one, or
      by the sha256 of its CA's certificate (C(sha256:) and 64 hexadecimal digits). Another one is refused.
    type: str
    default: ""
  components:
    description: The components to install, each with C(release) and C(namespace) if they are not the usual ones, and
      with C(values) of its chart, of which the tolerations count. With them the whole cluster is examined, as
      C(gangplank preflight) does.
    type: dict
    default: {}
  storage_classes:
    description: The storage classes of the inventory, if the site installs them.
    type: list
    elements: dict
    default: []
  jobset:
    description: Whether Trainer v2 brings JobSet. If not, the cluster must have it.
    type: bool
    default: true
  gpu_allocation:
    description: How the site's nodes give out GPUs, by a device plugin or by claim (Dynamic Resource Allocation).
    type: str
    choices: [device-plugin, dra]
    default: device-plugin
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
  run:
    description: A playbook whose rights the account must have in the whole cluster, besides O(may). C(uninstall)
      refuses tags of components.
    type: str
    choices: [teams, uninstall]
  removes:
    description: The components that O(run=uninstall) removes.
    type: list
    elements: str
    choices: [volcano, gpu_device_plugin, gpu_dra_driver, storage, training_operator, trainer_v2]
    default: []
  try_network:
    description: An image with python3, to try whether the cluster's network enforces NetworkPolicies; that takes three
      pods in a namespace of their own, which is removed afterwards. Without it, nothing is tried.
    type: str
    default: ""
  lock:
    description: Take the lock of the cluster for this run, as M(gangplank.gangplank.cluster_lock) does.
    type: bool
    default: false
  lock_timeout_s:
    description: Seconds to wait for another run that has the lock. Without it, 900.
    type: int
"""

EXAMPLES = r"""
---
- name: Report everything that would stop an installation
  gangplank.gangplank.cluster_ready:
    programs: [helm]
    may: ["create namespaces"]
"""

RETURN = ""
