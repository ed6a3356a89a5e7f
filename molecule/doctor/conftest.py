"""The running lab, which GANGPLANK_KUBECONFIG names."""

from __future__ import annotations

from tests.cluster.conftest import before, kube, kubeconfig, lab

__all__ = ["before", "kube", "kubeconfig", "lab"]
