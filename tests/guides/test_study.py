"""The study of Volcano's plugin: its five steps, with its own script."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import THREE
from tests.support import documents

if TYPE_CHECKING:
    from tests.guides.conftest import Shell

JOB = "pytorch-job-with-configmap"
PODS = [f"{JOB}-{name}" for name in ("master-0", "worker-0", "worker-1")]


@pytest.fixture(scope="module")
def script(shell: Shell) -> None:
    """Step 1."""
    shell(documents.printed("--from-file=pytorch-demo.py"))


def test_volcano_is_verified(shell: Shell) -> None:
    """Helm's repository is outside: site.yml has installed the same chart under the same name."""
    assert re.search(r"^volcano\s.*deployed", shell("helm list -n volcano-system"), re.MULTILINE)
    names = ("admission", "controllers", "scheduler")
    lines = [re.compile(rf"^volcano-{name}-\S+ +1/1 +Running", re.MULTILINE) for name in names]

    def runs() -> bool:
        said = shell("kubectl get pods -n volcano-system")
        return all(line.search(said) for line in lines)

    shell.lab.wait("all three run", runs)


@pytest.mark.usefixtures("script")
def test_the_script_is_there(shell: Shell) -> None:
    said = shell(documents.printed("kubectl describe configmap pytorch-demo-script"))
    assert said.startswith("NAME ")
    assert "pytorch-demo.py:" in said


def test_the_job_is_accepted_as_it_is_printed(shell: Shell) -> None:
    said = shell("kubectl apply --dry-run=server -f pytorch-job-with-configmap.yaml")
    assert said == f"job.batch.volcano.sh/{JOB} created (server dry run)\n"


@pytest.mark.usefixtures("script", "three_nodes")
def test_the_job_trains_and_goes_without_a_trace(shell: Shell) -> None:
    """As it is printed: three pods of one whole CPU each, which do not fit two nodes of two CPUs."""
    assert JOB in shell(documents.printed("kubectl get vcjob"))
    (query,) = (line for line in documents.printed("kubectl get vcjob").splitlines() if "kubectl get pods" in line)
    shell.lab.wait("the study's query shows all three pods", lambda: all(pod in shell(query) for pod in PODS), 120)
    logs = shell.logs(*PODS)
    pods = shell.get("pods")
    assert {pod["spec"]["nodeName"] for pod in pods} == set(THREE)
    asked = [pod["spec"]["containers"][0]["resources"] for pod in pods]
    assert asked == [{part: {"cpu": "1", "memory": "2Gi"} for part in ("limits", "requests")}] * 3
    for rank, log in enumerate(logs.values()):
        assert f"RANK={rank}, WORLD_SIZE=3" in log
        assert f"MASTER_ADDR={JOB}-master-0.{JOB}\n" in log, "the study prints master-0.<job>"
        assert "MASTER_PORT=23456" in log
        assert f"[Rank {rank}] 训练完成" in log
    epochs = re.findall(r"Epoch \[(\d)/5\], Average Loss: (\d+\.\d{4})", logs[PODS[0]])
    assert [number for number, _ in epochs] == ["1", "2", "3", "4", "5"]
    losses = [float(loss) for _, loss in epochs]
    assert losses[-1] < 0.8 * losses[0], "a job by hand is not observed; tests/trainer proves the same script"
    assert not any("Epoch [" in logs[pod] for pod in PODS[1:])

    shell(documents.printed("kubectl delete -f pytorch-job-with-configmap.yaml"))
    shell.lab.wait("its pods and its service are gone", lambda: not shell.get("pods") and not shell.get("services"))
