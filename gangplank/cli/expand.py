"""The command expand: the pods and objects of jobs before they exist. Asks a cluster only with --cluster."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, queue_webhooks
from gangplank.backends.base import Site, refuse
from gangplank.backends.device_claims import claims_of
from gangplank.cli import tables, terminal
from gangplank.cli.inputs import gather, jobless, kinds
from gangplank.errors import Problem
from gangplank.k8s import manifest as shape
from gangplank.k8s.dump import as_json, as_yaml

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gangplank.spec import Json


def expand(args: argparse.Namespace) -> int:
    """Show what becomes of jobs and manifests."""
    names = [*args.jobs, *args.filename]
    if not names:
        raise terminal.UsageError(str(Problem("JOB", "nothing", kinds(), "gangplank expand jobs/digits.yml")))
    submitted, jobs, other_kinds = gather(names, args.backend, args.site)
    site = live_site(args, submitted, [job for _, job in jobs]) if args.cluster else Site(others=tuple(submitted))
    if args.no_gang:
        site = replace(site, gang=False)
    # Objects are built whatever is shown: an invalid manifest is refused here.
    expanded = [(backend, job, whole(backend, job, site)) for backend, job in jobs]
    objects = [item for _, _, created in expanded for item in created]
    for backend, job in jobs:
        for text in BACKENDS[backend].pitfalls(job):
            print(f"note: {job['metadata']['name']}: {text}", file=sys.stderr)
    if args.output == "table":
        colour = terminal.coloured(sys.stdout)
        for backend, job, created in expanded:
            print(tables.heading(backend, job, created))
        print(tables.pods_table(objects, colour=colour))
        if args.objects:
            print("\n" + tables.others_table(objects, colour=colour))
    else:
        terminal.use_utf8()  # for another program, whatever the terminal's encoding
        dump = as_yaml if args.output == "yaml" else as_json
        print(dump(objects if args.objects else submitted), end="")
    if other_kinds and not jobs:
        return terminal.complain(str(jobless(", ".join(names), other_kinds)), terminal.REFUSED)
    return terminal.OK


def whole(backend: str, job: Json, site: Site) -> list[Json]:
    """What becomes of a job: what its controllers create, as webhooks change it, and the claims of its pods."""
    objects = BACKENDS[backend].objects(job, site)
    queue_webhooks.change(objects, site)
    return [*objects, *claims_of(objects, site.others)]


def live_site(args: argparse.Namespace, submitted: Sequence[Json], jobs: Sequence[Json]) -> Site:
    """The settings of the cluster's controllers, as far as these jobs depend on them."""
    from gangplank.cli.cluster import cluster_of
    from gangplank.cluster.site import site_of

    for job in jobs:
        problems: list[Problem] = []
        shape.manifest(job, {}, problems)  # its namespace is read before its objects are built
        refuse(problems, job)
    return site_of(cluster_of(args), tuple(submitted), jobs)
