"""The cluster of a command: chosen in the one order, and named before the command changes anything in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gangplank.cli import terminal
from gangplank.cluster.choice import chosen
from gangplank.cluster.client import Kube

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def cluster_of(
    args: argparse.Namespace, *, changes: bool = False, environment: Mapping[str, str] = os.environ
) -> Kube:
    """The cluster of --kubeconfig and --context, else of the environment; a command that changes it says which."""
    kube = Kube(*chosen(args.kubeconfig, args.context, environment))
    if changes:
        terminal.note(f"cluster: {kube}")
    return kube
