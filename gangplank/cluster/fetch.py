"""What a job left, brought to a folder here, through the log of a pod that reads it (in_pod.py).

Members of a team may read logs, but not enter pods, and nothing outside reaches their pods. A log is shown whole up
to the size at which the kubelet begins another file, so each container of the pod sends one piece that is smaller.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.cluster import in_pod, landing
from gangplank.cluster.client import path
from gangplank.cluster.landing import File, is_named
from gangplank.cluster.reader import DEADLINE_S, output_of, reader, remove_ended
from gangplank.cluster.starting import START_S, Start
from gangplank.errors import GangplankError, KubeError, Problem
from gangplank.k8s.build import literal
from gangplank.text import counted, listed, plain
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.cluster.landing import Landing
    from gangplank.spec import Json

WHAT = "fetch"  # in the pods' names
POLL_S = 0.3
PIECE = 6 * 2**20  # bytes; 8 MiB in the log, and the kubelet's default limit is 10
PIECES = 16  # of a pod
COMMAND = 32 * 1024  # characters of a piece's names: all of a pod's must fit into the API server's 1.5 MB
TRIES = 3  # of one piece
NAMES = 10  # of files, in a message
SHA256 = re.compile("[0-9a-f]{64}")

Piece = list[tuple[File, int, int]]  # of which file, from which byte, how many


class IncompleteError(KubeError):
    """A pod ended, or its log did, before all of it was read."""


@dataclass
class Fetched:
    """What a command has fetched."""

    files: list[File] = field(default_factory=list)  # of the output, as listed
    new: list[File] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)  # what is not fetched, with the reason
    links: list[str] = field(default_factory=list)  # to what is fetched itself


def fetch(
    kube: Kube, job: Json, below: str, target: Landing, say: Callable[[str, int, int], None],
    replace: Sequence[str] = (),
) -> Fetched:  # fmt: skip
    """Fetch a path of a job's output; `say` gets a phase, the bytes so far and all of them.

    A file here that was not brought for this job, or was changed since, is refused before a byte is sent, unless
    `replace` names it. One that is written while the job's is sent stays.
    """
    check(kube, job)
    remove_ended(kube, job, WHAT)
    say("lists the files", 0, 0)
    result = read_list(kube, job, below)
    missing = [file for file in result.files if not target.has(file)]
    before = {file.name: target.stamp(file.name) for file in missing}
    refuse_others(target, [file.name for file in missing], replace)
    total = sum(file.size for file in missing)
    needed = total - sum(map(target.fetched, missing))
    if needed > target.free():
        fix = "free some, name another folder with -o, or fetch a part: gangplank fetch JOB PATH"
        got = f"{target.free()} bytes of free space"
        raise GangplankError(str(Problem(str(target.folder), got, f"{needed} bytes for the files", fix)))
    tries = 0
    while missing:
        begun = sum(map(target.fetched, missing))
        try:
            transfer(kube, job, missing, target, lambda done: say("fetches", done, total))
        except IncompleteError:
            tries += 1
            if tries == TRIES:
                raise
        done = [file for file in missing if target.fetched(file) == file.size]
        for file in done:
            if why := land(target, file, before[file.name]):
                result.left[file.name] = why
            else:
                result.new.append(file)
        missing = [file for file in missing if file not in done]
        tries = 0 if done or sum(map(target.fetched, missing)) > begun else tries
    here = [file for file in result.files if file.name not in result.left]
    target.settle(here)
    target.forget(file.name for file in here)
    target.forget_old()
    return result


def land(target: Landing, file: File, before: tuple[int, ...]) -> str:
    """Give a whole file its name, if what had it is as it was; why it does not get it, "" if it does."""
    if target.stamp(file.name) not in {(), before}:
        return "it was written here meanwhile, and stays: fetch again"
    target.remember(file)
    return "" if target.finish(file) else "it was changed while it was read: fetch again, once the job has ended"


def foreign(target: Landing, names: Sequence[str], replace: Sequence[str]) -> list[str]:
    """Those of some names that are of files of the user's, which are not named to be replaced."""
    return [name for name in target.others(names) if not is_named(name, replace)]


def refuse_others(target: Landing, names: Sequence[str], replace: Sequence[str]) -> None:
    """Refuse to replace files of the user's that are not named for that."""
    if others := foreign(target, names, replace):
        shown = listed(list(map(plain, others)), NAMES)
        got = f"{counted(len(others), 'file')} that this command did not write, or that changed since: {shown}"
        fix = "name another folder with -o, or each of them, or its folder, with --replace"
        raise GangplankError(str(Problem(str(target.folder), got, "none that it would replace", fix)))


def check(kube: Kube, job: Json) -> None:
    """Refuse a job that leaves nothing that outlives its pods, or whose claim is gone."""
    meta, output = job["metadata"], output_of(job)
    if output is None:
        got = "no output that outlives its pods"
        fix = f"gangplank logs {meta['name']} -n {meta['namespace']} shows what its ranks printed"
        expected = "an `output` on a volume claim or in a bucket"
        raise GangplankError(str(Problem(f"job {meta['name']}", got, expected, fix)))
    if output.claim and kube.get(path("v1", "PersistentVolumeClaim", meta["namespace"], output.claim)) is None:
        fix = "nothing brings its files back; create the claim again before the next job"
        problem = Problem(f"claim {meta['namespace']}/{output.claim}", "nothing", "the claim of this job's output", fix)
        raise KubeError(str(problem), 404)


def read_list(kube: Kube, job: Json, below: str) -> Fetched:
    """The files of the output; those whose names are not safe here are left out, with the reason."""
    result = Fetched()
    ((lines, _),) = outputs(kube, job, [command(job, "list", below)])
    for line in lines:
        name, size, sha256, why = (line.get(key) for key in ("file", "size", "sha256", "why"))
        if isinstance(left := line.get("left"), str):
            if why == "link inside":
                result.links.append(left)
            else:
                result.left[left] = str(why)
        elif isinstance(name, str) and isinstance(size, int) and SHA256.fullmatch(str(sha256)) and size >= 0:
            if unsafe := landing.problem(name):
                result.left[name] = unsafe
            else:
                result.files.append(File(name, size, str(sha256)))
    if lines[-1]["end"] != len([line for line in lines if "file" in line]):
        raise IncompleteError(f"{output_of(job)}: got a part of the list of files, expected all of it. Fix: try again")
    return result


def transfer(
    kube: Kube, job: Json, files: Sequence[File], target: Landing, say: Callable[[int], None]
) -> None:
    """Fetch the next pieces, of one pod."""
    for file in files:
        if not file.size:
            target.write(file, 0, b"")
    batch = pieces([(file, target.fetched(file)) for file in files])[:PIECES]
    commands = [
        command(job, "send", json.dumps([[file.name, start, length] for file, start, length in piece]))
        for piece in batch
    ]
    for piece, (lines, name) in zip(batch, outputs(kube, job, commands) if commands else (), strict=True):
        try:
            data = b"".join(base64.b64decode(line["data"], validate=True) for line in lines[:-1])
        except (LookupError, TypeError, binascii.Error):
            data = b""
        whole = sum(length for _, _, length in piece)
        if len(data) != whole or hashlib.sha256(data).hexdigest() != lines[-1]["end"]:
            raise IncompleteError(f"pod {name}: got a part of its log, expected all of it. Fix: try again")
        at = 0
        for file, start, length in piece:
            target.write(file, start, data[at : at + length])
            at += length
        say(sum(map(target.fetched, files)))


def pieces(files: Sequence[tuple[File, int]]) -> list[Piece]:
    """What is missing of files, of which some bytes are there, as pieces that a container can send.

    >>> [[(file.name, start, length) for file, start, length in piece] for piece in pieces([(File("a", 9, ""), 2)])]
    [[('a', 2, 7)]]
    """
    result: list[Piece] = [[]]
    room, characters = PIECE, COMMAND
    for file, fetched in files:
        start = fetched
        while start < file.size:
            named = len(json.dumps(file.name)) + 50
            if not room or named > characters:
                result.append([])
                room, characters = PIECE, COMMAND
            length = min(room, file.size - start)
            result[-1].append((file, start, length))
            start, room, characters = start + length, room - length, characters - named
    return [piece for piece in result if piece]


def command(job: Json, what: str, argument: str) -> list[str]:
    """What a container of the pod runs; Kubernetes would replace $(NAME) in it, and $$."""
    output = output_of(job)
    place = output.place if output else ""
    text = argument.replace("$", "\\u0024") if what == "send" else literal(argument)
    source = literal(Path(in_pod.__file__).read_text(encoding="utf-8"))
    own = ["-I", "-S"] if output and output.claim else []  # the standard library is enough, and starts sooner
    return ["python3", *own, "-c", source, what, literal(place), text]


def outputs(kube: Kube, job: Json, commands: Sequence[Sequence[str]]) -> Iterator[tuple[list[Json], str]]:
    """Run a pod with a container for each command; the lines of each, once it has ended, and the pod's name.

    Raises IncompleteError where asking again may help, and KubeError with what the container says is wrong.
    """
    pod = reader(job, WHAT, f"-{uuid.uuid4().hex[:6]}", commands) or {}  # `check` has refused a job without an output
    kube.create(pod, unique=True)
    try:
        for container in [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]:
            end = ended(kube, pod, container["name"])
            yield read_lines(kube, pod, container["name"], end), pod["metadata"]["name"]
    finally:
        kube.delete(pod)


def ended(kube: Kube, pod: Json, container: str) -> Json:
    """How a container ended."""
    meta = pod["metadata"]
    title, where = f"pod {meta['namespace']}/{meta['name']}", path("v1", "Pod", meta["namespace"], meta["name"])
    live: Json = {}
    start, begun, limit_s = Start(kube, "reads the output"), False, START_S + DEADLINE_S
    for waited_s in polls(float("inf"), POLL_S):
        live = kube.get(where) or {"status": {"phase": "Failed", "reason": "it was removed"}}
        status = live["status"]
        statuses = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
        states = {item["name"]: item.get("state") or {} for item in statuses}
        if end := states.get(container, {}).get("terminated"):
            return dict(end)
        if status.get("phase") in {"Succeeded", "Failed"}:
            why = status.get("reason") or status.get("message") or "no reason"
            raise IncompleteError(str(Problem(title, f"its end ({why})", "all that it reads", "try again")))
        begun = begun or any("running" in state or "terminated" in state for state in states.values())
        if not begun:
            start.check(live, waited_s)
        elif waited_s > limit_s:  # the kubelet ends it before, if its node answers
            break
    fix = f"see whether its node {live['spec'].get('nodeName')} answers, then try again"
    raise KubeError(late(title, "no end", "its end", limit_s, fix))


def read_lines(kube: Kube, pod: Json, container: str, end: Json) -> list[Json]:
    """What a container printed, the line with the key `end` last."""
    meta = pod["metadata"]
    lines = list(map(parsed, kube.log(pod, container)))
    lines = [line for line in lines if line]
    if lines and "end" in lines[-1]:
        return lines
    output = pod["spec"]["containers"][0]["command"][-2]
    if lines and "got" in lines[-1]:
        fix = "gangplank fetch JOB without a path fetches all of it"
        problem = Problem(output, str(lines[-1]["got"]), str(lines[-1].get("expected")), fix)
        raise GangplankError(str(problem))
    if end.get("reason") in {"StartError", "ContainerCannotRun"}:
        got = f"an image without python3 ({str(end.get('message'))[:200]})"
        problem = Problem(f"pod {meta['name']}", got, "one that can run Python", "use an image with Python")
        raise KubeError(str(problem))
    how = f"exit code {end.get('exitCode')}, {end.get('reason')}"
    raise IncompleteError(str(Problem(f"pod {meta['name']}", f"a part of its log ({how})", "all of it", "try again")))


def parsed(line: str) -> Json:
    """A line of the pod's log; {} for what is none of ours."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
