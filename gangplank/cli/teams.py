"""The part of the command line about teams: a member's kubeconfig, and what was changed by hand."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gangplank.cli import terminal

EXAMPLES = """examples:
  gangplank team kubeconfig vision ada --ttl 8h       a certificate of the cluster's, gone in a working day
  gangplank drift inventories/example/teams           what somebody changed by hand; playbooks/teams.yml mends it

"""


def add_team_commands(commands: Any) -> None:
    """Both commands, as an administrator uses them."""
    team = part(commands, "team", "what a member of a team needs")
    inner = team.add_subparsers(dest="team_command", metavar="COMMAND", required=True)
    kubeconfig = part(inner, "kubeconfig", "make a member's kubeconfig, with a certificate of a few hours")
    kubeconfig.add_argument("team", metavar="TEAM", help="the team, which playbooks/teams.yml has made")
    kubeconfig.add_argument("member", metavar="MEMBER", help="a user of the team's file")
    kubeconfig.add_argument("--ttl", metavar="TIME", default="8h", help="10m to 8h; default: 8h")
    kubeconfig.add_argument("-o", "--output", metavar="FILE", help="default: TEAM-MEMBER.kubeconfig")
    drift = part(commands, "drift", "show what was changed by hand in the objects of teams")
    drift.add_argument("folder", metavar="FOLDER", help="a site's folder of teams, e.g. inventories/example/teams")
    for one in (kubeconfig, drift):
        one.add_argument("--kubeconfig", help="an administrator's; default: KUBECONFIG, else ~/.kube/config")
        one.add_argument("--context", help="of the kubeconfig; default: its current one")


def part(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    """One command."""
    found: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=EXAMPLES + terminal.CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return found


def team(given: argparse.Namespace) -> int:
    """Make a member's kubeconfig."""
    from gangplank.cluster.client import Kube
    from gangplank.teams import kubeconfig

    ttl_s = kubeconfig.seconds(given.ttl)
    made = kubeconfig.make(Kube(given.kubeconfig, given.context), given.team, given.member, ttl_s)
    name = given.output or f"{given.team}-{kubeconfig.plain_name(given.member)}.kubeconfig"
    kubeconfig.write(name, made.text)
    print(f"written: {name}, for {given.member} of team {given.team}, until {made.until}")
    print(f"next: KUBECONFIG={name} gangplank submit JOB.yml, where the job says team: {given.team}")
    return terminal.OK


def drift(given: argparse.Namespace) -> int:
    """Show each place where a live object is not what the files say; status 1 if there is any."""
    from gangplank.cluster.client import Kube
    from gangplank.teams.compare import plan_teams

    plan = plan_teams(Kube(given.kubeconfig, given.context), given.folder)
    for text in (*plan.refused, *plan.notes):
        print(f"note: {text}", file=sys.stderr)
    for item in plan.differences:
        print(item)
    if plan.differences:
        return terminal.REFUSED
    print(f"no drift: {plan.count} objects are as the files say")
    return terminal.OK
