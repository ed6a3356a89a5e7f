"""The gangplank command: the one place of the library that reads files and writes to the terminal."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.spec import Json

OK, REFUSED, USAGE, UNREADABLE, CLUSTER, INTERRUPTED = 0, 1, 2, 3, 4, 130
CODES = """exit codes:
  0  done
  1  a job or manifest is refused, or a training is not proven; every reason is on standard error
  2  the command line is wrong
  3  a file cannot be read
  4  the cluster does not answer, or has no such job
"""
EXAMPLES = """examples:
  gangplank expand jobs/digits.yml                          a table of the pods, before they exist
  gangplank expand jobs/digits.yml -o yaml | kubectl apply -f -
  gangplank expand jobs/digits.yml --backend indexed        the same job without any operator
  gangplank expand -f their-job.yaml --objects -o yaml      what the controllers make of a raw manifest
  gangplank submit jobs/digits.yml && gangplank logs digits -f
"""
TEAMS_HELP = "a site's folder of teams: a job that names its team starts from that team's job_defaults"
KINDS = "Volcano Job, PyTorchJob, TrainJob or Indexed Job"
ROOT = Path(__file__).resolve().parent.parent  # of a checkout; jobs name their scripts from there


class Unreadable(Exception):  # noqa: N818  it says what is wrong with a file
    """A file that cannot be read; the message says which, why and what to do."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    from gangplank import team_cli

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
        description=f"Show what becomes of a job file, or of a raw {KINDS}, without asking a cluster.",
        epilog=EXAMPLES + "\n" + CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    expand.add_argument("jobs", metavar="JOB", nargs="*", help="a job file, e.g. jobs/digits.yml; - is standard input")
    expand.add_argument(
        "-f", "--filename", metavar="FILE", action="append", default=[], help=f"a raw {KINDS}, or a job file"
    )
    expand.add_argument("--backend", choices=BACKEND_NAMES, help="run the job on another back-end than its file says")
    expand.add_argument("--objects", action="store_true", help="what the controllers will make, not what is submitted")
    expand.add_argument("-o", "--output", choices=("table", "yaml", "json"), default="table", help="default: table")
    expand.add_argument("--no-gang", action="store_true", help="the training operator runs without a gang scheduler")
    expand.add_argument("--teams", metavar="FOLDER", help=TEAMS_HELP)
    add_cluster_commands(commands)
    team_cli.add_team_commands(commands)
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
        "status": "show where a job and its pods stand",
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
                "--backend", choices=BACKEND_NAMES, help="run the job on another back-end than its file says"
            )
            part.add_argument("--teams", metavar="FOLDER", help=TEAMS_HELP)
            part.add_argument(
                "--dry-run", action="store_true", help="let the cluster check everything and make nothing"
            )
        else:
            part.add_argument("job", metavar="JOB", help="a job file, or the name of a job")
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


BACKEND_NAMES = ("volcano", "pytorchjob", "trainjob", "indexed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status."""
    given = parser().parse_args(arguments)
    try:
        return COMMANDS[given.command](given)
    except Unreadable as error:
        return complain(str(error), UNREADABLE)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone; say no more
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ValueError, RuntimeError) as error:
        return explain(error)


def explain(error: Exception) -> int:
    """The exit status of an error that is the job's or the cluster's; others are ours and go on."""
    from gangplank.errors import SpecError

    if isinstance(error, SpecError):
        return complain(str(error), REFUSED)
    kube = sys.modules.get("gangplank.kube")  # only there when a cluster was asked
    if kube and isinstance(error, kube.KubeError):
        return complain(str(error), CLUSTER)
    raise error


def coloured(stream: Any) -> bool:
    """Whether a stream is a terminal that wants colours: https://no-color.org."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def complain(text: str, code: int) -> int:
    """Print what is wrong to standard error; the exit status."""
    red, plain = ("\x1b[31m", "\x1b[0m") if coloured(sys.stderr) else ("", "")
    print(f"{red}gangplank:{plain} {text}".encode("utf-8", "replace").decode(), file=sys.stderr)
    return code


def read(name: str) -> str:
    """The text of a file, or of standard input for -."""
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name}: byte {error.start} is no UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"{name}: {reason}; give the path of a job file, e.g. jobs/digits.yml") from None


def read_scripts(job: object, root: Path | None = None) -> dict[str, str]:
    """The text of the script that a job names by a relative path, looked up here and then below root."""
    inner = job.get("training_job", job) if isinstance(job, Mapping) else None
    path = inner.get("script") if isinstance(inner, Mapping) else None
    if not isinstance(path, str) or not path or path.startswith("/") or "\x00" in path:
        return {}
    for folder in (Path(), root):
        if folder is None:
            continue
        try:
            return {path: (folder / path).read_bytes().decode("utf-8")}
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def expand(given: argparse.Namespace) -> int:
    """Show what becomes of jobs and manifests."""
    from gangplank import show
    from gangplank.backends import BACKENDS
    from gangplank.pitfalls import pitfalls
    from gangplank.pods import Site

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
        for text in pitfalls(backend, manifest):
            print(f"note: {manifest['metadata']['name']}: {text}", file=sys.stderr)
    if given.output == "yaml":
        sys.stdout.write(show.as_yaml(shown))
    elif given.output == "json":
        sys.stdout.write(show.as_json(shown))
    else:
        for backend, manifest in known:
            print(show.heading(backend, manifest, BACKENDS[backend].objects(manifest, site)))
        print(show.pods_table(made, colour=colour))
        if given.objects:
            print("\n" + show.others_table([item for item in made if item["kind"] != "Pod"], colour=colour))
    if unknown and not known:
        return complain(f"{', '.join(names)}: nothing to expand but {', '.join(unknown)}; expected a {KINDS}", REFUSED)
    return OK


def gather(
    names: Sequence[str], backend: str | None, teams: str | None = None
) -> tuple[list[Json], list[tuple[str, Json]], list[str]]:
    """What files hold: all that would be submitted, the jobs among it by back-end, and the kinds of the rest.

    `teams` is a site's folder of teams: a job that names its team starts from that team's values.
    """
    from gangplank.backends import BACKENDS, backend_of
    from gangplank.errors import Problem, SpecError, shown
    from gangplank.parse import parse_job
    from gangplank.reading import documents

    submitted: list[Json] = []
    for name in names:
        text = read(name)
        found = documents(text, name, strict=False)
        if not found:
            raise SpecError([Problem("file", "nothing", f"a job file, or a {KINDS}")], name)
        if any(isinstance(item, dict) and "apiVersion" in item for item in found):
            for item in found:
                submitted += item.get("items") or [] if is_list(item) else [item]
            continue
        for given in documents(text, name, strict=True):
            job = with_backend(given, backend) if backend and isinstance(given, dict) else given
            job = from_team(job, teams, name) if teams else job
            spec = parse_job(job, name, read_scripts(job, ROOT))
            submitted += BACKENDS[spec.backend].manifests(spec)
    for at, item in enumerate(submitted):
        if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
            raise SpecError(
                [Problem(f"document {at + 1}", shown(item), "an object with apiVersion and kind")], names[0]
            )
    known = [(backend_of(item), item) for item in submitted]
    jobs = [(kind, item) for kind, item in known if kind]
    if backend and any(kind != backend for kind, _ in jobs):
        raise SpecError([Problem("--backend", backend, "nothing, as a raw manifest has its back-end")], names[0])
    return submitted, jobs, [str(item["kind"]) for kind, item in known if not kind]


def is_list(item: object) -> bool:
    """Whether a document is kubectl's List of objects."""
    return isinstance(item, dict) and item.get("kind") == "List" and isinstance(item.get("items"), list)


def with_backend(job: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The job on another back-end."""
    if isinstance(job.get("training_job"), dict):
        return {**job, "training_job": {**job["training_job"], "backend": backend}}
    return {**job, "backend": backend}


def from_team(job: object, folder: str, source: str) -> Any:
    """The job with its team's defaults, out of a folder of teams."""
    from gangplank.teams.files import load
    from gangplank.teams.jobs import with_team

    return with_team(job, load(folder)[1], source)


def completion(given: argparse.Namespace) -> int:
    """Print a completion script."""
    from gangplank.completion import script

    sys.stdout.write(script(parser(), given.shell))
    return OK


def on_cluster(given: argparse.Namespace) -> int:
    """Run a command that needs a cluster, and the kubernetes package with it."""
    from gangplank import commands, team_cli

    here = team_cli if given.command in {"team", "drift"} else commands
    run: Callable[[argparse.Namespace], int] = getattr(here, given.command)
    try:
        return run(given)
    except ImportError as error:
        return complain(f"{given.command} needs the package {error.name}: pip install 'gangplank[cluster]'", CLUSTER)


def on_evidence(given: argparse.Namespace) -> int:
    """Run a command about evidence; only one that asks a cluster needs the kubernetes package."""
    from gangplank import proving

    if not given.job and not given.file:
        return complain(f"{given.command}: no job given; try: gangplank {given.command} digits", USAGE)
    run: Callable[[argparse.Namespace], int] = getattr(proving, given.command)
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
