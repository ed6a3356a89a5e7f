"""docs/bench.md with its drawings, and the figures of README.md, docs/faults.md and roles, all from bench/results.

python -m bench.page             # names what is stale, exits 1
python -m bench.page --write
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from bench.figures import number, ranged, read
from bench.part import parts
from bench.parts import faults
from bench.reasons import reason
from bench.tuned import TUNED
from tools.write_docs_tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.figures import Beside, Figure, Result

ROOT = Path(__file__).resolve().parents[1]
PAGE, FAULTS, README, DRAWINGS = "docs/bench.md", "docs/faults.md", "README.md", "docs/bench"
BEGIN, END = "<!-- begin: python -m bench.page --write -->", "<!-- end -->"
# What README.md shows, where it was measured.
HEADLINES = (
    "lab.trained", "gangs.10x100.running", "gangs.100x10.running", "start.volcano", "trainer.accuracy",
    "idle.memory", "idle.cpu", "teams.second.100", "expand.volcano.10000", "fit.fits",
)  # fmt: skip
TUNED_ARE = """\
These defaults were tuned for speed. The page of each says why, and what it costs. Before, the part `gangs` has all of
upstream's values at once. The part `tuning` has the role's own values then, and upstream's of this default alone. The
part `tried` has other values, which did not become defaults."""
LEFT, WIDTH, ROW = 330, 300, 26  # of a drawing: where bars begin, how long the longest is, how high a row
WIDE = 30  # largest over smallest value from which a scale is logarithmic


def limit(one: Figure) -> str:
    """What the table says about the goal; empty without one."""
    if one.goal is None:
        return ""
    words = f"{'at most' if one.better == 'less' else 'at least'} {number(one.goal)}"
    return f"{words}{f' ({one.why})' if one.why else ''}"


def outcome(one: Figure) -> str:
    """What the table says about the goal, and whether it is reached."""
    return f"{limit(one)}: {'reached' if one.met else '**missed**'}" if limit(one) else ""


def beside(one: Figure, it: Beside | None) -> str:
    """What the table says about a peer or a floor, with the ratio to it."""
    if not it:
        return ""
    ratio = f", {number(one.value / it.value)} x" if it.value else ""
    return f"{it.name}: {number(it.value)}{in_brackets(it.spread)}{ratio}"


def in_brackets(spread: tuple[float, float]) -> str:
    """A spread behind its median; empty without one, as of a single round."""
    return f" ({ranged(spread)})" if spread[0] != spread[1] else ""


def amount(one: Figure) -> str:
    """A figure with its unit, if it has one."""
    return f"{number(one.value)} {one.unit}".rstrip()


def valued(one: Figure) -> str:
    """A figure with its unit and its spread."""
    return amount(one) + in_brackets(one.spread)


def run_of(one: Figure) -> str:
    """Which run a figure is of, in a result that several made."""
    return f" ({one.facts['date']}, `{one.facts['commit']}`)" if "commit" in one.facts else ""


def titles(figures: Sequence[Figure]) -> list[str]:
    """The title of each figure of a part, with its unit where two have the same."""
    counts = Counter(one.title for one in figures)
    return [one.title + (f", in {one.unit}" if counts[one.title] > 1 else "") for one in figures]


def cores(result: Result) -> str:
    """On how many processors of which kind it was measured."""
    return f"{result.machine['cores']} cores ({result.machine['processor']})"


def section(name: str, title: str, result: Result) -> str:
    """A part of the page."""
    rows = [
        (title + run_of(one), amount(one), ranged(one.spread) if one.rounds > 1 else "", str(one.rounds),
         beside(one, one.peer), beside(one, one.floor), outcome(one))
        for title, one in zip(titles(result.figures), result.figures, strict=True)
    ]  # fmt: skip
    about = result.machine
    where = f"{cores(result)}, {about['memory_gib']} GiB, {about['kernel']}"
    head = ["figure", "median", "spread", "rounds", "peer", "floor", "goal"]
    return "\n\n".join(
        [
            f"## {name}",
            f"{title}. Measured on {result.date} at `{result.commit}`, on {where}, in {result.minutes:g} minutes.",
            f"![{title}](bench/{name}.svg)",
            table(head, rows),
        ]
    )


def tuned(results: Mapping[str, Result], home: str = "") -> str:
    """The defaults that are tuned for speed, or those of one home, each with its before and after where measured."""
    by_id = {one.id: one for result in results.values() for one in result.figures}

    def listed(values: Mapping[str, Any]) -> str:
        # roles/volcano/vars/main.yml adds a flag to a value, in a second line
        return ", ".join(f"`{name}` {str(value).split()[0]}" for name, value in values.items())

    rows = []
    for one in TUNED.values():
        if home not in {"", one.home}:
            continue
        where = () if home else (f"[{one.home}](../{one.home}/README.md)",)
        who = (*where, listed(one.ours), listed(one.upstream))
        shown = [by_id[key] for key in one.figures if key in by_id]
        cells = [(it.title, beside(it, it.peer), valued(it)) for it in shown] or [("not measured yet", "", "")]
        rows += [(*(("",) * len(who) if at else who), *row) for at, row in enumerate(cells)]
    return table([*([] if home else ["where"]), "ours", "upstream's", "figure", "before", "after"], rows)


def missed(results: Mapping[str, Result]) -> str:
    """The goals that are missed, those of a part with one reason together."""
    cases: dict[tuple[str, str], list[str]] = {}
    for name, result in results.items():
        for one in result.figures:
            if one.met is False:
                line = f"{one.title}: {valued(one)}, goal {limit(one)}"
                cases.setdefault((name, reason(one) or "not known yet"), []).append(line)
    rows = [(f"[{name}](#{name})", "<br>".join(lines), why) for (name, why), lines in cases.items()]
    return table(["part", "figures", "why they miss their goal"], rows) if rows else "None."


def reached(results: Mapping[str, Result]) -> str:
    """How many goals are reached."""
    outcomes = [one.met for result in results.values() for one in result.figures if one.met is not None]
    return f"Of {len(outcomes)} figures with a goal, {sum(outcomes)} reach it."


def page(results: Mapping[str, Result]) -> str:
    """docs/bench.md below its introduction."""
    every = {name: module.PART for name, module in parts().items()}
    declared = [
        (f"`{name}`", part.title, f"{part.minutes:g}", part.lab.value, "yes" if part.quiet else "no",
         "yes" if part.usual else "no")
        for name, part in every.items()
    ]  # fmt: skip
    missing = [f"`{name}`" for name in every if name not in results]
    return "\n\n".join(filter(None, [
        f"## In short\n\n{headlines(results)}",
        f"## Missed goals\n\n{reached(results)} The others:\n\n{missed(results)}",
        f"## Tuned defaults\n\n{TUNED_ARE}\n\n{tuned(results)}",
        *(section(name, part.title, results[name]) for name, part in every.items() if name in results),
        "## Parts",
        table(["part", "what it measures", "minutes", "lab", "quiet machine", "usual"], declared),
        f"Without a result: {', '.join(missing)}." if missing else "",
    ]))  # fmt: skip


def headlines(results: Mapping[str, Result]) -> str:
    """The figures of README.md."""
    by_id = {one.id: one for result in results.values() for one in result.figures}
    machines: dict[str, list[str]] = {}
    for result in results.values():
        shown = [one.title for one in result.figures if one.id in HEADLINES]
        machines.setdefault(cores(result), []).extend(shown)
    where = sorted(((kind, shown) for kind, shown in machines.items() if shown), key=lambda item: -len(item[1]))
    others = [f"{'; '.join(shown)}: on {kind}" for kind, shown in where[1:]]
    rows = [
        (by_id[key].title, amount(by_id[key]), beside(by_id[key], by_id[key].peer),
         beside(by_id[key], by_id[key].floor), outcome(by_id[key]))
        for key in HEADLINES
        if key in by_id
    ]  # fmt: skip
    missing = [f"`{key}`" for key in HEADLINES if key not in by_id]
    return "\n\n".join(filter(None, [
        f"Measured on {where[0][0]}. {''.join(f'{line}. ' for line in others)}".strip() if where else "",
        table(["figure", "median", "peer", "floor", "goal"], rows) if rows else "",
        f"Without a result so far: {', '.join(missing)}." if missing else "",
    ]))  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """From values to pixels; logarithmic if they differ much."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        """The scale on which all of these can be seen.

        >>> Scale.of([1, 2]).at(1), Scale.of([1, 1000]).at(1)
        (150.0, 41)
        """
        above = [value for value in values if value > 0]
        if above and max(above) > WIDE * min(above):
            return cls(min(above) / 3, max(above))
        return cls(0.0, max([*above, 1e-9]))

    def at(self, value: float) -> float:
        """Where a value is."""
        if not self.low:
            return round(WIDTH * value / self.high, 1)
        steps = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return round(WIDTH * steps)


def marks(one: Figure) -> dict[str, Beside]:
    """What stands beside a figure."""
    return {kind: it for kind, it in (("peer", one.peer), ("floor", one.floor)) if it}


def drawing(figures: Sequence[Figure]) -> str:
    """A part's figures as SVG: bars of the same unit share a scale."""
    groups, top = [], 8
    for unit, some in groupby(sorted(figures, key=lambda one: one.unit), key=lambda one: one.unit):
        rows = list(some)
        values = [value for one in rows for value in (one.value, *one.spread, one.goal or 0, *(
            it.value for it in marks(one).values()))]  # fmt: skip
        scale = Scale.of(values)
        groups.append({"unit": unit, "top": top, "log": bool(scale.low), "rows": [
            {
                "top": top + 22 + ROW * at, "title": one.title, "text": f"{number(one.value)} {one.unit}",
                "bar": max(scale.at(one.value), 0), "low": scale.at(one.spread[0]), "high": scale.at(one.spread[1]),
                "marks": {kind: scale.at(it.value) for kind, it in marks(one).items()},
                "goal": None if one.goal is None else scale.at(one.goal), "missed": one.met is False,
            }
            for at, one in enumerate(rows)
        ]})  # fmt: skip
        top += 22 + ROW * len(rows) + 14
    folder = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=folder, autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                     undefined=jinja2.StrictUndefined, keep_trailing_newline=True)  # fmt: skip
    return environment.get_template("drawing.svg.j2").render(
        groups=groups, left=LEFT, width=LEFT + WIDTH + 130, height=top + 24
    )


def between(text: str, body: str) -> str:
    """A text with another body between its marks."""
    head, mark, rest = text.partition(BEGIN)
    return f"{head}{mark}\n\n{body}\n\n{END}{rest.partition(END)[2]}"


def files(root: Path = ROOT) -> dict[str, str]:
    """What the generated files hold, by path."""
    results = {name: result for name, result in read(root / "bench/results").items() if name in parts()}
    text_of_faults = (root / FAULTS).read_text()
    drawings = {f"{DRAWINGS}/{name}.svg": drawing(result.figures) for name, result in results.items()}
    homes = {one.home: (root / one.home / "README.md").read_text() for one in TUNED.values()}
    return {
        PAGE: between((root / PAGE).read_text(), page(results)),
        FAULTS: between(text_of_faults, faults.shown(text_of_faults, results.get("faults"))),
        README: between((root / README).read_text(), headlines(results)),
        **{f"{home}/README.md": between(text, tuned(results, home)) for home, text in homes.items() if BEGIN in text},
        **drawings,
    }


def stale(root: Path = ROOT) -> list[str]:
    """Generated files that are not as the results say, and drawings without a result."""
    wanted = files(root)
    texts = {path: (root / path).read_text() if (root / path).exists() else None for path in wanted}
    different = [path for path, text in wanted.items() if texts[path] != text]
    present = {f"{DRAWINGS}/{path.name}" for path in (root / DRAWINGS).glob("*.svg")}
    return [*different, *sorted(present - {*wanted})]


def write(root: Path = ROOT) -> None:
    """Write all of them, and remove drawings without a result."""
    wanted = files(root)
    for old in (root / DRAWINGS).glob("*.svg"):
        if f"{DRAWINGS}/{old.name}" not in wanted:
            old.unlink()
    for path, text in wanted.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)


def main(arguments: Sequence[str]) -> int:
    """Write, or name what is stale."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    if parser.parse_args(arguments).write:
        write()
        return 0
    for path in stale():
        print(f"{path}: got other figures than bench/results has, expected those. Fix: make docs", file=sys.stderr)
    return 1 if stale() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
