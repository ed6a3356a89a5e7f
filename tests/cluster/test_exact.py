"""`gangplank fit --exact`: the site's own scheduler answers in a copy, the site is only read, and nothing stays.

The site is tests/support/bare_site.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.shadow.programs import version_of
from gangplank.shadow.state import CRDS, KINDS, custom
from tests.support.bare_site import BareSite, bare_site, in_a_network, item, node
from tests.support.requests_that_read import reads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Json = dict[str, Any]
CPUS = ("8", "8", "4")
LOW = {"value": -5, "preemptionPolicy": "PreemptLowerPriority"}
OURS = b"--cert-dir=/dev/shm/certificates"  # of the API server of a copy
EVENTS, LEASES = "/api/v1/events", "/apis/coordination.k8s.io/v1/leases"
MADE = {"kube-system", "kube-public", "kube-node-lease"}  # namespaces that the API server makes once it answers


def job(folder: Path, name: str, workers: int, cpu: str, backend: str = "volcano", **fields: Any) -> str:
    """A job file."""
    path = folder / f"{name}.yml"
    base = {"name": name, "backend": backend, "image": "a.example/b:1", "command": ["true"], "workers": workers}
    path.write_text(json.dumps({**base, "resources": {"cpu": cpu, "memory": "1Gi"}, **fields}))
    return str(path)


def running(name: str, cpu: str, host: str) -> tuple[str, Json]:
    """A pod of a Job, of low priority, that runs; the Job's controller has to release it."""
    container = {"name": "a", "image": "a.example/b:1", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": host, "containers": [container], "priority": -5, "schedulerName": "default-scheduler"}
    fields = {"spec": spec, "status": {"phase": "Running"}}
    metadata = {"finalizers": ["batch.kubernetes.io/job-tracking"]}
    return f"pods/default/{name}", item("v1", "Pod", name, "default", metadata=metadata, **fields)


@pytest.fixture(scope="module")
def inside() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    if os.geteuid() != 0:
        pytest.fail("a network of its own needs root: sudo make test-full")
    with in_a_network() as call:
        yield call


@pytest.fixture(scope="module")
def site(
    inside: Callable[[Callable[[], Any]], Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BareSite]:
    """Three nodes, one of them taken by a pod of low priority."""
    state = [node(f"n{number}", cpu) for number, cpu in enumerate(CPUS)] + [running("low", "4", "n2")]
    context = bare_site(tmp_path_factory.mktemp("site"), state, audited=True)
    try:
        yield inside(context.__enter__)
    finally:
        inside(lambda: context.__exit__(None, None, None))


def contents(site: BareSite) -> dict[str, list[Json]]:
    """All that a copy reads but CRDs, whose status the API server writes; events; leases, but for their renewal."""
    crds = site.kube.call("GET", CRDS)["items"]
    places = [*KINDS, EVENTS, LEASES, *(where for where, _, _ in custom(crds))]
    lists = {where: site.kube.call("GET", where)["items"] for where in places}
    for lease in lists[LEASES]:
        lease["metadata"] = {key: lease["metadata"][key] for key in ("name", "namespace", "uid")}
        lease["spec"].pop("renewTime", None)
    return lists


def at_rest(site: BareSite) -> bool:
    """Whether the site's API server has made what it makes by itself."""
    names = {item["metadata"]["name"] for item in site.kube.call("GET", "/api/v1/namespaces")["items"]}
    return names >= MADE and bool(site.kube.call("GET", LEASES)["items"])


@contextlib.contextmanager
def only_read(site: BareSite, inside: Callable[[Callable[[], Any]], Any]) -> Iterator[None]:
    """Meanwhile nothing changes at the site, and no request could have changed anything."""
    inside(lambda: eventually(lambda: at_rest(site), "the site is at rest"))
    before, past = inside(lambda: contents(site)), len(site.requests())
    yield
    requests = site.requests()[past:]
    assert requests
    assert [request for request in requests if not reads(request)] == []
    assert inside(lambda: contents(site)) == before


@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_the_schedulers_answer_is_yes_with_a_placement_and_the_site_is_only_read(
    site: BareSite, inside: Callable[[Callable[[], Any]], Any], tmp_path: Path, backend: str
) -> None:
    with only_read(site, inside):
        done = inside(lambda: site.gangplank("fit", "--exact", "-o", "json", job(tmp_path, "yes", 3, "4", backend)))
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["fits"] == "yes"
    assert sorted(answer["placement"].values()) == ["n0", "n0", "n1", "n1"]
    program = {"volcano": "vc-scheduler", "indexed": "kube-scheduler"}[backend]
    assert answer["answered_by"].startswith(f"{program} v")
    assert answer["answered_by"].endswith("3 nodes and 1 pod")


@pytest.mark.parametrize(("backend", "words"), [("volcano", "overused cpu"), ("indexed", "Insufficient cpu")])
def test_the_answer_is_no_with_what_the_scheduler_says_and_the_site_is_only_read(
    site: BareSite, inside: Callable[[Callable[[], Any]], Any], tmp_path: Path, backend: str, words: str
) -> None:
    with only_read(site, inside):
        done = inside(lambda: site.gangplank("fit", "--exact", job(tmp_path, "no", 9, "4", backend)))
    assert done.returncode == 5, done.stdout + done.stderr
    assert done.stdout.startswith("no: no\n")
    assert words in done.stdout


def test_pods_that_the_scheduler_would_end_are_named(
    site: BareSite, inside: Callable[[Callable[[], Any]], Any], tmp_path: Path
) -> None:
    with only_read(site, inside):
        done = inside(lambda: site.gangplank("fit", "--exact", job(tmp_path, "high", 4, "4", "indexed")))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its scheduler would end default/low for it" in done.stdout


def test_programs_that_are_not_there_are_named(
    site: BareSite, inside: Callable[[Callable[[], Any]], Any], tmp_path: Path
) -> None:
    words = ("fit", "--exact", job(tmp_path, "small", 0, "1"), "--programs", str(tmp_path))
    done = inside(lambda: site.gangplank(*words))
    assert done.returncode == 6, done.stdout + done.stderr
    for name in ("etcd", "kube-apiserver", "vc-scheduler"):
        assert f"cannot tell: {name}: got no such program in {tmp_path}, expected" in done.stdout
    assert "Fix: run make parts" in done.stdout


def test_another_version_of_the_sites_scheduler_is_refused_by_name(
    site: BareSite, inside: Callable[[Callable[[], Any]], Any], tmp_path: Path
) -> None:
    where = "/apis/apps/v1/namespaces/volcano-system/deployments/volcano-scheduler"
    live = inside(lambda: site.kube.call("GET", where))
    container = live["spec"]["template"]["spec"]["containers"][0]
    own, container["image"] = container["image"], "a.example/vc-scheduler:v1.2.3"
    inside(lambda: site.kube.call("PUT", where, live))
    try:
        done = inside(lambda: site.gangplank("fit", "--exact", job(tmp_path, "small", 0, "1")))
        assert done.returncode == 6, done.stdout + done.stderr
        assert f"{own.rpartition(':')[2]} in " in done.stdout
        assert "cannot tell: vc-scheduler: got v" in done.stdout
        assert "expected v1.2.3, which the site runs. Fix: " in done.stdout
    finally:
        live = inside(lambda: site.kube.call("GET", where))
        live["spec"]["template"]["spec"]["containers"][0]["image"] = own
        inside(lambda: site.kube.call("PUT", where, live))


def copies(ancestor: int = 1) -> set[int]:
    """The API servers of copies that run on this machine, of one process or of all."""
    servers = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if OURS in (entry / "cmdline").read_bytes() and (ancestor == 1 or ancestor in above(int(entry.name))):
                servers.add(int(entry.name))
        except OSError:
            continue
    return servers


def above(process: int) -> Iterator[int]:
    """The processes that a process comes from."""
    while process > 1:
        yield process
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def eventually(condition: Callable[[], Any], what: str, limit_s: float = 120) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_of_the_copy_stays_after_a_signal(
    site: BareSite, inside: Callable[[Callable[[], Any]], Any], tmp_path: Path, number: signal.Signals
) -> None:
    """Its scheduler never looks at the job, so that only the signal ends it."""
    programs, mine = tmp_path / "programs", set[int]()
    programs.mkdir()
    for name in ("etcd", "kube-apiserver"):
        (programs / name).symlink_to(site.plane.programs[name])
    version = version_of(Path(site.plane.programs["vc-scheduler"]))
    (programs / "vc-scheduler").write_text(f"#!/bin/sh\necho {version}\ntest $1 = --version || exec sleep 900\n")
    (programs / "vc-scheduler").chmod(0o755)
    command = site.command("fit", "--exact", "--programs", str(programs), job(tmp_path, "small", 0, "1"))
    process = inside(lambda: subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    with process:

        def started() -> bool:
            mine.update(copies(process.pid))
            return bool(mine) or process.poll() is not None

        eventually(started, "the copy starts")
        assert process.poll() is None, process.stderr.read()
        assert not (Path("/dev/shm") / "etcd").exists()
        process.send_signal(number)
        process.wait(60)
    eventually(lambda: not copies() & mine, "the copy is gone")
    assert process.returncode == (130 if number == signal.SIGINT else -number)
