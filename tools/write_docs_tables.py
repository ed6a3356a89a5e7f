"""What docs/ takes from the code: docs/commands.md, and tables of the other pages that PAGES names.

python -m tools.write_docs_tables             # names what is stale, exits 1
python -m tools.write_docs_tables --write
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gangplank.backends import BACKENDS, wiring
from gangplank.backends.base import Site
from gangplank.cli import main as gangplank
from gangplank.cli import terminal
from gangplank.cli.parser import command_line
from gangplank.cluster.metrics import FAMILIES
from gangplank.proof.claims import CLAIMS
from gangplank.site.storage import KINDS
from gangplank.spec import JobSpec, Script
from tools import blame_figures, cause_figures, fit_figures, gang_figures, kill_figures, sweeps, when_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- begin: python -m tools.write_docs_tables --write -->"
END = "<!-- end -->"
CODE = re.compile(r"^  (\d+)  (.+)$", re.MULTILINE)  # of terminal.CODES

# A command as a reader would type it. Those that ask no cluster are run, and their output is printed below.
EXAMPLES = (
    "gangplank expand jobs/digits.yml",
    "gangplank expand jobs/digits-anywhere.yml --backend indexed --objects",
    "gangplank submit jobs/digits.yml --dry-run",
    "gangplank run train.py --workers 3 -- --lr 0.1",
    "gangplank why digits",
    "gangplank fit jobs/digits.yml",
    "gangplank when digits",
    "gangplank status digits",
    "gangplank metrics --listen 127.0.0.1:9400",
    "gangplank logs digits --follow --rank 0",
    "gangplank fetch digits checkpoints -o results",
    "gangplank data mnist/ mnist",
    "gangplank data https://example.org/train-images-idx3-ubyte.gz mnist:raw",
    "gangplank scale digits-elastic 3",
    "gangplank delete digits",
    "gangplank proof digits",
    "gangplank proof jobs/digits.yml --file output/digits",
    "gangplank report digits -o digits.html --tensorboard runs",
    "gangplank team kubeconfig vision ada --ttl 8h",
    "gangplank drift inventories/example",
    "gangplank preflight --site inventories/example",
    "gangplank completion bash",
)
SHOWN = "gangplank expand "  # examples whose output is printed


def commands(top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Every command that runs something: its words, its parser, its one-line help."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                deeper = list(commands(inner))
                yield from deeper or [(inner.prog, inner, helps.get(name, ""))]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    r"""A Markdown table.

    >>> print(table(["a"], [["x|y"]]))
    | a |
    |---|
    | x\|y |
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (head, *rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def spelling(action: argparse.Action) -> str:
    """How an argument is typed.

    >>> part = argparse.ArgumentParser()
    >>> spelling(part.add_argument("-o", "--output", choices=("yaml", "json")))
    '`-o`, `--output` `yaml` or `json`'
    """
    value = " or ".join(f"`{choice}`" for choice in action.choices) if action.choices else ""
    if not value and action.nargs != 0:
        value = f"`{action.metavar or action.dest.upper()}`"
    if not action.option_strings:
        return value + {"*": " …", "+": " …", "?": " (optional)"}.get(str(action.nargs), "")
    return ", ".join(f"`{name}`" for name in action.option_strings) + (f" {value}" if value else "")


def output(line: str) -> str:
    """What an example prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.chdir(ROOT):
        gangplank(line.split()[1:])
    return "\n".join(text.rstrip() for text in printed.getvalue().rstrip().splitlines())


def command_section(words: str, part: argparse.ArgumentParser, summary: str) -> str:
    """The section about one command."""
    rows = [(spelling(action), action.help or "") for action in part._actions if action.dest != "help"]
    examples = []
    for line in EXAMPLES:
        if line.startswith(f"{words} "):
            examples += [f"$ {line}", *([output(line), ""] if line.startswith(SHOWN) else [])]
    text = [f"## {words}", f"{summary[:1].upper()}{summary[1:]}.", table(["argument", "meaning"], rows)]
    if examples:
        text.append("```console\n" + "\n".join(examples).rstrip() + "\n```")
    return "\n\n".join(text)


def commands_page() -> str:
    """docs/commands.md, without its introduction."""
    codes = table(["exit status", "meaning"], CODE.findall(terminal.CODES))
    return "\n\n".join([codes, *(command_section(*one) for one in commands(command_line()))])


def variable(line: Sequence[str], flag: str) -> str:
    """The variable from which a launch line takes a value.

    >>> variable(["--nnodes=$(WORLD_SIZE)"], "nnodes")
    'WORLD_SIZE'
    """
    return next(word.partition("=")[2].strip("$()") for word in line if word.startswith(f"--{flag}="))


def wiring_tables() -> str:
    """Names and variables for a job `digits` of three replicas with two processes each, on every back-end."""
    names, launch, environments = [], [], {}
    for name, backend in BACKENDS.items():
        job = JobSpec("digits", "img", backend=name, script=Script("/a.py"), processes_per_node=2)
        line = wiring.launch(job)
        kind = f"{backend.api_version}, {backend.kind}"
        pods = ", ".join(f"`{replica.pod}`" for replica in wiring.replicas(job))
        names.append((f"`{name}`", kind, pods, f"`{wiring.master_addr(job)}`"))
        flags = ("nnodes", "node-rank", "master-addr", "master-port")
        launch.append((f"`{name}`", *(f"`{variable(line, flag)}`" for flag in flags)))
        manifests = backend.manifests(job)
        objects = backend.objects(manifests[-1], Site(others=tuple(manifests)))
        pod = next(item for item in objects if item["kind"] == "Pod" and wiring.pod_wiring(item)["rank"] == "1")
        environments[name] = wiring.environment(pod, pod["spec"]["containers"][0])
    seen = sorted({key for env in environments.values() for key in env if wiring.is_reserved(key)})
    values = [(f"`{key}`", *(f"`{env[key]}`" if key in env else "" for env in environments.values())) for key in seen]
    return "\n\n".join([
        "### Names",
        table(["back-end", "API version and kind", "host names of the pods, by rank", "where rank 0 listens"], names),
        "### The launch line",
        table(["back-end", "`--nnodes`", "`--node-rank`", "`--master-addr`", "`--master-port`"], launch),
        "### The environment of the pod with rank 1",
        table(["variable", *(f"`{name}`" for name in environments)], values),
    ])


def storage_table() -> str:
    """The kinds of storage."""
    rows = [
        (
            f"`{name}`",
            kind.title,
            kind.how,
            ", ".join(kind.access_modes) or "as `access_modes` of the class lists",
            kind.binding + (", unless `binding_mode` differs" if len(kind.binding_modes) > 1 else ""),
            kind.checked_by,
        )
        for name, kind in KINDS.items()
    ]
    return table(["kind", "what it is", "how", "access modes", "a volume is created", "checked by"], rows)


def claims_table() -> str:
    """A row per claim of the proof, from its function's docstring."""
    rows = []
    for name, claim in CLAIMS.items():
        text, _, mistakes = " ".join(inspect.cleandoc(claim.judge.__doc__ or "").split()).partition(" Fails for: ")
        newer = f" Needs evidence of format {claim.since}." if claim.since > 1 else ""
        rows.append((name, f"{text}{newer}", mistakes.removesuffix(".").replace("*", "\\*")))
    return table(["claim", "what it shows", "fails for"], rows)


def refusals_table() -> str:
    """What each back-end refuses of the portable fields, in the order of the fields."""
    rows = [
        (f"`{field.name}`", f"`{name}`", refusal.reason, refusal.fix)
        for field in fields(JobSpec)
        for name, backend in BACKENDS.items()
        if (refusal := backend.refuses.get(field.name))
    ]
    rows += [
        ("GPUs by claim", f"`{name}`", refusal.reason, refusal.fix)
        for name, backend in BACKENDS.items()
        if (refusal := backend.no_claims)
    ]
    return table(["field", "back-end", "why", "what to do instead"], rows)


def sweeps_table() -> str:
    """Every sweep, the last result of each of its parts, and the last ones of the parts of `make test-full`.

    Then the kill points of the playbooks that their sweep has tried.
    """
    summary = [(f"`{name}`", sweep.shows, sweep.cases) for name, sweep in sweeps.SWEEPS.items()]
    rows = [result_row(name, part, result) for name in sweeps.SWEEPS for part, result in sweeps.read(name).items()]
    full = [
        (*result_row(sweeps.FULL, part, result), FRESH[result.fresh], f"`{result.division}`" if result.division else "",
         "" if result.seed is None else str(result.seed))
        for part, own in sweeps.runs(sweeps.FULL).items()
        for result in own
        if isinstance(result, sweeps.FullResult)
    ]
    head = ["sweep", "part", "date", "commit", "machine", "cases", "passed", "failed", "minutes"]
    missing = [f"`{name}`" for name in sweeps.SWEEPS if not sweeps.read(name)]
    parts = [table(["sweep", "what it shows", "cases"], summary), table(head, rows) if rows else ""]
    parts.append(table([*head, "fresh clone", "division", "seed"], full) if full else "")
    kills = list(kill_figures.table(kill_figures.load()))
    columns = ["playbook", "kill points", "tried", "on", "converged", "did not converge"]
    parts.append(table(columns, kills) if kills else "")
    parts.append(f"Without a result: {', '.join(missing)}." if missing else "")
    return "\n\n".join(filter(None, parts))


def result_row(name: str, part: str, result: sweeps.Result) -> tuple[str, ...]:
    """What every result says."""
    return (
        f"`{name}`", part, result.date, f"`{result.commit}`", result.machine, str(result.cases), str(result.passed),
        ", ".join(result.failed), f"{result.minutes:.0f}",
    )  # fmt: skip


FRESH = {True: "yes", False: "no", None: ""}  # as the table says it; older results do not know


def scripts_table() -> str:
    """The scripts that tests run unedited, and what is proven of each."""
    rows = []
    for name, row in yaml.safe_load((ROOT / "tests/scripts/corpus.yml").read_text()).items():
        claims = ", ".join(row.get("not_claimed", []))
        not_claimed = f"{claims}: {row['why']}" if claims else "nothing else"
        rows.append((f"`{name}`", row["whose"], row["does"], ", ".join(f"`{backend}`" for backend in BACKENDS),
                     f"`{row['verdict']}`", not_claimed))
    return table(["script", "whose it is", "what it does", "back-ends", "verdict", "not claimed"], rows)


def metrics_table() -> str:
    """What `gangplank metrics` has."""
    rows = [(f"`{one.full_name}`", ", ".join(f"`{label}`" for label in one.labels), one.says)
            for one in FAMILIES.values()]  # fmt: skip
    return table(("metric", "labels", "what it says"), rows)


def when_table() -> str:
    """How often the intervals of `gangplank when` held in its last sweep."""
    rows = [
        (f"of the {kind}", str(own["jobs"]), f"{own['error']:.0%}", f"{own['error_s']} s", f"{own['inside']:.0%}")
        for kind, own in when_figures.summary(when_figures.load()).items()
    ]
    return table(("the first answer", "jobs", "median error", "in seconds", "in its interval"), rows)


def fit_table() -> str:
    """How often `gangplank fit`, a copy of the site and the live scheduler agreed in the last sweep of mixes."""
    rows = list(fit_figures.table(fit_figures.load()))
    return table(("the answers", "jobs", "share", "which mixes"), rows) if rows else "No result is committed."


def causes_table() -> str:
    """How soon `gangplank why` named the causes of the last sweep."""
    rows = cause_figures.load()
    head = ("seconds from", "causes", "median", f"at most {cause_figures.GOAL_S:g} s", "the slowest")
    own = list(cause_figures.table(rows))
    return f"{cause_figures.summary(rows)}\n\n{table(head, own)}" if rows else "No result is committed."


def blame_table() -> str:
    """Which jobs that nothing is wrong with `gangplank why` blamed in the last sweep of them."""
    rows = blame_figures.load()
    own = table(("while it", "jobs", "answers"), list(blame_figures.table(rows)))
    return f"{blame_figures.summary(rows)}\n\n{own}" if rows else "No result is committed."


def why_tables() -> str:
    """What both sweeps say of `gangplank why`."""
    return f"{causes_table()}\n\n{blame_table()}"


def gangs_table() -> str:
    """How fast gangs started in the last sweep of them."""
    rows = list(gang_figures.table(gang_figures.load()))
    head = ("gangs × pods", "nodes", "by", "rounds", "all bound", "all Running", "pods/s", "× upstream", "× floor",
            "CPU time", "failed creates", "creates that the API server refused", "partial gangs")  # fmt: skip
    about = [f"Part {part}: {one.date} at `{one.commit}`, on {one.machine}."
             for part, one in sweeps.read("gangs").items()]  # fmt: skip
    return "\n\n".join([*about, table(head, rows)]) if rows else "No result is committed."


PAGES: dict[str, Callable[[], str]] = {
    "docs/bench.md": gangs_table,
    "docs/commands.md": commands_page,
    "docs/fit.md": fit_table,
    "docs/jobs.md": refusals_table,
    "docs/metrics.md": metrics_table,
    "docs/storage.md": storage_table,
    "docs/testing.md": sweeps_table,
    "docs/troubleshooting.md": why_tables,
    "docs/proof.md": claims_table,
    "docs/scripts.md": scripts_table,
    "docs/when.md": when_table,
    "docs/wiring.md": wiring_tables,
}


def page(name: str, make: Callable[[], str]) -> str:
    """A page with its generated part as it should be; raises ValueError if the page has no place for it."""
    before, begin, rest = (ROOT / name).read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{name}: expected the lines {BEGIN} and {END} where the generated part belongs")
    return f"{before}{BEGIN}\n\n{make()}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    """Name the stale pages, or write them."""
    stale = [name for name, make in PAGES.items() if (ROOT / name).read_text() != page(name, make)]
    for name in stale:
        print(f"{'written' if '--write' in arguments else 'stale'}: {name}")
        if "--write" in arguments:
            (ROOT / name).write_text(page(name, PAGES[name]))
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
