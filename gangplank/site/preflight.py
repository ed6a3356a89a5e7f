"""Whether a cluster can take the components of a site, judged from facts. Pure; cluster/preflight.py gathers them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem
from gangplank.k8s.conditions import has_condition
from gangplank.k8s.helm import release_of
from gangplank.k8s.nodes import KEEPS_OUT, taint_text, tolerated
from gangplank.k8s.pod_resources import pod_sum
from gangplank.k8s.quantity import parse
from gangplank.site.components import COMPONENTS
from gangplank.site.gpu_devices import devices, is_gpu, publishers
from gangplank.site.storage import OWN_RELEASES, class_problems, is_default, needed
from gangplank.site.storage import names as names_of
from gangplank.site.webhooks import labels_of, requests, sees
from gangplank.text import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gangplank.k8s.pod_resources import Amounts
    from gangplank.site.components import Component
    from gangplank.site.storage import Release
    from gangplank.spec import Json

# ValidatingAdmissionPolicy is stable since 1.30, and teams need it; the newest is the one that the tests run on.
OLDEST, NEWEST = (1, 30), (1, 35)
INSTALL = {
    "helm": "install Helm 3 (https://helm.sh/docs/intro/install), or `python -m lab.build --show bin.helm` builds it",
    "kubectl": "the playbooks do not need it; https://kubernetes.io/docs/tasks/tools, or `python -m lab.build --show"
    " bin.kubernetes` builds it",
}
NEEDED = ("helm",)  # without the others, only a person lacks something
SILENT = re.compile(r'failed calling webhook "([^"]+)"')  # the API server's words
SHOWN = 4  # rights that a message names
YOUNG = '"default" not found'  # the namespace, or its service account, which a controller makes
GPU_NODES = frozenset({"nvidia.com/gpu.present", "gangplank.dev/gpus-by-claim"})  # labels of theirs
PLUGINS = ("k8s-device-plugin", "simulated-gpu")
JOBSETS = "jobsets.jobset.x-k8s.io"
OFF = ("false", "f", "no", "n", "off", "0")  # as Ansible's filter `bool` reads them
DRIVERS = (*COMPONENTS["gpu_dra_driver"].programs, *COMPONENTS["gpu_dra_driver"].rivals)


@dataclass(frozen=True)
class Wanted:
    """What is to be installed: the components, with the Helm release and namespace of each, as (release, namespace)."""

    releases: Mapping[str, tuple[str, str]]
    classes: Sequence[Mapping[str, Any]] | None = None  # those of the inventory; None: there is no inventory to judge
    jobset: bool = True  # whether Trainer v2 brings JobSet; if not, the cluster has it
    by_claim: bool = False  # whether the site's nodes give out GPUs by claim, and not by a device plugin
    tolerations: Mapping[str, Sequence[Json]] = field(default_factory=dict)  # that its values give a component's pods


# Releases as they are called if a site says nothing else: (release, namespace). Others may have one there.
DEFAULT_PLACES = {(what.release, what.namespace) for what in COMPONENTS.values()} | OWN_RELEASES
ROLE_CLASSES = ({"name": "local-path", "kind": "local", "folder": "/opt/local-path-provisioner", "default": True},)
# The variables in which a site gives a component's pods tolerations
TOLERATED_IN = {name: f"{name}_values" for name, what in COMPONENTS.items() if what.pods}
TOLERATED_IN["storage"] = "storage_tolerations"
VARIABLES = (
    "storage_classes",
    "trainer_v2_jobset",
    "training_job_gpu_allocation",
    *(f"{name}_{part}" for name, what in COMPONENTS.items() for part in what.inputs),
    *TOLERATED_IN.values(),
)


def wanted_of(inventory: Mapping[str, Any] | None, names: Iterable[str]) -> Wanted:
    """What VARIABLES of an inventory ask for, as playbooks/site.yml reads them; the rest is the roles' defaults."""
    site = inventory or {}
    releases = {
        name: (
            str(site.get(f"{name}_release") or COMPONENTS[name].release),
            str(site.get(f"{name}_namespace") or COMPONENTS[name].namespace),
        )
        for name in names
    }
    classes = None if inventory is None else site.get("storage_classes", ROLE_CLASSES) if "storage" in releases else ()
    jobset = str(site.get("trainer_v2_jobset", True)).lower() not in OFF
    tolerations = {name: tolerations_of({place: site.get(place)}) for name, place in TOLERATED_IN.items()}
    return Wanted(releases, classes, jobset, site.get("training_job_gpu_allocation") == "dra", tolerations)


def tolerations_of(values: Any) -> list[Json]:
    """All tolerations in a chart's values, for whichever of its pods.

    >>> tolerations_of({"custom": {"default_tolerations": [{"key": "a"}]}, "tolerations": None})
    [{'key': 'a'}]
    """
    if not isinstance(values, dict):
        return []
    nested = [item for value in values.values() for item in tolerations_of(value)]
    lists = (value for name, value in values.items() if str(name).endswith("tolerations") and isinstance(value, list))
    return nested + [item for items in lists for item in items if isinstance(item, dict)]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a machine and a cluster have. None: this account may not read it."""

    version: str
    programs: Mapping[str, str | None]  # program -> its path
    helm_version: str = ""  # as Helm says it: v3.19.0+g3d8990f
    denied: Sequence[str] = ()  # of those of gangplank/site/rights.py
    classes: Sequence[Json] | None = None
    drivers: Sequence[Json] | None = None  # of CSI
    crds: Sequence[Json] | None = None
    third_party: Mapping[tuple[str, str], Problem] = field(default_factory=dict)  # by release and namespace
    workloads: Sequence[Json] | None = None  # Deployments and DaemonSets
    webhooks: Sequence[Json] | None = None  # the configurations
    ready_services: frozenset[str] | None = None  # namespace/name of those with a ready endpoint
    services: frozenset[str] | None = None
    namespaces: Sequence[Json] | None = None
    nodes: Sequence[Json] | None = None
    autoscaler: str = ""  # what adds nodes, if it was seen
    pods: Sequence[Json] | None = None
    slices: Sequence[Json] | None = None  # devices that drivers publish for claims
    pod_space: str = "default"  # the namespace that a pod was tried in
    pod_refusal: str = ""  # why it refuses a pod as jobs make them


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `problems` are what prevents an installation, `finding` is the rest."""

    name: str
    finding: str = ""
    problems: tuple[Problem, ...] = field(default=())
    starting: bool = False  # whether the problems can be those of a cluster that started a moment ago

    @property
    def state(self) -> str:
        """What the table shows."""
        return "PROBLEM" if self.problems else "ok"


def checks(facts: Facts, wanted: Wanted) -> list[Check]:
    """All checks, in the order in which you would repair what they find."""
    functions = (cluster, programs, version, rights, storage_class, pod_security, dns, webhooks, gpus, room)
    found = [function(facts, wanted) for function in functions]
    if "trainer_v2" in wanted.releases:
        found.append(jobset(facts, wanted))
    return found + [component(name, facts, wanted) for name in wanted.releases]


def cluster(_: Facts, __: Wanted) -> Check:
    """The cluster itself: of one that does not answer, or of another than the site's, there are no facts."""
    return Check("cluster", "it answers")


def programs(facts: Facts, _: Wanted) -> Check:
    """Helm, which the roles call, and kubectl, which people do."""
    missing = [name for name in NEEDED if not facts.programs.get(name)]
    problems = [Problem(name, "none on PATH", f"the program {name}", INSTALL[name]) for name in missing]
    if (major := re.match(r"v(\d+)\.", facts.helm_version)) and major[1] != "3":
        expected = "Helm 3: a role gives Helm a program as its post-renderer, which Helm 4 does not take"
        problems.append(Problem("helm", facts.helm_version, expected, INSTALL["helm"]))
    texts = [f"{name}: {place or f'none on PATH ({INSTALL[name]})'}" for name, place in facts.programs.items()]
    return Check("programs", "; ".join(texts), tuple(problems))


def version(facts: Facts, _: Wanted) -> Check:
    """Kubernetes' version."""
    found = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in facts.version.lstrip("v").split(".")[:2])
    expected = f"{_dotted(OLDEST)} to {_dotted(NEWEST)}"
    if found < OLDEST:
        fix = f"upgrade the cluster to at least {_dotted(OLDEST)}; teams need its admission policies"
        return Check("version", problems=(Problem("Kubernetes", facts.version, expected, fix),))
    newer = f", newer than what was tested ({expected})" if found > NEWEST else ""
    return Check("version", f"{facts.version}{newer}")


def _dotted(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))


def rights(facts: Facts, _: Wanted) -> Check:
    """Whether this account may do all that the playbooks will."""
    if not facts.denied:
        return Check("rights", "this account may do all that the playbooks do")
    got = f"an account that may not {listed(list(facts.denied), SHOWN)}"
    fix = "choose an administrator's kubeconfig"
    return Check("rights", problems=(Problem("rights", got, "an administrator's", fix),))


def storage_class(facts: Facts, wanted: Wanted) -> Check:
    """The inventory's classes, as their role judges them, and the default one: claims that name none get it."""
    if facts.classes is None:
        return _unread("class")
    drivers = None if facts.drivers is None else names_of(facts.drivers)
    if problems := class_problems(wanted.classes or (), facts.classes, drivers):
        return Check("class", problems=tuple(problems))
    defaults = names_of(item for item in facts.classes if is_default(item))
    own = [item["name"] for item in wanted.classes or () if item.get("default")]
    if own and (old := [name for name in defaults if name not in own]):
        return Check("class", f"the site makes {own[0]} the default class; {listed(old)} no longer is")
    if wanted.classes and not defaults:
        return Check("class", "no default class; the site installs one")
    if len(defaults) > 1:
        return Check("class", f"several default classes ({', '.join(defaults)}); Kubernetes takes the newest")
    if defaults:
        return Check("class", f"the default class is {defaults[0]}")
    if "storage" not in wanted.releases:
        return Check("class", "no default class: claims that name none wait")
    if wanted.classes is None:
        return Check("class", f"no default class; the component storage installs one ({ROLE_CLASSES[0]['name']})")
    fix = "set `default: true` in one class of storage_classes, or mark one of the cluster's classes"
    return Check("class", problems=(Problem("class", "no default storage class", "one", fix),))


def pod_security(facts: Facts, _: Wanted) -> Check:
    """Whether a namespace admits pods as jobs have them."""
    if not facts.pod_refusal:
        return Check("pods", f"the namespace {facts.pod_space} admits pods as jobs have them")
    if silent := SILENT.search(facts.pod_refusal):
        fix = f"repair what serves it, or remove its configuration ({silent[1]})"
        return Check("pods", problems=(Problem("pods", facts.pod_refusal, "a webhook that answers", fix),))
    fix = ("change the admission policy that it names, or have another namespace tried: `kubectl config set-context "
           "--current --namespace=NAME`")  # fmt: skip
    problem = Problem(f"pods in {facts.pod_space}", facts.pod_refusal, "pods of Pod Security `restricted`", fix)
    return Check("pods", problems=(problem,), starting=YOUNG in facts.pod_refusal)


def dns(facts: Facts, _: Wanted) -> Check:
    """Whether the cluster's name server runs: ranks find their master by its name."""
    if facts.services is None or facts.ready_services is None:
        return _unread("dns")
    service = "kube-system/kube-dns"
    if service in facts.services and service not in facts.ready_services:
        fix = "see why its pods are not ready: kubectl -n kube-system get pods -l k8s-app=kube-dns"
        return Check("dns", problems=(Problem("dns", f"no ready endpoint of {service}", "one", fix),), starting=True)
    return Check("dns", f"{service} is ready" if service in facts.services else f"no Service {service}; not checked")


def webhooks(facts: Facts, wanted: Wanted) -> Check:
    """Admission webhooks that nothing serves: every request that they match fails, if it is one of the site's.

    Whether one answers, only a request shows that it sees: those of pods see that of `pod_security`.
    """
    if facts.webhooks is None or facts.ready_services is None:
        return _unread("webhooks")
    problems, harmless, ours = [], [], set(wanted.releases.values())
    written = requests(wanted.releases)
    names = {space for _, space in ours} | {item.namespace for item in _storage(wanted)}
    spaces = None if facts.namespaces is None else labels_of(names, facts.namespaces)
    for item in facts.webhooks:
        for hook in item.get("webhooks") or []:
            service = hook.get("clientConfig", {}).get("service")
            place = f"{service['namespace']}/{service['name']}" if service else ""
            if not place or place in facts.ready_services or release_of(item) in ours:
                continue
            if hook.get("failurePolicy") == "Ignore" or not sees(hook, written, spaces):
                harmless.append(hook["name"])
                continue
            fix = f"repair {place}, or remove {item['kind']} {item['metadata']['name']}"
            problems.append(Problem(f"webhook {hook['name']}", f"no ready endpoint of {place}", "one", fix))
    hooks = [hook for item in facts.webhooks for hook in item.get("webhooks") or []]
    outside = sorted(hook["name"] for hook in hooks if hook.get("clientConfig", {}).get("url"))
    but = f" but {listed(sorted(harmless))}, which do not stop the site" if harmless else ""
    text = f"{len(hooks) - len(outside)} in the cluster, all with an endpoint{but}; only those that see pods were asked"
    if outside:
        text += f"; not checked, as they are at a URL: {listed(outside)}"
    return Check("webhooks", text, tuple(problems), starting=True)


def gpus(facts: Facts, wanted: Wanted) -> Check:
    """GPU nodes without devices, although a device plugin runs, or a driver for claims.

    Of a component of the site itself nothing is said here: its role names the cause, and this run may be the one that
    repairs it.
    """
    if facts.nodes is None or facts.workloads is None or (wanted.by_claim and facts.slices is None):
        return _unread("gpus")
    names = DRIVERS if wanted.by_claim else PLUGINS
    component = "gpu_dra_driver" if wanted.by_claim else "gpu_device_plugin"
    others = [item for name in names for item in _running(name, facts.workloads)]
    nodes = [node for node in facts.nodes if GPU_NODES & (node["metadata"].get("labels") or {}).keys()]
    publishing = publishers(facts.slices or ())
    having = publishing if wanted.by_claim else {node["metadata"]["name"] for node in nodes if _gpus_of(node)}
    without = {name: node for node in nodes if (name := node["metadata"]["name"]) not in having}
    if others and without and component not in wanted.releases:
        fix = "playbooks/gpu_nodes.yml reports what they lack: driver, container toolkit, runtime"
        problem = Problem("GPU nodes", f"no devices on {listed([*without])}", "some on each", fix)
        # A kubelet that has just restarted has none of a resource until its plugin registers again.
        restarted = all(any(map(is_gpu, _allocatable(node))) for node in without.values())
        return Check("gpus", problems=(problem,), starting=restarted)
    return Check("gpus", f"{counted(len(nodes), 'node')} with a label of GPU nodes")


def _gpus_of(node: Json) -> int:
    """How many GPUs and parts of GPUs a node has, whatever their resource is called."""
    return sum(devices(node, name) for name in _allocatable(node) if is_gpu(name))


def _allocatable(node: Json) -> Mapping[str, str]:
    amounts: Mapping[str, str] = node.get("status", {}).get("allocatable") or {}
    return amounts


def room(facts: Facts, wanted: Wanted) -> Check:
    """Whether the components that do not run yet fit on the nodes that take their pods, beside the existing pods."""
    if facts.nodes is None or facts.pods is None:
        return _unread("room")
    missing = [name for name, own in wanted.releases.items() if not _complete(name, own, facts.workloads)]
    lacking = [COMPONENTS[name] for name in missing]
    storage = {(item.name, item.namespace): item.pods for item in _storage(wanted)}
    running = {release_of(item) for item in facts.workloads or ()}
    storage_pods = sum(storage[own] for own in storage.keys() - running)
    placed = [*(name for name in missing if COMPONENTS[name].pods), *(["storage"] if storage_pods else [])]
    tolerations = [wanted.tolerations.get(name, ()) for name in placed]
    ready = {node["metadata"]["name"]: node for node in facts.nodes if has_condition(node, "Ready")}
    kept_out = {name: text for name, node in ready.items() if (text := _not_tolerated(node, tolerations or [()]))}
    nodes = {name: node for name, node in ready.items() if name not in kept_out}
    pods = [pod for pod in facts.pods if pod["spec"].get("nodeName") in nodes
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]  # fmt: skip
    requests = [pod_sum(pod["spec"], "requests") for pod in pods]
    free = {
        "pods": _total(nodes.values(), "pods") - len(pods),
        "cpu": _total(nodes.values(), "cpu") - _sum(requests, "cpu"),
        "memory": _total(nodes.values(), "memory") - _sum(requests, "memory"),
    }
    amounts = {
        "pods": sum(item.pods for item in lacking) + storage_pods,
        "cpu": sum(item.cpu_millis for item in lacking) / 1000,
        "memory": sum(item.memory_mib for item in lacking) * 2**20,
    }
    text = f"{counted(len(nodes), 'schedulable node')}; free: {_amounts(free)}"
    short = [name for name, amount in amounts.items() if amount and free[name] < amount]
    if short:
        if kept_out:
            text += f"; with taints: {listed([f'{name} ({taints})' for name, taints in kept_out.items()])}"
        if facts.autoscaler:
            return Check("room", f"{text}; for {_amounts(amounts)}, {facts.autoscaler} has to add a node")
        fix = "add a node, or remove pods"
        if kept_out:
            inputs = listed([TOLERATED_IN[name] for name in placed])
            fix += f", or remove the taint of a node, or tolerate it in {inputs}"
        problem = Problem("room", text, f"room for {_amounts(amounts)}", fix)
        return Check("room", problems=(problem,), starting=not nodes)
    return Check("room", text)


def _amounts(values: Mapping[str, float]) -> str:
    return f"{counted(round(values['pods']), 'pod')}, cpu {values['cpu']:.1f}, memory {values['memory'] / 2**20:.0f}Mi"


def _not_tolerated(node: Json, tolerations: Iterable[Sequence[Json]]) -> str:
    """The taints of a node that keep out pods with some of these tolerations."""
    taints = [taint for taint in node["spec"].get("taints") or [] if taint["effect"] in KEEPS_OUT]
    return ", ".join(taint_text(item) for item in taints if not all(tolerated(item, some) for some in tolerations))


def _total(nodes: Iterable[Json], name: str) -> float:
    return sum(float(parse(str(_allocatable(node).get(name, 0)))) for node in nodes)


def _sum(requests: Iterable[Amounts], name: str) -> float:
    return float(sum(amounts[name].value for amounts in requests if name in amounts))


def places_of(wanted: Wanted) -> list[tuple[str, str]]:
    """The Helm releases of a site, as (release, namespace)."""
    others = [place for name, place in wanted.releases.items() if name != "storage"]
    return [*others, *((release.name, release.namespace) for release in _storage(wanted))]


def _storage(wanted: Wanted) -> list[Release]:
    """The Helm releases of the component `storage`."""
    return needed(ROLE_CLASSES if wanted.classes is None else wanted.classes) if "storage" in wanted.releases else []


def _complete(name: str, own: tuple[str, str], workloads: Sequence[Json] | None) -> bool:
    """Whether the cluster has all programs of a component, of the site's own release."""
    ours = [item for item in workloads or () if release_of(item) == own]
    return bool(ours) and all(any(_running(program, ours)) for program in COMPONENTS[name].programs)


def component(name: str, facts: Facts, wanted: Wanted) -> Check:
    """Whether a component can be installed, upgraded or adopted; a third-party one is never half taken over."""
    if name == "storage":
        return _storage_check(facts, wanted)
    what, own = COMPONENTS[name], wanted.releases[name]
    if facts.workloads is None or facts.crds is None:
        return _unread(name)
    found = {program: [*_running(program, facts.workloads)] for program in what.programs}
    others = {program: [item for item in items if release_of(item) != own] for program, items in found.items()}
    present = [item for items in others.values() for item in items]
    crds = [item for item in facts.crds if item["metadata"]["name"] in dict(what.crds)]
    problems = list(_versions(what, crds))
    if rivals := [item for program in what.rivals for item in _running(program, facts.workloads)]:
        fix = f"take {name} out of site_components, or remove the other one"
        problems.append(Problem(what.title, f"another one ({_places(rivals)})", "no other beside it", fix))
    if present:
        problems.append(_foreign(name, what, own, others, present))
    elif own in facts.third_party:
        problems.append(facts.third_party[own])
    elif what.helm_crds and (strange := [item["metadata"]["name"] for item in crds if release_of(item) != own]):
        got = f"CRDs that Helm's release {own[0]} in {own[1]} does not own ({listed(strange)}), without its programs"
        expected = "all of it, or nothing: Helm would refuse them"
        fix = f"complete or remove that half installation, or take {name} out of site_components"
        problems.append(Problem(what.title, got, expected, fix))
    if any(found.values()):
        complete = all(found.values())
        text = f"release {own[0]} in {own[1]}" + ("" if complete else ", incomplete: this run completes it")
    else:
        text = "nothing of it yet" if not crds else f"CRDs of release {own[0]} in {own[1]}, and no programs yet"
    return Check(name, text, tuple(problems))


def _storage_check(facts: Facts, wanted: Wanted) -> Check:
    """Which releases of its classes exist; `storage_class` judges the classes."""
    if facts.workloads is None or facts.classes is None:
        return _unread("storage")
    present = {release_of(item) for item in (*facts.workloads, *facts.classes)}
    own = [(item.name, item.namespace) for item in _storage(wanted)]
    texts = [f"release {name} in {namespace}" for name, namespace in own if (name, namespace) in present]
    problems = tuple(facts.third_party[place] for place in own if place in facts.third_party)
    return Check("storage", "; ".join(texts) or "nothing of it yet", problems)


def jobset(facts: Facts, wanted: Wanted) -> Check:
    """JobSet, of which Trainer v2 makes its jobs: a second one would replace the CRD of the first."""
    if facts.workloads is None or facts.crds is None:
        return _unread("jobset")
    running = [*_running("jobset", facts.workloads), *_running("jobset-rhel9", facts.workloads)]  # Red Hat's own
    others = [item for item in running if release_of(item) != wanted.releases["trainer_v2"]]
    if wanted.jobset and others:
        fix = "set trainer_v2_jobset: false, so that Trainer uses it, or remove it"
        problem = Problem("JobSet", f"a third-party one ({_places(others)})", "that of Trainer's release alone", fix)
        return Check("jobset", problems=(problem,))
    fix = "leave trainer_v2_jobset out, or install JobSet"
    if not wanted.jobset and JOBSETS not in (item["metadata"]["name"] for item in facts.crds):
        problem = Problem("JobSet", f"none (no CRD {JOBSETS})", "one, as trainer_v2_jobset is false", fix)
        return Check("jobset", problems=(problem,))
    if not wanted.jobset and running and not others:
        got = "only that of Trainer's release, which trainer_v2_jobset: false removes"
        return Check("jobset", problems=(Problem("JobSet", got, "one that stays, which Trainer needs", fix),))
    own = "the cluster's own" if others else "the cluster's own: its CRD; no program of it was seen"
    return Check("jobset", "that of Trainer's release" if wanted.jobset else own)


def _versions(what: Component, crds: Sequence[Json]) -> Iterator[Problem]:
    for item in crds:
        name = item["metadata"]["name"]
        served = [entry["name"] for entry in item["spec"]["versions"] if entry.get("served")]
        if dict(what.crds)[name] not in served:
            fix = "upgrade or remove the program that it belongs to"
            yield Problem(f"CRD {name}", ", ".join(served) or "no version", f"the version {dict(what.crds)[name]}", fix)


def _foreign(
    name: str, what: Component, own: tuple[str, str], others: Mapping[str, Sequence[Json]], present: Sequence[Json]
) -> Problem:
    """A third-party component, complete or half."""
    places = _places(present)
    missing = [program.strip("/") for program, items in others.items() if not items]
    leave = f"leave it alone (take {name} out of site_components)"
    if missing:
        got, fix = f"half of one ({places}; no {', '.join(missing)})", f"complete or remove it, or {leave}"
        return Problem(what.title, got, "all of it, or nothing", fix)
    releases = sorted({release for item in present if (release := release_of(item))})
    adopt = [
        " and ".join(f"{name}_{part}: {value}" for part, value in place.items() if part in what.inputs)
        for place in ({"release": release, "namespace": space} for release, space in releases)
        if "release" in what.inputs or place["release"] == own[0]  # else the role sets the release's name
    ]
    fix = f"{leave}, or {f'adopt it ({adopt[0]})' if adopt else 'remove it'}"
    got = f"a third-party one ({places})"
    return Problem(what.title, got, f"none, or Helm's release {own[0]} in {own[1]}", fix)


def _places(workloads: Iterable[Json]) -> str:
    return listed(
        sorted({f"{item['kind']} {item['metadata']['namespace']}/{item['metadata']['name']}" for item in workloads})
    )


def _running(program: str, workloads: Sequence[Json]) -> Iterator[Json]:
    """The Deployments and DaemonSets with this program."""
    for item in workloads:
        containers = item["spec"]["template"]["spec"].get("containers") or []
        # The name of the image, without its tag and digest
        images = ("/" + image["image"].partition("@")[0].rpartition("/")[2].partition(":")[0] for image in containers)
        if any(image.endswith(f"/{program.strip('/')}") for image in images):
            yield item


def _unread(name: str) -> Check:
    return Check(name, "not checked: this account may not read what it needs")
