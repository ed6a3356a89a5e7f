"""The playbooks of a lab's life, killed at points of their tasks, run again, and compared with an undisturbed life.

A round is a life: lab, site, teams, train, uninstall, lab-down. In round n each of them is killed at the points of its
n-th chain, which are spread over its tasks. A run is killed at the first one, the next run at the second one, and so
on; a point that it leaves out is tried alone. A playbook with fewer chains runs unkilled, and only if a later one still
has some. The run after the last kill has to succeed, the lab has to be as in the undisturbed life, and the run after
that has to report no more changes than there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.cluster import namespace
from gangplank.cluster.client import Kube
from gangplank.wait import polls
from lab.host import lock
from lab.host.kubeconfig import user_file
from tests.cluster.conftest import INVENTORY, ROOT, STATE, snapshot, tasks_that
from tests.support.host_kills import without_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SEED = 20261122
FILE = re.compile("'/[^']*'")  # in what a loop's item shows: of one machine
SETTLED_S = 180.0  # for pods to run after a playbook
CALLBACKS = Path(__file__).with_name("callbacks")
MOMENTS = ("middle", "alone", "end")  # of each task; its start is the end of the one before
CHAIN = 8  # kills in a row, at most
BOOKS = {
    "lab": [],
    "site": [],
    "teams": [],
    "train": ["-e", "@jobs/digits.yml"],
    "uninstall": [],
    "lab-down": [],
}
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "containerd", "kubelet",
              "kube-proxy", "network-policy", "supervisord")
# The files of the lab's own; etcd and its programs write the others.
FILES = ("*", "pki/*", "supervisor/*.conf", "control-plane/*", "nodes/*", "nodes/*/etc", "nodes/*/etc/*")
# What comes and goes by itself, and what a controller names at random.
FLEETING = {"events", "endpoints", "endpointslices", "leases", "componentstatuses", "controllerrevisions",
            "replicasets", "pods", "csinodes", "numatopologies", "ipaddresses"}
# Noted by the server, or drawn at random, or a count of what was done before.
VOLATILE = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "status", "caBundle",
            "deployment.kubernetes.io/revision", "rollme/helm-revision", "nodePort", "clusterIP", "clusterIPs",
            "volumeName", "nodeAffinity", "volume.kubernetes.io/selected-node", "local.path.provisioner/selected-node",
            "podCIDR", "podCIDRs"}
# ConfigMaps with a lab's own certificates or dates.
OF_THIS_LAB = ("kube-root-ca.crt", "extension-apiserver-authentication", "-legacy-service-account-token-tracking")


@dataclass(frozen=True)
class Point:
    """Where a playbook is killed."""

    name: str  # of the task
    include: str  # the tasks that include it
    number: int  # among the tasks with the same of both
    moment: str
    seconds: float

    def __str__(self) -> str:
        within = f", included by {FILE.sub('…', self.include)}" if self.include else ""
        return f"{self.moment} of {self.name}" + (f" ({self.number})" if self.number > 1 else "") + within


@dataclass
class Life:
    """What an undisturbed life was like, by playbook."""

    points: dict[str, list[Point]] = field(default_factory=dict)  # as they follow one another
    facts: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, int] = field(default_factory=dict)  # reported by a second run

    @property
    def rounds(self) -> int:
        """After how many rounds no playbook has a point left."""
        return max(len(chains(points)) for points in self.points.values())

    def killed_in(self, number: int) -> dict[str, list[Point]]:
        """The points of a round, of each playbook that has some left."""
        own = {book: chains(self.points[book])[number:] for book in BOOKS}
        return {book: left[0] for book, left in own.items() if left}


@dataclass
class Killed:
    """A playbook that was killed at points, one after the other."""

    book: str
    points: dict[str, str] = field(default_factory=dict)
    """What was wrong at each that was reached: "" if the run was killed there."""
    unreached: list[Point] = field(default_factory=list)
    """Of tasks that a run left out, as the one before had done what they are for."""
    problems: list[str] = field(default_factory=list)
    """After the last of them."""
    broken: bool = False
    """Whether even the second run after them failed."""


def play(book: str, point: Point | None = None, notes: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a playbook, killed at a point if there is one."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(INVENTORY), f"playbooks/{book}.yml"]
    more = {"ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS), "ANSIBLE_CALLBACKS_ENABLED": "kill_point"}
    if point:
        more["GANGPLANK_KILL"] = json.dumps(asdict(point))
    if notes:
        more["GANGPLANK_KILL_NOTES"] = str(notes)
    with tempfile.TemporaryFile("w+") as output:  # a worker that continues holds a pipe open
        done = subprocess.run([*command, *BOOKS[book], *os.environ.get("GANGPLANK_KILLS_EXTRA", "").split()], cwd=ROOT,
                              stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
                              timeout=600, env={**os.environ, **more})
        output.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, output.read())


def changed(output: str) -> int:
    """How many changes a run reports on all hosts."""
    return sum(int(number) for number in re.findall(r" changed=(\d+) ", output))


def completed(book: str, notes: Path | None = None) -> str:
    """Run a playbook to success; what it printed."""
    done = play(book, notes=notes)
    if done.returncode:
        raise AssertionError(f"{book} failed: {done.stdout[-3000:]}")
    return done.stdout


def points_of(notes: Path) -> list[Point]:
    """All points of a playbook's tasks, as they follow one another; the seconds are drawn from the seed."""
    rows = [json.loads(line) for line in notes.read_text().splitlines()]
    draw = random.Random(f"{SEED} {len(rows)}")
    points = []
    for row in rows:
        seconds = row.pop("seconds")
        points += [Point(**row, moment=moment, seconds=round(draw.uniform(0.1, 0.9) * seconds, 3))
                   for moment in MOMENTS]  # fmt: skip
    return [replace(points[0], moment="start"), *points] if points else []


def drawn(notes: Path) -> Point:
    """One of the points of a playbook's tasks, drawn from the seed."""
    points = points_of(notes)
    return random.Random(f"{SEED} {len(points)}").choice(points)


def chains(points: Sequence[Point]) -> list[list[Point]]:
    """The points in chains of the same length, each spread over all tasks, in an order drawn from the seed."""
    count = -(-len(points) // CHAIN)
    return random.Random(f"{SEED} {count}").sample([[*points[start::count]] for start in range(count)], count)


def undisturbed() -> Life:
    """A life without kills; it ends as it began, without a lab."""
    life = Life()
    completed("lab-down")
    with tempfile.TemporaryDirectory() as folder:
        for book in BOOKS:
            notes = Path(folder, book)
            completed(book, notes=notes)
            life.points[book] = points_of(notes)
            life.facts[book] = facts()
            life.changes[book] = changed(completed(book))
    return life


def one_round(life: Life, number: int) -> list[Killed]:
    """Each playbook that has so many chains, killed at the points of one; what was not as in the undisturbed life.

    A run after a kill may leave out what the one before has done. A point there is tried alone, in a life of its own.
    """
    rows: list[Killed] = []
    killed = life.killed_in(number)
    if not killed:
        return rows
    completed("lab-down")
    for book in [*BOOKS][: [*BOOKS].index([*killed][-1]) + 1]:
        if book not in killed:
            completed(book)
            continue
        rows.append(killed_at(life, book, killed[book]))
        if rows[-1].broken:
            break
    return rows + [killed_alone(life, row.book, point) for row in rows for point in row.unreached]


def killed_alone(life: Life, book: str, point: Point) -> Killed:
    """A playbook killed at one point, on a lab that all the playbooks before it made."""
    completed("lab-down")
    for earlier in [*BOOKS][: [*BOOKS].index(book)]:
        completed(earlier)
    row = killed_at(life, book, [point])
    row.points |= {str(one): "no run reaches it" for one in row.unreached}
    return row


def killed_at(life: Life, book: str, points: Sequence[Point]) -> Killed:
    """A playbook killed at points, one after the other, and what was not as in the undisturbed life.

    What is wrong after the last kill may be the doing of each of them.
    """
    row = Killed(book)
    for point in points:
        done = play(book, point=point)
        if done.returncode:
            as_asked = done.returncode == -signal.SIGKILL
            row.points[str(point)] = "" if as_asked else f"status {done.returncode}: {done.stdout[-2500:]}"
        else:
            row.unreached.append(point)
    first = play(book)
    if first.returncode:
        row.problems.append(f"the run after it failed: {first.stdout[-2500:]}")
        if play(book).returncode:
            row.problems.append("so did the next")
            row.broken = True
            return row
    row.problems += differences(life.facts[book], facts())[:20]
    second = play(book)
    if second.returncode or changed(second.stdout) > life.changes[book]:
        tasks = tasks_that(second.stdout, "changed", "fatal")
        count = changed(second.stdout)
        row.problems.append(f"the run after that: status {second.returncode}, changed={count} {tasks}")
    return row


def facts() -> dict[str, Any]:
    """The machine and, if there is one, the cluster, without what differs each time."""
    kubeconfig = STATE / "admin.kubeconfig"
    # Patient: for a moment after a CRD changed, the server answers 429 to a list of its objects.
    kube = Kube(str(kubeconfig)).patient() if kubeconfig.exists() else None
    cluster = settled(kube) if kube else {}
    machine = {name: sorted({named(line) for line in lines}) for name, lines in snapshot().items()}
    machine["processes"] += counted(COMPONENTS)
    paths = [user_file(), *(path for pattern in FILES for path in STATE.glob(pattern))]
    machine["files"] += [f"{path} {path.lstat().st_mode:o} {content(path)}" for path in paths if path.exists()]
    machine.pop("kubelet")
    machine["cgroups"] = [path for path in machine["cgroups"] if not path.endswith("/kubepods")]  # comes with a pod
    return {"machine": machine, "cluster": cluster}


def content(path: Path) -> str:
    """What a file of the lab says, without what is drawn for each lab."""
    return without_keys(path.read_text(errors="replace")) if path.is_file() and path.name != lock.NAME else ""


def left_behind(kube: Kube, pods: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a run might leave in the cluster: the Leases of its locks, and pods that no other object owns."""
    leases = [item["metadata"]["name"] for item in kube.call("GET", "/apis/coordination.k8s.io/v1/leases")["items"]]
    metas = [pod["metadata"] for pod in pods]
    return {"locks": sorted(name for name in leases if name.startswith("gangplank")),
            "pods without an owner": sorted(meta["name"] for meta in metas if not meta.get("ownerReferences"))}


def counted(programs: Collection[str]) -> list[str]:
    """How often each of some programs runs: pods come and go, but a lab has one etcd."""
    counts = dict.fromkeys(programs, 0)
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            name = entry.read_bytes().split(b"\0")[0].decode(errors="replace").rpartition("/")[2]
            counts[name] = counts.get(name, 0) + 1
    return [f"{counts[name]} of {name}" for name in programs]


def settled(kube: Kube) -> dict[str, Any]:
    """The objects, once every pod runs or has ended, and controllers write no more: no playbook waits for all of it."""
    waiting, before = list[str](), dict[str, Any]()
    for _ in polls(SETTLED_S, 0.5):
        pods = kube.items("v1", "Pod")
        now = objects(kube) | left_behind(kube, pods)
        waiting = [pod["metadata"]["name"] for pod in pods if not runs(pod)] + unready(now)
        if not waiting and now == before:
            return now
        before = now
    raise AssertionError(f"the cluster does not settle in {SETTLED_S:.0f} s: {waiting or 'its objects change'}")


def unready(cluster: dict[str, Any]) -> list[str]:
    """Nodes that the cluster does not use yet, and namespaces without the account that each gets."""
    nodes = {key: item["spec"].get("taints") or [] for key, item in cluster.items() if key.startswith("/api/v1/nodes ")}
    new = [key for key, taints in nodes.items() if any(one["key"].startswith("node.kubernetes.io/") for one in taints)]
    spaces = [key.rpartition("/")[2] for key in cluster if key.startswith("/api/v1/namespaces ")]
    return new + [space for space in spaces if f"/api/v1/serviceaccounts {space}/default" not in cluster]


def runs(pod: dict[str, Any]) -> bool:
    """Whether a pod is ready, or has ended."""
    conditions = {item["type"]: item["status"] for item in pod["status"].get("conditions") or []}
    ended = pod["status"].get("phase") in {"Succeeded", "Failed"}
    return not pod["metadata"].get("deletionTimestamp") and (ended or conditions.get("Ready") == "True")


def named(line: str) -> str:
    """A line of the machine's facts without what is drawn at random, and without the pods that are on a node."""
    line = re.sub(r"(/kubepods).*|([0-9a-f]{32,}).*|(\.sock)\.\d+$", r"\1\3", line)
    line = re.sub(r"link/ether \S+", "link/ether", line)
    return re.sub(r"^\d+: (veth|cni|gangplank)\S*", r"\1", line)


def objects(kube: Kube) -> dict[str, Any]:
    """Every object of the cluster by its path, without what differs each time."""
    items = []
    for group, resource in namespace.kinds(kube):
        if resource["name"] not in FLEETING:
            where = f"{group}/{resource['name']}"
            items += [(where, item) for item in (kube.get(where) or {}).get("items") or []]  # or its CRD went away
    names = {item["metadata"]["uid"]: item["metadata"]["name"] for _, item in items if "uid" in item["metadata"]}
    uids = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "$^")
    text_of = functools.partial(uids.sub, lambda match: f"<{names[match.group()][:20]}>")
    result: dict[str, Any] = {}
    for where, item in items:
        meta, name, content = item["metadata"], text_of(item["metadata"]["name"]), stripped(item)
        if item.get("type") == "helm.sh/release.v1":  # an interrupted attempt has a revision of its own
            if meta["labels"]["status"] != "deployed":
                continue
            name, content = name.rpartition(".")[0], {}
        elif where.endswith("/secrets") or meta["name"].endswith(OF_THIS_LAB):
            content = {"keys": sorted(item.get("data") or {})}
        result[f"{where} {meta.get('namespace', '')}/{name}"] = json.loads(text_of(json.dumps(content)))
    return result


def stripped(value: Any) -> Any:
    """A value without what is volatile."""
    if isinstance(value, dict):
        return {key: stripped(item) for key, item in value.items() if key not in VOLATILE}
    return [stripped(item) for item in value] if isinstance(value, list) else value


def differences(expected: Any, got: Any, path: str = "") -> list[str]:
    """Where facts differ."""
    if isinstance(expected, dict) and isinstance(got, dict):
        names = sorted(expected.keys() | got.keys())
        return [line for name in names for line in differences(expected.get(name), got.get(name), f"{path}|{name}")]
    if isinstance(expected, list) and isinstance(got, list) and path.count("|") == 2:  # of the machine
        return [f"{path}: missing {item}" for item in expected if item not in got] + [
            f"{path}: in addition {item}" for item in got if item not in expected]
    return [] if expected == got else [f"{path}: got {str(got)[:300]}, expected {str(expected)[:300]}"]
