"""What charts/training-job takes from the library: its schema and files/library.json. `--write` puts them there.

python -m tools.write_job_chart             # names what is stale, exits 1
python -m tools.write_job_chart --write
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from gangplank import spec
from gangplank.backends import BACKENDS, device_claims, pod_template, wiring
from gangplank.jobs import parse, schema
from gangplank.jobs.parse import HYPERPARAMETERS, PLACES, SCRIPT_LIMIT
from gangplank.k8s import names
from gangplank.k8s.nodes import EFFECTS

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts/training-job"
BACKEND_NAMES = ("volcano", "pytorchjob")
INSTEAD = "run gangplank submit JOB instead"
# Fields that only a back-end of its own has, or that need what a chart has not.
ABSENT = ("code", "requirements", "elastic", "volcano", "pytorchjob", "trainjob", "indexed", "collective_fallback")
CPU = r"^([0-9]+m|[0-9]+(\.[0-9]+)?)$"  # what the chart can count threads from


def absent(what: str, why: str = "is not supported by this chart") -> Json:
    """A schema that no value fits, with the fix in its message: Helm shows the constant."""
    return {"allOf": [{"const": f"absent: {what} {why}. Fix: {INSTEAD}"}, {"type": "null"}]}


def values_schema() -> Json:
    """The chart's values: a job file, cut to what the chart can do."""
    job = schema.job()
    fields = job["properties"]
    fields |= {name: absent(name) for name in ABSENT if name in fields}
    fields["backend"] = {"anyOf": [{"enum": list(BACKEND_NAMES)}, absent("another back-end")]}
    fields["masters"] = {"const": 1}
    for name in ("resources", "master_resources"):
        short, long = fields[name]["properties"]["cpu"]["anyOf"]
        short["pattern"] = long["properties"]["request"]["pattern"] = CPU
    del job["required"]
    job |= {"if": {"minProperties": 1}, "then": {"required": ["name", "image"]}}
    job["allOf"] = [
        {
            "if": on(backend),
            "then": {"properties": {name: absent(f"{name} on {backend}", f"({why})") for name, why in refused.items()}},
        }
        for backend in BACKEND_NAMES
        if (refused := {name: refusal.reason for name, refusal in BACKENDS[backend].refuses.items()})
    ]
    taint: Json = {
        "type": "object",
        "required": ["key", "effect"],
        "additionalProperties": False,
        "properties": {
            "key": {"type": "string", "minLength": 1},
            "value": {"type": "string"},
            "effect": {"enum": list(EFFECTS)},
        },
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$comment": "written by python -m tools.write_job_chart --write",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "global": {"type": "object"},
            "script": {"type": "string"},
            "gpu_taints": {"type": "array", "items": taint},
            "simulated_gpus": {"type": "boolean"},
            "gpu_device_class": {"anyOf": [{"const": ""}, {"type": "string", **schema.pattern(names.SUBDOMAIN)}]},
            "training_job": job,
        },
    }


def on(backend: str) -> Json:
    """The condition that a job runs on a back-end."""
    named: Json = {"properties": {"backend": {"const": backend}}}
    return (
        named if backend == parse.parse_job({"name": "a", "image": "b"}).backend else named | {"required": ["backend"]}
    )


def library() -> Json:
    """What the templates would otherwise say again: defaults, limits, each back-end's manifest with @name@ in it."""
    plain = parse.parse_job({"name": "a", "image": "b", "script": "/s.py"})
    found = asdict(plain)
    kept = ("image_pull_policy", "backend", "workers", "port", "max_retries")
    manifests: Json = {}
    for backend in BACKEND_NAMES:
        job: Any = replace(
            plain, name="@name@", namespace="@namespace@", image="@image@", queue="@queue@", backend=backend
        )
        manifests[backend] = BACKENDS[backend].manifests(replace(job, port="@port@"))[-1]
    return {
        "defaults": {name: found[name] for name in kept},
        "resources": asdict(spec.Resources()),
        "hyperparameters": [
            *([name, kind.__name__] for name, (kind, _, _) in HYPERPARAMETERS.items()),
            *([name, "str"] for name in PLACES),
        ],
        "shm_size": parse.parse_job({"name": "a", "image": "b", "resources": {"gpus": 1}}).shm_size,
        "gpuToleration": pod_template.GPU_TOLERATION,
        "lostNode": list(pod_template.LOST_NODE),
        "teamLabel": pod_template.TEAM_LABEL,
        "claim": {
            "resource": device_claims.RESOURCE,
            "name": device_claims.CLAIM,
            "digestLength": device_claims.DIGEST_LENGTH,
            "apiVersion": device_claims.API_VERSION,
            "kind": device_claims.TEMPLATE,
        },
        "scriptFolder": pod_template.SCRIPT_FOLDER,
        "scriptLimit": SCRIPT_LIMIT,
        "digestLength": pod_template.DIGEST_LENGTH,
        "longest": names.LABEL_MAX,
        "instead": INSTEAD,
        "trainer": f"{wiring.TRAINER}/",
        "launcher": wiring.LAUNCHER,
        "quickLauncher": wiring.QUICK_LAUNCHER,
        "launch": {
            name: wiring.launch(replace(plain, backend=name))[len(wiring.LAUNCHER) : -2] for name in BACKEND_NAMES
        },
        "manifests": manifests,
    }


FILES = {"values.schema.json": values_schema, "files/library.json": library}


def main(arguments: list[str]) -> int:
    """Name the stale files, or write them."""
    stale = 0
    for name, make in FILES.items():
        text = json.dumps(make(), indent=2) + "\n"
        file = CHART / name
        if not file.exists() or file.read_text() != text:
            stale += 1
            print(f"{'written' if '--write' in arguments else 'stale'}: {file.relative_to(ROOT)}")
            if "--write" in arguments:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
    return 1 if stale and "--write" not in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
