"""The command data: files brought onto a volume claim and checked there, and what a claim has, listed or removed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cli import terminal
from gangplank.cli.cluster import cluster_of
from gangplank.cli.fetch import Meter, interruptible, mib
from gangplank.cluster import data as bringing
from gangplank.cluster.landing import problem
from gangplank.cluster.local_files import local_files
from gangplank.cluster.origins import BUCKET, WEB, base_name
from gangplank.errors import Problem, shown
from gangplank.reading.files import read
from gangplank.text import counted, plain

if TYPE_CHECKING:
    import argparse

SHA256 = re.compile("[0-9a-f]{64}")
SUM = re.compile("([0-9a-f]{64}) [ *](.+)")  # a line of sha256sum
SHOWN = 10  # of files, with their hashes


def data(args: argparse.Namespace) -> int:
    """Bring files onto a claim, list its files, or remove some."""
    claim, _, folder = args.target.partition(":")
    folder = folder.strip("/")
    if args.sources in (["ls"], ["rm"]):
        return on_claim(args, args.sources[0], claim, folder)
    remote = [source for source in args.sources if WEB.fullmatch(source) or BUCKET.fullmatch(source)]
    check(args.sources, remote, folder)
    sums = sums_of(args.sha256, args.sources)
    meter = Meter(claim)
    kube = cluster_of(args, changes=True).patient(meter.note)
    with interruptible():
        place = bringing.place_of(kube, kube.namespace_of(args.namespace), claim, args.image, args.queue, args.secret)
        local = () if remote else local_files([Path(source) for source in args.sources], meter.show)
        order = bringing.Order(place, folder, local, tuple(remote), sums, tuple(args.replace))
        result = bringing.bring(kube, order, meter.show)
    meter.close()
    files = f"{counted(result.files, 'file')} ({mib(result.size)})"
    print(f"{order.title}: {files}, {result.new} brought now")
    for name, sha256 in sorted(result.sums.items()) if len(result.sums) <= SHOWN else []:
        print(f"  {sha256}  {plain(name)}")
    print(f"the set: sha256:{result.digest}")
    return terminal.OK


def on_claim(args: argparse.Namespace, verb: str, claim: str, name: str) -> int:
    """List what is at a place of a claim, or remove it."""
    removes = verb == "rm"
    if removes and not name:
        fix = f"gangplank data rm {claim}:PATH; kubectl delete pvc {claim} removes the claim"
        raise terminal.UsageError(str(Problem(claim, "a whole claim", "a file or a folder of it", fix)))
    if name and (wrong := problem(name)):
        raise terminal.UsageError(str(Problem(name, wrong, "a file or a folder of the claim", "write CLAIM:PATH")))
    meter = Meter(claim)
    kube = cluster_of(args, changes=removes).patient(meter.note)
    with interruptible():
        place = bringing.place_of(kube, kube.namespace_of(args.namespace), claim, args.image, args.queue, ())
        order = bringing.Order(place, name)
        result = bringing.about(kube, order, verb, meter.show)
    meter.close()
    files = f"{counted(result['files'], 'file')} ({mib(result['bytes'])})"
    if removes:
        print(f"{order.title}: removed, {files}")
        return terminal.OK
    rows = result["rows"]
    for file, size in rows:
        print(f"{'link' if size is None else size:>15}  {plain(file)}")
    more = f", the first {len(rows)} of them" if len(rows) < result["files"] else ""
    print(f"{order.title}: {files}{more}")
    return terminal.OK


def check(sources: list[str], remote: list[str], folder: str) -> None:
    """Refuse sources that one command cannot bring, and a folder that is none."""
    problems = []
    if remote and len(remote) < len(sources):
        other = next(source for source in sources if source not in remote)
        fix = "bring what is on this machine with a command of its own"
        problems.append(Problem(other, "a place on this machine", "addresses alone, as the others are", fix))
    problems += [Problem(source, "an address without a file's name", "https://host/path/file", "add the name")
                 for source in remote if WEB.fullmatch(source) and not base_name(source)]
    problems += [Problem(source, "an address of another kind", "a path, or s3://, gs://, https:// or http://", "")
                 for source in sources if "://" in source and source not in remote]
    if folder and (wrong := problem(folder)):
        problems.append(Problem(folder, wrong, "a folder of the claim", "write CLAIM:FOLDER"))
    if problems:
        raise terminal.UsageError("\n  ".join(map(str, problems)))


def sums_of(value: str | None, sources: list[str]) -> dict[str, str]:
    """The expected hashes by name: one, of one file, or a file as sha256sum prints it."""
    if not value:
        return {}
    if SHA256.fullmatch(value.lower()):
        if len(sources) > 1 or Path(sources[0]).is_dir():
            fix = "write them to a file as sha256sum prints them, and name it"
            raise terminal.UsageError(str(Problem("--sha256", "one hash", "one for each file", fix)))
        (source,) = sources
        return {base_name(source) if "://" in source else Path(source).name: value.lower()}
    lines = [line for line in read(value).splitlines() if line]
    pairs = [SUM.fullmatch(line) for line in lines]
    for number, (line, pair) in enumerate(zip(lines, pairs, strict=True), start=1):
        if not pair:
            expected, fix = "a hash and a name, as sha256sum prints them", "sha256sum FILE… > SUMS"
            raise terminal.UsageError(str(Problem(f"{value}:{number}", shown(line), expected, fix)))
    return {pair[2].removeprefix("./"): pair[1] for pair in pairs if pair}
