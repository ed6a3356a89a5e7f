"""The gangplank command: its command line, expand, and which module runs the other commands."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from gangplank import __version__
from gangplank.backends import BACKENDS
from gangplank.cli.inputs import gather, kinds
from gangplank.cli.terminal import CLUSTER, CODES, INTERRUPTED, OK, REFUSED, USAGE, coloured, complain
from gangplank.errors import GangplankError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplank.spec import Json

EXAMPLES = f"""examples:
  gangplank expand jobs/digits.yml                          a table of the pods, before they exist
  gangplank expand jobs/digits.yml -o yaml | kubectl apply -f -
  gangplank expand jobs/digits.yml --backend {[*BACKENDS][-1]:14} the same job on another back-end
  gangplank expand -f their-job.yaml --objects -o yaml      what the controllers make of a raw manifest
  gangplank submit jobs/digits.yml && gangplank logs digits -f
"""
TEAMS_HELP = "a site's folder of teams: a job that names its team starts from that team's job_defaults"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from gangplank.cli import teams

    top = argparse.ArgumentParser(
        prog="gangplank",
        description="From a machine or a cluster to finished, proven distributed PyTorch training.",
        epilog=EXAMPLES + "\n" + CODES + "\nNO_COLOR is respected. Completion: gangplank completion --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"gangplank {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    expand = commands.add_parser(
        "expand",
        help="show the pods and objects of a job before they exist",
        description="Show what becomes of a job file, or of the raw manifest of a job, without asking a cluster.",
        epilog=EXAMPLES + "\n" + CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    expand.add_argument("jobs", metavar="JOB", nargs="*", help="a job file, e.g. jobs/digits.yml; - is standard input")
    expand.add_argument(
        "-f", "--filename", metavar="FILE", action="append", default=[], help="the raw manifest of a job, or a job file"
    )
    expand.add_argument("--backend", choices=tuple(BACKENDS), help="run the job on another back-end than its file says")
    expand.add_argument("--objects", action="store_true", help="what the controllers will make, not what is submitted")
    expand.add_argument("-o", "--output", choices=("table", "yaml", "json"), default="table", help="default: table")
    expand.add_argument("--no-gang", action="store_true", help="the training operator runs without a gang scheduler")
    expand.add_argument("--teams", metavar="FOLDER", help=TEAMS_HELP)
    add_cluster_commands(commands)
    teams.add_team_commands(commands)
    completion = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a completion script: source <(gangplank completion bash)",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    return top


def add_cluster_commands(commands: Any) -> None:
    """The part of the command line that needs a cluster."""
    helps = {
        "submit": "submit jobs to the cluster",
        "status": "show where a job and its pods stand, or which jobs there are",
        "logs": "show the logs of all ranks, each line with its rank",
        "scale": "give a running job another number of workers, where its back-end allows that",
        "delete": "remove a job, its script and its Service; claims stay",
    }
    for name, text in helps.items():
        part = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=CODES)
        part.formatter_class = argparse.RawDescriptionHelpFormatter
        if name == "submit":
            part.add_argument(
                "jobs", metavar="JOB", nargs="+", help="a job file, or a raw manifest; - is standard input"
            )
            part.add_argument(
                "--backend", choices=tuple(BACKENDS), help="run the job on another back-end than its file says"
            )
            part.add_argument("--teams", metavar="FOLDER", help=TEAMS_HELP)
            part.add_argument(
                "--dry-run", action="store_true", help="let the cluster check everything and make nothing"
            )
        else:
            lists = {"nargs": "?"} if name == "status" else {}
            without = "; without it, the jobs of the namespace" if lists else ""
            part.add_argument("job", metavar="JOB", help=f"a job file, or the name of a job{without}", **lists)
        if name == "scale":
            part.add_argument("workers", metavar="N", type=whole, help="workers that the job is to have")
        if name == "logs":
            part.add_argument(
                "-f", "--follow", action="store_true", help="go on as lines are written, until all have ended"
            )
            part.add_argument("--rank", type=int, help="of one rank alone")
        add_access(part)
    add_evidence_commands(commands)


def whole(text: str) -> int:
    """A number of at least zero, as argparse wants to be told of it."""
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"got {text}, expected a whole number of at least 0")
    return int(text)


def add_access(part: argparse.ArgumentParser) -> None:
    """Which cluster and namespace a command asks."""
    part.add_argument("-n", "--namespace", help="where a job is that does not say so itself; default: default")
    part.add_argument("--kubeconfig", help="default: KUBECONFIG, else ~/.kube/config")
    part.add_argument("--context", help="of the kubeconfig; default: its current one")


def add_evidence_commands(commands: Any) -> None:
    """The part of the command line that reads what a job's ranks have recorded."""
    helps = {
        "proof": "judge from the ranks' own evidence whether a training was distributed",
        "report": "write one HTML page about a training: curves, samples, where the time went, wiring, proof",
    }
    for name, text in helps.items():
        part = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=CODES)
        part.formatter_class = argparse.RawDescriptionHelpFormatter
        part.add_argument("job", metavar="JOB", nargs="?", help="a job file, or the name of a job")
        place = "the folder that --output named, its evidence.jsonl, or saved logs of all ranks"
        part.add_argument("--file", metavar="PATH", help=f"{place}; asks no cluster")
        if name == "report":
            part.add_argument("-o", "--output", metavar="FILE", help="default: JOB-report.html")
            part.add_argument("--tensorboard", metavar="DIR", help="write event files there too, a run per rank")
        add_access(part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    given = parser().parse_args(arguments)
    try:
        return COMMANDS[given.command](given)
    except GangplankError as error:
        return complain(str(error), error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; say no more
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED


def expand(given: argparse.Namespace) -> int:
    """Show what becomes of jobs and manifests."""
    from gangplank.backends.base import Site
    from gangplank.cli import tables
    from gangplank.k8s.dump import as_json, as_yaml

    names = [*given.jobs, *given.filename]
    if not names:
        return complain("expand: no job given; try: gangplank expand jobs/digits.yml", USAGE)
    colour = coloured(sys.stdout)
    submitted, known, unknown = gather(names, given.backend, given.teams)
    site = Site(gang=not given.no_gang, others=tuple(submitted))
    made: list[Json] = []
    for backend, manifest in known:
        made += BACKENDS[backend].objects(manifest, site)  # refuses what cannot be, whatever is shown
    shown = made if given.objects else submitted
    for backend, manifest in known:
        for text in BACKENDS[backend].pitfalls(manifest):
            print(f"note: {manifest['metadata']['name']}: {text}", file=sys.stderr)
    if given.output == "yaml":
        sys.stdout.write(as_yaml(shown))
    elif given.output == "json":
        sys.stdout.write(as_json(shown))
    else:
        for backend, manifest in known:
            print(tables.heading(backend, manifest, BACKENDS[backend].objects(manifest, site)))
        print(tables.pods_table(made, colour=colour))
        if given.objects:
            print("\n" + tables.others_table([item for item in made if item["kind"] != "Pod"], colour=colour))
    if unknown and not known:
        what = f"nothing to expand but {', '.join(unknown)}; expected a {kinds()}"
        return complain(f"{', '.join(names)}: {what}", REFUSED)
    return OK


def completion(given: argparse.Namespace) -> int:
    """Print a completion script."""
    from gangplank.cli.completion import script

    sys.stdout.write(script(parser(), given.shell))
    return OK


def on_cluster(given: argparse.Namespace) -> int:
    """Run a command that needs a cluster, and the kubernetes package with it."""
    from gangplank.cli import jobs as commands
    from gangplank.cli import teams as team_cli

    here = team_cli if given.command in {"team", "drift"} else commands
    run: Callable[[argparse.Namespace], int] = getattr(here, given.command)
    try:
        return run(given)
    except ImportError as error:
        return complain(f"{given.command} needs the package {error.name}: pip install 'gangplank[cluster]'", CLUSTER)


def on_evidence(given: argparse.Namespace) -> int:
    """Run a command about evidence; only one that asks a cluster needs the kubernetes package."""
    from gangplank.cli import proof

    if not given.job and not given.file:
        return complain(f"{given.command}: no job given; try: gangplank {given.command} digits", USAGE)
    run: Callable[[argparse.Namespace], int] = getattr(proof, given.command)
    try:
        return run(given)
    except ImportError as error:
        needs = "cluster" if error.name == "kubernetes" else "report"
        return complain(f"{given.command} needs the package {error.name}: pip install 'gangplank[{needs}]'", CLUSTER)


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "expand": expand,
    "submit": on_cluster,
    "status": on_cluster,
    "logs": on_cluster,
    "scale": on_cluster,
    "delete": on_cluster,
    "proof": on_evidence,
    "report": on_evidence,
    "team": on_cluster,
    "drift": on_cluster,
    "completion": completion,
}

if __name__ == "__main__":
    sys.exit(main())
