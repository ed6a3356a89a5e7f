"""D6: a playbook keeps others from its cluster, or its job, while it runs, and no longer, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster import lease_keeper
from gangplank.cluster.client import Kube
from gangplank.cluster.lease import Lock, holder_of
from gangplank.processes import living, process
from gangplank.runs import holder
from gangplank.wait import polls
from tests.unit.plugins.test_cluster_actions import run
from tests.unit.plugins.test_cluster_ready import ROOT, play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.conftest import Api

WHERE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/gangplank"
TAKE = {"name": "Take it", "gangplank.gangplank.cluster_ready": {"lock": True, "lock_timeout_s": 1}}
FREE = {"name": "Free it", "gangplank.gangplank.cluster_lock": {"state": "free"}}


@pytest.fixture
def other(api: Api) -> Iterator[subprocess.Popen[bytes]]:
    """Another run, which holds the cluster."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process_:
        Lock(Kube(api.kubeconfig)).hold(holder(process_.pid, ["site.yml"]), lambda _: None, 0)
        yield process_
        process_.kill()


def start(folder: Path, api: Api, *tasks: dict[str, Any]) -> subprocess.Popen[str]:
    """A playbook with these tasks that has the lock."""
    book = folder / "book.yml"
    here = {"hosts": "localhost", "connection": "local", "gather_facts": False}
    here["environment"] = {"K8S_AUTH_VERIFY_SSL": False, "RETRIES": 5}  # no strings
    book.write_text(yaml.safe_dump([{**here, "tasks": [TAKE, *tasks]}]))
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", str(book)]
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "ANSIBLE_LOCAL_TEMP": str(folder / "tmp")}
    environment = os.environ | own | {"K8S_AUTH_KUBECONFIG": api.kubeconfig}
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipe)


def wait_for(api: Api, *objects: str) -> None:
    """Wait until these objects are all that the cluster has."""
    for _ in polls(30, 0.05):
        if [*api.objects] == [*objects]:
            return
    pytest.fail(f"the cluster has {api.objects}")


@pytest.mark.slow
@pytest.mark.parametrize("book", ["teams.yml", "uninstall.yml", "site.yml"])
def test_d6_a_playbook_waits_for_another_run_and_fails_with_its_name(
    tmp_path: Path, api: Api, other: subprocess.Popen[bytes], book: str
) -> None:
    (tmp_path / "helm").symlink_to("/bin/true")
    before = json.dumps(api.objects)
    done = play(tmp_path, book, "-e", "site_lock_timeout_s=1", K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert done.returncode != 0
    assert done.stdout.count(" is in use by ") == 1
    assert f", process {other.pid} (site.yml), since " in done.stdout
    assert f"Fix: wait for it or end it (kill {other.pid} on " in done.stdout
    assert "changed=0" in done.stdout
    assert json.dumps(api.objects) == before
    assert "selfsubjectaccessreviews" not in "".join(api.seen), "what the other is just installing was judged"


@pytest.mark.slow
def test_d6_a_job_is_not_submitted_while_another_run_changes_the_cluster(
    tmp_path: Path, api: Api, other: subprocess.Popen[bytes]
) -> None:
    words = ("-e", f"@{ROOT}/jobs/digits.yml", "-e", "training_job_timeout_s=1")
    done = play(tmp_path, "train.yml", *words, K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert done.returncode != 0
    assert done.stdout.count(" is in use by ") == 1, done.stdout
    assert f", process {other.pid} (site.yml), since " in done.stdout
    assert not [key for key in api.objects if "/jobs/" in key]
    wait_for(api, WHERE)  # it has freed its job


@pytest.mark.slow
def test_d6_no_time_limit_in_the_inventory_leaves_the_lock_on(tmp_path: Path, api: Api) -> None:
    (tmp_path / "helm").symlink_to("/bin/true")
    play(tmp_path, "uninstall.yml", "-e", json.dumps({"site_lock_timeout_s": None}), K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert f"POST {WHERE.rpartition('/')[0]}" in "".join(api.seen)


@pytest.mark.slow
def test_d6_a_check_takes_no_lock_and_waits_for_nobody(
    tmp_path: Path, api: Api, other: subprocess.Popen[bytes]
) -> None:
    del api.seen[:]
    assert other.poll() is None
    done = play(tmp_path, "train.yml", "-e", f"@{ROOT}/jobs/digits.yml", "--check", K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert " is in use by " not in done.stdout
    for state in ("held", "free"):
        run("cluster_lock", check=True, state=state)
    assert "/leases" not in "".join(api.seen)


@pytest.mark.slow
def test_d6_neither_to_take_nor_to_free_the_lock_is_a_change(tmp_path: Path, api: Api) -> None:
    look = {"name": "Wait", "ansible.builtin.pause": {"seconds": 1}}
    output = ""
    with start(tmp_path, api, TAKE, look, FREE) as first:
        for line in first.stdout or ():
            output += line
            if line.startswith("Pausing"):
                (item,) = api.objects.values()
                keepers = keepers_of(first.pid)
    assert first.returncode == 0, output
    assert "ok=4    changed=0 " in output
    assert api.objects == {}
    assert holder_of(item)["playbooks"] == str(tmp_path / "book.yml")
    (keeper,) = keepers  # the second time, the lock was its own already
    assert any(keeper not in keepers_of(first.pid) for _ in polls(20, 0.1)), "it still runs"


def keepers_of(pid: int) -> list[int]:
    """The processes that keep the locks of a run."""
    commands = {int(entry.name): process(int(entry.name)).get("command", "") for entry in Path("/proc").glob("[0-9]*")}
    return [own for own, command in commands.items() if {lease_keeper.MODULE, str(pid)} <= {*command.split()}]


def test_d6_a_play_that_fails_frees_the_lock(tmp_path: Path, api: Api) -> None:
    with start(tmp_path, api, {"name": "Fail", "ansible.builtin.fail": {}}, FREE) as failing:
        assert failing.wait(60) == 2
    wait_for(api)


@pytest.mark.slow
def test_d6_a_killed_run_does_not_keep_the_next_one_waiting(tmp_path: Path, api: Api) -> None:
    sleep = {"name": "Sleep", "ansible.builtin.pause": {"seconds": 60}}
    with start(tmp_path, api, sleep) as killed:
        for line in killed.stdout or ():
            if line.startswith("Pausing"):
                for pid in (*keepers_of(killed.pid), killed.pid):  # the worst case: all processes of the run
                    os.kill(pid, signal.SIGKILL)
                break
        killed.wait()
        while task := living(holder_of(api.objects[WHERE])):
            os.kill(task["pid"], signal.SIGKILL)
    assert list(api.objects) == [WHERE]
    with start(tmp_path, api, FREE) as following:
        output = following.communicate(timeout=60)[0]
    assert following.returncode == 0, output
    assert " is in use by " not in output
    assert api.objects == {}


@pytest.mark.slow
def test_d6_a_run_that_is_refused_does_not_keep_the_lock(tmp_path: Path, api: Api) -> None:
    api.forbidden = {"queues"}
    done = play(tmp_path, "teams.yml", K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert "an account that may not create queues" in done.stdout
    assert f"POST {WHERE.rpartition('/')[0]}?fieldManager=gangplank" in api.seen
    assert api.objects == {}


@pytest.mark.slow
def test_d6_another_cluster_than_the_inventorys_is_not_locked(tmp_path: Path, api: Api) -> None:
    named = ("-e", "site_cluster=https://other.example.org")
    assert play(tmp_path, "teams.yml", *named, K8S_AUTH_KUBECONFIG=api.kubeconfig).returncode != 0
    assert "/leases" not in "".join(api.seen)
