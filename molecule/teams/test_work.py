"""Members train, pods of a team reach only each other, and a queue gets back what it deserves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.lease import Lock
from gangplank.errors import GangplankError
from gangplank.proof.claims import CLAIMS
from gangplank.runs import holder
from tests.support.teams_live import ROOT, gangplank, pod, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
PARTS = Path(os.environ["KUBECONFIG"]).with_name("parts.json")
ENFORCED = PARTS.exists() and "network-policy" in json.loads(PARTS.read_text())["bin"]  # by the lab's nodes
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
SMALL = {"cpu": {"request": "50m", "limit": "500m"}, "memory": {"request": "128Mi", "limit": "256Mi"}}
CONNECT = """
import socket, sys, time
def reaches(address, port):
    try:
        socket.create_connection((address, port), 2).close()
    except OSError:
        time.sleep(1)  # a node knows the address of a new pod elsewhere a moment later
        return False
    return True
for target in sys.argv[1:]:
    host, port = target.split(":")
    address = socket.gethostbyname(host)
    print("reached" if any(reaches(address, int(port)) for attempt in range(5)) else "kept out")
"""


def test_a_member_trains_from_the_job_file_to_the_proof(
    kubeconfigs: Callable[[str, str], str], tmp_path: Path
) -> None:
    """The ranks of this job meet over the network: in-job connections work."""
    bob = kubeconfigs("vision", "bob")
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())["training_job"]
    del job["image"], job["hyperparameters"]["epochs"]  # the team's own are taken
    text = json.dumps({"training_job": job | {"team": "vision"}})
    (tmp_path / "job.json").write_text(text)
    expanded = gangplank("expand", str(tmp_path / "job.json"), "--site", "inventories/lab", kubeconfig=bob)
    assert expanded.stdout.startswith("digits in vision on volcano: 3 pods, a gang of 3"), expanded.stderr
    inputs = json.dumps({"training_job_kubeconfig": bob, "training_job_report_folder": str(tmp_path),
                         "training_job_timeout_s": 1800})  # fmt: skip
    command = [sys.executable, "-m", "ansible", "playbook", "playbooks/train.yml", "-e", text, "-e", inputs]
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DIFF_ALWAYS": "0",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert f"PROVEN: {len(CLAIMS)} of {len(CLAIMS)} claims hold" in done.stdout, done.stdout + done.stderr
    assert "may not lock" not in done.stdout, done.stdout
    assert "epochs: 1 to 3 on every rank" in " ".join(done.stdout.split())
    for words in (("status", "digits"), ("logs", "digits"), ("proof", "digits"), ("delete", "digits")):
        result = gangplank(*words, kubeconfig=bob)  # in the namespace of bob's context
        assert result.returncode == 0, (words, result.stdout, result.stderr)
    assert gangplank("status", "digits", "-n", "speech", kubeconfig=bob).returncode == 4


def test_a_member_sends_code_that_is_more_than_one_config_map_holds(
    kubeconfigs: Callable[[str, str], str], tmp_path: Path
) -> None:
    bob = kubeconfigs("vision", "bob")
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text("import tables\nprint(len(tables.TEXT), 'characters')\n")
    (code / "tables.py").write_text(f"TEXT = {'x' * 2**20!r}\n")
    job = {"name": "pieces", "team": "vision", "code": "code", "script": "main.py", "workers": 0, "resources": SMALL}
    (tmp_path / "job.json").write_text(json.dumps({"training_job": job}))
    submit = [sys.executable, "-m", "gangplank", "submit", "job.json", "--wait"]
    submit += ["--site", str(ROOT / "inventories/lab")]
    environment = os.environ | {"K8S_AUTH_KUBECONFIG": bob}
    done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    logs = gangplank("logs", "pieces", "-n", "vision", kubeconfig=bob)
    assert f"{2**20} characters" in logs.stdout, logs.stdout + logs.stderr
    assert gangplank("delete", "pieces", "-n", "vision", kubeconfig=bob).returncode == 0


@pytest.mark.parametrize("site", [(), ("--site", "inventories/lab")])
def test_a_member_runs_a_script_in_the_team_s_queue(
    kubeconfigs: Callable[[str, str], str], tmp_path: Path, site: tuple[str, ...]
) -> None:
    (tmp_path / "hello.py").write_text("print('hello from', __import__('os').environ['RANK'])\n")
    bob, name = kubeconfigs("vision", "bob"), f"hello-{len(site)}"
    words = ("run", str(tmp_path / "hello.py"), "--team", "vision", "--workers", "1", "--name", name, *site)
    done = gangplank(*words, kubeconfig=bob)
    assert gangplank("delete", name, kubeconfig=bob).returncode == 0
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"hello from 0", "hello from 1"} <= {line[-12:] for line in done.stdout.splitlines()}, done.stdout


def test_a_trainer_s_run_keeps_that_of_a_lead_out_and_a_viewer_locks_nothing(
    kube: Kube, as_member: Callable[[str, str], Kube]
) -> None:
    ada, bob, eve = (Lock(as_member("vision", name), "locked", "vision") for name in ("ada", "bob", "eve"))
    mine, lines = holder(os.getpid(), ["playbooks/train.yml"]), list[str]()
    theirs = mine | {"pid": 7, "boot": "another", "host": "far"}
    try:
        assert bob.hold(theirs, lines.append, 0), lines
        with pytest.raises(GangplankError, match=r"job vision/locked: got .*@far, process 7 "):
            ada.hold(mine, lines.append, 0)
        assert bob.renew(theirs)
        assert not eve.hold(mine, lines.append, 0)
        assert "job vision/locked: got an account that may not lock it" in lines[-1]
        ada.free(mine)
        assert kube.get(bob.where), "it is not her run's"
    finally:
        bob.free(theirs)
    assert kube.get(bob.where) is None


@pytest.fixture
def server(serve: Callable[[Json], str]) -> str:
    """The address of a pod of vision that answers on port 8000."""
    manifest = pod("server", "vision", "vision", "python3", "-m", "http.server", "8000")
    manifest["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    return serve(manifest)


def test_pods_of_a_team_reach_each_other_and_report_whether_other_teams_can(
    server: str, printed: Callable[[Json], str]
) -> None:
    beyond = "kubernetes.default.svc.cluster.local:443"  # resolved by the name server, which teams may use

    def connect(team: str, *targets: str) -> list[str]:
        return printed(pod("client", team, team, "python3", "-c", CONNECT, *targets)).splitlines()

    friend, stranger = connect("vision", f"{server}:8000", beyond), connect("speech", f"{server}:8000")
    assert friend[0] == "reached"
    if [*friend[1:], *stranger] == ["kept out", "kept out"]:
        print("\nNetworkPolicy is enforced here: a pod of team speech did not reach one of team vision.")
        return
    print("\nNetworkPolicy is NOT ENFORCED HERE: a pod of team speech reached one of team vision, or a pod reached an")
    print("address outside its team. This cluster's network plugin ignores the policies; use another (Calico).")
    assert not ENFORCED, "the lab's own nodes enforce it"


def no_pod_left(job: str, pods: Callable[[], Json]) -> None:
    """Wait until the pods of a deleted job are gone."""
    until(lambda: not pods()["items"], f"{job}: no pod is left")


@pytest.fixture
def jobs(kube: Kube) -> Iterator[Callable[[str, str, str], Callable[[], int]]]:
    """Start a gang of two pods with one core each in a queue; the result counts its running pods."""
    started: list[tuple[str, Callable[[], Json]]] = []

    def start(what: str, namespace: str, queue: str) -> Callable[[], int]:
        name = f"{what}-{uuid.uuid4().hex[:6]}"  # docs/teams.md, "Two teams at once", explains why each name is new
        template = pod("x", namespace, queue, "python3", "-c", "import time; time.sleep(600)", cpu="1")
        task = {"name": "w", "replicas": 2, "template": {"spec": template["spec"]}}
        gang = {"minAvailable": 2, "maxRetry": 9, "policies": [{"event": "PodEvicted", "action": "RestartJob"}]}
        spec = {"queue": queue, "schedulerName": "volcano", **gang, "tasks": [task]}
        meta = {"name": name}
        body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": spec}
        kube.call("POST", JOBS.format(namespace), body)
        selector = {"labelSelector": f"volcano.sh/job-name={name}"}
        pods = partial(kube.call, "GET", f"/api/v1/namespaces/{namespace}/pods", query=selector)
        started.append((f"{JOBS.format(namespace)}/{name}", pods))

        def running() -> int:
            return sum(
                one["status"]["phase"] == "Running" and "deletionTimestamp" not in one["metadata"]
                for one in pods()["items"]
            )

        return running

    yield start
    for job, pods in started:
        kube.call("DELETE", job, {"propagationPolicy": "Foreground"})
        no_pod_left(job, pods)


def test_a_queue_gets_back_what_it_deserves_from_whole_gangs(
    jobs: Callable[[str, str, str], Callable[[], int]],
) -> None:
    """The queue `default` deserves nothing: its gang uses idle nodes, and gives way to vision as a whole."""
    borrower = jobs("borrower", "default", "default")
    until(lambda: borrower() == 2, "the gang of the queue default runs")
    owner = jobs("owner", "vision", "vision")
    until(lambda: owner() == 2, "vision's gang runs")
    assert borrower() == 0, "no half of a gang continues"
