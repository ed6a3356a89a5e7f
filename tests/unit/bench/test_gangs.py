"""Gangs on simulated nodes: what a watch makes of them, how their place becomes empty, and the figures of the part."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from bench import programs
from bench.gangs import bare_client, place, ways
from bench.gangs.bare_client import MANY, targets
from bench.gangs.jobs import plain_job, volcano_job
from bench.gangs.start import Start
from bench.gangs.watch import Seen, Watch
from bench.gangs.ways import Way, once
from bench.part import BenchError
from bench.parts.gangs import figures
from gangplank.backends.pod_template import JOB_LABEL
from gangplank.k8s.quantity import parse
from tests.cluster.test_gangs import SAMPLE, SWEPT, Shape
from tests.cluster.test_gangs import SWEEP as SWEEP_OF_GANGS
from tools.gang_figures import WAYS

PODS_OF_A_NODE = 110  # of lab/simulated.py


def pod(gang: str, number: int, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    meta = {"name": f"{gang}-{number}", "uid": f"{gang}-{number}", "labels": {JOB_LABEL: gang}}
    return {"metadata": meta, "spec": {"nodeName": node} if node else {}, "status": {"phase": phase}}


def seen(*items: dict[str, Any]) -> Seen:
    one = Seen({"a": 2})
    for at, item in enumerate(items, 1):
        one.see("MODIFIED", item, float(at))
    return one


def test_a_gang_that_is_whole_before_its_first_binding_is_not_partial() -> None:
    both = seen(pod("a", 0), pod("a", 1), pod("a", 0, "n"), pod("a", 1, "n"), pod("a", 0, "n", "Running"))
    assert (both.partial, both.torn, both.whole()) == (set(), set(), False)
    both.see("MODIFIED", pod("a", 1, "n", "Running"), 9.0)
    assert both.whole()
    assert [(one.bound, one.running) for one in both.pods.values()] == [(3.0, 5.0), (4.0, 9.0)]


def test_a_pod_with_a_node_before_all_of_its_gang_exist_makes_it_partial() -> None:
    assert seen(pod("a", 0), pod("a", 0, "n"), pod("a", 1), pod("a", 1, "n")).partial == {"a"}
    assert seen(pod("a", 0, "n"), pod("a", 1, "n")).partial == {"a"}


def test_a_gang_of_which_only_some_have_a_node_is_torn() -> None:
    assert seen(pod("a", 0), pod("a", 1), pod("a", 0, "n")).torn == {"a"}


def test_what_was_seen_stays_when_a_later_change_says_less() -> None:
    one = seen(pod("a", 0, "n", "Running"))
    one.see("MODIFIED", pod("a", 0), 2.0)
    one.see("MODIFIED", pod("a", 0, "n", "Running"), 3.0)
    assert [(it.bound, it.running) for it in one.pods.values()] == [(1.0, 1.0)]


def test_a_pod_that_is_removed_ends_the_run() -> None:
    """Its successor would be one pod more than the gangs have, and the wait would last to its limit."""
    with pytest.raises(BenchError, match="got its removal while gangs start, expected that it stays"):
        seen(pod("a", 0, "n", "Running")).see("DELETED", pod("a", 0), 2.0)


def test_no_pod_is_evicted_from_a_node_whose_heartbeat_is_late() -> None:
    (task,) = volcano_job("a", 2)["spec"]["tasks"][1:]
    assert {"operator": "Exists", "effect": "NoExecute"} in task["template"]["spec"]["tolerations"]


def test_a_watch_that_fails_ends_the_wait_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, and not with a count of pods after five minutes."""
    stray = {"type": "ADDED", "object": {"metadata": {"uid": "x", "labels": {}, "resourceVersion": "2"}}}
    start = {"items": [], "metadata": {"resourceVersion": "1"}}
    stream = SimpleNamespace(stream=lambda **_: [json.dumps(stray).encode() + b"\n"], close=lambda: None)
    kube: Any = SimpleNamespace(call=lambda *_, **__: start, open=lambda *_, **__: stream)
    monkeypatch.setattr("bench.gangs.watch.limit_s", lambda _: 1.0)
    with pytest.raises(KeyError, match=JOB_LABEL), Watch(kube, {"a": 1}) as watch:
        watch.wait()


def test_plain_jobs_have_the_gangs_pods() -> None:
    (worker,) = (task for task in volcano_job("g", 4)["spec"]["tasks"] if task["name"] == "worker")
    plain = plain_job("g", 4)
    assert plain["spec"]["template"] == worker["template"]
    assert plain["spec"]["parallelism"] == sum(task["replicas"] for task in volcano_job("g", 4)["spec"]["tasks"])


@pytest.mark.parametrize(("upstream", "floor", "goal"), [(24.0, 4.0, 8.0), (24.0, 8.0, 10.0)])
def test_the_goal_is_three_times_upstreams_rate_or_four_fifths_of_the_floors(
    upstream: float, floor: float, goal: float
) -> None:
    seconds = {"ours": 9.0, "upstream": upstream, "floor": floor, "kubernetes": 50.0}
    rows = figures("10x100", {way: [Start(value, value + 1, (), 0)] for way, value in seconds.items()})
    bound = next(one for one in rows if one.id == "gangs.10x100.bound")
    assert bound.goal == pytest.approx(goal)
    assert bound.met is (goal > 9)


class Release:
    """A release with values, and what is done with it."""

    kube: Any = None

    def __init__(self, done: list[Any]) -> None:
        self.now, self.done = "ours", done

    def use(self, values: Any) -> bool:
        before, self.now = self.now, values
        self.done.append(f"use {values}")
        return bool(before != values)


def test_a_release_has_changed_and_started_a_gang_before_cpu_time_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def start(shape: tuple[int, int]) -> Start:
        done.append(shape)
        return Start(1.0, 2.0, (), 0)

    def ticks() -> dict[tuple[int, str], float]:
        done.append("ticks")
        return {(1, "etcd"): float(len(done))}

    monkeypatch.setattr(ways, "machine", lambda: (5.0 * len(done), 10.0 * len(done)))
    monkeypatch.setattr(ways, "ticks", ticks)
    monkeypatch.setattr(ways, "requests", lambda _: {"POST pods": 2.0 * len(done), "GET pods": 1.0})
    for name in ("still", "forgotten", "cleared"):
        monkeypatch.setattr(ways, name, lambda _, name=name: done.append(name))
    release: Any = Release(done)
    values: Any = "upstream"
    for _ in range(2):
        one = once(release, Way(start, values), (10, 100))
        assert (one.cpu_s, one.requests, one.idle) == ({"etcd": 2.0}, {"POST pods": 6.0, "GET pods": 0.0}, 50.0)
    one_start = ["still", "forgotten", "ticks", (10, 100), "ticks", "cleared"]
    assert done == ["use upstream", (1, 1), "cleared", *one_start, "use upstream", *one_start]
    once(release, Way(start), (10, 100))
    assert done[-len(one_start) - 1 :] == ["cleared", *one_start]
    assert release.now == "upstream", "what starts no gang of Volcano's leaves the release as it is"


METRICS = b"""# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",verb="POST",resource="pods",subresource=""} 3
apiserver_request_total{code="409",verb="POST",resource="pods",subresource=""} 2
apiserver_request_total{code="201",verb="POST",resource="pods",subresource="binding"} 1
apiserver_request_total{code="200",verb="WATCH",resource="pods",subresource=""} 9
apiserver_requested_deprecated_apis{group="",version="v1"} 1
"""


def test_requests_are_counted_by_what_they_do() -> None:
    kube: Any = SimpleNamespace(open=lambda *_: BytesIO(METRICS))
    counts = programs.requests(kube)
    assert counts == {"POST pods": 3.0, "POST pods, refused": 2.0, "POST pods/binding": 1.0}
    assert Start(1.0, 2.0, (), 0, requests=counts).refused == 2.0


def test_creates_of_pods_that_the_api_server_refused_are_shown_even_if_there_are_few() -> None:
    refused = {"ours": 3.0, "upstream": 1.0, "floor": 0.0, "kubernetes": 0.0}
    calm = Start(1.0, 2.0, (), 0)
    starts = {
        way: [replace(calm, requests={"POST pods": 1000.0, "POST pods, refused": count}), calm]
        for way, count in refused.items()
    }
    (one,) = (one for one in figures("10x100", starts) if one.id == "gangs.10x100.refused")
    assert one.title.startswith("10 gangs of 100 pods, creates of pods that the API server refused")
    assert one.spread == (0.0, 3.0)
    assert one.peer is not None
    assert (one.peer.name, one.peer.spread) == ("upstream's values", (0.0, 1.0))


def test_plain_jobs_are_named_with_the_rate_of_kubernetes_own_controller() -> None:
    starts = {way: [Start(1.0, 2.0, (), 0)] for way in ("ours", "upstream", "floor", "kubernetes")}
    titles = {one.id: one.title for one in figures("10x100", starts)}
    limit = "plain Jobs, no gang, at Kubernetes' own 20 requests a second"
    assert titles["gangs.10x100.bound.jobs"] == f"10 gangs of 100 pods as {limit}, all bound"
    assert WAYS["kubernetes"] == limit


def test_a_start_waits_until_nothing_writes_what_belongs_to_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written all the time and what reads does not count."""
    looks: list[int] = []

    def counts(_: Any) -> dict[str, float]:
        looks.append(len(looks))
        always = dict.fromkeys(("PUT leases", "PATCH nodes/status", "GET pods", "LIST events"), float(len(looks)))
        return always | {"PATCH events": min(len(looks), 5.0), "POST pods, refused": 1.0, "PATCH pods/status": 7.0}

    monkeypatch.setattr(place, "requests", counts)
    monkeypatch.setattr(place, "reported", lambda _: {"events of bench-gangs": 3.0})
    monkeypatch.setattr("gangplank.wait.time.sleep", lambda _: None)
    place.still(cast("Any", None))
    assert len(looks) == 5 + place.STILL


def test_requests_that_never_end_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count()
    monkeypatch.setattr(place, "requests", lambda _: {"PATCH events": next(count), "PUT jobs/status": 2.0})
    monkeypatch.setattr(place, "reported", lambda _: {"events of bench-gangs": next(count)})
    monkeypatch.setattr(place, "polls", lambda *_: iter(range(9)))
    expected = "API server: got PATCH events, events of bench-gangs, expected no request of the last run within 300 s"
    with pytest.raises(BenchError, match=expected):
        place.still(cast("Any", None))


def test_what_the_cluster_reports_on_new_nodes_is_of_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """For 1,000 of them it lasts ten minutes."""
    count = itertools.count()
    monkeypatch.setattr(place, "requests", lambda _: {"POST events": next(count), "PATCH nodes": next(count)})
    monkeypatch.setattr(place, "polls", lambda *_: iter(range(9)))
    kube: Any = SimpleNamespace(call=lambda *_, **__: {"items": [{}], "metadata": {"remainingItemCount": 41}})
    assert place.reported(kube) == {"events of bench-gangs": 42}
    place.still(kube)


class Full:
    """A namespace whose pods have finalizers, and whose requests take a page each."""

    def __init__(self, pods: int, events: int) -> None:
        names = [f"pod-{number}" for number in range(pods)]
        self.pods = {name: {"metadata": {"name": name, "finalizers": ["x"]}} for name in names}
        self.events, self.largest = events, 0

    def call(self, method: str, where: str, _: Any = None, query: Any = None, **__: bool) -> Any:
        page = int((query or {}).get("limit", sys.maxsize))
        if where.startswith(f"{place.PODS}/"):
            name = where.rpartition("/")[2]
            pod = self.pods[name]["metadata"]
            if method == "PATCH":
                del pod["finalizers"]
            elif "finalizers" not in pod:
                del self.pods[name]
        elif where == place.PODS:
            items = list(self.pods.values())[:page]
            self.largest = max(self.largest, len(items))
            return {"items": items}
        elif where.endswith("/events"):
            self.largest = max(self.largest, min(self.events, page))
            if method == "DELETE":
                self.events -= min(self.events, page)
            left = {"remainingItemCount": self.events - page} if self.events > page else {}
            return {"items": [None] * min(self.events, page), "metadata": left}
        return {"items": []}


def test_no_request_lists_or_removes_more_than_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangplank.wait.time.sleep", lambda _: None)
    kube: Any = Full(pods=2500, events=4200)
    place.cleared(kube)
    assert (kube.pods, kube.events, kube.largest) == ({}, 0, int(place.PAGE["limit"]))


def test_the_connections_of_the_floor_are_open_before_its_time_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread of a pool has one: none is opened while pods are replayed."""
    threads: list[tuple[str, int]] = []
    monkeypatch.setattr(bare_client, "Bare", Sent)
    monkeypatch.setattr(Sent, "sent", threads)
    start = bare_client.replayed(None, (1, 8))  # type: ignore[arg-type]  # it asks only the client
    first = {thread for method, thread in threads if method == "GET"}
    assert len(first) == place.CLIENTS == len([method for method, _ in threads if method == "GET"])
    assert {thread for _, thread in threads} == first
    assert [method for method, _ in threads].index("POST") == place.CLIENTS
    assert 0 < start.bound_s <= start.running_s


class Sent(bare_client.Bare):
    """A client that sends nothing."""

    sent: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, _: Any) -> None:
        self.opened = []

    def send(self, method: str, path: str, body: bytes) -> None:  # noqa: ARG002  as its parent has them
        self.sent.append((method, threading.get_ident()))


class Nodes:
    """A cluster that keeps the names of its nodes."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def call(self, method: str, where: str, body: Any = None) -> None:
        if method == "POST":
            assert body["spec"]["unschedulable"]
            self.names.add(body["metadata"]["name"])
        else:
            self.names.remove(where.rpartition("/")[2])


@pytest.mark.parametrize(("pods", "exist"), [(MANY, False), (MANY + 1, True)])
def test_the_nodes_of_a_long_replay_exist_as_long_as_it_takes(pods: int, exist: bool) -> None:
    kube: Any = Nodes()
    with targets(kube, pods) as names:
        assert len({*names}) == place.NODES
        assert kube.names == ({*names} if exist else set())
    assert kube.names == set()


@pytest.mark.parametrize("shape", [SAMPLE, *SWEPT], ids=str)
def test_the_nodes_of_a_sweep_have_room_for_all_of_its_pods(shape: Shape) -> None:
    (container,) = plain_job("g", shape.size)["spec"]["template"]["spec"]["containers"]
    for name, amount in container["resources"]["requests"].items():
        assert shape.gangs * shape.size * parse(amount) <= shape.nodes * parse(place.SIZE[name]), name
    assert shape.gangs * shape.size <= shape.nodes * PODS_OF_A_NODE


def test_the_first_part_of_three_of_the_sweep_is_round_0_of_every_shape() -> None:
    """A part has every third case, see tools/sweep.py. 10,000 pods take so long that they have one round."""
    first = SWEEP_OF_GANGS[::3]
    assert first == [(shape, 0) for shape in SWEPT]
    large, *others = SWEPT
    assert sorted(SWEEP_OF_GANGS) == sorted([(large, 0), *((shape, number) for shape in others for number in range(3))])
    assert large.gangs * large.size == max(shape.gangs * shape.size for shape in SWEPT)
