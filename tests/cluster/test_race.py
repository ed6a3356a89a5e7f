"""Two teams submit at once beside a third that cheats: no moment breaks a cap, a gang or a share, and nothing is lost.

The nodes and their pods are KWOK's; the teams are playbooks/teams.yml's, the jobs the library's, and Volcano is real.
First, two teams take all they may have with jobs that do not end: another one gets what it deserves only if Volcano
reclaims it, however slow the machine is. Seconds are those of a machine that does nothing else, see `Clock`.
The sweep submits 2 x 100 jobs, five times, else a sample of them. GANGPLANK_KUBECONFIG names an existing cluster.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import pytest

from gangplank.backends import BACKENDS
from gangplank.backends.pod_template import TEAM_LABEL
from gangplank.cluster.client import Kube
from gangplank.errors import KubeError
from gangplank.jobs.parse import parse_job
from gangplank.teams.conditions import MOST_GRACE_S
from lab.simulated import TOLERATION, kwok, nodes
from tests.cluster.clock import Clock
from tests.cluster.race import ENDED, Event, Gang, Moment, Share, judge, lost, timeline
from tests.support.inventories import LAB, fields_of, write_inventory
from tests.support.sweeps import sweeping
from tests.support.teams_live import answer, gangplank, pod, teams, until
from tests.support.teams_ways import violations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
ALL = sweeping("race")
COUNT = 100 if ALL else 25  # jobs of each team
SEEDS = range(8, 13) if ALL else [8]
GPU = "gangplank.dev/race"  # a resource that the simulated nodes alone have
NODES, GPUS = 16, 8  # of each node
LASTS = "gangplank.dev/lasts"  # annotation: how long a simulated pod runs
GRANTS = {  # what keeps other pods off the simulated nodes, and no image but the race's
    "images": ["gangplank.dev/*"],
    "tolerations": ["kwok.x-k8s.io/node"],
    "node_labels": ["type=race"],
    "annotation_domains": ["gangplank.dev"],
}
DEADLINE_S = 1200  # of a machine that does other work as well
LONG_S = 75  # longer than a team may starve: who waits for these to end has starved
ENDLESS_S = 3 * DEADLINE_S
SHARES = {"race-red": Share(64, 96), "race-blue": Share(64, 96), "race-cheat": Share(0, 32)}
RED, BLUE, CHEAT = SHARES
HONEST = (RED, BLUE)
DUE = (16, 16, 8, 8, 4, 4, 2, 2, 1, 1, 1, 1)  # gangs of the second team: together exactly what it deserves
CHEAT_PODS, CHEAT_JOBS = 40, 5  # the most that the third team's file allows
A_TIME = 50  # of the admission's hostile objects, tried between two floods
USED_UP = "exceeded quota"
SLACK = 2  # pods that Kubernetes' quota may let through beyond it, see docs/security.md
OURS = {"labelSelector": f"{TEAM_LABEL} in ({','.join(SHARES)})"}
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
SCHEDULER = "/api/v1/namespaces/volcano-system/pods"


@pytest.fixture(scope="module")
def kwok_pid(kubeconfig: str, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """KWOK's process, while the simulated nodes are ready."""
    size = {"cpu": str(2 * GPUS), "memory": f"{2 * GPUS}Gi", GPU: str(GPUS)}
    with (
        kwok(kubeconfig, tmp_path_factory.mktemp("kwok"), LASTS) as pid,
        nodes(kube, "race", [size] * NODES, {"type": "race"}),
    ):
        yield pid


def empty(kube: Kube, where: str) -> bool:
    """Whether nothing is left there."""
    return not kube.call("GET", where)["items"]


@pytest.fixture
def all_three(kubeconfig: str, kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Teams as playbooks/teams.yml makes them: two deserve half of the simulated nodes each, the third nothing."""
    folder = tmp_path_factory.mktemp("teams")
    site, values = {**fields_of(LAB / "group_vars/teams.yml", "team_site_"), "gpu_resource": GPU}, {}
    for name, share in SHARES.items():
        amounts = {key: {"gpus": many, "cpu": many, "memory": f"{many}Gi"} for key, many in vars(share).items() if many}
        amounts["cap"] |= {"ephemeral_storage": "unlimited"} | ({"pods": CHEAT_PODS} if name == CHEAT else {})
        max_jobs = CHEAT_JOBS if name == CHEAT else 2 * COUNT + 20
        values[name] = {"members": [{"user": "ada"}], "max_jobs": max_jobs, **amounts, **GRANTS}
    write_inventory(folder, values, site)
    try:
        done = teams(folder, team_kubeconfig=kubeconfig)
        assert done.returncode == 0, done.stdout + done.stderr
        yield
    finally:
        for name in SHARES:
            kube.call("DELETE", JOBS.format(name), {"propagationPolicy": "Background"})
            where = f"/api/v1/namespaces/{name}/pods"
            kube.call("DELETE", where)
            until(functools.partial(empty, kube, where), f"no pods in {name}")
        write_inventory(folder, {})
        done = teams(folder, team_kubeconfig=kubeconfig, teams_remove=list(SHARES))
        assert done.returncode == 0, done.stdout + done.stderr


class Seen:
    """What watches of pods and jobs of both teams have reported so far."""

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self.kube, self.clock, self.events, self.now = kube, clock, list[Event](), Moment()
        self.lock, self.stopped, self.failed = threading.Lock(), threading.Event(), list[Exception]()
        self.threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for kind, where in (("Pod", "/api/v1/pods"), ("Job", "/apis/batch.volcano.sh/v1alpha1/jobs")):
            start = self.kube.call("GET", where, query=OURS)
            assert not start["items"], f"the race begins with no {kind}"
            version = start["metadata"]["resourceVersion"]
            self.threads.append(threading.Thread(target=self.watch, args=(kind, where, version)))
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def watch(self, kind: str, where: str, version: str) -> None:
        """Follow all objects of a kind that have a team of the race."""
        try:
            while not self.stopped.is_set():
                more = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "5"}
                answer, rest = self.kube.open("GET", where, query=OURS | more), b""
                for chunk in answer.stream(amt=2**16):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        version = self.note(kind, json.loads(line))
                answer.release_conn()
        except (KubeError, AssertionError, OSError, ValueError) as error:
            self.failed.append(error)  # a thread's failure is the test's

    def note(self, kind: str, change: Json) -> str:
        """Keep one change; the version it made."""
        assert change["type"] in {"ADDED", "MODIFIED", "DELETED"}, change
        event = Event(self.clock.now(), kind, change["type"] == "DELETED", change["object"])
        with self.lock:
            self.events.append(event)
            self.now.see(event)
        return str(change["object"]["metadata"]["resourceVersion"])

    def ask(self, question: Callable[[Moment], Any]) -> Any:
        """What is so now."""
        assert not self.failed, self.failed
        with self.lock:
            return question(self.now)


def manifest(gang: Gang, lasts_s: int) -> Json:
    """The Volcano job of a gang, as the library makes it."""
    job = {
        "name": gang.name,
        "team": gang.team,
        "image": "gangplank.dev/trainer:0.1.0",
        "command": ["true"],
        "workers": gang.size - 1,
        "max_retries": 50,  # of each displacement by the other team
        "resources": {
            "cpu": {"request": 1, "limit": 1},
            "memory": {"request": "1Gi", "limit": "1Gi"},
            "gpus": 1,
            "gpu_resource": GPU,
        },
        "collective": "gloo",
        "annotations": {LASTS: f"{lasts_s}s"},
        "node_selector": {"type": "race"},
        "tolerations": [TOLERATION],
    }
    (made,) = BACKENDS["volcano"].manifests(parse_job({"training_job": job}))
    return made


def cheats() -> dict[str, tuple[str, Json]]:
    """What the third team tries: path and object. Each must be refused."""
    place = f"namespaces/{CHEAT}"
    least = {"cpu": "10m", "memory": "4Mi"}

    def alone(resources: Json, annotations: Json | None = None, **spec: object) -> tuple[str, Json]:
        item = pod("cheat", CHEAT, CHEAT)
        item["spec"] |= spec
        item["spec"]["containers"][0]["resources"] = resources
        item["metadata"]["annotations"] |= annotations or {}
        return f"/api/v1/{place}/pods", item

    def job(**changes: object) -> tuple[str, Json]:
        item = manifest(Gang(CHEAT, "cheat", 1), LONG_S)
        item["spec"] |= changes
        return JOBS.format(CHEAT), item

    slow = job()
    slow[1]["spec"]["tasks"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = 10**7
    marked = job()
    marked[1]["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
    version = "scheduling.volcano.sh/v1beta1"
    meta = {"name": "cheat"}
    gang = {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": {"queue": BLUE, "minMember": 1}}
    target = {"apiVersion": version, "kind": "Queue", "name": BLUE, "uid": ""}
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": meta, "action": "CloseQueue"}
    return {
        "nothing requested": alone({"requests": {"cpu": "0", "memory": "0"}}),
        "no limit": alone({"requests": {"cpu": "4"}}),
        "a limit beyond the cap": alone({"requests": least, "limits": {"memory": "1Ti"}}),
        "more GPUs than the cap": alone({"limits": {GPU: str(SHARES[CHEAT].cap + 1)}}),
        "a device that the cap does not name": alone({"limits": {"hugepages-2Mi": "2Mi", "memory": "4Mi"}}),
        "never giving back": alone({"requests": least}, {"volcano.sh/preemptable": "false"}),
        "a job that never gives back": marked,
        "a pod that takes its time to end": alone({"requests": least}, terminationGracePeriodSeconds=10**7),
        "a job that takes its time to end": slow,
        "another's queue": job(queue=BLUE),
        "a gang in another's queue": (f"/apis/{version}/{place}/podgroups", gang),
        "another's queue closed": (f"/apis/bus.volcano.sh/v1alpha1/{place}/commands", {**command, "target": target}),
        "a node of its choice": alone({"requests": least}, nodeName="race-0"),
        "a priority": job(priorityClassName="system-node-critical"),
    }


def hostile() -> list[tuple[str, str, Json]]:
    """Each hostile object that the admission's own tests know, moved to the third team: name, path and object."""

    def moved(item: Json) -> Json:
        ours: Json = json.loads(json.dumps(item).replace('"vision"', f'"{CHEAT}"'))
        return ours

    return [(item.name, item.where.replace("/vision/", f"/{CHEAT}/"), moved(item.manifest)) for item in violations()]


def cheat(kube: Kube, stop: threading.Event) -> tuple[dict[str, str], dict[str, int]]:
    """Try every cheat until the race is over: what became of each, and the most small objects at once by kind.

    As a member, like whom the API server serves nobody before others. Nobody removes Services and ConfigMaps; pods are
    displaced by the other teams', and others may take their places.
    """
    replies: dict[str, str] = {}
    counts = {"pods": 0, "services": 0, "configmaps": 0}
    least = {"cpu": "10m", "memory": "4Mi"}
    number, others = 0, itertools.cycle(hostile())

    def attempt(name: str, where: str, item: Json) -> None:
        reply = answer(kube, "POST", where, item)
        if replies.get(name) != "":  # what was accepted once stays so
            replies[name] = reply

    while not stop.is_set():
        for name, (where, item) in cheats().items():
            attempt(name, where, item)
        for name, where, item in itertools.islice(others, A_TIME):
            attempt(name, where, item)
            if USED_UP in replies.get(name, ""):  # it is asked last, and no rule refused before
                replies[name] = ""
        pods = kube.call("GET", f"/api/v1/namespaces/{CHEAT}/pods")["items"]
        counts["pods"] = max(counts["pods"], sum(item["status"].get("phase") not in ENDED for item in pods))
        for item in [item for item in pods if item["status"]["phase"] == "Running"][:1]:  # others hold nothing
            where = f"/api/v1/namespaces/{CHEAT}/pods/{item['metadata']['name']}"
            if grace_s(kube, where) > MOST_GRACE_S:
                replies["a pod that is deleted slowly, and so is not evicted again"] = ""
        for _ in range(20):
            number += 1
            small = pod(f"many-{number}", CHEAT, CHEAT)
            small["metadata"]["annotations"][LASTS] = f"{ENDLESS_S}s"
            small["spec"] |= {"nodeSelector": {"type": "race"}, "tolerations": [TOLERATION]}
            small["spec"]["containers"][0]["resources"] = {"requests": least, "limits": least}
            bodies: dict[str, Json] = {
                "pods": small,
                "services": {"metadata": {"name": f"many-{number}"}, "spec": {"ports": [{"port": 1}]}},
                "configmaps": {"metadata": {"name": f"many-{number}"}, "data": {"a": "b" * 10**5}},
            }
            for kind, body in bodies.items():
                added = not answer(kube, "POST", f"/api/v1/namespaces/{CHEAT}/{kind}", body)
                counts[kind] += added and kind != "pods"
    return replies, counts


def grace_s(kube: Kube, where: str) -> int:
    """The grace period of a pod after a member asked for the longest, in seconds; 0 if it is refused.

    If the pod is ending already, such a request is not judged: it succeeds and changes nothing.
    https://github.com/kubernetes/kubernetes/blob/v1.35.4/staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go
    """
    try:
        ending = kube.call("DELETE", where, {"gracePeriodSeconds": 10**7, "dryRun": ["All"]})
    except KubeError:
        return 0
    return int(ending["metadata"].get("deletionGracePeriodSeconds", 0))


def restart_scheduler(kube: Kube) -> None:
    """Remove Volcano's scheduler; another one is started."""
    query = {"labelSelector": "app=volcano-scheduler"}
    old = {pod["metadata"]["name"] for pod in kube.call("GET", SCHEDULER, query=query)["items"]}
    assert old
    for name in old:
        kube.call("DELETE", f"{SCHEDULER}/{name}")

    def another() -> bool:
        pods = kube.call("GET", SCHEDULER, query=query)["items"]
        return any(pod["metadata"]["name"] not in old and pod["status"]["phase"] == "Running" for pod in pods)

    until(another, "another scheduler runs")


@pytest.fixture
def cheater(kubeconfig: str, all_three: None, tmp_path_factory: pytest.TempPathFactory) -> Kube:  # noqa: ARG001  used for its effect
    """The cluster as a member of the third team sees it."""
    place = tmp_path_factory.mktemp("member") / "config"
    done = gangplank("team", "kubeconfig", CHEAT, "ada", "--ttl", "1h", "-o", str(place), kubeconfig=kubeconfig)
    assert done.returncode == 0, done.stderr
    return Kube(str(place)).patient()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.usefixtures("all_three")
def test_a3_two_teams_and_one_that_cheats_submit_at_once_and_every_moment_keeps_caps_gangs_and_shares(
    kube: Kube, cheater: Kube, kwok_pid: int, seed: int
) -> None:
    rng = random.Random(seed)
    # Volcano's controller may keep a job that was removed as it began, and then never looks at another of its name.
    run = uuid.uuid4().hex[:6]
    full = {team: SHARES[team].cap for team in (RED, CHEAT)}
    borrowed = [Gang(team, f"endless-{run}-{number}", 16) for team in full for number in range(full[team] // 16)]
    due = [Gang(BLUE, f"due-{run}-{number}", size) for number, size in enumerate(DUE)]
    first = [Gang(RED, f"long-{run}-{number}", 16) for number in range(6)]
    sizes = (1, 2, 3, 4, 8, 16)
    gangs = [Gang(team, f"gang-{run}-{number}", rng.choice(sizes)) for number in range(COUNT) for team in HONEST]
    endless = [gang for gang in [*borrowed, *due] if gang.team in HONEST]
    deleted = {(gang.team, gang.name) for gang in [*rng.sample(gangs, COUNT // 5), *endless]}
    lasts = dict.fromkeys([*borrowed, *due], ENDLESS_S) | {gang: rng.randint(2, 6) for gang in gangs}

    def ask(method: str, where: str, body: Json) -> None:
        """Ask until it is done: on a machine that does other work, a webhook may not answer in time."""
        done = {"POST": "already exists", "DELETE": "not found"}[method]  # by a request whose answer was lost
        until(lambda: (reply := answer(kube, method, where, body)) == "" or done in reply, f"{method} {where}")

    submitted = {gang: threading.Event() for gang in [*borrowed, *due, *first, *gangs]}

    def submit(gang: Gang) -> None:
        ask("POST", JOBS.format(gang.team), manifest(gang, lasts.get(gang, LONG_S)))
        submitted[gang].set()

    def delete(gang: Gang) -> None:
        assert submitted[gang].wait(DEADLINE_S), f"{gang} was not submitted"  # else there may be nothing yet to delete
        ask("DELETE", f"{JOBS.format(gang.team)}/{gang.name}", {"propagationPolicy": "Background"})

    work: list[tuple[float, Callable[[], None]]] = [(0.5, lambda: restart_scheduler(kube))]
    work += [(0, functools.partial(submit, gang)) for gang in first]
    for gang in gangs:
        place = rng.random()
        work.append((place, functools.partial(submit, gang)))
        if (gang.team, gang.name) in deleted:
            work.append((rng.uniform(place, 1.2), functools.partial(delete, gang)))
    work.sort(key=lambda row: row[0])
    clock, every = Clock(kwok_pid), list(submitted)
    with Seen(kube.patient(), clock) as seen:

        def hold(amounts: dict[str, int], why: str) -> None:
            until(lambda: seen.ask(lambda now: amounts.items() <= now.held.items()), f"{amounts}: {why}", DEADLINE_S)

        for gang in borrowed:
            submit(gang)
        hold(full, "all they may have")
        stop = threading.Event()
        with ThreadPoolExecutor(9) as pool:
            cheating = pool.submit(cheat, cheater, stop)
            try:
                began = time.monotonic(), clock.now()
                for gang in due:
                    submit(gang)
                hold({team: share.deserved for team, share in SHARES.items()}, "what they deserve, though no job ends")
                took = time.monotonic() - began[0], clock.now() - began[1]
                print(f"{BLUE} had its {SHARES[BLUE].deserved} after {took[0]:.0f} s, {took[1]:.0f} s of them its own")
                for gang in endless:
                    delete(gang)
                for done in [pool.submit(act) for _, act in work]:
                    done.result()
                # The third team may have used up its own pods, so that its gangs cannot start again.
                honest = [gang for gang in every if gang.team in HONEST]
                remaining = functools.partial(seen.ask, lambda now: lost(now, honest, deleted))
                until(lambda: not remaining(), lambda: f"every job has ended: {remaining()}", DEADLINE_S)
            finally:
                stop.set()
            replies, counts = cheating.result()
    assert [name for name, reply in replies.items() if not reply] == [], "accepted"
    assert {*cheats(), *(name for name, *_ in hostile())} <= {*replies}, "each was tried"
    assert 0 < counts["pods"] <= CHEAT_PODS + SLACK
    assert max(counts["services"], counts["configmaps"]) < 30
    assert judge(seen.events, every, SHARES) == [], timeline(seen.events, every, SHARES)
