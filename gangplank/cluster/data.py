"""Files from this machine, a web server or a bucket, brought onto a volume claim by a short pod (data_pod.py).

The members of a team may create pods and ConfigMaps, but not enter pods. So what lies here travels in ConfigMaps, a few
at a time, and the pod takes everything else from its source itself.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import logs
from gangplank.cluster.client import CONFLICT, path
from gangplank.cluster.data_pod import CONTAINER, PULL_S, Place, pod, work
from gangplank.cluster.landing import is_named
from gangplank.cluster.local_files import batches
from gangplank.cluster.receive import named
from gangplank.cluster.starting import Start
from gangplank.errors import GangplankError, KubeError, Problem, shown
from gangplank.k8s import quantity
from gangplank.text import listed, plain
from gangplank.wait import polls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gangplank.cluster.client import Kube
    from gangplank.cluster.local_files import Local
    from gangplank.spec import Json

    Say = Callable[[str, int, int], None]  # a phase, the bytes so far, all of them

CLAIMS = ("v1", "PersistentVolumeClaim")
POLL_S = 0.3
MOST_REQUEST = 900_000  # characters of a request, which lies in a ConfigMap with its program
TRIES = 3  # without any progress
READ_ONLY = "ReadOnlyMany"

GONE_S = 300  # for a pod to be removed: its node may be busy
KEPT_S = 60  # what a command has made for a pod that is not there yet


class AgainError(KubeError):
    """A pod ended before its work was done: the next one continues."""


@dataclass(frozen=True)
class Order:
    """What to bring, and where to."""

    place: Place
    folder: str = ""  # of the claim; "" is all of it
    local: tuple[Local, ...] = ()
    sources: tuple[str, ...] = ()  # addresses, where nothing is local
    sums: Mapping[str, str] = field(default_factory=dict)  # the expected hashes of these, by name
    replace: tuple[str, ...] = ()  # names that may be overwritten

    @property
    def title(self) -> str:
        """What a message calls its target."""
        return f"claim {self.place.namespace}/{self.place.claim}{f'/{self.folder}' if self.folder else ''}"


@dataclass(frozen=True)
class Brought:
    """What came of it."""

    files: int
    new: int
    size: int  # bytes, of all files
    digest: str  # the name that its content gives the set
    sums: Mapping[str, str]


def place_of(kube: Kube, namespace: str, claim: str, image: str, queue: str, secrets: Sequence[str]) -> Place:
    """The claim, and the queue of the team that it belongs to; raises if pods cannot write to it."""
    title = f"claim {namespace}/{claim}"
    live = kube.get(path(*CLAIMS, namespace, claim))
    if live is None:
        names = sorted(item["metadata"]["name"] for item in kube.items(*CLAIMS, namespace))
        expected = f"a claim of the namespace, which has {listed(names) or 'none'}"
        fix = "create it (storage_claims, or team_claims), or name another"
        raise KubeError(str(Problem(title, "nothing", expected, fix)), 404)
    modes = live["spec"]["accessModes"]
    if set(modes) <= {READ_ONLY}:
        raise GangplankError(str(Problem(title, listed(modes), "an access mode that allows to write", "name another")))
    team = (live["metadata"].get("labels") or {}).get(TEAM_LABEL)
    bound = (live.get("status") or {}).get("phase") == "Bound"
    queue = queue or (queue_of(kube, team) if team else "")
    return Place(namespace, claim, image, queue, bound, tuple(secrets), size_of(live))


def size_of(claim: Json) -> int:
    """The bytes of a claim, or those that it asks for until it is bound; 0 where nobody says."""
    asked = (claim["spec"].get("resources") or {}).get("requests", {}).get("storage", "0")
    return int(quantity.parse(((claim.get("status") or {}).get("capacity") or {}).get("storage", asked)))


def queue_of(kube: Kube, team: str) -> str:
    """The first queue of a team that takes work; "" if there is none to be seen."""
    own = [item for item in kube.queues() or [] if (item["metadata"].get("labels") or {}).get(TEAM_LABEL) == team]
    parents = {(item.get("spec") or {}).get("parent", QUEUE_SYSTEM.root) for item in own}
    return min({item["metadata"]["name"] for item in own} - parents, default="")


def bring(kube: Kube, order: Order, say: Say) -> Brought:
    """Bring what the claim lacks; nothing of it changes if a file of it would be overwritten, or it is too small."""
    check_sums(order)
    check_size(order, order.place.size, sum(one.file.size for one in order.local))
    clean(kube, order)
    return push(kube, order, say) if order.local else pull(kube, order, say)


def about(kube: Kube, order: Order, verb: str, say: Say) -> Json:
    """List what a claim has at a place (`ls`), or remove it (`rm`)."""
    clean(kube, order)
    if verb == "rm":  # once: a second pod would find nothing where the first one has removed it
        return ask(kube, order, {"verb": verb}, (), say)
    return again(lambda: ask(kube, order, {"verb": verb}, (), say))


def check_sums(order: Order) -> None:
    """Refuse files of this machine that are not those whose hashes are expected; a pod does so with all others."""
    hashes = {one.file.name: one.file.sha256 for one in order.local}
    if not hashes or not order.sums:
        return
    fix = "correct the file, or --sha256"
    problems = [Problem(name, f"SHA-256 {hashes.get(name) or 'of nothing'}", order.sums.get(name) or "none", fix)
                for name in sorted({*hashes, *order.sums}) if hashes.get(name) != order.sums.get(name)]
    if problems:
        raise GangplankError("\n  ".join(map(str, problems)))


def check_size(order: Order, size: int, needed: int) -> None:
    """Refuse a claim that is smaller than what it should hold: some volumes have no limit of their own."""
    if size and needed > size:
        too_small(order, size, needed, "of space")


def too_small(order: Order, got: int, needed: int, what: str) -> None:
    """Raise about a claim without the space for the files."""
    title = f"claim {order.place.namespace}/{order.place.claim}"
    fix = "enlarge the claim, or name another"
    raise GangplankError(str(Problem(title, f"{got} bytes {what}", f"{needed} bytes for the files", fix)))


def push(kube: Kube, order: Order, say: Say) -> Brought:
    """Bring files of this machine, a pod for each few MiB."""
    files = [one.file for one in order.local]
    rows = [[file.name, file.size, file.sha256] for file in files]
    total, new, tries, last = sum(file.size for file in files), 0, 0, -1
    while True:
        state = again(lambda: ask(kube, order, {"files": rows, "write": False}, (), say))
        refuse_others(order, [files[number].name for number in state["other"]])
        begun = {files[int(number)].name: int(size) for number, size in state["parts"].items()}
        there = {files[number].name for number in state["same"]}
        missing = [one for one in order.local if one.file.name not in there]
        done = total - sum(one.file.size - begun.get(one.file.name, 0) for one in missing)
        if total - done > state["free"]:
            too_small(order, state["free"], total - done, "of free space")
        tries = tries + 1 if done == last else 0
        last = done
        try:
            for batch, pieces in batches(missing, begun):
                answer = ask(kube, order, {"files": batch, "write": True}, pieces, say)
                if left := answer["left"]:
                    lines = [f"{batch[int(number)][0]}: {why}" for number, why in left.items()]
                    fix = "try again, once nothing else writes to it"
                    raise GangplankError(str(Problem(order.title, "; ".join(lines[:10]), "the files as they are", fix)))
                new += len(answer["placed"])
                done += sum(length for row in batch for _, _, length in row[4])
                say("brings", done, total)
        except AgainError:
            if tries == TRIES:
                raise
            continue
        named_set = named({file.name: file.sha256 for file in files})
        return Brought(len(files), new, total, named_set["set"], named_set["sums"])


def pull(kube: Kube, order: Order, say: Say) -> Brought:
    """Let a pod take files from their addresses; the next one continues where one has ended."""
    request = {"sources": list(order.sources), "sums": dict(order.sums), "write": False}
    before = again(lambda: ask(kube, order, request, (), say))
    refuse_others(order, before["other"], before["others"])
    size = order.place.size
    if not order.place.bound:  # until the pod came, and its volume may be larger than asked
        size = size_of(kube.get(path(*CLAIMS, order.place.namespace, order.place.claim)) or {"spec": {}})
    check_size(order, size, before["bytes"])
    if before["missing"] > before["free"]:
        too_small(order, before["free"], before["missing"], "of free space")
    after = again(lambda: ask(kube, order, {**request, "write": True}, (), say))
    refuse_others(order, after["other"], after["others"])
    return Brought(after["files"], before["lacking"], after["bytes"], after["set"], after.get("sums", {}))


def again(work_of_pod: Callable[[], Json]) -> Json:
    """Try some times what a pod did not finish."""
    for _ in range(TRIES):
        with contextlib.suppress(AgainError):
            return work_of_pod()
    return work_of_pod()


def refuse_others(order: Order, names: Sequence[str], count: int = 0) -> None:
    """Refuse to overwrite files whose names nobody has given for that."""
    others = [name for name in names if not is_named(name, list(order.replace))]
    if not others:
        return
    more = max(count, len(others)) - len(others[:10])
    got = f"other files named {', '.join(map(plain, others[:10]))}{f' and {more} more' if more else ''}"
    fix = "bring them into another folder of the claim, or name each, or its folder, with --replace"
    raise GangplankError(str(Problem(order.title, got, "none, or the same files", fix)))


def ask(
    kube: Kube, order: Order, request: Json, pieces: Sequence[bytes], say: Say
) -> Json:
    """Run a pod for a request; its answer."""
    place, pulls = order.place, "sources" in request
    whole = {**request, "folder": order.folder, "replace": list(order.replace), "title": order.title}
    if len(json.dumps(whole)) > MOST_REQUEST:
        fix = "pack them into fewer files with shorter names, or name a folder of a bucket"
        got = f"{len(json.dumps(whole))} characters of names and hashes"
        raise GangplankError(str(Problem(order.title, got, f"at most {MOST_REQUEST}", fix)))
    maps = work(place, uuid.uuid4().hex[:12], whole, pieces)
    body = pod(place, maps, pulls=pulls)
    created: list[Json] = []
    try:
        for item in [*maps, body]:
            created.append(item)  # before the answer, which a signal may interrupt
            try:
                kube.create(item)
            except KubeError as error:
                created.pop()
                raise busy(order) if error.status == CONFLICT and item is body else error from None
        return follow(kube, body, say)
    finally:
        ran = body in created
        remove(kube, created)
        if ran:
            gone(kube, body)


def remove(kube: Kube, items: list[Json]) -> None:
    """Remove objects, the last one first, all of them also if Ctrl-C comes meanwhile."""
    try:
        while items:
            kube.delete(items[-1])
            items.pop()
    except KeyboardInterrupt:
        remove(kube, items)
        raise


def busy(order: Order) -> GangplankError:
    """The error about a claim to which another command writes."""
    fix = f"wait for its end, or remove its pod: kubectl delete pod -n {order.place.namespace} {order.place.pod_name}"
    got = "another `gangplank data` that writes to it"
    return GangplankError(str(Problem(order.title, got, "one at a time", fix)))


def gone(kube: Kube, body: Json) -> None:
    """Wait until a pod is removed: the next one has its name."""
    meta = body["metadata"]
    for _ in polls(GONE_S, POLL_S):
        if kube.get(path("v1", "Pod", meta["namespace"], meta["name"])) is None:
            return


def follow(kube: Kube, body: Json, say: Say) -> Json:
    """Follow the pod to its end; what its last line says."""
    meta = body["metadata"]
    where, title = path("v1", "Pod", meta["namespace"], meta["name"]), f"pod {meta['namespace']}/{meta['name']}"
    started, start = False, Start(kube, "writes to the claim")
    for waited_s in polls(PULL_S, POLL_S):
        live = kube.get(where) or {"status": {"phase": "Failed", "reason": "it was removed"}}
        state = logs.state_of(live, CONTAINER)
        if live["status"].get("phase") in {"Succeeded", "Failed"} or "terminated" in state:  # beside a sidecar
            return answer_of(kube, live, title)
        started = started or "running" in state
        if started:
            for line in lines_of(kube, body, 1):
                if "phase" in line:
                    say(str(line["phase"]), int(line["done"]), int(line["total"]))
        else:
            start.check(live, waited_s)
    got = f"no end within {PULL_S} s"  # its time is over, as with DeadlineExceeded
    raise AgainError(str(Problem(title, got, "all of its work done", "try again: it continues")))


def answer_of(kube: Kube, live: Json, title: str) -> Json:
    """What an ended pod says, or the error that it ended with."""
    status = live["status"]
    end = logs.state_of(live, CONTAINER).get("terminated") or {}
    lines = lines_of(kube, live, 0) if "metadata" in live else []
    last = lines[-1] if lines else {}
    if "end" in last:
        return dict(last["end"])
    if "problem" in last:
        raise GangplankError(str(last["problem"]))
    if end.get("reason") in {"StartError", "ContainerCannotRun"}:
        got = f"an image without python3 ({str(end.get('message'))[:200]})"
        raise KubeError(str(Problem(title, got, "one that can run Python", "name another image with --image")))
    if "again" in last:
        raise AgainError(str(last["again"]))
    said = kube.log(live, CONTAINER, 1) if end else []
    why = f"{status.get('reason') or end.get('reason') or status.get('message') or 'no reason'}"
    why += f", exit code {end['exitCode']}: {shown(said[-1])}" if said else ""
    raise AgainError(str(Problem(title, f"its end ({why})", "all of its work done", "try again: it continues")))


def lines_of(kube: Kube, body: Json, last: int) -> list[Json]:
    """What the pod has printed, or only the last lines."""
    parsed = []
    for line in kube.log(body, CONTAINER, last):
        with contextlib.suppress(ValueError, RecursionError):
            parsed.append(json.loads(line))
    return [line for line in parsed if isinstance(line, dict)]


def clean(kube: Kube, order: Order) -> None:
    """Remove what a command that was killed has left for this claim; refuse to continue while its pod still works."""
    namespace, mark = order.place.namespace, order.place.mark
    selector = ",".join(f"{key}={value}" for key, value in mark.items())
    limit = (kube.now() - timedelta(seconds=KEPT_S)).isoformat(timespec="seconds")
    for item in kube.items("v1", "Pod", namespace, selector):
        if (item.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            raise busy(order)
        kube.delete({"apiVersion": "v1", "kind": "Pod", "metadata": item["metadata"]})
        gone(kube, item)
    for item in kube.items("v1", "ConfigMap", namespace, selector):
        if str(item["metadata"].get("creationTimestamp", "")) < limit:
            kube.delete({"apiVersion": "v1", "kind": "ConfigMap", "metadata": item["metadata"]})
