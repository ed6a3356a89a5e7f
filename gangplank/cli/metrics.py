"""`gangplank metrics`: the site for Prometheus, once or at an address. It changes nothing."""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cluster.metrics import FAMILIES, Samples, site_metrics, unanswered
from gangplank.errors import KubeError, Problem, Unreadable
from gangplank.reading import files

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

FOLDER = "monitoring"  # of this package: alert rules and dashboards
KINDS = (".yml", ".json")
PORTS = range(65536)
CONTRARY = (("--site", "-n"), ("--site", "--write"), ("-n", "--write"), ("-o", "--write"))  # one would decide nothing


def families(samples: Samples) -> Iterator[Metric]:
    """The samples as prometheus-client takes them."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    for name, family in FAMILIES.items():
        kind = CounterMetricFamily if family.counter else GaugeMetricFamily
        metric = kind(family.name, family.says, labels=family.labels)
        for labels, value in sorted(samples.values[name].items()):
            metric.add_metric(labels, value)
        yield metric


class Collector:
    """What an endpoint asks at each scrape: one reading of the cluster at a time, for all that wait for it."""

    def __init__(self, read: Callable[[], Samples]) -> None:
        self.read = read
        self.turn = threading.Lock()
        self.samples, self.ended = unanswered(), -math.inf

    def collect(self) -> Iterator[Metric]:
        """The site now; a cluster that does not answer is a sample too."""
        asked = time.monotonic()
        with self.turn:
            if self.ended < asked:
                try:
                    self.samples = self.read()
                except KubeError as error:
                    terminal.note(str(error))
                    self.samples = unanswered()
                self.ended = time.monotonic()
            samples = self.samples
        yield from families(samples)


def metrics(args: argparse.Namespace) -> int:
    """Print the samples, serve them, or write the rules and dashboards for them."""
    options = {"--site": args.site, "-n": args.namespace, "-o": args.output, "--write": args.write}
    for option, other in CONTRARY:
        if options[option] and options[other]:
            fix = f"leave out {option}, or {other}"
            raise terminal.UsageError(str(Problem(option, f"it with {other}", f"it without {other}", fix)))
    if args.write:
        return write(Path(args.write))
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

    address = listening(args.listen) if args.listen else None
    namespaces, kube = namespaces_of(args), cluster_of(args)
    registry = CollectorRegistry(auto_describe=False)
    if address:
        registry.register(Collector(lambda: site_metrics(kube, namespaces)))
        return serve(*address, registry)
    samples = site_metrics(kube, namespaces)
    registry.register(Collector(lambda: samples))
    form: Callable[[CollectorRegistry], bytes] = (
        generate_openmetrics if args.output == "openmetrics" else generate_latest
    )
    print(form(registry).decode(), end="")
    return terminal.OK


def namespaces_of(args: argparse.Namespace) -> list[str]:
    """The namespace of the command line, or those of the site's teams; none means all."""
    if not args.site:
        return [args.namespace] if args.namespace else []
    from gangplank.teams.load import load

    _, teams = load(args.site)
    if not teams:
        got, fix = f"{args.site}, which has no teams", "leave out --site to see all namespaces that you may read"
        raise terminal.UsageError(str(Problem("--site", got, "an inventory with teams", fix)))
    return sorted(team.namespace for team in teams)


def listening(text: str) -> tuple[str, int]:
    """An address and a port.

    >>> listening("127.0.0.1:9400"), listening("[::1]:9400")
    (('127.0.0.1', 9400), ('::1', 9400))
    """
    address, _, port = text.rpartition(":")
    if not address or not port.isascii() or not port.isdigit() or int(port) not in PORTS:
        fix = "127.0.0.1:9400 for this machine alone, 0.0.0.0:9400 for everybody who reaches it"
        raise terminal.UsageError(str(Problem("--listen", text, "ADDRESS:PORT", fix)))
    return address.removeprefix("[").removesuffix("]"), int(port)


def serve(address: str, port: int, registry: CollectorRegistry) -> int:
    """Answer scrapes until it is interrupted."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        problem = Problem("--listen", error.strerror or str(error), "an address of this machine and a free port")
        raise terminal.UsageError(f"{problem}") from None
    host = f"[{address}]" if ":" in address else address
    terminal.note(f"samples: http://{host}:{server.server_port}/metrics")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(terminal.OK))  # a container's first process would ignore it
    thread.join()
    return terminal.OK


def shipped() -> dict[str, str]:
    """The alert rules and the dashboards, by the name of their file."""
    folder = resources.files(__package__).joinpath(FOLDER)
    return {file.name: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(KINDS)}


def write(folder: Path) -> int:
    """Write the alert rules and the dashboards into a folder."""
    for name, text in sorted(shipped().items()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files.write(folder / name, text)
        except OSError as error:
            got, expected = error.strerror or str(error), "a file that can be written"
            problem = Problem(str(folder / name), got, expected, "name another folder")
            raise Unreadable(str(problem)) from None
        print(folder / name)
    return terminal.OK
