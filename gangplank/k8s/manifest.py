"""Checks that a manifest has the form that the back-ends read, so that they need not check it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gangplank.errors import Problem, shown
from gangplank.k8s import names, quantity
from gangplank.k8s.pod_resources import is_extended

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gangplank.reading.fields import Problems
    from gangplank.spec import Json


class Each(dict[str, Any]):
    """A mapping with any keys whose values all have one form, held under the empty key."""


class Devices(dict[str, Any]):
    """A list of resources of which those with a domain of their own are whole numbers, and others are not read.

    The API server refuses fractions of them (pkg/apis/core/validation/validation.go of kubernetes/kubernetes).
    """


class Named(dict[str, Any]):
    """A mapping of forms that must have a name, which identifies it in its list."""

    needs: ClassVar[Mapping[str, str]] = {"name": "a name"}


class Expression(Named):
    """A condition on labels."""

    needs: ClassVar[Mapping[str, str]] = {"key": "a label's key", "operator": "an operator, e.g. In or Exists"}


class Near(Named):
    """What is near other pods, or away from them."""

    needs: ClassVar[Mapping[str, str]] = {"topologyKey": "a label of nodes, e.g. kubernetes.io/hostname"}


def each(form: Any) -> Each:
    """A mapping with any keys and values of one form."""
    return Each({"": form})


class Count(int):
    """A whole number of at least zero: the form is the type itself."""


class Amount(str):
    """A quantity, as text or number."""

    __slots__ = ()


class Whole(Amount):
    """A quantity without a fraction."""

    __slots__ = ()


# What a pod and a container may have; the API server silently drops other keys of a stored pod template.
# https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
POD_KEYS = frozenset(
    "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig dnsPolicy enableServiceLinks "
    "ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets "
    "initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates "
    "resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates securityContext "
    "serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain "
    "terminationGracePeriodSeconds tolerations topologySpreadConstraints volumes workloadRef".split()
)
CONTAINER_KEYS = frozenset(
    "args command env envFrom image imagePullPolicy lifecycle livenessProbe name ports readinessProbe resizePolicy "
    "resources restartPolicy restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
    "terminationMessagePolicy tty volumeDevices volumeMounts workingDir".split()
)
TEXTS = each(str)
RESOURCES = {"requests": each(Amount), "limits": each(Amount)}
CREATED = {"resources": {"requests": Devices(), "limits": Devices()}}
ENV = [Named(name=str, value=str, valueFrom={"fieldRef": {"fieldPath": str}})]
CONTAINER = {
    "name": str,
    "image": str,
    "command": [str],
    "args": [str],
    "env": ENV,
    "ports": [{"name": str, "containerPort": Count, "hostPort": Count}],
    "resources": RESOURCES,
    "volumeMounts": [Named(name=str, mountPath=str)],
    "restartPolicy": str,
}
EXPRESSION = Expression(key=str, operator=str, values=[str])
TERM = {"matchExpressions": [EXPRESSION], "matchFields": [EXPRESSION]}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
NEAR = {HARD: [Near(topologyKey=str, labelSelector={"matchLabels": TEXTS, "matchExpressions": [EXPRESSION]})]}
TOLERATION = {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int}
POD = {
    "containers": [Named(CONTAINER)],
    "initContainers": [Named(CONTAINER)],
    "volumes": [Named(name=str, persistentVolumeClaim={"claimName": str})],
    "nodeName": str,
    "nodeSelector": TEXTS,
    "affinity": {"nodeAffinity": {HARD: {"nodeSelectorTerms": [TERM]}}, "podAffinity": NEAR, "podAntiAffinity": NEAR},
    "tolerations": [TOLERATION],
    "topologySpreadConstraints": [{"whenUnsatisfiable": str}],
    "schedulingGates": [Named(name=str)],
    "resourceClaims": [Named(name=str)],
    "runtimeClassName": str,
    "hostname": str,
    "subdomain": str,
    "schedulerName": str,
    "priorityClassName": str,
    "restartPolicy": str,
    "hostNetwork": bool,
    "overhead": each(Amount),
    "resources": RESOURCES,
}
META = {"name": str, "namespace": str, "labels": TEXTS, "annotations": TEXTS}
TEMPLATE = {"metadata": {**META, "finalizers": [str]}, "spec": POD}
MOST = 100_000  # pods that one manifest may make; more is a typing error


def without_nulls(value: Any) -> Any:
    """A deep copy in which no mapping has a null: to the API server a null equals a missing key.

    >>> without_nulls({"a": None, "b": [{"c": None}]})
    {'b': [{}]}
    """
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def prune(value: Any) -> None:
    """Drop, in place, what pod templates have beyond Kubernetes' own fields."""
    if isinstance(value, list):
        for item in value:
            prune(item)
    elif isinstance(value, dict):
        pod = value.get("template", {}).get("spec") if isinstance(value.get("template"), dict) else None
        if isinstance(pod, dict) and isinstance(pod.get("containers"), list):
            for key in pod.keys() - POD_KEYS:
                del pod[key]
            for container in [*pod["containers"], *pod.get("initContainers", [])]:
                for key in container.keys() - CONTAINER_KEYS:
                    del container[key]
        for item in value.values():
            prune(item)


def check(value: Any, form: Any, path: str, problems: Problems) -> None:
    """Compare a value with a form: a type, a list of a form, or a mapping of forms; other keys are not read."""

    def bad(expected: str, fix: str = "") -> None:
        problems.append(Problem(path, shown(value), expected, fix))

    if isinstance(form, list):
        if not isinstance(value, list):
            bad("a list")
            return
        for index, item in enumerate(value):
            check(item, form[0], f"{path}[{index}]", problems)
    elif isinstance(form, dict):
        if not isinstance(value, dict):
            bad("a mapping")
            return
        needs = form.needs.items() if isinstance(form, Named) else ()
        problems += [Problem(f"{path}.{key}", "nothing", expected) for key, expected in needs if not value.get(key)]
        for key, item in value.items():
            if not isinstance(key, str):
                problems.append(Problem(path, f"the key {shown(key)}", "keys that are text"))
            elif isinstance(form, Each) or key in form:
                check(item, form["" if isinstance(form, Each) else key], f"{path}.{key}", problems)
            elif isinstance(form, Devices) and is_extended(key):
                check(item, Whole, f"{path}.{key}", problems)
    else:
        _scalar(value, form, bad)


def _scalar(value: Any, form: Any, bad: Any) -> None:
    """Compare a value with a type."""
    if form is Count:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
            bad(f"a whole number from 0 to {MOST}")
    elif form is int:
        if isinstance(value, bool) or not isinstance(value, int):
            bad("a whole number")
    elif form in {Amount, Whole}:
        try:
            amount = quantity.parse(value if isinstance(value, str) else repr(value))
        except ValueError:
            bad("a quantity")
        else:
            if form is Whole and amount.denominator != 1:
                bad("a whole number", "ask for whole devices: Kubernetes does not divide them")
    elif not isinstance(value, form):
        bad({str: "text", bool: "true or false"}.get(form, form.__name__))


def check_devices(value: Any, path: str, problems: Problems) -> None:
    """Check how many devices all pods in a manifest that will be created ask for."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            check_devices(item, f"{path}[{index}]", problems)
    elif isinstance(value, dict) and "containers" in value:
        check(value, {**CREATED, "containers": [CREATED], "initContainers": [CREATED]}, path, problems)
    elif isinstance(value, dict):
        for key, item in value.items():
            check_devices(item, f"{path}.{key}", problems)


def manifest(raw: Mapping[str, Any], form: Json, problems: Problems) -> Json:
    """A copy of a manifest without nulls, checked: it has a name, a spec, and the form wherever it has a value."""
    checked: Json = without_nulls(dict(raw))
    label = checked["kind"] if isinstance(checked.get("kind"), str) else "object"
    for key in ("apiVersion", "kind"):
        if not isinstance(checked.get(key), str):
            problems.append(Problem(f"{label}.{key}", shown(checked.get(key)), "text"))
    check(checked, {"metadata": META, **form}, label, problems)
    meta = checked.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if not isinstance(name, str) or not names.SUBDOMAIN.fullmatch(name):
        problems.append(Problem(f"{label}.metadata.name", shown(name), "a name that Kubernetes allows"))
    if not isinstance(checked.get("spec"), dict):
        problems.append(Problem(f"{label}.spec", shown(checked.get("spec")), "a mapping"))
    if not problems:
        prune(checked["spec"])
    return checked


def written(item: Json) -> Json:
    """An object without its status and without the metadata that the server keeps for itself."""
    internal = ("managedFields", "resourceVersion", "generation")
    meta = {key: value for key, value in item["metadata"].items() if key not in internal}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": meta}
