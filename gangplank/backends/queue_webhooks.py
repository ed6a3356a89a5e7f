"""What Volcano's webhooks change in the pods and PodGroups of every back-end, on a site that enables these webhooks.

Follows volcano.sh/volcano v1.15.1, pkg/webhooks/admission: pods/mutate and podgroups/mutate. Upstream's chart enables
neither unless its value custom.enabled_admissions names them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from gangplank.backends.queueing import VOLCANO
from gangplank.errors import Problem, SpecError, shown
from gangplank.k8s import manifest as shape
from gangplank.k8s.build import namespace
from gangplank.reading.strict_yaml import documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gangplank.backends.base import Site
    from gangplank.reading.fields import Problems
    from gangplank.spec import Json

CONTROLLERS, WEBHOOKS = "volcano-controller", "volcano-admission"  # label app of their Deployments, in every release
PROGRAMS = {CONTROLLERS: "vc-controller-manager", WEBHOOKS: "vc-webhook-manager"}  # in the names of their images
HOOK = "volcano-admission-service-{}-mutate"  # a MutatingWebhookConfiguration; the webhooks look for that very name
POLICY = "volcano-{}-mutation-policy"  # a MutatingAdmissionPolicy of Volcano's chart
JOBS = "job-controller"
GATES = {  # the states with which objects are as they are described here
    CONTROLLERS: {"AllAlpha": "true", "VolcanoJobSupport": "true"},
    WEBHOOKS: {"AllAlpha": "false", "SchedulingGatesQueueAdmission": "false"},
}
BY_NAME = "volcano.sh/resource-group"  # the annotation by which a pod names its group, if the group asks for no other
SECONDS = "tolerationseconds"  # Volcano reads its file with a library that knows the lower case only
TOLERATION = {"key": str, "operator": str, "value": str, "effect": str, SECONDS: int}
FORM = {
    "resourceGroups": [
        {
            "resourceGroup": str,
            "object": {"key": str, "value": [str]},
            "schedulerName": str,
            "tolerations": [TOLERATION],
            "labels": shape.TEXTS,
            "affinity": str,
        }
    ]
}


class ResourceGroup(NamedTuple):
    """Pods that the webhook sends to nodes and to a scheduler of their own."""

    namespaces: tuple[str, ...]
    annotations: tuple[tuple[str, str], ...]  # names and values: one of them is enough
    labels: Mapping[str, str]  # of its nodes
    tolerations: tuple[Json, ...]
    affinity: Json | None  # None leaves a pod its own
    scheduler: str  # "" leaves a pod its own

    def has(self, pod: Json) -> bool:
        """Whether a pod belongs to the group."""
        own = pod["metadata"].get("annotations") or {}
        if namespace(pod) in self.namespaces:
            return True
        return any(own.get(key, "") == value for key, value in self.annotations)

    def move(self, pod: Json) -> None:
        """Send a pod to the group's nodes."""
        spec = pod["spec"]
        if self.labels:
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **self.labels}
        if self.affinity is not None and spec.get("affinity") is None:
            spec["affinity"] = self.affinity
        if self.tolerations:
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *self.tolerations]
        if self.scheduler:
            spec["schedulerName"] = self.scheduler


def resource_groups(text: str, source: str) -> tuple[ResourceGroup, ...]:
    """The groups of the webhooks' configuration; raises SpecError for what Volcano and this library may read apart."""
    configuration = shape.without_nulls((documents(text, source, strict=False) or [{}])[0] or {})
    problems: Problems = []
    shape.check(configuration, FORM, "configuration", problems)
    if problems:
        raise SpecError(problems, source)
    return tuple(group(item, source) for item in configuration.get("resourceGroups", ()))


def group(item: Json, source: str) -> ResourceGroup:
    """One group of the configuration."""
    chosen = item.get("object", {})
    key, values = chosen.get("key", ""), chosen.get("value", ())
    annotations: dict[str, str] = {}
    for text in values if key in {"", "annotation"} else ():
        problems: Problems = []
        pairs = (documents(text, source, strict=False) or [{}])[0]
        shape.check(pairs, shape.TEXTS, "configuration.resourceGroups.object.value", problems)
        if problems:
            raise SpecError(problems, source)
        annotations = {**pairs, **annotations}
    try:
        affinity = json.loads(item["affinity"]) if item.get("affinity") else None
    except ValueError:
        problem = Problem("configuration.resourceGroups.affinity", shown(item["affinity"]), "JSON")
        raise SpecError([problem], source) from None
    tolerations = [
        {"tolerationSeconds" if name == SECONDS else name: value for name, value in one.items() if name in TOLERATION}
        for one in item.get("tolerations", ())
    ]
    return ResourceGroup(
        namespaces=tuple(values) if key == "namespace" else (),
        annotations=(*annotations.items(), *([] if key else [(BY_NAME, item.get("resourceGroup", ""))])),
        labels=item.get("labels", {}),
        tolerations=tuple(tolerations),
        affinity=affinity,
        scheduler=item.get("schedulerName", ""),
    )


def change(objects: Iterable[Json], site: Site) -> None:
    """Change, in place, what controllers make of a job as the webhooks of a site change it."""
    for item in objects:
        where = namespace(item)
        if item["kind"] == "Pod":
            mine = next((one for one in site.groups.get(where, ()) if one.has(item)), None)
            if mine:
                mine.move(item)
        elif item["kind"] == VOLCANO.pod_group.kind and item["spec"].get("queue", VOLCANO.default) == VOLCANO.default:
            item["spec"] |= {"queue": site.queues[where]} if where in site.queues else {}
