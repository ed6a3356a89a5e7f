"""The command `gangplank preflight`: what a cluster lacks for the components, before anything is installed."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cluster.network_trial import trial
from gangplank.cluster.preflight import preflight as examine
from gangplank.cluster.preflight import report, unanswered
from gangplank.errors import KubeError, Problem
from gangplank.site.components import COMPONENTS, USUAL
from gangplank.site.preflight import VARIABLES, Check, wanted_of
from gangplank.teams.inventory import load_variables
from gangplank.text import table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

OF_SITE = ("site_components", "site_cluster", "site_environment")


def preflight(args: argparse.Namespace) -> int:
    """Print every check; status 1 if there is a problem, 4 if no cluster answers."""
    inventory = load_variables(args.site, (*OF_SITE, *VARIABLES)) if args.site else None
    site = inventory or {}
    names = components(args, site)
    environment = {**os.environ, **site.get("site_environment", {})}  # as the playbooks set it
    expected = args.expected_cluster or site.get("site_cluster") or ""
    wanted, path = wanted_of(inventory, names), environment.get("PATH", "")
    kube, refused = None, terminal.REFUSED
    try:
        kube = cluster_of(args, changes=args.output == "table", environment=environment)
        found = examine(kube, wanted, path, expected)
    except KubeError as error:
        found, refused = unanswered(error, wanted, path), error.exit_code
    if kube and args.try_network and not found[0].problems:  # else it is another cluster
        found.append(trial(kube, args.try_network))
    if args.output == "json":
        print(json.dumps(report(kube, found), indent=1))
    else:
        rows = [("CHECK", "STATE", "WHAT"), *(row for check in found for row in lines(check))]
        print(table(rows, colour=terminal.coloured(sys.stdout)))
    return refused if any(check.problems for check in found) else terminal.OK


def components(args: argparse.Namespace, site: Mapping[str, Any]) -> list[str]:
    """The components of --components, else of the inventory, else the usual ones."""
    if args.components is not None:
        place, names = "--components", [name for name in args.components.split(",") if name]
    else:
        place, names = f"{args.site}: site_components", site.get("site_components", [*USUAL])
    if not isinstance(names, list) or (unknown := [name for name in names if name not in COMPONENTS]):
        got = ", ".join(map(str, unknown)) if isinstance(names, list) else str(names)
        expected = f"some of {', '.join(COMPONENTS)}"
        raise terminal.UsageError(str(Problem(place, got, expected, "name them as inventories/example does")))
    return names


def lines(check: Check) -> list[tuple[str, str, str]]:
    """The rows of a check: what was found, or each problem."""
    texts = [str(problem) for problem in check.problems] or [check.finding]
    return [(check.name, check.state, text) for text in texts]
