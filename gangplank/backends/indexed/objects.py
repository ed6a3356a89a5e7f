"""What Kubernetes' own Job controller makes of an Indexed Job: its pods.

Follows k8s.io/kubernetes v1.35.4, pkg/registry/batch/job/strategy.go and pkg/controller/job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.base import RANDOM, Site, acyclic, refuse
from gangplank.errors import Problem, shown
from gangplank.k8s import manifest as shape
from gangplank.k8s import names
from gangplank.k8s.build import COMPLETION_INDEX, JOB_NAME, add_env, clone, containers, namespace, owner
from gangplank.k8s.manifest import Count

if TYPE_CHECKING:
    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

TRACKING = "batch.kubernetes.io/job-tracking"
FORM = {
    "spec": {
        "completionMode": str,
        "completions": Count,
        "parallelism": Count,
        "manualSelector": bool,
        "suspend": bool,
        "backoffLimitPerIndex": Count,
        "template": shape.TEMPLATE,
    }
}
GENERATED = 58  # characters of a name that the API server completes with five random ones


def admitted(manifest: Json, site: Site) -> Json:
    """The Job as the API server stores it; refuses what it refuses."""
    problems: Problems = []
    job = shape.manifest(manifest, FORM, problems)
    refuse(problems, manifest)
    name, spec = job["metadata"]["name"], job["spec"]

    def bad(path: str, got: object, expected: str) -> None:
        problems.append(Problem(f"Job.{path}", shown(got), expected))

    if spec.get("completionMode") != "Indexed":
        bad("spec.completionMode", spec.get("completionMode"), "Indexed: pods of other Jobs have no rank")
    if "completions" not in spec:
        bad("spec.completions", None, "the number of indexes")
    last = f"{name}-{max(spec.get('completions', 1) - 1, 0)}"
    if not names.DNS1123.fullmatch(last):
        bad("metadata.name", last, f"a host name: a-z, 0-9 and -, at most {names.LABEL_MAX}")
    if not spec.get("template", {}).get("spec", {}).get("containers"):
        bad("spec.template.spec.containers", None, "a container")
    if spec.get("template", {}).get("spec", {}).get("restartPolicy") not in {"Never", "OnFailure"}:
        bad("spec.template.spec.restartPolicy", None, "Never or OnFailure")
    refuse(problems, manifest)
    meta = spec["template"].setdefault("metadata", {})
    if not spec.get("manualSelector"):
        labels = meta.setdefault("labels", {})
        for key, text in ((JOB_NAME, name), ("batch.kubernetes.io/controller-uid", site.uid)):
            labels[key.rpartition("/")[2]] = labels[key] = text
    return job


def generate_name(job: str, index: int) -> str:
    """The part of a pod's name before the random end, cut so that the whole fits.

    >>> generate_name("digits", 2), len(generate_name("d" * 60, 12))
    ('digits-2-', 58)
    """
    end = f"-{index}-"
    whole = f"{job}{end}"
    return whole if len(whole) <= GENERATED else whole[: GENERATED - len(end)] + end


def pod_of(job: Json, index: int, site: Site) -> Json:
    """The pod of one index."""
    template, name = job["spec"]["template"], job["metadata"]["name"]
    meta, pod = clone(template["metadata"]), clone(template["spec"])
    path = f"metadata.labels['{COMPLETION_INDEX}']"
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    for container in containers(pod, init=True):
        if all(other.get("name") != variable["name"] for other in container.get("env", [])):
            add_env(container, [variable])
    pod["hostname"] = f"{name}-{index}"
    annotations = {**meta.get("annotations", {}), COMPLETION_INDEX: str(index)}
    if "backoffLimitPerIndex" in job["spec"]:
        annotations["batch.kubernetes.io/job-index-failure-count"] = "0"
    start = generate_name(name, index)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{start}{RANDOM}",
            "generateName": start,
            "namespace": namespace(job),
            "labels": {**meta.get("labels", {}), COMPLETION_INDEX: str(index)},
            "annotations": annotations,
            "finalizers": [*meta.get("finalizers", []), TRACKING],
            "ownerReferences": owner(job, site.uid),
        },
        "spec": pod,
    }


def left(job: Json) -> list[int]:
    """The indexes that have not ended, by the status of a live Job.

    >>> left({"spec": {"completions": 8}, "status": {"completedIndexes": "0-2,5", "failedIndexes": "7"}})
    [3, 4, 6]
    """
    status, ended = job.get("status") or {}, set[int]()
    for key in ("completedIndexes", "failedIndexes"):
        for part in filter(None, str(status.get(key) or "").split(",")):
            first, _, last = part.partition("-")
            ended.update(range(int(first), int(last or first) + 1))
    return [index for index in range(job["spec"]["completions"]) if index not in ended]


@acyclic
def objects(manifest: Json, site: Site | None = None) -> list[Json]:
    """The pods of an Indexed Job, one per index; nothing while it is suspended."""
    site = site or Site()
    job = admitted(manifest, site)
    if job["spec"].get("suspend") or job["spec"].get("parallelism") == 0:
        return []
    size, together = job["spec"]["completions"], job["spec"].get("parallelism", 1)
    chosen = left(job)[:together] if site.at_once and together < size else range(size)
    return [pod_of(job, index, site) for index in chosen]
