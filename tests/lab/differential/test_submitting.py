"""Jobs as people submit them, on a live cluster: queues that take none, scaling, the chart, the file that is kept."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank import cli
from gangplank.backends import BACKENDS
from gangplank.live import differences
from gangplank.parse import parse_job
from lab.build import build
from tests.lab.conftest import INVENTORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.lab.differential.live import Cluster

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
    target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": names["closed"], "uid": uid}
    command = {"apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "metadata": {"generateName": "close-"}}
    where = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/commands"
    cluster.call("POST", where, {**command, "action": "CloseQueue", "target": target})
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
        assert cli.main(["submit", file, "--kubeconfig", kubeconfig]) == 1
        assert reason in capsys.readouterr().err
    kind = BACKENDS[backend].kind
    assert cluster.items(kind[1], kind[0]) == []


def test_an_elastic_job_is_scaled_and_others_are_refused(
    cluster: Cluster, kubeconfig: str, described: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    file = described("elastic", backend="pytorchjob", masters=0, workers=2, elastic={"min": 1, "max": 3})
    access = ["--kubeconfig", kubeconfig]
    assert cli.main(["submit", file, *access]) == 0

    def has(count: int) -> bool:
        cluster.enqueue()
        pods = [pod for pod in cluster.items("Pod") if pod["metadata"]["labels"].get("job-name") == "elastic"]
        return len([pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]) == count

    cluster.wait(lambda: has(2), "Pod")
    assert cli.main(["scale", file, "3", *access]) == 0
    cluster.wait(lambda: has(3), "Pod")
    assert cli.main(["scale", file, "1", *access]) == 0
    cluster.wait(lambda: has(1), "Pod")
    assert cli.main(["scale", file, "4", *access]) == 1
    assert "from elastic.min 1 to elastic.max 3" in capsys.readouterr().err
    fixed = described("fixed")
    assert cli.main(["submit", fixed, *access]) == 0
    assert cli.main(["scale", fixed, "3", *access]) == 1
    assert "keep the WORLD_SIZE" in capsys.readouterr().err


def test_the_chart_installs_a_job_file_as_it_is(cluster: Cluster, kubeconfig: str, described: Any) -> None:
    helm = f"{build(['helm'], print)['bin']['helm']}/helm"
    file = described("by-helm")
    access = ["--kubeconfig", kubeconfig, "-n", cluster.namespace]
    chart = str(ROOT / "charts/training-job")
    command = [helm, "install", "by-helm", chart, "-f", file, *access]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "kubectl -n" in done.stdout
    (wanted,) = BACKENDS["volcano"].manifests(parse_job(yaml.safe_load(Path(file).read_text())))
    wanted["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"  # which Helm sets on what it makes
    live = cluster.call("GET", f"/apis/batch.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/jobs/by-helm")
    assert list(differences(wanted, {**wanted, **live})) == []
    subprocess.run([helm, "uninstall", "by-helm", "--wait", *access], capture_output=True, check=True, timeout=60)


def test_what_is_kept_is_what_is_applied(cluster: Cluster, kubeconfig: str, described: Any, tmp_path: Path) -> None:
    file = described("kept")
    variables = {"training_job_manifest_dir": str(tmp_path / "kept"), "training_job_wait": False}
    done = subprocess.run(
        [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(INVENTORY), str(ROOT / "playbooks/train.yml"),
         "-e", f"@{file}", "-e", json.dumps({**variables, "training_job_kubeconfig": kubeconfig})],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    (wanted,) = yaml.safe_load_all((tmp_path / "kept" / f"{cluster.namespace}.kept.yml").read_text())
    live = cluster.call("GET", f"/apis/batch.volcano.sh/v1alpha1/namespaces/{cluster.namespace}/jobs/kept")
    assert list(differences(wanted, {**wanted, **live})) == []
