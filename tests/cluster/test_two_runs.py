"""D6: two runs at once on one cluster: the second names the first, waits for it, and finds nothing left to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.wait import polls
from tests.cluster.conftest import INVENTORY, ROOT, STATE
from tests.cluster.test_lab import FOLLOWED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.conftest import Lab

SITE = ("playbooks/site.yml", "-e", json.dumps({"site_components": ["volcano", "storage"]}))
LIMIT_S = 1800


class Run:
    """A playbook that runs."""

    def __init__(self, output: Path, *words: str) -> None:
        self.output = output
        command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(INVENTORY), *words]
        with output.open("w") as file:  # a full pipe would block it
            to: dict[str, Any] = {"stdout": file, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "NO_COLOR": "1"}, **to)

    def end(self) -> str:
        """Wait until it has ended well; what it printed."""
        status = self.process.wait(LIMIT_S)
        text = self.output.read_text()
        assert status == 0, text[-4000:]
        return text


def ours(lab: Lab) -> list[str]:
    """The Leases that runs hold."""
    names = [item["metadata"]["name"] for item in lab.get("leases", "--all-namespaces")]
    return [name for name in names if name.startswith("gangplank")]


def two_at_once(folder: Path, *words: str) -> tuple[Run, str]:
    """Two runs at once, of which one waits for the other: the other, and what the one that waited printed."""
    runs = [Run(folder / f"{number}.log", *words) for number in range(2)]
    outputs = [run.end() for run in runs]
    waited = [" is in use by " in output for output in outputs]
    assert sorted(waited) == [False, True], "\n\n".join(outputs)
    return runs[waited.index(False)], outputs[waited.index(True)]


@pytest.fixture
def namespace(lab: Lab) -> Iterator[str]:
    """A namespace for jobs."""
    lab.kubectl("create", "namespace", "two-runs")
    yield "two-runs"
    lab.kubectl("delete", "namespace", "two-runs", "--wait=false")


def test_d6_of_two_sites_at_once_the_second_names_the_first_and_waits(lab: Lab, tmp_path: Path) -> None:
    lab.playbook("playbooks/uninstall.yml", *SITE[1:])
    first, text = two_at_once(tmp_path, *SITE)
    who = rf"\S+, process {first.process.pid} \(playbooks/site\.yml\), since 2\S+ \S+ UTC"
    assert len(re.findall(rf"cluster https://\S+ is in use by {who}", text)) == 1
    assert "changed=0 " in text, "the first had done everything"
    assert ours(lab) == []
    assert "changed=0 " in Run(tmp_path / "again.log", *SITE).end()
    lab.playbook("playbooks/uninstall.yml", *SITE[1:])
    assert ours(lab) == [], "something stays in the cluster"
    lab.playbook("playbooks/site.yml")  # what the next tests share


def test_d6_of_two_labs_at_once_the_second_names_the_first_and_finds_it_up(lab: Lab, tmp_path: Path) -> None:
    lab.playbook("playbooks/lab-down.yml", "-e", "lab_cluster_keep=true")
    first, text = two_at_once(tmp_path, "playbooks/lab.yml")
    who = rf"\S+, process {first.process.pid} \(playbooks/lab\.yml\), since 2\S+ \S+ UTC:"
    assert len(re.findall(rf"the lab in {re.escape(str(STATE))} is in use by {who}", text)) == 1, text
    recap = text.partition("PLAY RECAP")[2]
    assert recap.count("changed=0 ") == recap.count("changed="), recap  # the first had done everything
    assert "changed=0 " in recap


def test_d6_two_runs_of_a_job_follow_one_another_and_another_job_waits_for_neither(
    lab: Lab, namespace: str, tmp_path: Path
) -> None:
    def train(name: str, number: int) -> Run:
        job: dict[str, Any] = {**FOLLOWED, "name": name, "namespace": namespace}
        file = tmp_path / f"{name}-{number}.yml"
        file.write_text(yaml.safe_dump({"training_job": job, "training_job_report_folder": str(tmp_path)}))
        return Run(file.with_suffix(".log"), "playbooks/train.yml", "-e", f"@{file}")

    runs = [train("one", 1), train("one", 2), train("other", 1)]
    with ThreadPoolExecutor() as pool:
        outputs = list(pool.map(Run.end, runs))
    assert sorted(f"job {namespace}/one is in use by " in output for output in outputs[:2]) == [False, True], outputs
    assert " is in use by " not in outputs[2]
    for output in outputs:
        assert re.search(r"PROVEN: (\d+) of \1 claims hold", output), output[-3000:]
    assert ours(lab) == []


def test_d6_a_lock_is_renewed_while_a_task_takes_long_and_goes_with_a_killed_run(lab: Lab, tmp_path: Path) -> None:
    book = tmp_path / "long.yml"
    tasks = [
        {"name": "Take it", "gangplank.gangplank.cluster_ready": {
            "kubeconfig": f"{STATE}/admin.kubeconfig", "lock": True, "lock_timeout_s": 60}},
        {"name": "Take long", "ansible.builtin.pause": {"seconds": 100}},
    ]  # fmt: skip
    book.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    run = Run(tmp_path / "long.log", str(book))
    lab.wait("the lock", lambda: ours(lab) == ["gangplank"])

    def renewed() -> str:
        return str(lab.get("lease", "gangplank", "--namespace=default")["spec"]["renewTime"])

    before = renewed()
    lab.wait("a renewal", lambda: renewed() > before, 40)
    run.process.kill()
    run.process.wait()
    for _ in polls(300, 1):  # its task ends first
        if not ours(lab):
            return
    pytest.fail(f"it stays: {lab.get('lease', 'gangplank', '--namespace=default')}")
