"""The documentation of the option that all actions with a cluster share."""

from __future__ import annotations


class ModuleDocFragment:
    """Named by `extends_documentation_fragment` of a page; the option itself is KUBECONFIG of plugin_utils."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: A kubeconfig. Without it that of E(K8S_AUTH_KUBECONFIG), else of E(KUBECONFIG), else C(~/.kube/config);
      the context is that of E(K8S_AUTH_CONTEXT), if set.
    type: path
"""
