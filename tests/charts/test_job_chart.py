"""charts/training-job renders a job file as the library does, and refuses what the library refuses."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings

from gangplank.backends import BACKENDS
from gangplank.cli.inputs import read_scripts
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.jobs.site_gpus import Gpus, on_site
from gangplank.reading.strict_yaml import documents
from lab.build.parts import build
from tests.support.helm import KUBERNETES
from tests.support.strategies import jobs
from tools import write_job_chart as job_chart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Render = Callable[..., subprocess.CompletedProcess[str]]

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "jobs").glob("*.yml"))
GENERATED = 15  # of each back-end


@pytest.fixture(scope="module")
def render(tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Helm renders the chart with a job as its values."""
    helm = f"{build(['helm'], print)['bin']['helm']}/helm"
    folder = tmp_path_factory.mktemp("values")

    def run(job: Json, *more: str) -> subprocess.CompletedProcess[str]:
        file = folder / "values.json"
        file.write_text(json.dumps({"training_job": job}, ensure_ascii=False))
        command = [helm, "template", KUBERNETES, "x", str(job_chart.CHART), "-f", str(file), *more]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    return run


def comparable(value: Any) -> Any:
    """Helm sorts the keys of mappings, so env is sorted by name."""
    if isinstance(value, dict):
        return {
            key: sorted(item, key=lambda one: str(one["name"])) if key == "env" else comparable(item)
            for key, item in value.items()
        }
    return [comparable(item) for item in value] if isinstance(value, list) else value


def by_kind(objects: list[Json]) -> Json:
    return {item["kind"]: comparable(item) for item in objects}


def rendered(done: subprocess.CompletedProcess[str]) -> Json:
    assert done.returncode == 0, done.stderr
    return by_kind(documents(done.stdout, "helm", strict=False))  # as YAML 1.2 means it: = is text


def generated(backend: str) -> Iterator[Json]:
    """Jobs of every shape that the chart accepts, the same in every run."""
    collected: list[Json] = []

    @settings(
        max_examples=2 * GENERATED,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(jobs(backend))
    def collect(job: Json) -> None:
        cut = {name: value for name, value in job["training_job"].items() if name not in job_chart.ABSENT}
        if cut not in collected:
            collected.append(cut)

    collect()
    assert len(collected) >= GENERATED
    yield from collected[:GENERATED]


def test_what_it_takes_from_the_library_is_current() -> None:
    assert job_chart.main([]) == 0, "stale. Fix: make docs"


@pytest.mark.parametrize("file", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_job_is_the_same_or_refused_with_the_command(render: Render, file: Path) -> None:
    job = yaml.safe_load(file.read_text())["training_job"]
    script = job["script"]
    done = render(job, *([] if script.startswith("/") else ["--set-file", f"script={script}"]))
    if job["backend"] not in job_chart.BACKEND_NAMES:
        assert job_chart.INSTEAD in done.stderr
        return
    spec = parse_job(job, scripts=read_scripts(job, ROOT))
    assert rendered(done) == by_kind(BACKENDS[spec.backend].manifests(spec))


def test_a_script_of_any_characters_has_the_same_name(render: Render, tmp_path: Path) -> None:
    text = "# läuft 🎉\r\nprint('%s {{ x }}\\\\n')\n\n"
    (tmp_path / "own.py").write_bytes(text.encode())
    for more in ({}, {"output": "s3://bucket/out"}, {"observe": False}):
        job = {"name": "a", "image": "b", "script": "own.py", **more}
        done = render(job, "--set-file", f"script={tmp_path}/own.py")
        assert rendered(done) == by_kind(BACKENDS["volcano"].manifests(parse_job(job, scripts={"own.py": text})))


def test_at_least_three_shipped_jobs_are_rendered() -> None:
    backends = [yaml.safe_load(file.read_text())["training_job"]["backend"] for file in SHIPPED]
    assert sum(backend in job_chart.BACKEND_NAMES for backend in backends) >= 3


@pytest.mark.parametrize("backend", job_chart.BACKEND_NAMES)
def test_generated_jobs_are_the_same(render: Render, backend: str) -> None:
    for job in generated(backend):
        spec = parse_job(job)
        assert rendered(render(job)) == by_kind(BACKENDS[backend].manifests(spec)), job


BASE = {"name": "a", "image": "b", "script": "/s.py"}
CLAIM = {"claim": "data", "mount": "/out"}
# For each rule of the chart, a job that breaks it and words of the message.
REFUSED: dict[str, tuple[Json, str]] = {
    "a long name": ({"name": "n" * 60}, "longest pod name"),
    "script and command": ({"command": ["a"]}, "not both"),
    "flags without a script": ({"script": None, "command": ["a"], "output": "/out"}, "need a script"),
    "processes without torchrun": ({"script": None, "command": ["a"], "processes_per_node": 2}, "not torchrun"),
    "no Python": ({"script": "/s.sh"}, "ends in .py"),
    "a missing file": ({"script": "s.py"}, "--set-file script=s.py"),
    "nccl without GPUs": ({"collective": "nccl"}, "needs GPUs"),
    "more processes than GPUs": ({"resources": {"gpus": 1}, "processes_per_node": 2}, "at most"),
    "two numbers of GPUs": ({"resources": {"gpus": {"request": 1, "limit": 2}}}, "overcommitted"),
    "a gang larger than the job": ({"min_available": 4}, "at most the job's 3"),
    "the root queue": ({"queue": "root"}, "leaf queue"),
    "two volumes at one place": ({"volumes": [{**CLAIM, "on": "master"}] * 2}, "no other volume"),
    "a volume in the place of shm_size": (
        {"volumes": [{"claim": "data", "mount": "/dev/shm", "on": "master"}], "shm_size": "1Gi"}, "no other volume"),
    "a claim of one node everywhere": ({"volumes": [CLAIM]}, "many nodes"),
    "events beside the volumes": (
        {"volumes": [{**CLAIM, "on": "master"}], "hyperparameters": {"dir": "/other"}}, "hyperparameters.dir"),
    "output on a volume that is read-only": (
        {"volumes": [{**CLAIM, "on": "master", "read_only": True}], "output": f"{CLAIM['mount']}/out"},
        "a folder of a volume that is not read_only",
    ),
    "output beside the volumes": ({"volumes": [{**CLAIM, "on": "master"}], "output": "/other"}, "lost with the pod"),
    "a deadline on volcano": ({"deadline_s": 1}, "deadline_s on volcano"),
    "another back-end": ({"backend": "indexed"}, job_chart.INSTEAD),
    "elastic": ({"elastic": {"min": 1, "max": 2}}, job_chart.INSTEAD),
    "a variable of the wiring": ({"env": {"RANK": "1"}}, "'RANK'"),
    "a label of a controller": ({"labels": {"volcano.sh/a": "b"}}, "'volcano.sh/a'"),
    "an unknown field": ({"worker": 3}, "worker"),
    "no image": ({"image": None}, "image"),
    "two masters": ({"masters": 2}, "masters"),
    "no number": ({"workers": "two"}, "workers"),
    "no quantity": ({"resources": {"memory": "1GB"}}, "memory"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_with_a_reason(render: Render, name: str) -> None:
    change, word = REFUSED[name]
    job = {key: value for key, value in {**BASE, **change}.items() if value is not None}
    done = render(job)
    assert done.returncode != 0
    assert word in done.stderr
    if "execution error" in done.stderr:  # a rule of the templates, not of the schema
        assert re.search(r"training_job\.[\w.\[\]]+: got .+, expected .+\. Fix: .+", done.stderr)
    if job.get("backend") is None and "elastic" not in job:
        with pytest.raises(SpecError):
            parse_job(job)


GPU_JOB: Json = {"name": "j", "image": "i", "script": "/a.py", "resources": {"gpus": 1}, "collective": "gloo"}
SITE_TAINTS = [{"key": "flyte/gpu", "value": "dedicated", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]


@pytest.mark.parametrize("own", [{}, {"gpu_tolerations": [{"key": "mine", "operator": "Exists"}]}, {"resources": {}}])
@pytest.mark.parametrize("backend", job_chart.BACKEND_NAMES)
def test_the_site_s_taints_reach_the_chart_as_they_reach_the_role(render: Render, backend: str, own: Json) -> None:
    job = {**GPU_JOB, "backend": backend, **own}
    spec = on_site(parse_job(job), Gpus(tuple(SITE_TAINTS)))
    done = render(job, "--set-json", f"gpu_taints={json.dumps(SITE_TAINTS)}")
    assert rendered(done) == by_kind(BACKENDS[backend].manifests(spec))


def test_nccl_on_simulated_gpus_is_refused_by_the_chart_as_by_the_role(render: Render) -> None:
    job = {name: value for name, value in GPU_JOB.items() if name != "collective"}
    with pytest.raises(SpecError, match="gloo \\(this site's GPUs are simulated"):
        on_site(parse_job(job), Gpus(simulated=True))
    done = render(job, "--set", "simulated_gpus=true")
    assert done.returncode != 0
    assert "gloo (this site's GPUs are simulated" in done.stderr
    assert rendered(render(GPU_JOB, "--set", "simulated_gpus=true"))


SMALL = {"resources": {"gpus": 2, "gpu_resource": "deviceclass/small.example.com"}}


@pytest.mark.parametrize("own", [{}, {"master_resources": {"gpus": 0}}, {"workers": 0}, {"resources": {}}, SMALL])
@pytest.mark.parametrize("backend", job_chart.BACKEND_NAMES)
def test_gpus_by_claim_are_the_same_in_the_chart(render: Render, backend: str, own: Json) -> None:
    job = {**GPU_JOB, "backend": backend, "processes_per_node": 1, "labels": {"a": "b"}, **own}
    spec = on_site(parse_job(job), Gpus(allocation="dra", device_class="gpu.example.com"))
    done = render(job, "--set", "gpu_device_class=gpu.example.com")
    assert rendered(done) == by_kind(BACKENDS[backend].manifests(spec))
    assert ("ResourceClaimTemplate" in rendered(done)) == bool(spec.resources.gpus)
