"""A back-end that lives here alone goes everywhere: one entry of the registry, and no edit of the package."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from argcomplete.finders import CompletionFinder
from hypothesis import given, settings

from gangplank.backends import BACKENDS, backend_of, pod_template, wiring
from gangplank.backends.admission import of_template
from gangplank.backends.base import (
    Addition,
    Backend,
    Ends,
    JobKinds,
    Maker,
    Refusal,
    Retries,
    Site,
    Template,
    Wiring,
    always,
    block,
    never,
    resumed,
    unchanged,
    unscalable,
)
from gangplank.backends.queueing import Queue
from gangplank.cli import main, tables
from gangplank.cli.parser import command_line
from gangplank.cluster import queues, submit
from gangplank.cluster.client import Kube
from gangplank.cluster.progress import phase
from gangplank.errors import SpecError
from gangplank.jobs import schema
from gangplank.jobs.annotated import explained
from gangplank.jobs.parse import parse_job
from gangplank.k8s.build import clone, value
from gangplank.proof.expected import expected, job_uid
from gangplank.teams import read_cluster
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_teams
from tests.support.strategies import jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gangplank.reading.fields import Fields
    from gangplank.spec import JobSpec
    from tests.unit.conftest import Api

Json = dict[str, Any]
KIND: Json = {"apiVersion": "toys.example.com/v1", "kind": "ToyJob"}
TOYS = "/apis/toys.example.com/v1/namespaces/default/toyjobs"
JOB: Json = {
    "name": "digits",
    "image": "img:1",
    "script": "/a.py",
    "backend": "toy",
    "workers": 1,
    "processes_per_node": 2,
    "hyperparameters": {"epochs": 3, "batch_size": 8},
    "output": "/tmp",
    "toy": {"colour": "red"},
}


@dataclass(frozen=True)
class ToyBlock:
    colour: str = "blue"


def read_block(fields_of_block: Fields) -> ToyBlock:
    return ToyBlock(colour=fields_of_block.choice("colour", "blue", ("red", "green", "blue")))


def no_green_pairs(spec: JobSpec, bad: Callable[..., None]) -> None:
    if block(spec, ToyBlock).colour == "green" and spec.replicas == 2:
        bad("toy.colour", "green", "red or blue for two replicas", "choose another colour")


def manifests(spec: JobSpec) -> list[Json]:
    template = pod_template.template(spec, "worker", "toy", "Never")
    template["spec"]["containers"][0]["env"].append(value("TOY_COLOUR", block(spec, ToyBlock).colour))
    body = {"count": spec.replicas, "line": spec.queue or "default", "template": template}
    shelf: Json = {"apiVersion": "v1", "kind": "Service", "metadata": pod_template.metadata(spec)}
    job = {**KIND, "metadata": pod_template.metadata(spec), "spec": body}
    return [*pod_template.script_map(spec), shelf, job]


def objects(manifest: Json, site: Site | None = None) -> list[Json]:
    assert site is None or isinstance(site, Site)
    meta, spec = manifest["metadata"], manifest["spec"]
    items: list[Json] = [{"apiVersion": "v1", "kind": "ToyBox", "metadata": {"name": meta["name"]}}]
    for rank in range(spec["count"]):
        pod = clone(spec["template"])
        name = f"{meta['name']}-toy-{rank}"
        pod["metadata"] |= {"name": name, "namespace": meta.get("namespace", "default")}
        pod["metadata"]["labels"]["toy"] = meta["name"]
        pod["spec"]["hostname"] = name
        pod["spec"]["containers"][0]["env"] += [
            value("TOY_NODES", spec["count"]),
            value("RANK", rank),
            value("WORLD_SIZE", spec["count"]),
            value("MASTER_ADDR", f"{meta['name']}-toy-0"),
            value("MASTER_PORT", 7),
        ]
        items.append({"apiVersion": "v1", "kind": "Pod", **pod})
    return items


def scale(job: Json, workers: int) -> Json:
    if workers > 9:
        raise unscalable(job, workers, "at most 9 toys", "")
    return {"spec": {"count": workers + 1}}


def pitfalls(manifest: Json) -> Iterator[str]:
    if manifest["spec"]["count"] == 1:
        yield "a toy alone is lonely"


def templates(manifest: Json, _: Site) -> tuple[Json, list[Template]]:
    job = clone(manifest)
    return job, [Template(job["spec"], "toy", manifest["metadata"]["name"])]


TOY = Backend(
    name="toy",
    title="Toy Job",
    api_version=KIND["apiVersion"],
    kind=KIND["kind"],
    plural="toyjobs",
    form={"spec": dict},
    is_job=always,
    wiring=Wiring(
        nnodes="TOY_NODES",
        rank="RANK",
        addr="MASTER_ADDR",
        port="MASTER_PORT",
        pod="{job}-toy-{rank}",
        master="{job}-toy-0",
        longest="{job}-toy-{world}",
        longest_is="toy's name",
        job_name="toys.example.com/name",
        index="",
        job_uid="metadata.labels['toy']",
        unbuffered=False,
        mounts=("/toys",),
        prefixes=("toys.example.com",),
    ),
    read_block=read_block,
    refuses={"deadline_s": Refusal("toys know no time", "put them away yourself")},
    no_claims=None,
        one_template=True,
    rules=(no_green_pairs,),
    manifests=manifests,
    objects=objects,
    scale=scale,
    by_itself=resumed,
    with_changes=unchanged,
    pitfalls=pitfalls,
    templates=templates,
    adds=(
        Addition(r"\.env\[|\[(TOY_NODES|RANK|WORLD_SIZE|MASTER_\w+)\]$", "the toy maker", "toys meet by name"),
        Addition(r"", "the toy maker", "as it likes"),
    ),
    makes={"ToyBox": Maker("the toy maker", "toys lie in it")},
    propagation="Background",
    ends=Ends(succeeded=frozenset({"Tidied"}), failed=frozenset({"Broken"})),
    queue=lambda manifest: Queue("spec.line", manifest["spec"]["line"]),
    retries=Retries("spec.retries", lambda _live, restarts: restarts),
    overlooks=never,
    without_queues=lambda manifest: "play alone" if manifest["spec"]["line"] != "default" else "",
    evidence_id=lambda live: f"toy-{live['metadata']['uid']}" if "uid" in live["metadata"] else None,
    attempt="",
    beside=(("v1", "Service"),),
    job_kinds=(JobKinds(KIND["apiVersion"], ("toyjobs", "toychests")),),
    admission=(of_template("toyjobs", "toys.example.com", "toyjobs", probe={"kind": "ToyJob", "spec": {}}),),
)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "toy", TOY)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "toy.yml"
    path.write_text(yaml.safe_dump({"training_job": JOB}))
    return str(path)


def manifest(**changes: Any) -> Json:
    return manifests(parse_job({**JOB, **changes}))[-1]


def test_no_fact_of_a_back_end_has_a_default() -> None:
    assert all(fact.default is fact.default_factory is MISSING for fact in fields(Backend))


def test_the_command_line_knows_the_names_without_loading_a_back_end() -> None:
    code = "import sys; from gangplank.cli.parser import command_line; command_line(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "gangplank.backends" in loaded
    assert not [name for name in loaded if name.startswith("gangplank.backends.")]


def test_a_job_file_is_parsed_with_its_own_fields() -> None:
    assert parse_job(JOB).block == ToyBlock("red")
    assert parse_job({**JOB, "toy": None}).block == ToyBlock()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"deadline_s": 5},
            "got 5, expected no deadline_s on toy (toys know no time). Fix: put them away yourself",
        ),
        ({"toy": {"colour": "green"}}, 'training_job.toy.colour: got "green", expected red or blue for two replicas'),
        ({"toy": {"colour": "rde"}}, "Did you mean red"),
        ({"toy": {"color": "red"}}, "training_job.toy.color"),
        ({"labels": {"toys.example.com/box": "1"}}, "training_job.labels.toys.example.com/box"),
        ({"backend": "indexed"}, 'training_job.toy: got "toy", expected only the block of indexed'),
        ({"backend": "toi", "toy": None}, "Did you mean toy"),
        ({"name": "d" * 58}, "a name whose longest toy's name"),
        ({"volumes": [{"claim": "c", "mount": "/o", "on": "master"}]}, "all on toy, whose replicas share one template"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(changes: Json, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_job({**JOB, **changes})
    assert said in str(caught.value)


def test_the_schema_has_its_name_and_its_fields() -> None:
    described = schema.job()["properties"]
    assert "toy" in described["backend"]["enum"]
    assert described["toy"]["properties"] == {"colour": {"enum": ["red", "green", "blue"]}}
    assert "toys\\.example\\.com/" in described["labels"]["propertyNames"]["not"]["pattern"]


def test_a_job_is_wired_and_its_kind_is_known_again() -> None:
    spec = parse_job(JOB)
    assert backend_of(manifest()) == "toy"
    assert [replica.pod for replica in wiring.replicas(spec)] == ["digits-toy-0", "digits-toy-1"]
    pods = [item for item in objects(manifest()) if item["kind"] == "Pod"]
    assert "--nnodes=$(TOY_NODES)" in pods[0]["spec"]["containers"][0]["command"]
    assert [wiring.pod_wiring(pod)["rank"] for pod in pods] == ["0", "1"]


def test_its_kept_manifest_says_who_adds_what() -> None:
    laid_out = explained(parse_job(JOB))
    blocks = laid_out["documents"][-1]["blocks"]
    assert {"the toy maker"} == {item["by"] for item in blocks if item["by"]}
    assert [(item["kind"], item["why"]) for item in laid_out["made"]] == [("ToyBox", "toys lie in it")]


def test_jobs_are_drawn_for_it() -> None:
    @settings(max_examples=40)
    @given(jobs("toy"))
    def check(job: Json) -> None:
        spec = parse_job(job)
        assert spec.deadline_s is None
        assert len(objects(manifests(spec)[-1])) == spec.replicas + 1

    check()


def test_the_command_expands_a_job_and_a_raw_manifest(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["expand", file]) == 0
    assert "digits in default on toy: 2 pods" in capsys.readouterr().out
    assert main(["expand", file, "-o", "json"]) == 0
    assert [item["kind"] for item in json.loads(capsys.readouterr().out)["items"]] == ["Service", "ToyJob"]


def test_the_command_reads_a_raw_manifest_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text(json.dumps(manifest(workers=0)))
    assert main(["expand", "-f", str(raw), "--objects"]) == 0
    output = capsys.readouterr()
    assert output.err == "note: digits: a toy alone is lonely\n"
    assert "ToyBox" in output.out


def test_the_command_offers_it(file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain = tmp_path / "plain.yml"
    plain.write_text(yaml.safe_dump({"training_job": {"name": "a", "image": "i", "script": "/a.py"}}))
    assert main(["expand", str(plain), "--backend", "toy"]) == 0
    assert "a in default on toy: 3 pods" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["expand", file, "--backend", "toi"])
    assert "toy" in capsys.readouterr().err
    assert CompletionFinder(command_line()).rl_complete("expand --backend to", 0) == "expand --backend toy "
    empty = tmp_path / "empty.yml"
    empty.write_text("")
    assert main(["expand", str(empty)]) == 1
    assert "a job file, or the manifest of a Volcano Job, PyTorchJob, TrainJob, Indexed Job or Toy Job" in (
        capsys.readouterr().err
    )


def test_the_command_finds_scales_and_removes_it(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    live = {**manifest(), "status": {"conditions": [{"type": "Tidied", "status": "True"}]}}
    api.objects[f"{TOYS}/digits"] = live
    assert main(["status", "digits"]) == 0
    assert "digits in default on toy: Tidied" in capsys.readouterr().out
    assert main(["scale", "digits", "10"]) != 0
    assert "at most 9 toys" in capsys.readouterr().err
    assert main(["scale", "digits", "2"]) == 0
    assert {"spec": {"count": 3}} in api.bodies
    assert f"PATCH {TOYS}/digits" in api.seen
    service = "/api/v1/namespaces/default/services/digits"
    api.objects[f"{TOYS}/digits"] = live
    api.objects[service] = manifests(parse_job(JOB))[0]
    assert main(["delete", "digits"]) == 0
    assert [line for line in api.seen if line.startswith("DELETE")] == [f"DELETE {TOYS}/digits", f"DELETE {service}"]


def test_its_words_for_an_end_are_understood() -> None:
    assert phase({**KIND, "status": {"state": {"phase": "Tidied"}}}).succeeded
    assert phase({**KIND, "status": {"conditions": [{"type": "Broken", "status": "True"}]}}).failed
    assert not phase({**KIND, "status": {"state": {"phase": "Playing"}}}).ended


def test_a_cluster_without_its_scheduler_is_refused_with_its_own_fix(api: Api) -> None:
    api.objects = {"/apis/toys.example.com/v1": {"kind": "APIResourceList"}}
    kube = Kube()
    assert submit.unscheduled(kube, manifest()) == []
    (problem,) = submit.unscheduled(kube, manifest(queue="vision"))
    assert problem.fix == "play alone, or install Volcano"


def test_what_its_controller_mounts_is_not_shown_among_the_volumes() -> None:
    places = [{"name": "box", "mountPath": "/toys"}, {"name": "out", "mountPath": "/out"}]
    spec = {"volumes": [{"name": "box"}, {"name": "out"}], "containers": [{"volumeMounts": places}]}
    assert tables.mounts({"spec": spec}) == "/out"


def test_its_queue_is_asked_for() -> None:
    (problem,) = queues.problems(manifest(queue="nosuch"), [{"metadata": {"name": "vision"}, "spec": {}}])
    assert problem.path == "spec.line"


def objects_of_teams() -> list[Json]:
    team = {"name": "vision", "members": [{"user": "ada"}], "max_jobs": 5}
    team["cap"] = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
    site, teams = parse_teams({"a.yml": {"team": team}})
    return team_objects(teams, site)


def test_teams_may_submit_it_within_their_queues_and_quota() -> None:
    team_items = objects_of_teams()
    roles = {item["metadata"]["name"]: item["rules"] for item in team_items if item["kind"] == "ClusterRole"}
    for role, verb in (("viewer", "get"), ("trainer", "create"), ("lead", "create")):
        rows = [row for row in roles[f"gangplank-team-{role}"] if row["apiGroups"] == ["toys.example.com"]]
        assert rows
        assert all(row["resources"] == ["toyjobs", "toychests"] for row in rows)
        assert any(verb in row["verbs"] for row in rows)
    policy = next(
        item for item in team_items
        if item["kind"] == "ValidatingAdmissionPolicy" and item["metadata"]["name"] == "gangplank-team-toyjobs"
    )  # fmt: skip
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"]) == (["toys.example.com"], ["toyjobs"])
    assert any(item["kind"] == "ValidatingAdmissionPolicyBinding" and "toyjobs" in item["metadata"]["name"]
               for item in team_items)  # fmt: skip
    (quota,) = [item for item in team_items if item["kind"] == "ResourceQuota"]
    for kind in ("toyjobs", "toychests"):
        assert quota["spec"]["hard"][f"count/{kind}.toys.example.com"] == "5"


def test_a_team_that_leaves_has_its_toys_looked_at() -> None:
    class Cluster:
        def get(self, where: str) -> Json | None:
            live = [{"metadata": {"name": name}, "status": {"state": {"phase": word}}}
                    for name, word in (("tidy", "Tidied"), ("busy", "Playing"))]  # fmt: skip
            return {"items": live} if where == "/apis/toys.example.com/v1/namespaces/vision/toyjobs" else None

        def call(self, _method: str, _where: str) -> Json:
            return {"items": []}

    kube: Any = Cluster()
    assert read_cluster.unfinished(kube, "vision") == ["toyjobs.toys.example.com/busy"]


def test_the_proof_knows_what_its_evidence_must_show() -> None:
    demands = expected({**manifest(), "metadata": {"name": "digits", "uid": "7"}})
    assert (demands.world_size, demands.epochs, demands.global_batch, demands.job_uid) == (4, 3, 32, "toy-7")
    assert job_uid(manifest()) is None
