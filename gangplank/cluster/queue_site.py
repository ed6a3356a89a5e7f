"""What a cluster's Volcano is set to, as far as the objects of a job depend on it.

Of its controllers and webhooks only these settings change an object, in volcano.sh/volcano v1.15.1:

- which controllers run (`--controllers`), and feature gates
- the webhooks' `--scheduler-name` and `--admission-conf`
- which webhooks the API server asks, and in which namespaces; the chart writes them as it sets `--enabled-admission`
- the admission policies that the chart has in their place

The job plugins (svc, pytorch, env, ssh) are compiled in, and have no settings but a job's own arguments. PodGroups of
single pods are not shown: neither the controllers' `--scheduler-name` nor `--inherit-owner-annotations` matters. All
else is about threads, ports, logs and elections.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gangplank.backends.queue_webhooks import (
    CONTROLLERS,
    GATES,
    HOOK,
    JOBS,
    POLICY,
    PROGRAMS,
    WEBHOOKS,
    ResourceGroup,
    resource_groups,
)
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.deployed import container_of, everywhere, flags_of, mounted, title
from gangplank.errors import Problem, SpecError
from gangplank.k8s.build import namespace
from gangplank.k8s.selectors import chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gangplank.backends.base import Site
    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

ADMISSION = "/apis/admissionregistration.k8s.io"
UNREAD = "none: expand cannot tell what it changes"
WITHOUT = "leave out --cluster, which shows the objects under upstream's settings"


def with_queue_system(kube: Kube, deployments: Sequence[Json], site: Site, jobs: Sequence[Json]) -> Site:
    """The site with the settings of Volcano; raises SpecError if it has one that the library does not know."""
    by_app = {(item["metadata"].get("labels") or {}).get("app"): item for item in deployments}
    webhooks = by_app.get(WEBHOOKS)
    names = [value for _, value in flags_of(webhooks, PROGRAMS[WEBHOOKS], ["scheduler-name"])] if webhooks else []
    site = replace(site, scheduler=names[0]) if names else site
    if not jobs or not {CONTROLLERS, WEBHOOKS} & by_app.keys():
        return site
    own = {namespace(job) for job in jobs if f"{job['apiVersion']} {job['kind']}" == QUEUE_SYSTEM.commanded}
    problems = list(policies(kube))
    for app in (CONTROLLERS, WEBHOOKS) if own else ():
        missing = Problem("Deployments", "none", f"one with the label app={app}", WITHOUT)
        problems += unlike(by_app[app], app) if app in by_app else [missing]
    spaces = {name: space(kube, name) for name in sorted({namespace(job) for job in jobs})}
    asked = {kind: asking(kube, kind, spaces, problems) for kind in ("jobs", "pods", "podgroups")}
    for name in sorted(own - asked["jobs"]):
        got, expected = f"no webhook for jobs in namespace {name}", "one, or no pods are made of most jobs"
        problems.append(Problem(HOOK.format("jobs"), got, expected, WITHOUT))
    if problems:
        raise SpecError(problems, f"{QUEUE_SYSTEM.title} in the cluster")
    key = QUEUE_SYSTEM.annotations[0]
    queues = {name: spaces[name]["metadata"]["annotations"].get(key) for name in asked["podgroups"]}
    groups = configured(kube, webhooks) if webhooks and asked["pods"] else ()
    return replace(
        site,
        queues={name: queue for name, queue in queues.items() if queue is not None},
        groups=dict.fromkeys(asked["pods"], groups),
    )


def space(kube: Kube, name: str) -> Json:
    """A namespace; one that does not exist yet has its name only."""
    meta = (kube.get(f"/api/v1/namespaces/{name}") or {"metadata": {}})["metadata"]
    labels = {"kubernetes.io/metadata.name": name, **(meta.get("labels") or {})}
    return {"metadata": {"labels": labels, "annotations": meta.get("annotations") or {}}}


def unlike(deployment: Json, app: str) -> Iterator[Problem]:
    """The settings with which Volcano makes other objects of a job than the library knows, or none."""
    flags, gates = flags_of(deployment, PROGRAMS[app], ["controllers", "feature-gates"]), GATES[app]
    words = [word.strip() for name, value in flags for word in value.split(",") if name == "controllers"]
    if words and not runs(JOBS, words):
        expected = f"{JOBS} among them, or {QUEUE_SYSTEM.title} ignores the job"
        yield Problem(f"{title(deployment)} --controllers", ", ".join(words), expected, WITHOUT)
    for name, value in flags:
        for pair in value.split(",") if name == "feature-gates" else ():
            gate, _, state = pair.strip().partition("=")
            if gate in gates and state.lower() != gates[gate]:
                expected = f"{gate}={gates[gate]}: expand cannot tell what another value changes"
                yield Problem(f"{title(deployment)} --feature-gates", pair.strip(), expected, WITHOUT)


def runs(name: str, words: Sequence[str]) -> bool:
    """Whether Volcano starts a controller: the first word about it counts, then * for all.

    >>> runs("job-controller", ["*", "-job-controller"]), runs("job-controller", ["+job-controller"])
    (False, True)
    """
    about = next((word for word in words if word.lstrip("+-") == name), "*" if "*" in words else "-")
    return not about.startswith("-")


def policies(kube: Kube) -> Iterator[Problem]:
    """The chart's policies that change jobs, pods and PodGroups before the webhooks do, in CEL and not in all alike."""
    there = {item["metadata"]["name"] for item in everywhere(kube, f"{ADMISSION}/v1beta1/mutatingadmissionpolicies")}
    for name in sorted(there & {POLICY.format(kind) for kind in ("job", "pod", "podgroup")}):
        yield Problem(f"MutatingAdmissionPolicy {name}", "one of that name", UNREAD, WITHOUT)


def asking(kube: Kube, kind: str, spaces: Mapping[str, Json], problems: list[Problem]) -> set[str]:
    """In which namespaces the API server asks Volcano's webhook for new objects of a kind."""
    name = HOOK.format(kind)
    hooks = (kube.get(f"{ADMISSION}/v1/mutatingwebhookconfigurations/{name}") or {}).get("webhooks") or []
    for hook in hooks:
        conditions = [field for field in ("objectSelector", "matchConditions") if hook.get(field)]
        problems += [Problem(f"{name} {field}", "a condition", UNREAD, WITHOUT) for field in conditions]
    return {
        space
        for space, item in spaces.items()
        if any(chosen(hook.get("namespaceSelector") or {}, item["metadata"]["labels"]) for hook in hooks)
    }


def configured(kube: Kube, webhooks: Json) -> tuple[ResourceGroup, ...]:
    """The resource groups of the webhooks' configuration, a file of a ConfigMap."""
    places = [value for _, value in flags_of(webhooks, PROGRAMS[WEBHOOKS], ["admission-conf"])]
    if not places:
        return ()
    text = mounted(kube, webhooks, container_of(webhooks, PROGRAMS[WEBHOOKS]), PurePosixPath(places[-1]))
    return resource_groups(text, places[-1])
