"""The commands about teams: a member's kubeconfig, and what was changed by hand."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.text import plain_lines

if TYPE_CHECKING:
    import argparse


def team(args: argparse.Namespace) -> int:
    """Make a member's kubeconfig."""
    from gangplank.teams import kubeconfig

    ttl_s = kubeconfig.seconds(args.ttl)
    path = args.output or f"{args.team}-{kubeconfig.plain_name(args.member)}.kubeconfig"
    kubeconfig.refuse_another(path, args.team, args.member)
    access = kubeconfig.make(cluster_of(args, changes=True), args.team, args.member, ttl_s)
    kubeconfig.write(path, access.text)
    print(f"written: {path}, for {args.member} of team {args.team}, until {access.until}")
    print(f"next: KUBECONFIG={path} gangplank submit JOB.yml, where the job says team: {args.team}")
    return terminal.OK


def drift(args: argparse.Namespace) -> int:
    """Show each place where a live object is not what the inventory says; status 1 if there is any."""
    from gangplank.teams.compare import plan_teams
    from gangplank.teams.inventory import load_inventory

    plan = plan_teams(cluster_of(args), load_inventory(args.inventory))
    for text in (*plan.refused, *plan.notes):
        print(f"note: {plain_lines(text)}", file=sys.stderr)
    for difference in plan.differences:
        print(plain_lines(str(difference)))
    if plan.differences:
        return terminal.REFUSED
    print(f"no drift: {plan.count} objects are as the inventory says")
    return terminal.OK
