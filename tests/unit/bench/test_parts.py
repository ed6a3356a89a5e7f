"""What the parts make of their rounds: what is idle, the stages of a start, the trainer and its evidence."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from bench.__main__ import RESULTS
from bench.figures import read
from bench.part import INVENTORY, ROOT, BenchError, Setting
from bench.parts import evidence, fit, idle, joining, lab, operator, start, trainer
from gangplank.backends import BACKENDS
from gangplank.wait import polls
from tests.trainer.harness import Rank

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSIBLE = Path(sys.executable).parent


def test_programs_that_use_almost_nothing_have_no_line_of_their_own() -> None:
    spans = [{"etcd": 90.0, "kubelet": 120.0, "sleep": 1.0}, {"etcd": 110.0, "kubelet": 140.0}]
    rows = list(idle.largest("memory", "MiB", 10, spans))
    assert [(one.id, one.value) for one in rows] == [("idle.memory.kubelet", 130.0), ("idle.memory.etcd", 100.0)]


def test_the_floor_of_an_idle_lab_is_kubernetes_itself() -> None:
    span = {"etcd": 60.0, "kubelet": 80.0, "vc-scheduler": 70.0}, {"etcd": 1.0, "coredns": 0.5}, 2.5
    rows = {one.id: one for one in idle.figures([span])}
    floors = {kind: one.floor.value for kind in ("memory", "cpu") if (one := rows[f"idle.{kind}"]).floor}
    assert floors == {"memory": 140.0, "cpu": 1.0}
    assert (rows["idle.memory"].value, rows["idle.cpu"].value) == (210.0, 2.5)


def test_the_stages_of_a_start_follow_one_another() -> None:
    split = start.Marks(1.0, 1.5, 4.5, 8.5, 9.5, 10.0, 10.25).split()
    assert split == {
        "api": 1.0, "scheduling": 0.5, "container": 3.0, "import": 4.0, "meeting": 1.0, "data": 0.5, "step": 0.25,
    }  # fmt: skip
    assert len(start.SAID) == len(start.STAGES) - 2, "the first two stages end with what the API server says"


def test_the_import_of_torch_is_shown_apart_from_rendezvous_in_a_trainer_as_shipped(tmp_path: Path) -> None:
    """The real start.py becomes torchrun.py, with the same words and environment as without that."""
    package = tmp_path / "torch/distributed"
    package.mkdir(parents=True)
    (tmp_path / "torch/__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "run.py").write_text("import os, sys\nprint('torch')\n"
                                    "def main(words): print(sys.argv[0], words, os.environ['RANK'])\n")  # fmt: skip
    wiring = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}
    env = os.environ | wiring | {"PYTHONPATH": str(tmp_path), "PATH": f"{ANSIBLE}:{os.environ['PATH']}"}
    trainer_folder, flags = ROOT / "trainer", ["--epochs", "1", "--log-interval", "1"]

    def printed(*words: str) -> list[str]:
        command = [sys.executable, *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    shipped = printed(str(trainer_folder / "start.py"), *flags)
    began, *before, imported, become = printed("-c", start.program(str(trainer_folder)))
    assert [*before, become] == shipped
    assert [line.split()[0] for line in (began, imported)] == ["started", "imported"]
    assert float(began.split()[1]) <= float(imported.split()[1])


def test_a_start_is_held_against_the_sum_of_its_floors() -> None:
    floor = {
        "floor.api": 0.25, "floor.scheduling": 0.25, "floor.container": 1.5,
        "floor.import": 3.0, "floor.connect": 0.5, "floor.data": 0.25, "floor.step": 0.25,
    }  # fmt: skip
    stages = {f"{backend}.{stage}": 1.5 for backend in BACKENDS for stage in start.STAGES}
    rows = {one.id: one for one in start.figures({name: [value] for name, value in (floor | stages).items()})}
    whole = rows["start.volcano"]
    assert whole.floor is not None
    assert (whole.value, whole.floor.value, whole.met) == (10.5, 6.0, False)
    beside = {stage: rows[f"start.volcano.{stage}"].floor for stage in start.STAGES}
    assert {stage: it and it.value for stage, it in beside.items()} == {
        "api": 0.25, "scheduling": 0.25, "container": 1.5, "import": 3.0, "meeting": 0.5, "data": 0.25, "step": 0.25,
    }  # fmt: skip
    assert whole.goal == pytest.approx(7.8)
    assert whole.floor.name == "sum of the parts, by 3 bare pods at once"
    assert {f"start.{backend}" for backend in BACKENDS} <= set(rows)
    assert {f"start.{name}" for name in floor} == {name for name in rows if name.startswith("start.floor.")}


def test_a_floor_of_less_than_a_millisecond_is_in_the_sum_and_nothing_is_a_multiple_of_it() -> None:
    values = {f"floor.{name}": [1.0] for name in start.FLOORS}
    values |= {f"{backend}.{stage}": [1.5] for backend in BACKENDS for stage in start.STAGES}
    rows = {one.id: one for one in start.figures(values | {"floor.scheduling": [4e-6]})}
    whole = rows["start.volcano"].floor
    assert whole is not None
    assert whole.value == pytest.approx(6.0, abs=1e-4)
    assert [stage for stage in start.STAGES if rows[f"start.volcano.{stage}"].floor is None] == ["scheduling"]


def changes(*pods: tuple[str, str]) -> bytes:
    """What a watch says of pods that exist, and of those with a node."""
    items = ({"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}} for name, node in pods)
    return b"".join(json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n" for item in items)


def test_pods_exist_before_they_have_nodes_however_soon_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll would see both at once; each change of a watch has a time of its own."""
    text = changes(("a", ""), ("b", ""), ("a", "n"), ("c", ""), ("c", "n"), ("b", "n"))
    answer: Any = SimpleNamespace(stream=lambda amt: iter([text[:30], text[30:]]), close=lambda: None)  # noqa: ARG005  as urllib3 calls it
    times = itertools.count(1.0)
    monkeypatch.setattr(start, "time", SimpleNamespace(time=lambda: next(times)))
    assert start.placement(answer) == (["a", "b", "c"], 4.0, 6.0)


def test_pods_without_a_node_at_the_end_of_the_watch_are_counted() -> None:
    text = changes(("a", "n"), ("b", ""))
    answer: Any = SimpleNamespace(stream=lambda amt: iter([text]), close=lambda: None)  # noqa: ARG005  as urllib3 calls it
    with pytest.raises(BenchError, match="got 2 pods, 1 with a node, expected 3 with a node within 25 s"):
        start.placement(answer)


class Namespace:
    """It keeps the bare pods that are created."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []

    def call(self, method: str, _: str, body: Any = None, query: Any = None) -> Any:  # noqa: ARG002  as Kube has it
        self.pods += [body] * (method == "POST")
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def open(self, *_: Any, **__: Any) -> Any:
        text = changes(*((f"bare-{number}", "n") for number in range(start.RANKS)))
        return SimpleNamespace(stream=lambda amt: iter([text]), close=lambda: None)  # noqa: ARG005  as urllib3 calls it


def test_the_bare_pods_of_the_floor_may_have_every_node_as_those_of_jobs_may(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = json.dumps({"event": "alone", "ends": {"import": 3.0, "connect": 4.0, "data": 6.0, "step": 6.5}})
    monkeypatch.setattr(start, "lines", lambda *_: [(2.0, "started"), (7.0, alone)])
    kube: Any = Namespace()
    floors = start.bare(kube)
    assert [*floors] == [f"floor.{name}" for name in start.FLOORS]
    assert [floors[f"floor.{name}"] for name in ("import", "connect", "data", "step")] == [1.0, 1.0, 2.0, 0.5]
    assert len(kube.pods) == start.RANKS
    assert not any({"nodeSelector", "nodeName", "affinity"} & pod["spec"].keys() for pod in kube.pods)


def test_evidence_and_observation_each_have_a_goal_where_they_are_not_spent_once() -> None:
    keys = ("cpu", "without", *evidence.COSTS, "loading", "process.with", "process.without")
    values = {f"{name}.{key}": [0.5, 1.5] for name in evidence.TRAININGS for key in keys} | {"imports": [1.0, 1.0]}
    rows = {one.id: one for one in evidence.figures(values)}
    for key in ("observation", "evidence", "counted"):
        assert rows[f"evidence.digits-long.{key}"].met
        assert rows[f"evidence.digits.{key}"].goal is None
    assert rows["evidence.digits-long.added"].goal is None, "the sum has it for a whole run"
    assert rows["evidence.script-long.cpu"].floor is not None
    assert "evidence.script.loading" in rows
    assert "evidence.large.loading" not in rows


@pytest.mark.parametrize("name", evidence.TRAININGS)
def test_observation_costs_less_than_its_goal_in_the_committed_result(name: str) -> None:
    rows = {one.id: one for one in read(RESULTS)["evidence"].figures}
    assert rows[f"evidence.{name}.observation"].value < evidence.GOAL


def test_fit_answers_within_its_goals_in_the_committed_result() -> None:
    rows = {one.id: one for one in read(RESULTS)["fit"].figures}
    for name in fit.CASES:
        assert rows[f"fit.{name}"].value <= fit.LIMIT_S
    for nodes, limit_s in fit.EXACT_LIMIT_S.items():
        assert rows[f"fit.exact.{nodes}"].value <= limit_s


def test_what_both_add_to_a_whole_run_counts_the_imports_of_both_ranks() -> None:
    keys = ("cpu", "without", *evidence.COSTS, "loading")
    values = {f"{name}.{key}": [1.0] for name in evidence.TRAININGS for key in keys}
    for name in evidence.TRAININGS:
        values |= {f"{name}.process.with": [2.03], f"{name}.process.without": [2.0]}
    for imports_s, percent, met in ((0.0, 1.5, False), (1.0, 0.75, True)):
        rows = {one.id: one for one in evidence.figures(values | {"imports": [imports_s]})}
        for name in evidence.TRAININGS:
            whole = rows[f"evidence.{name}.whole"]
            assert whole.value == pytest.approx(percent)
            assert (whole.goal, whole.met) == (evidence.GOAL, met)


def test_every_figure_of_the_trainer_stands_beside_what_it_names() -> None:
    names = [name for name, _ in trainer.rows()]
    beside = [it[1] for _, row in trainer.rows() for it in (row.peer, row.floor) if it]
    values = {name: [4.0, 5.0] for name in (*names, *beside)}
    rows = {one.id: one for one in trainer.figures(values)}
    assert len(rows) == len(names) == len({*names})
    assert rows["trainer.save.large.stall"].goal == pytest.approx(1.5 * 4.5)
    assert rows["trainer.accuracy"].goal == pytest.approx(4.5)
    assert rows["trainer.accuracy.imports"].goal is None


def test_a_step_is_held_against_its_bound_and_against_linear_where_computing_dominates() -> None:
    names = [name for name, _ in trainer.rows()]
    beside = [it[1] for _, row in trainer.rows() for it in (row.peer, row.floor) if it]
    rows = {one.id: one for one in trainer.figures({name: [0.96] for name in (*names, *beside)})}
    assert {model: rows[f"trainer.step.{model}.bound"].goal for model in trainer.MODELS} == {
        "digits": 0.95, "large": 0.95, "busy": 0.95,
    }  # fmt: skip
    assert {model: rows[f"trainer.step.{model}.linear"].met for model in trainer.MODELS} == {
        "digits": None, "large": None, "busy": True,
    }  # fmt: skip


TRAINER = """
import sys, time
from types import SimpleNamespace
class Training:
    def __init__(self): self.progress = SimpleNamespace(epoch=0)
    def _step(self, batch, more):
        time.sleep(0.2 if self.progress.epoch == 0 else 0.02)
        return batch, more
def main(arguments):
    one = Training()
    for one.progress.epoch in range(3):
        assert one._step(*arguments) == tuple(arguments)
    return 3
"""


def test_a_step_is_timed_whole_and_the_first_epoch_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    command = [sys.executable, str(ROOT / "bench/inside/step.py"), "a", "b"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert 20 <= trainer.whole_ms(Rank(0, done.stdout)) < 150


class Pods:
    """A root whose commands are programs of this machine."""

    def __init__(self, folder: Path, pod: str) -> None:
        self.out, self.pod = folder, pod

    def command(self, words: list[str], wiring: dict[str, str] | None = None) -> list[str]:
        seconds = {name: float(at) for at, name in enumerate(trainer.ALONE)}
        alone = json.dumps({"event": "alone", **seconds})
        return ["sh", "-c", self.pod if wiring else f"echo '{alone}'", *words]

    def free_port(self) -> int:
        return 1


def test_the_parts_of_a_start_are_summed_up(tmp_path: Path) -> None:
    root: Any = Pods(tmp_path, """echo '{"event":"step"}'""")
    values = trainer.start(root)
    assert values["start.parts"] == sum(values[f"start.{name}"] for name in trainer.ALONE) == 6
    assert 0 < values["start.first"] < 10


def test_pods_whose_start_takes_too_long_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        assert any(len((tmp_path / "pids").read_text().split()) == 2 for _ in polls(10, 0.01))
        raise AssertionError("within 120 s: the first step")

    (tmp_path / "pids").touch()
    root: Any = Pods(tmp_path, f"echo $$ >>{tmp_path}/pids; exec sleep 60")
    monkeypatch.setattr("bench.parts.trainer.Root.wait_for", staticmethod(late))
    with pytest.raises(AssertionError, match="the first step"):
        trainer.start(root)
    assert not any(running(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("end", ["exit 3", "sleep 60"], ids=["ends", "takes too long"])
def test_the_bare_loop_leaves_nothing_running_and_kills_nothing_that_it_did_not_start(tmp_path: Path, end: str) -> None:
    listing = tmp_path / "pids"
    script = f"sleep 60 & echo $! >{listing}; sleep 60 & echo $! >>{listing}; {end}"
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            if end == "exit 3":
                assert lab.bare_loop(script, os.environ, 20)[0] == 3
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    lab.bare_loop(script, os.environ, 0.5)
            pids = [int(pid) for pid in listing.read_text().split()]
            assert len(pids) == 2
            assert any(not any(map(running, pids)) for _ in polls(10, 0.01))
            assert running(other.pid)
        finally:
            other.kill()


def test_the_first_round_from_nothing_finds_everything_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    names = ("nodes Ready", "Volcano accepts jobs", "finished", "second", "bare", "changed")

    def once() -> dict[str, float]:
        steps.append("round")
        return dict.fromkeys(names, 1.0)

    monkeypatch.setattr(lab, "playbook", lambda *words: steps.append(" ".join(words)))
    monkeypatch.setattr(lab, "once", once)
    assert [*lab.measure(Setting(tmp_path))]
    assert steps == ["playbooks/lab.yml --tags=parts", *["round"] * lab.ROUNDS]


def test_the_operator_is_installed_on_the_lab_whatever_cluster_the_user_works_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    pods = operator.JOBS * (1 + operator.WORKERS)
    kube = SimpleNamespace(accepts=lambda *_: "", items=lambda *_: [None] * pods)

    def run(*words: str) -> str:
        commands.append([*words])
        return "kind: Namespace\n---\nkind: Deployment\n"

    @contextlib.contextmanager
    def process(words: list[str], **_: object) -> Iterator[None]:
        commands.append(words)
        yield

    built = {"bin": {"helm": "/bin", "kubernetes": "/bin"}, "charts": {"training-operator-crds": "/crds"}}
    (tmp_path / "parts.json").write_text(json.dumps(built))
    monkeypatch.setattr(operator, "STATE", tmp_path)
    monkeypatch.setattr(operator, "playbook", lambda *_, **__: "")
    monkeypatch.setattr(operator, "Kube", lambda _: kube)
    monkeypatch.setattr(operator, "run", run)
    monkeypatch.setattr("bench.parts.operator.subprocess.Popen", process)
    assert [one.id for one in operator.measure(Setting(tmp_path))] == ["operator.install", "operator.pods"]
    assert {words[0] for words in commands} == {"/bin/helm", "/bin/kubectl"}
    assert {words[1] for words in commands} == {f"--kubeconfig={tmp_path}/admin.kubeconfig"}


def test_the_bare_loop_starts_a_runtime_and_waits_for_it_before_the_kubelet() -> None:
    programs = yaml.safe_load((ROOT / "roles/lab_cluster/vars/main.yml").read_text())["__lab_cluster_node_programs"]
    lines = {
        f"{name}node-2": "nsenter --net=/run/n -- " + re.sub(r"\{\{.*?\}\}", "/parts/bin", programs[name.rstrip("-")])
        for name in lab.NODE_PROGRAMS
    }
    runtime, wait, kubelet, proxy = lab.steps(lines, lines)
    assert runtime == f"start containerd-node-2 {lines['containerd-node-2']}"
    assert wait == "until nsenter --net=/run/n -- /parts/bin/ctr version >/dev/null 2>&1; do sleep 0.1; done"
    assert (kubelet.split()[1], proxy.split()[1]) == ("kubelet-node-2", "kube-proxy-node-2")
    script = f"{runtime}\n{wait}\n{kubelet}\n{proxy}"
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


def test_a_node_that_joins_is_held_against_itself() -> None:
    rows = {2: [joining.Round(cost, 8.0, 5.0) for cost in (5.0, 5.5, 6.0)], 8: [joining.Round(9.0, 20.0, 5.0)]}
    two, eight = joining.figures(rows)
    assert eight.peer is not None
    assert eight.peer.value == 20.0
    assert (two.id, two.value, two.goal, two.met, eight.met) == ("joining.2", 5.5, 6.0, True, False)


def test_a_lab_of_any_size_is_that_of_the_inventory_with_more_nodes(tmp_path: Path) -> None:
    command = [str(ANSIBLE / "ansible-inventory"), "-i", INVENTORY, "-i", joining.inventory(tmp_path, 4), "--list"]
    listed = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert listed["lab"]["hosts"] == ["node-0", "node-1", "node-2", "node-3"]
    assert listed["_meta"]["hostvars"]["node-3"]["ansible_connection"] == "local"
