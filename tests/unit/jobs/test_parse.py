"""A job is converted once, and everything that is wrong with it is told together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gangplank.backends.wiring import SETTABLE
from gangplank.errors import SpecError
from gangplank.jobs.parse import env_problem, parse_job
from gangplank.jobs.schema import variable_pairs

GOOD: dict[str, Any] = {"name": "digits", "image": "img:1", "script": "/opt/train.py"}


def job(**changes: Any) -> dict[str, Any]:
    return {"training_job": {**GOOD, **changes}}


def refusal(*, scripts: dict[str, str] | None = None, **changes: Any) -> str:
    with pytest.raises(SpecError) as caught:
        parse_job(job(**changes), "jobs/a.yml", scripts)
    return str(caught.value)


def test_fills_in_every_default() -> None:
    spec = parse_job(job())
    assert (spec.namespace, spec.backend, spec.masters, spec.workers, spec.port) == ("default", "volcano", 1, 2, 23456)
    assert (spec.collective, spec.max_retries, spec.world_size) == ("gloo", 3, 3)


def test_takes_the_job_with_and_without_its_outer_key() -> None:
    assert parse_job(job()) == parse_job(GOOD)


def test_a_team_brings_its_namespace_and_queue() -> None:
    spec = parse_job(job(team="vision"))
    assert (spec.namespace, spec.queue) == ("vision", "vision")
    assert parse_job(job(team="vision", namespace="other")).namespace == "other"


def test_gpus_bring_nccl_processes_and_shared_memory() -> None:
    spec = parse_job(job(resources={"gpus": 2}))
    assert (spec.collective, spec.processes_per_node, spec.shm_size) == ("nccl", 2, "1Gi")


def test_names_all_problems_at_once() -> None:
    text = refusal(name=False, wrkers=3, workers="x", env={"RANK": "1", "A": 1})
    assert text.startswith("jobs/a.yml: 5 problems\n")
    for part in (
        "training_job.name: got false",
        'training_job.workers: got "x", expected a whole number from 0 to 100000',
        "training_job.env.RANK",
        "training_job.env.A: got 1, expected text. Fix: quote it",
        "Did you mean workers?",
    ):
        assert part in text


@pytest.mark.parametrize(("changes", "paths"), [
    ({"imgae": "a", "min_available": 9}, {"imgae", "min_available"}),
    ({"wrkers": 8, "min_available": 9, "queue": "root"}, {"wrkers", "queue"}),
    ({"gpu": 8, "min_available": 9}, {"gpu"}),  # which may be meant for any field
    ({"image": 5, "min_available": 9, "ttl_s": "x"}, {"image", "ttl_s", "min_available"}),
    ({"workers": -1, "min_available": 9, "queue": "root"}, {"workers", "queue"}),
    ({"masters": 0, "resources": {"cpu": "x"}, "collective": "nccl"}, {"masters", "resources.cpu"}),
    ({"team": "A", "queue": "root", "masters": 0}, {"team", "queue", "masters"}),
    ({"resources": {"cpu": "x", "gpus": 2}, "processes_per_node": 4, "volumes": [{"claim": "a", "mount": "/"}]},
     {"resources.cpu"}),  # the volumes may be where /dev/shm is
    ({"resources": {"cpu": "x"}, "shm_size": "1Gi", "volumes": [{"claim": "a", "mount": "/", "on": "master"}]},
     {"resources.cpu", "volumes[0].mount"}),
    ({"code": "a", "requirements": 5, "workers": -1}, {"code", "requirements", "workers"}),
    ({"trainjob": {"wrong": 1}, "min_available": 9}, {"trainjob.wrong", "trainjob", "min_available"}),
    ({"backend": "pytorch", "masters": 0}, {"backend"}),
    ({"volcano": {"wrong": 1}, "masters": 0}, {"volcano.wrong", "masters"}),
    ({"backend": "indexed", "max_retries": -1, "volcano": {}, "queue": "a"}, {"max_retries", "volcano", "queue"}),
])
def test_rules_between_fields_apply_where_none_of_these_was_refused(changes: dict[str, Any], paths: set[str]) -> None:
    text = refusal(**changes)
    assert {line.strip().removeprefix("training_job.").partition(":")[0] for line in text.splitlines()[1:]} == paths


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "a.b"}, "training_job.name"),
        ({"code": 16**5000}, "training_job.code: got a value of the type int"),
        ({"name": "1digits"}, "training_job.name"),
        ({"name": "d" * 60}, "shorten it by 6"),
        ({"masters": 0}, "rank 0 is the master"),
        ({"port": "abc"}, "training_job.port"),
        ({"port": 0}, "training_job.port"),
        ({"port": 70000}, "training_job.port"),
        ({"workers": None}, "leave the line out"),
        ({"workers": -1}, "training_job.workers"),
        ({"workers": True}, "training_job.workers"),
        ({"min_available": 4}, "at most the job's 3 replicas"),
        ({"min_available": 0}, "training_job.min_available"),
        ({"env": {"PET_NNODES": "2"}}, "a variable that the wiring does not own"),
        ({"env": {"VERSION": 1.1}}, "quote it"),
        ({"labels": {"volcano.sh/task-index": "1"}}, "a label of your own"),
        ({"collective": "mpi"}, "one of gloo, nccl"),
        ({"collective": "nccl"}, "ask for GPUs, or use gloo"),
        ({"backend": "volcanoo"}, "Did you mean volcano?"),
        ({"resources": {"cpu": "many"}}, "training_job.resources.cpu"),
        ({"resources": {"cpu": "0"}}, "training_job.resources.cpu"),
        ({"resources": {"memory": {"request": "2Gi", "limit": "1Gi"}}}, "at most the limit, 1Gi"),
        ({"resources": {"gpus": {"request": 1, "limit": 2}}}, "cannot be overcommitted"),
        ({"resources": {"gpus": 0.5}}, "training_job.resources.gpus"),
        ({"resources": {"gpus": 1}, "processes_per_node": 2}, "at most resources.gpus, 1"),
        ({"command": ["python3", "a.py"]}, "script or command, not both"),
        ({"script": None, "command": ["python3", "a.py"], "processes_per_node": 2}, "torchrun"),
        ({"volumes": [{"claim": "data", "mount": "/data"}]}, "mount it `on: master`"),
        ({"volumes": [{"claim": "data", "mount": "data", "on": "master"}]}, "absolute path"),
        ({"volumes": [{"claim": "data", "mount": "/dev/shm/", "on": "master"}], "shm_size": "1Gi"},
         "another path than that of shm_size"),
        ({"volumes": "data"}, "expected a list"),
        ({"script": "train.py"}, "absolute path"),
        ({"script": "/bin/sh"}, "ends in .py"),
        ({"tolerations": [{"key": "gpu", "value": True}]}, "training_job.tolerations[0].value: got true"),
        ({"tolerations": [{"key": "gpu", "operator": "exists"}]}, "Did you mean Exists?"),
        ({"gpu_tolerations": [{"key": "gpu", "efect": "NoSchedule"}]}, "Did you mean effect?"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": "30"}]}, 'tolerations[0].tolerationSeconds: got "30"'),
        ({"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 30}]}, "tolerations[0].effect"),
        ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "tolerations[0].value: got"),
        ({"tolerations": [{"effect": "NoSchedule"}]}, "Exists for a toleration without a key"),
        ({"hyperparameters": {"epochs": 0}}, "training_job.hyperparameters.epochs"),
        ({"hyperparameters": {"epoch": 1}}, "Did you mean epochs?"),
        ({"hyperparameters": {"learning_rate": float("nan")}}, "a number from 0"),
        ({"output": "digits"}, "s3://bucket/path or gs://bucket/path"),
        ({"hyperparameters": {"dir": "events"}}, "s3://bucket/path or gs://bucket/path"),
        ({"hyperparameters": {"dir": "/x"}, "volumes": [{"claim": "a", "mount": "/out", "on": "master"}]},
         'training_job.hyperparameters.dir: got "/x"'),
        ({"volcano": {"plugins": {"mpi": []}}}, "not supported yet"),
        ({"image": "Foo/Bar:latest"}, "training_job.image: got"),
        ({"image": "x::a"}, "training_job.image: got"),
        ({"image": "x/"}, "training_job.image: got"),
        ({"image": "x@sha256:abc"}, "training_job.image: got"),
        ({"image": "registry.example.org:abc/x:1"}, "training_job.image: got"),
        ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key: got"),
        ({"tolerations": [{"key": "a", "value": "b c"}]}, "tolerations[0].value: got"),
        ({"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 2**63}]}, "of 64 bits"),
        ({"resources": {"gpus": 1, "gpu_resource": "kubernetes.io/gpu"}}, "a resource of a device plugin"),
        ({"resources": {"gpus": 1, "gpu_resource": "requests.nvidia.com/gpu"}}, "a resource of a device plugin"),
        ({"resources": {"gpus": 1, "gpu_resource": "deviceclass/Foo_Bar"}}, "a device class's name"),
        ({"args": ["\ud800"]}, 'training_job.args[0]: got "\\ud800", expected text of whole characters'),
        ({"annotations": {"a": "\ud800"}}, "training_job.annotations.a: got"),
        ({"env": 5, "code": "project", "requirements": "a.txt"}, "training_job.env: got 5"),
        ({"volumes": [{"claim": "a", "mount": "/a", "on": "master"}], "output": "/a/../b"}, "lost with the pod"),
        ({"volumes": [{"claim": "a", "mount": place, "on": "master"} for place in ("/a", "//a/.")]},
         "another path than that of volumes[0]"),
        ({"backend": "trainjob", "trainjob": {"patches": [{"a": "b"}]}}, "patches[0].manager: got nothing"),
        ({"volcano": {"volumes": [{"volumeClaimName": "a"}]}}, "volumes[0].mountPath: got nothing"),
        ({"volcano": {"volumes": [{"mountPath": "/a"}]}}, "a claim's name in volumeClaimName"),
        ({"volcano": {"volumes": [{"mountPath": place, "volumeClaimName": "a"} for place in ("/a", "/a/")]}},
         'volumes[1].mountPath: got "/a", expected a path at which nothing else is mounted'),
        ({"volcano": {"volumes": [{"mountPath": "/etc//volcano", "volumeClaimName": "a"}]}}, "[0].mountPath: got"),
        ({"volcano": {"volumes": [{"mountPath": "/a", "volumeClaimName": "a"}]}, "name": "n" * 51},
         "expected at most 50 characters with volcano.volumes"),
        ({"volumes": [{"claim": "a", "mount": "/etc/volcano", "on": "master"}]},
         "expected another path than that of the back-end's own files"),
        ({"backend": "pytorchjob", "elastic": {"min": 3, "max": 1}}, "elastic.min: got 3, expected at most"),
        ({"backend": "pytorchjob", "elastic": {"min": 1, "max": 3, "metrics": [{"type": "Resource", "resource": {}}]}},
         "metrics[0].resource: got {}, expected name, and a target"),
        ({"backend": "pytorchjob", "elastic": {"min": 1, "max": 3, "metrics": [{"type": "Pods", "pods": {
            "metric": {"name": "a"}, "target": {"type": "Value", "value": 2}}}]}}, "its type and averageValue"),
    ],
)
def test_refuses(changes: dict[str, Any], said: str) -> None:
    changes = {key: value for key, value in changes.items() if not (key == "script" and value is None)}
    job = {**GOOD, **changes}
    if "command" in changes and changes.get("processes_per_node"):
        del job["script"]
    with pytest.raises(SpecError) as caught:
        parse_job({"training_job": job})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "image",
    ["train", "localhost:5000/a/b_c:v1.2", "Registry.example.org/a@sha256:" + 64 * "a", "a__b/c-d:T", "[::1]:5000/x",
     "ghcr.io/acme/x:1@sha256:" + 64 * "0", "x@sha384:" + 96 * "0"],
)  # fmt: skip
def test_takes_every_form_of_an_image(image: str) -> None:
    assert parse_job(job(image=image)).image == image


def test_a_bare_on_in_yaml_is_the_field_on() -> None:
    spec = parse_job(job(volumes=[{"claim": "data", "mount": "/out", True: "master"}]))
    assert spec.volumes[0].on == "master"


def test_carries_a_script_that_is_named_by_a_relative_path() -> None:
    spec = parse_job(job(script="trainer/linear.py"), scripts={"trainer/linear.py": "print()"})
    assert spec.script is not None
    assert (spec.script.path, spec.script.text) == ("/opt/gangplank/script/linear.py", "print()")


def test_refuses_a_script_larger_than_a_config_map() -> None:
    text = refusal(script="a.py", scripts={"a.py": "é" * 2**19})
    assert "1048576 bytes" in text
    assert "put it into an image" in text


def test_refuses_keys_beside_the_job_but_not_those_of_the_role() -> None:
    assert parse_job({**job(), "training_job_replace": True}).name == "digits"
    with pytest.raises(SpecError, match="indent it under training_job"):
        parse_job({**job(), "workers": 2})


@pytest.mark.parametrize("value", [None, [], {}, "text", 3, {"training_job": None}, {"training_job": [1]}])
def test_refuses_what_is_no_mapping(value: object) -> None:
    with pytest.raises(SpecError):
        parse_job(value)


def test_refuses_a_value_nested_in_itself() -> None:
    loop: dict[str, Any] = {"name": "a"}
    loop["env"] = loop
    with pytest.raises(SpecError, match="nested in itself"):
        parse_job(loop)


def test_takes_numbers_that_ansible_made_text_of() -> None:
    spec = parse_job(job(workers="8", hyperparameters={"learning_rate": "1e-3"}))
    assert (spec.workers, spec.hyperparameters["learning_rate"]) == (8, 0.001)


@pytest.mark.parametrize(("name", "allowed"), [
    *((name, True) for name in sorted(SETTABLE)), ("OMP_NUM_THREADS", True), ("GANGPLANK_POD", False), ("RANK", False),
])  # fmt: skip
def test_a_job_sets_what_the_observer_reads_and_nothing_else_of_the_wiring(name: str, allowed: bool) -> None:
    """The documentation says so of both; one was refused, and the schema refused the other, too."""
    assert (env_problem(name, "5") == "") is allowed
    assert jsonschema.Draft7Validator(variable_pairs()).is_valid({name: "5"}) is allowed


@pytest.mark.parametrize(("value", "allowed"), [
    ("2m", False), ("30s", False), ("-1", False), ("nan", False), ("inf", False), (" 5", False),
    ("0", True), ("0.5", True), ("120", True), ("", True),
])  # fmt: skip
def test_the_times_of_the_observer_are_seconds(value: str, allowed: bool) -> None:
    """Others ended the trainer in a traceback, and a script that was observed was not claimed to have trained."""
    for name in sorted(SETTABLE):
        problem = "" if allowed else "seconds, such as 30 or 0.5; 0 is never"
        assert env_problem(name, value) == problem
        assert jsonschema.Draft7Validator(variable_pairs()).is_valid({name: value, "OTHER": "2m"}) is allowed


def test_every_variable_of_the_observer_that_the_pages_name_is_one_that_a_job_may_set() -> None:
    pages = Path(__file__).parents[3].glob("docs/*.md")
    named = set(re.findall(r"`(GANGPLANK_\w+_S)`", "".join(page.read_text() for page in pages)))
    assert named == SETTABLE
