"""The command line: commands, arguments and their help. It loads nothing heavy, so that --help is instant."""

from __future__ import annotations

import argparse
import re
from typing import Any

from gangplank import __version__
from gangplank.backends import BACKENDS
from gangplank.cli.completion import files_and_jobs
from gangplank.cli.terminal import CODES
from gangplank.cluster.choice import CONTEXT, ORDER
from gangplank.site.components import USUAL

EXAMPLES = f"""examples:
  gangplank expand jobs/digits.yml                          a table of the pods, before they exist
  gangplank expand jobs/digits.yml -o yaml | kubectl apply -f -
  gangplank expand jobs/digits.yml --backend {[*BACKENDS][-1]:14} the same job on another back-end
  gangplank expand -f their-job.yaml --objects -o yaml      what the controllers make of a raw manifest
  gangplank fit jobs/digits.yml                             would it start now, and where
  gangplank submit jobs/digits.yml && gangplank logs digits -f
  gangplank why digits                                      why it does not run: one cause, and the next step
  gangplank run train.py --workers 3 -- --lr 0.1            a script of yours, without a job file

"""
TEAM_EXAMPLES = """examples:
  gangplank team kubeconfig vision ada --ttl 8h       a certificate that expires after a working day
  gangplank drift inventories/example                 what was changed by hand; playbooks/teams.yml restores it

"""
IMAGE = "gangplank.dev/trainer:0.1.0"
OWN = "that of the kubeconfig's context, else default"
SITE_HELP = (
    "a site's inventory: a job gets its settings (GPU taints, pull secrets); one that names its team starts from that"
    " team's job_defaults, and is refused what the team's variables do not grant"
)
FROM_SITE_HELP = "with a job file: the inventory of `submit --site`, if it had one; it names the team's namespace"
CLUSTER_HELP = (
    "read the settings of the cluster's controllers, so that the objects are those that they make there: the"
    " training operator's flags and template, the queue system's webhooks and their settings, Trainer's runtimes,"
    " PriorityClasses"
)
ON_CLUSTER = {
    "submit": "submit jobs to the cluster",
    "status": "show where a job and its pods stand, or the whole site",
    "why": "say why a job does not run: one cause, proven where it can be, and the next step",
    "fit": "say whether a job would start now, and where; exit status 0 is yes, 5 no, 6 cannot tell",
    "when": "say when a job would start, and end, by the steps that running jobs have left",
    "logs": "show the logs of all ranks, each line with its rank",
    "fetch": "bring a job's output and evidence from its volume claim or bucket to a folder here",
    "scale": "give a running job another number of workers, where its back-end allows that",
    "delete": "remove a job, its script and its Service, or what a job that is gone left; volume claims stay",
}
ON_EVIDENCE = {
    "proof": "judge from the ranks' own evidence whether a training was distributed",
    "report": "write one HTML page about a training: curves, samples, where the time went, wiring, proof",
}


def command_line() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    top = argparse.ArgumentParser(
        prog="gangplank",
        description="From a machine or a cluster to finished, proven distributed PyTorch training.",
        epilog=EXAMPLES + CODES + "\nNO_COLOR is respected. Completion: gangplank completion --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"gangplank {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add_expand(commands)
    add_run(commands)
    for name, summary in ON_CLUSTER.items():
        add_cluster_command(commands, name, summary)
    add_metrics(commands)
    add_data(commands)
    for name, summary in ON_EVIDENCE.items():
        add_evidence_command(commands, name, summary)
    add_team_commands(commands)
    add_preflight(commands)
    add_completion(commands)
    return top


def add_command(
    commands: Any, name: str, summary: str, description: str = "", examples: str = ""
) -> argparse.ArgumentParser:
    """One command; its page begins with its summary unless it has a longer description."""
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=examples + CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return command


def add_expand(commands: Any) -> None:
    """The command that needs no cluster."""
    expand = add_command(
        commands,
        "expand",
        "show the pods and objects of a job before they exist",
        "Show the pods and objects of a job file, or of the raw manifest of a job. Asks no cluster without --cluster.",
        EXAMPLES,
    )
    expand.add_argument("jobs", metavar="JOB", nargs="*", help="a job file, e.g. jobs/digits.yml; - is standard input")
    expand.add_argument(
        "-f", "--filename", metavar="FILE", action="append", default=[], help="the raw manifest of a job, or a job file"
    )
    add_backend(expand)
    expand.add_argument(
        "--objects", action="store_true", help="show what the controllers create instead of what is submitted"
    )
    expand.add_argument("-o", "--output", choices=("table", "yaml", "json"), default="table", help="default: table")
    expand.add_argument("--cluster", action="store_true", help=CLUSTER_HELP)
    expand.add_argument("--no-gang", action="store_true", help="expect a training operator without a gang scheduler")
    add_site(expand)
    add_cluster(expand, "with --cluster: ")


def add_run(commands: Any) -> None:
    """The command that needs no job file."""
    run = add_command(
        commands,
        "run",
        "run a script of yours: submit it, show what its ranks print, exit as it does",
        "Run a script of yours without a job file: submit it, show what its ranks print until they have ended, say\n"
        "where the result is, and exit with the status of the training: 0, or that of the rank that failed first.\n"
        "Words after -- are the script's own arguments.",
        "examples:\n  gangplank run train.py --workers 3 -- --lr 0.1\n"
        "  gangplank run train.py --save job.yml       keeps the description for gangplank submit\n\n",
    )
    script = "a Python file of at most 1 MiB, or a folder with __main__.py or train.py, which travels with it"
    run.add_argument("script", metavar="SCRIPT", nargs="?", default=".", help=f"{script}; default: the current folder")
    code = "a folder that the script is in and that travels with it, of at most 32 MiB"
    run.add_argument("--code", metavar="FOLDER", help=code)
    locked = "a file of that folder: packages to install in the pods, each locked by its hash"
    run.add_argument("--requirements", metavar="FILE", help=locked)
    add_backend(run)
    run.add_argument("--workers", metavar="N", type=whole_number, help="pods beside the master; default: 2")
    run.add_argument("--processes-per-node", metavar="N", type=whole_number, help="ranks in each pod; default: 1")
    retries = "how often all ranks start again after a failure; default: 0, as a mistake in a script repeats itself"
    run.add_argument("--max-retries", metavar="N", type=whole_number, help=retries)
    run.add_argument("--image", help=f"default: {IMAGE}")
    place = "where the result goes, as the script's --output: s3://bucket/path, gs://bucket/path or below a --volume"
    run.add_argument("--output", metavar="PLACE", help=place)
    volume = "a claim of the namespace and where it is mounted; :master is the first pod alone, :ReadWriteMany all pods"
    run.add_argument("--volume", metavar="CLAIM:/PLACE[:HOW]", action="append", default=[], help=volume)
    variable = "an environment variable of all ranks; can be repeated"
    run.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help=variable)
    keys = "a Secret of the namespace whose keys become environment variables, such as a bucket's credentials"
    run.add_argument("--secret", metavar="NAME", action="append", default=[], help=keys)
    team = (
        "as `team` of a job file: label, queue and, without -n, the namespace of that name; with --site, the team's own"
        " namespace, and its job_defaults come before those here"
    )
    run.add_argument("--team", metavar="NAME", help=team)
    run.add_argument("--queue", metavar="NAME", help="a queue of the cluster; default: the team's, else default")
    run.add_argument("--name", help="the job's name; default: the script's, with an end that no other run has")
    run.add_argument("--save", metavar="FILE", help="also write the job file")
    add_site(run)
    add_access(run)


def add_cluster_command(commands: Any, name: str, summary: str) -> None:
    """A command about a job in a cluster."""
    command = add_command(commands, name, summary)
    if name == "submit":
        command.add_argument("jobs", metavar="JOB", nargs="+", help="a job file or a raw manifest; - is standard input")
        add_backend(command)
        waits = "follow the last job to its end; after 30 s without running, and if it fails, say why"
        command.add_argument("--wait", action="store_true", help=waits)
        command.add_argument("--dry-run", action="store_true", help="let the cluster check everything, create nothing")
    elif name == "status":
        add_job(command, optional=True, note="; without it, the site: components, queues, jobs, GPUs and nodes")
        command.add_argument("--watch", action="store_true", help="without a job: show it again every 2 seconds")
        command.add_argument("-o", "--output", choices=("text", "json"), help="without a job; default: text")
        command.add_argument("--html", metavar="FILE", help="without a job: write a page that needs no other file")
    else:
        add_job(command)
    if name in {"why", "fit", "when"}:
        command.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    if name == "fit":
        whole = "ask the site's own scheduler, in a copy of its control plane on this machine; takes about ten seconds"
        command.add_argument("--exact", action="store_true", help=whole)
        place = "with --exact: where etcd, kube-apiserver and the scheduler are; default: what a checkout has built"
        command.add_argument("--programs", metavar="FOLDER", help=place)
        configuration = "with --exact: the configuration of kube-scheduler, where the site changes it"
        command.add_argument("--scheduler-config", metavar="FILE", help=configuration)
    if name == "scale":
        command.add_argument("workers", metavar="N", type=whole_number, help="the number of workers the job will have")
    if name == "fetch":
        path = "a file or a folder of the output; default: all of it, and the evidence"
        command.add_argument("path", metavar="PATH", nargs="?", help=path)
        command.add_argument("-o", "--output", metavar="FOLDER", help="default: a folder of the job's name")
        replaces = "a file, or a folder of files, to overwrite here although you wrote or changed it; can be repeated"
        command.add_argument("--replace", metavar="NAME", action="append", default=[], help=replaces)
    if name == "logs":
        which = command.add_mutually_exclusive_group()
        which.add_argument("-f", "--follow", action="store_true", help="print new lines until the job has ended")
        previous = "also show the attempts that crashed, as far as the cluster keeps them; each line has its attempt"
        which.add_argument("--previous", action="store_true", help=previous)
        command.add_argument("--rank", type=whole_number, help="show one rank only")
    add_site(command, SITE_HELP if name in {"submit", "why", "fit", "when"} else FROM_SITE_HELP)
    add_access(command)


def add_metrics(commands: Any) -> None:
    """The command for Prometheus."""
    metrics = add_command(
        commands,
        "metrics",
        "show queues, teams, jobs and ranks as samples for Prometheus, once or at an address",
        examples="examples:\n  gangplank metrics > site.prom                  once, for instance for node_exporter\n"
        "  gangplank metrics --listen 127.0.0.1:9400      at http://127.0.0.1:9400/metrics\n"
        "  gangplank metrics --write monitoring           alert rules and Grafana dashboards for these samples\n\n",
    )
    what = metrics.add_mutually_exclusive_group()
    what.add_argument("--listen", metavar="ADDRESS:PORT", help="read the cluster at each scrape, until interrupted")
    what.add_argument("--write", metavar="FOLDER", help="write the alert rules and dashboards; asks no cluster")
    forms = "of a single answer; default: prometheus. With --listen, the scraper chooses"
    metrics.add_argument("-o", "--output", choices=("prometheus", "openmetrics"), help=forms)
    add_site(metrics, "a site's inventory: only the namespaces of its teams; without -n")
    metrics.add_argument("-n", "--namespace", help="only this namespace; default: all that you may read")
    add_cluster(metrics)


def add_data(commands: Any) -> None:
    """The command that fills a volume claim."""
    data = add_command(
        commands,
        "data",
        "bring a folder, files of web servers or a bucket onto a volume claim; list its files, or remove some",
        "Bring files onto a volume claim, where jobs can mount them. A file gets its name once it is there whole and\n"
        "has its hash; a command that was interrupted continues. Nothing is overwritten unless --replace names it.\n"
        "`data ls CLAIM[:FOLDER]` lists the files of a claim, with their sizes in bytes; `data rm CLAIM:PATH`\n"
        "removes a file or a folder. (A folder here that is called ls or rm is ./ls or ./rm.)",
        "examples:\n  gangplank data mnist/ mnist                          what is in the folder mnist\n"
        "  gangplank data https://host/a.gz mnist:raw --sha256 e3b0…\n"
        "  gangplank data s3://datasets/mnist mnist --secret bucket\n"
        "  gangplank data ls mnist:raw\n"
        "  gangplank data rm mnist:raw/a.gz\n\n",
    )
    kinds = "a folder, whose contents are brought, or a file; https://…; s3://… or gs://…, a folder or an object"
    data.add_argument("sources", metavar="SOURCE", nargs="+", help=kinds)
    data.add_argument("target", metavar="CLAIM[:FOLDER]", help="a volume claim that exists, and a folder of it")
    sums = "the hash that the one file must have, or a file with those of all, as sha256sum prints them"
    data.add_argument("--sha256", metavar="HASH", help=sums)
    replaces = "a file, or a folder, of the target that may be overwritten; can be repeated"
    data.add_argument("--replace", metavar="NAME", action="append", default=[], help=replaces)
    access = "a Secret with the address and credentials of the bucket, as `secrets` of a job; can be repeated"
    data.add_argument("--secret", metavar="NAME", action="append", default=[], help=access)
    data.add_argument("--queue", default="", help="the queue of the pod that writes; default: the team's first")
    image = f"an image with Python 3.11 or newer, with s3fs for s3://, gcsfs for gs://; default: {IMAGE}"
    data.add_argument("--image", default=IMAGE, help=image)
    data.add_argument("-n", "--namespace", help=f"namespace of the claim; default: {OWN}")
    add_cluster(data)


def add_evidence_command(commands: Any, name: str, summary: str) -> None:
    """A command about what a job's ranks have recorded, in a cluster or in files."""
    command = add_command(commands, name, summary)
    add_job(command, optional=True)
    place = "the folder of the job's `output`, its evidence.jsonl, or saved logs of all ranks"
    command.add_argument("--file", metavar="PATH", help=f"{place}; asks no cluster")
    size = "with --file: how many ranks there were"
    command.add_argument("--world-size", metavar="N", type=positive_number, help=size)
    pods = "uids with commas, or a file from kubectl get pods -o json"
    command.add_argument("--pods", metavar="PODS", help=f"with --file: the pods of the job; {pods}")
    if name == "report":
        command.add_argument("-o", "--output", metavar="FILE", help="default: JOB-report.html")
        command.add_argument("--tensorboard", metavar="DIR", help="also write TensorBoard files here, a run per rank")
    add_site(command, FROM_SITE_HELP)
    add_access(command)


def add_team_commands(commands: Any) -> None:
    """What an administrator does for teams."""
    team = add_command(commands, "team", "what a member of a team needs", examples=TEAM_EXAMPLES)
    team_commands = team.add_subparsers(dest="team_command", metavar="COMMAND", required=True)
    kubeconfig = add_command(
        team_commands,
        "kubeconfig",
        "make a member's kubeconfig, with a certificate of a few hours",
        examples=TEAM_EXAMPLES,
    )
    kubeconfig.add_argument("team", metavar="TEAM", help="the team, created by playbooks/teams.yml")
    kubeconfig.add_argument("member", metavar="MEMBER", help="a user of the team's team_members")
    kubeconfig.add_argument("--ttl", metavar="TIME", default="8h", help="10m to 8h; default: 8h")
    kubeconfig.add_argument("-o", "--output", metavar="FILE", help="default: TEAM-MEMBER.kubeconfig")
    drift = add_command(
        commands, "drift", "show what was changed by hand in the objects of teams", examples=TEAM_EXAMPLES
    )
    drift.add_argument("inventory", metavar="INVENTORY", help="a site's inventory, e.g. inventories/example")
    for command in (kubeconfig, drift):
        add_cluster(command, "an administrator's; ")


def add_preflight(commands: Any) -> None:
    """The command that looks at a cluster before anything is installed."""
    preflight = add_command(
        commands,
        "preflight",
        "show what a cluster lacks for the components, and change nothing",
        examples="examples:\n"
        "  gangplank preflight --site inventories/yours   what site.yml would say of this inventory's components\n"
        "  gangplank preflight -o json                    every check, with the fixes\n"
        "  gangplank preflight --try-network              also try whether the network enforces NetworkPolicies\n\n",
    )
    site = (
        "a site's inventory: its components, their releases and namespaces, its storage classes, how it gives out GPUs,"
        " its cluster (site_cluster) and the environment of its playbooks (site_environment)"
    )
    add_site(preflight, site)
    components = f"what site_components lists, with commas; default: the inventory's, else {','.join(USUAL)}"
    preflight.add_argument("--components", metavar="NAMES", help=components)
    expected = "refuse another cluster than this: its address, or the sha256 of its CA's certificate (sha256:…)"
    preflight.add_argument("--expected-cluster", metavar="CLUSTER", help=expected)
    tried = (
        "also try whether the network enforces NetworkPolicies, on which teams rely: three pods in a namespace of their"
        f" own, which is removed afterwards; IMAGE has python3, default: {IMAGE}"
    )
    preflight.add_argument("--try-network", metavar="IMAGE", nargs="?", const=IMAGE, help=tried)
    preflight.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    add_cluster(preflight, "an administrator's; ")


def add_completion(commands: Any) -> None:
    """The command that sets up a shell."""
    command = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a completion script: source <(gangplank completion bash)",
    )
    command.add_argument("shell", choices=("bash", "zsh", "fish"))


def add_job(command: argparse.ArgumentParser, *, optional: bool = False, note: str = "") -> None:
    """A job that exists already."""
    job = command.add_argument(
        "job", metavar="JOB", nargs="?" if optional else None, help=f"a job file, or the name of a job{note}"
    )
    job.completer = files_and_jobs  # type: ignore[attr-defined]  # argcomplete's way to attach a completer


def add_backend(command: argparse.ArgumentParser) -> None:
    """The back-end, where the job file's own is not wanted."""
    command.add_argument("--backend", choices=tuple(BACKENDS), help="use this back-end, whatever a job file says")


def add_site(command: argparse.ArgumentParser, text: str = SITE_HELP) -> None:
    """The site whose settings a job gets, as playbooks/train.yml gives them to it."""
    command.add_argument("--site", "--teams", metavar="INVENTORY", help=text)


def add_access(command: argparse.ArgumentParser) -> None:
    """Which cluster and namespace a command asks."""
    command.add_argument("-n", "--namespace", help=f"namespace of jobs that do not name one; default: {OWN}")
    add_cluster(command)


def add_cluster(command: argparse.ArgumentParser, whose: str = "") -> None:
    """Which cluster a command asks."""
    command.add_argument("--kubeconfig", help=f"{whose}default: that of {ORDER}")
    command.add_argument("--context", help=f"context of the kubeconfig; default: {CONTEXT}, else its current one")


def positive_number(text: str) -> int:
    """A number of at least one; argparse prints the message of its error."""
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", text):
        raise argparse.ArgumentTypeError(f"got {text}, expected a whole number of at least 1")
    return int(text)


def whole_number(text: str) -> int:
    """A number of at least zero; argparse prints the message of its error."""
    if not re.fullmatch(r"[0-9]{1,6}", text):
        raise argparse.ArgumentTypeError(f"got {text}, expected a whole number of at least 0")
    return int(text)
