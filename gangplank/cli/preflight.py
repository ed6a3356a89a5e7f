"""The command `gangplank preflight`: what a cluster lacks for the components, before anything is installed."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cluster.network_trial import trial
from gangplank.cluster.preflight import preflight as examine
from gangplank.cluster.preflight import report
from gangplank.errors import Problem
from gangplank.site.components import COMPONENTS
from gangplank.site.preflight import Check, Wanted
from gangplank.text import table

if TYPE_CHECKING:
    import argparse


def preflight(args: argparse.Namespace) -> int:
    """Print every check; status 1 if there is a problem."""
    names = [name for name in args.components.split(",") if name]
    if unknown := sorted(set(names) - COMPONENTS.keys()):
        expected = f"some of {', '.join(COMPONENTS)}"
        problem = Problem("--components", ", ".join(unknown), expected, "name them as site_components does")
        raise terminal.UsageError(str(problem))
    wanted = Wanted({name: (COMPONENTS[name].release, COMPONENTS[name].namespace) for name in names})
    kube = cluster_of(args, changes=args.output == "table")
    found = examine(kube, wanted, os.environ.get("PATH", ""), args.expected_cluster or "")
    if args.try_network and not found[0].problems:  # else it is another cluster
        found.append(trial(kube, args.try_network))
    if args.output == "json":
        print(json.dumps(report(kube, found), indent=1))
    else:
        rows = [("CHECK", "STATE", "WHAT"), *(row for check in found for row in lines(check))]
        print(table(rows, colour=terminal.coloured(sys.stdout)))
    return terminal.REFUSED if any(check.problems for check in found) else terminal.OK


def lines(check: Check) -> list[tuple[str, str, str]]:
    """The rows of a check: what was found, or each problem."""
    texts = [str(problem) for problem in check.problems] or [check.finding]
    return [(check.name, check.state, text) for text in texts]
