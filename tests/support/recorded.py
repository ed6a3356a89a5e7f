"""Samples of `gangplank metrics`, scraped from a lab in a run with known events, and what promtool makes of them."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from gangplank.cli.metrics import shipped
from lab.build.parts import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Json = dict[str, Any]
Labels = dict[str, str]
Answer = list[tuple[Labels, float]]
Alert = tuple[Labels, Labels]  # labels and annotations
FIXTURE = Path(__file__).with_name("recorded_samples.json")
INTERVAL_S = 15
RULES = "gangplank-alerts.yml"
NAME = "__name__"
CLOCK = "_timestamp_seconds"  # in the names of metrics that are moments


@dataclass
class Recording:
    """What was scraped every INTERVAL_S seconds: by metric and labels, a value or None for each time."""

    start: int = 0  # seconds since 1970, of the first scrape
    marks: dict[str, int] = field(default_factory=dict)  # moments of the run, by the number of their scrape
    series: list[tuple[Labels, list[float | None]]] = field(default_factory=list)
    length: int = 0
    note: str = ""  # what is not as it was scraped

    def add(self, text: str, **more: str) -> None:
        """One scrape at the present moment; `more` are the labels that Prometheus adds."""
        known = {json.dumps(labels, sort_keys=True): values for labels, values in self.series}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {NAME: sample.name, **sample.labels, **more}
                key = json.dumps(labels, sort_keys=True)
                if key not in known:
                    known[key] = []
                    self.series.append((labels, known[key]))
                values = known[key]
                values += [None] * (self.length - len(values))
                values.append(sample.value)

    def tick(self) -> None:
        """All of this moment is scraped."""
        self.length += 1
        for _, values in self.series:
            values.extend([None] * (self.length - len(values)))

    def time(self, mark: str) -> int:
        """The moment in seconds since 1970."""
        return self.start + self.marks[mark] * INTERVAL_S

    def at(self, mark: str, name: str, **labels: str) -> Answer:
        """The samples of a metric at a moment; labels as regular expressions."""
        position = self.marks[mark]
        return [
            ({key: value for key, value in own.items() if key != NAME}, value)
            for own, values in self.series
            if own[NAME] == name
            and (value := values[position]) is not None
            and all(re.fullmatch(pattern, own.get(key, "")) for key, pattern in labels.items())
        ]

    def rebased(self) -> Recording:
        """The same run at the beginning of 1970, where promtool's clock begins."""
        moved = [
            (labels, [None if one is None else one - self.start for one in values] if CLOCK in labels[NAME] else values)
            for labels, values in self.series
        ]
        return Recording(0, self.marks, moved, self.length)

    def save(self, file: Path) -> None:
        """Write it, a series in a line."""
        head = {key: value for key, value in asdict(self).items() if key != "series"}
        rows = ",\n".join(json.dumps([labels, packed(values)]) for labels, values in sorted_series(self.series))
        file.write_text(json.dumps(head)[:-1] + f', "series": [\n{rows}\n]}}\n')

    @classmethod
    def load(cls, file: Path) -> Recording:
        """Read it."""
        fields = json.loads(file.read_text())
        fields["series"] = [(labels, unpacked(values)) for labels, values in fields["series"]]
        return cls(**fields)


def sorted_series(series: list[tuple[Labels, list[float | None]]]) -> list[tuple[Labels, list[float | None]]]:
    return sorted(series, key=lambda one: json.dumps(one[0], sort_keys=True))


def packed(values: list[float | None]) -> list[Any]:
    """Runs of a value as [value, count].

    >>> packed([None, 1.0, 1.0])
    [[None, 1], [1.0, 2]]
    """
    runs: list[Any] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1][1] += 1
        else:
            runs.append([value, 1])
    return runs


def unpacked(runs: list[Any]) -> list[float | None]:
    """The values again."""
    return [value for value, count in runs for _ in range(count)]


def notation(values: list[float | None]) -> str:
    """Values as promtool takes them; a series that ends is stale, as after a scrape without it.

    >>> notation([None, 1.0, 2.5, None, None])
    '_ 1.0 2.5 stale _'
    """
    words = []
    for before, value in zip([None, *values], values, strict=False):
        words.append(repr(value) if value is not None else "_" if before is None else "stale")
    return " ".join(words)


def written(labels: Mapping[str, str]) -> str:
    """A series as promtool takes it."""
    own = ",".join(f"{key}={json.dumps(value)}" for key, value in sorted(labels.items()) if key != NAME)
    return f"{labels.get(NAME, '')}{{{own}}}"


def queries() -> Iterator[tuple[str, str]]:
    """Every panel's queries: dashboard, panel and letter; the expression."""
    for name, text in sorted(shipped().items()):
        if name.endswith(".json"):
            for panel in json.loads(text)["panels"]:
                for target in panel["targets"]:
                    yield f"{name}: {panel['title']}: {target['refId']}", target["expr"]


def alerts() -> list[str]:
    """The names of all alerts."""
    return [rule["alert"] for group in yaml.safe_load(shipped()[RULES])["groups"] for rule in group["rules"]]


def filled(expression: str, variables: Mapping[str, str]) -> str:
    """A query with the values of its variables, as Grafana sends it."""
    return re.sub(r"\$(\w+)", lambda match: variables[match[1]], expression)


def program() -> str:
    """promtool."""
    return f"{build(['promtool'], print, roots=())['bin']['promtool']}/promtool"


def judged(
    folder: Path,
    recording: Recording,
    answers: Mapping[str, Mapping[str, Answer]],
    firing: Mapping[str, Mapping[str, list[Alert]]],
    change: Callable[[Json], None] | None = None,
) -> str:
    """What promtool says of the answers and of the alerts that fire, both by moment; "" if all hold."""
    since = {mark: f"{position * INTERVAL_S}s" for mark, position in recording.marks.items()}
    body: Json = {
        "interval": f"{INTERVAL_S}s",
        "input_series": [{"series": written(labels), "values": notation(values)}
                         for labels, values in recording.series],
        "promql_expr_test": [
            {"expr": expression, "eval_time": since[mark],
             "exp_samples": [{"labels": written(labels), "value": value} for labels, value in answer]}
            for mark, own in answers.items() for expression, answer in own.items()
        ],
        "alert_rule_test": [
            {"alertname": name, "eval_time": since[mark],
             "exp_alerts": [{"exp_labels": labels, "exp_annotations": notes} for labels, notes in own]}
            for mark, by_name in firing.items() for name, own in by_name.items()
        ],
    }  # fmt: skip
    (folder / RULES).write_text(shipped()[RULES])
    test = {"rule_files": [RULES], "evaluation_interval": f"{INTERVAL_S}s", "tests": [body]}
    if change:
        change(test)
    (folder / "test.yml").write_text(yaml.safe_dump(test, sort_keys=False, width=10**6))
    command = [program(), "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return "" if done.returncode == 0 else done.stdout + done.stderr
