"""Jobs as people submit them, on a live cluster: queues that take none, scaling, the chart, the file that is kept."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.cli import main
from gangplank.cluster import submit
from gangplank.cluster.client import Kube
from gangplank.cluster.progress import phase
from gangplank.jobs.parse import parse_job
from gangplank.k8s.diff import differences
from lab.build.parts import build
from tests.cluster.conftest import INVENTORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.differential.live import Cluster

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
JOB: Json = {
    "image": "registry.k8s.io/pause:3.10.1",
    "script": "/a.py",
    "node_selector": {"example.com/nowhere": "true"},  # the pods are made but never run
}


@pytest.fixture
def described(cluster: Cluster, tmp_path: Path) -> Any:
    """Writes a job file of this test's namespace; its path."""

    def write(name: str, **more: Any) -> str:
        file = tmp_path / f"{name}.yml"
        file.write_text(yaml.safe_dump({"training_job": {**JOB, "name": name, "namespace": cluster.namespace, **more}}))
        return str(file)

    return write


def command(cluster: Cluster, action: str, item: Json) -> None:
    """Tell Volcano to do something with an object."""
    meta = item["metadata"]
    target = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": meta["name"], "uid": meta["uid"]}
    body = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"generateName": "test-"}}
    where = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/commands"
    cluster.call("POST", where, {**body, "action": action, "target": target})


@pytest.fixture
def queues(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Queues by what is wrong with them."""
    names = {word: f"{cluster.namespace[-8:]}-{word}" for word in ("parent", "child", "closed")}

    def make(word: str, parent: str) -> Json:
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": names[word]}}
        return cluster.call("POST", QUEUES, {**body, "spec": {"parent": parent}})

    def state(word: str) -> str:
        return str(cluster.call("GET", f"{QUEUES}/{names[word]}").get("status", {}).get("state"))

    make("parent", "root")
    make("child", names["parent"])
    uid = make("closed", "root")["metadata"]["uid"]
    cluster.wait(lambda: {state("child"), state("closed")} == {"Open"}, "Pod")
    meta = {"name": names["closed"], "uid": uid}
    command(cluster, "CloseQueue", {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": meta})
    cluster.wait(lambda: state("closed") == "Closed", "Pod")
    yield names
    for word in ("child", "parent", "closed"):
        cluster.call("DELETE", f"{QUEUES}/{names[word]}")


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob"])
def test_a_queue_that_takes_no_job_is_refused_before_anything_is_made(
    backend: str, cluster: Cluster, kubeconfig: str, queues: dict[str, str], described: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    said = {"parent": f"name one of its own: {queues['child']}", "closed": "which is Closed", "none": "one of the"}
    for word, reason in said.items():
        file = described("refused", backend=backend, queue=queues.get(word, "no-such-queue"))
        assert main(["submit", file, "--kubeconfig", kubeconfig]) == 1
        assert reason in capsys.readouterr().err
    record = BACKENDS[backend]
    assert cluster.items(record.kind, record.api_version) == []


def test_an_elastic_job_is_scaled_and_others_are_refused(
    cluster: Cluster, kubeconfig: str, described: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = described("elastic", backend="pytorchjob", masters=0, workers=2, elastic={"min": 1, "max": 3})
    access = ["--kubeconfig", kubeconfig]
    assert main(["submit", file, *access]) == 0

    def has(count: int) -> bool:
        cluster.enqueue()
        pods = [pod for pod in cluster.items("Pod") if pod["metadata"]["labels"].get("job-name") == "elastic"]
        return len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]) == count

    cluster.wait(lambda: has(2), "Pod")
    assert main(["scale", file, "3", *access]) == 0
    cluster.wait(lambda: has(3), "Pod")
    assert main(["scale", file, "1", *access]) == 0
    cluster.wait(lambda: has(1), "Pod")
    assert main(["scale", file, "4", *access]) == 1
    assert "from elastic.min 1 to elastic.max 3" in capsys.readouterr().err
    fixed = described("fixed")
    assert main(["submit", fixed, *access]) == 0
    assert main(["scale", fixed, "3", *access]) == 1
    assert "keep the WORLD_SIZE" in capsys.readouterr().err


def test_the_chart_installs_a_job_file_as_it_is(cluster: Cluster, kubeconfig: str, described: Any) -> None:
    helm = f"{build(['helm'], print)['bin']['helm']}/helm"
    file = described("by-helm")
    access = ["--kubeconfig", kubeconfig, "-n", cluster.namespace]
    chart = str(ROOT / "charts/training-job")
    line = [helm, "install", "by-helm", chart, "-f", file, *access]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "kubectl -n" in done.stdout
    (wanted,) = BACKENDS["volcano"].manifests(parse_job(yaml.safe_load(Path(file).read_text())))
    wanted["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"  # which Helm sets on what it makes
    live = cluster.call("GET", f"/apis/batch.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/jobs/by-helm")
    assert list(differences(wanted, {**wanted, **live})) == []
    subprocess.run([helm, "uninstall", "by-helm", "--wait", *access], capture_output=True, check=True, timeout=60)


def train(file: str, kubeconfig: str, *more: str, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run playbooks/train.yml as a user would, without waiting for the training."""
    given = {"training_job_wait": False, "training_job_kubeconfig": kubeconfig, **variables}
    return subprocess.run(
        [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(INVENTORY), str(ROOT / "playbooks/train.yml"),
         "-e", f"@{file}", "-e", json.dumps(given), *more],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip


def test_what_is_kept_is_what_is_applied(cluster: Cluster, kubeconfig: str, described: Any, tmp_path: Path) -> None:
    done = train(described("kept"), kubeconfig, training_job_manifest_dir=str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout
    (wanted,) = yaml.safe_load_all((tmp_path / "kept" / f"{cluster.namespace}.kept.yml").read_text())
    live = cluster.call("GET", f"/apis/batch.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/jobs/kept")
    assert list(differences(wanted, {**wanted, **live})) == []


def test_the_role_leaves_a_job_alone_refuses_a_change_and_replaces_when_told(
    cluster: Cluster, kubeconfig: str, described: Any
) -> None:
    where = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/jobs"
    file = described("again")
    looked = train(file, kubeconfig, "--check", "--diff")
    assert looked.returncode == 0, looked.stdout
    assert "changed=1" in looked.stdout
    assert "+kind: Job" in looked.stdout
    assert all(item["metadata"]["name"] != "again" for item in cluster.call("GET", where)["items"])
    assert "changed=1" in train(file, kubeconfig).stdout
    first = cluster.call("GET", f"{where}/again")["metadata"]["uid"]
    assert "changed=0" in train(file, kubeconfig).stdout
    file = described("again", workers=3)
    refused = train(file, kubeconfig)
    assert refused.returncode == 2
    assert "spec.tasks[1].replicas: got 2, described 3" in refused.stdout
    assert "-e training_job_replace=true" in refused.stdout
    assert "changed=1" in train(file, kubeconfig, "--check", training_job_replace=True).stdout
    assert cluster.call("GET", f"{where}/again")["metadata"]["uid"] == first
    replaced = train(file, kubeconfig, training_job_replace=True)
    assert replaced.returncode == 0, replaced.stdout
    live = cluster.call("GET", f"{where}/again")
    assert live["metadata"]["uid"] != first
    assert live["spec"]["tasks"][1]["replicas"] == 3


def test_the_role_names_a_missing_claim_and_a_queue_that_is_none_together(
    cluster: Cluster, kubeconfig: str, described: Any
) -> None:
    volume = {"claim": "nowhere", "mount": "/data", "on": "master"}
    done = train(described("problems", queue="no-such-queue", volumes=[volume]), kubeconfig)
    assert done.returncode == 2
    assert 'training_job.volumes[0].claim: got "nowhere"' in done.stdout
    assert 'spec.queue: got "no-such-queue"' in done.stdout
    made = cluster.items("Job", "batch.volcano.sh/v1alpha1")
    assert all(item["metadata"]["name"] != "problems" for item in made)


@pytest.mark.parametrize("backend", ["volcano", "pytorchjob"])
def test_a_job_that_has_failed_is_run_anew_when_told(
    backend: str, cluster: Cluster, kubeconfig: str, described: Any
) -> None:
    fails = {"node_selector": {}, "pytorchjob": {"restart_policy": "Never", "gang": False}}  # its image has no torchrun
    more = {"pytorchjob": fails}.get(backend, {})
    job = parse_job(yaml.safe_load(Path(described(f"failed-{backend}", backend=backend, **more)).read_text()))
    manifests = BACKENDS[backend].manifests(job)
    kube = Kube(kubeconfig)
    submit.carry_out(kube, submit.plan(kube, manifests, replace=True), dry_run=False)
    if backend == "volcano":
        assert not submit.plan(kube, manifests, replace=True).changes, "it has not failed"
        live = submit.live_object(kube, manifests[-1])
        assert live is not None
        command(cluster, "AbortJob", live)
    cluster.wait(lambda: phase(submit.live_object(kube, manifests[-1]) or {}).failed, "Pod")
    assert not submit.plan(kube, manifests, replace=False).changes, "nobody has asked for it"
    again = submit.plan(kube, manifests, replace=True)
    assert again.remove
    submit.carry_out(kube, again, dry_run=False)
    live = submit.live_object(kube, manifests[-1])
    assert live is not None
    assert live["metadata"]["uid"] != again.remove[0]["metadata"]["uid"]
