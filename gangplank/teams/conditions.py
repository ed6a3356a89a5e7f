"""What each rule of the admission refuses, in CEL: lists of text, empty if all is well.

An expression reads the variables of its policy: `pods` is a list of lists of pods, pod templates and parts of them,
`inner` one of further objects whose metadata controllers copy. https://kubernetes.io/docs/reference/using-api/cel/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.code_pieces import LABEL, USED
from gangplank.backends.pod_template import GPU_TOLERATION, JOB_LABEL, ROLE_LABEL, TEAM_LABEL
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.lease import HOLDER
from gangplank.cluster.reader import READER_LIMITS
from gangplank.k8s.build import JOB_NAME
from gangplank.k8s.nodes import AWAY
from gangplank.teams.census import load

if TYPE_CHECKING:
    from gangplank.backends.base import Path

NAMESPACE = "namespaceObject.metadata"
PATTERN = "'^' + p.replace('.', '[.]').replace('*', '.*') + '$'"  # RE2 takes every other allowed character literally
MARKABLE = ("annotations", "labels")
TEMPLATES = "resourceclaimtemplates"  # the policy whose objects are templates of claims
PODS = "pods"  # the policy whose objects are pods themselves


def quoted(*texts: str) -> str:
    """A CEL list of text.

    >>> quoted("a", "b")
    "['a', 'b']"
    """
    return "['" + "', '".join(texts) + "']"


def granted(annotation: str) -> str:
    """What an annotation of the namespace lists; nothing where it is empty or absent.

    >>> granted("a.b/c")
    "namespaceObject.metadata.?annotations[?'a.b/c'].orValue('').split(',').filter(i, i != '')"
    """
    return f"{NAMESPACE}.?annotations[?'{annotation}'].orValue('').split(',').filter(i, i != '')"


def first(lists: str) -> str:
    """The first item of each list that has one, because CEL cannot flatten a list of lists."""
    return f"{lists}.filter(l, l.size() > 0).map(l, l[0])"


def each(groups: str, texts: str) -> str:
    """The first of `texts`, a list of text about the pod or object o, for each of a list of lists."""
    return first(f"variables.{groups}.map(g, {first(f'g.map(o, {texts})')})")


def ungranted(place: str, known: str) -> str:
    """The texts of a place that are neither empty nor among what a variable allows."""
    return f"({place}).filter(x, x != '' && !(x in variables.{known}))"


CONTAINERS = " + ".join(
    f"o.?spec.?{part}.orValue([])" for part in ("containers", "initContainers", "ephemeralContainers")
)
VOLUMES = "o.?spec.?volumes.orValue([])"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def of_pods(field: str, known: str, own: str = "[]") -> str:
    """Values that the team was not granted, in a field of pods' specs, and in an object's own list."""
    place = f"[o.?spec.?{field}.orValue('')]"
    return f"{ungranted(own, known)} + {each('pods', ungranted(place, known))}"


def images(path: Path) -> str:
    """An image that no pattern matches, from each place that names images."""
    unknown = f"filter(i, i != '' && !variables.images.exists(p, i.matches({PATTERN})))"
    places = f"({CONTAINERS}).map(c, c.?image.orValue(''))"
    places += f" + {VOLUMES}.filter(v, has(v.image)).map(v, v.image.?reference.orValue(''))"
    return f"variables.images.size() == 0 ? [] : ({path.images}).{unknown} + {each('pods', f'({places}).{unknown}')}"


def marks(_: Path) -> str:
    """Marks with which a job keeps what another queue deserves, or gets ahead in line."""
    in_either = " || ".join(f"k in o.?metadata.?{part}.orValue({{}})" for part in MARKABLE)
    texts = f"{quoted(*QUEUE_SYSTEM.marks)}.filter(k, {in_either})"
    return " + ".join([f"[object].map(o, {texts})[0]", each("pods", texts), each("inner", texts)])


# Keys that are read outside the team but do no harm there, beside those of a few domains.
KEYS = (
    *QUEUE_SYSTEM.annotations,
    QUEUE_SYSTEM.group,
    JOB_LABEL,
    ROLE_LABEL,
    TEAM_LABEL,
    LABEL,  # of pieces of code
    USED,
    HOLDER,  # of the lock of a job
    "batch.kubernetes.io/controller-uid",  # the API server sets both in the template of a Job
    JOB_NAME,
    "kubernetes.io/limit-ranger",  # the API server notes which requests it filled in
    "sidecar.istio.io/inject",  # keeps the proxy of a service mesh out of a gang
)
DOMAINS = ("app.kubernetes.io", "kubectl.kubernetes.io")


def domains(_: Path) -> str:
    """Keys of annotations and labels of domains that the team does not have: what reads them acts on them."""
    of_domain = "variables.domains.exists(d, k.split('/')[0] == d || k.split('/')[0].endsWith('.' + d))"
    foreign = f"k.contains('/') && !(k in {quoted(*KEYS)}) && !{of_domain}"
    changed = "(oldObject == null || oldObject.metadata.?{0}[?k] != object.metadata.?{0}[?k])"
    own = [f"object.metadata.?{part}.orValue({{}}).filter(k, {foreign} && {changed.format(part)})" for part in MARKABLE]
    texts = " + ".join(f"o.?metadata.?{part}.orValue({{}}).filter(k, {foreign})" for part in MARKABLE)
    return " + ".join([*own, each("pods", texts), each("inner", texts)])


def own_labels(path: Path) -> str:
    """Labels that make an object pass for another job's, or for another team's."""
    name = "''" if path.name == PODS else "object.metadata.?name.orValue('')"
    values = {TEAM_LABEL: "variables.team"}
    if path.name == PODS or path.templates != "[]" or path.patches != "[]":
        values[JOB_LABEL] = name
    texts = " + ".join(
        f"[o.?metadata.?labels[?'{key}'].orValue('')].filter(v, v != '' && v != {value}).map(v, '{key}=' + v)"
        for key, value in values.items()
    )
    return " + ".join([f"[object].map(o, {texts})[0]", each("pods", texts), each("inner", texts)])


def finalizers(path: Path) -> str:
    """Finalizers, which keep an object from being removed: new ones of an object, and all that its pods would get."""
    tracking = " && f != 'batch.kubernetes.io/job-tracking'" if path.name == PODS else ""
    new = "(oldObject == null || !(f in oldObject.metadata.?finalizers.orValue([])))"
    own = f"object.metadata.?finalizers.orValue([]).filter(f, {new}{tracking})"
    texts = "o.?metadata.?finalizers.orValue([])"
    return " + ".join([own, *([] if path.name == PODS else [each("pods", texts), each("inner", texts)])])


def owners(path: Path) -> str:
    """New owners of an object: what has a job as its owner passes for a part of that job.

    Nothing reads who owns a template of claims. A job owns its own, so that they are deleted with it.
    """
    if path.name == TEMPLATES:
        return "[]"
    new = "(oldObject == null || !(r in oldObject.metadata.?ownerReferences.orValue([])))"
    return f"object.metadata.?ownerReferences.orValue([]).filter(r, {new}).map(r, r.kind + ' ' + r.name)"


ASKS_FOR_GPUS = (
    "(c.?resources.?claims.orValue([]).size() > 0"
    " || c.?resources.?limits.orValue({}).exists(r, r.startsWith('nvidia.com/')"
    " && quantity(string(c.resources.limits[r])).isGreaterThan(quantity('0'))))"
)
# The pod that reads a job's evidence from its claim runs where the claim is, GPU nodes included. Such a pod is small,
# and tells NVIDIA's runtime to give it no GPU, whatever its image asks for.
WITHOUT_GPUS = "e.?name.orValue('') == 'NVIDIA_VISIBLE_DEVICES' && e.?value.orValue('') == 'void'"
READS = f"({CONTAINERS}).all(c, c.?env.orValue([]).exists(e, {WITHOUT_GPUS})" + "".join(
    f" && c.?resources.?limits[?'{name}'].hasValue()"
    f" && !quantity(string(c.resources.limits['{name}'])).isGreaterThan(quantity('{most}'))"
    for name, most in READER_LIMITS.items()
) + ")"


def tolerations(path: Path) -> str:
    """Tolerations of taints that the team was not granted, as key or as key=value."""
    key, value, operator, effect = (f"x.?{part}.orValue('')" for part in ("key", "value", "operator", "effect"))
    gpus = f"({CONTAINERS}).exists(c, {ASKS_FOR_GPUS})"
    known = (
        f"{key} in variables.tolerations",
        f"{operator} in ['', 'Equal'] && {key} + '=' + {value} in variables.tolerations",
        f"{key} in {quoted(*AWAY)} && {effect} == 'NoExecute'",
        # of parts of pods nobody knows yet what they ask for, but their pods are judged again
        f"{key} == '{GPU_TOLERATION['key']}'" + ("" if path.patches != "[]" else f" && ({gpus} || {READS})"),
    )
    unknown = " && ".join(f"!({text})" for text in known)
    text = f"({key} == '' ? '*' : {key}) + ({value} == '' ? '' : '=' + {value})"
    return each("pods", f"o.?spec.?tolerations.orValue([]).filter(x, {unknown}).map(x, {text})")


MOST_GRACE_S = 30  # Kubernetes' own default
PROBES = ("liveness", "readiness", "startup")

# Labels that say what a node is, not whose
NODE_LABELS = (
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)


def grace_periods(_: Path) -> str:
    """Seconds that a pod wants beyond what it may have before it is killed: until then nobody else has its place."""
    seconds = f"x > {MOST_GRACE_S}).map(x, string(x))"
    own = f"[o.?spec.?terminationGracePeriodSeconds.orValue(0)].filter(x, {seconds}"
    probes = ", ".join(f"c.?{part}Probe.?terminationGracePeriodSeconds.orValue(0)" for part in PROBES)
    return each("pods", f"({own} + {first(f'({CONTAINERS}).map(c, [{probes}].filter(x, {seconds})')})")


def node_labels(_: Path) -> str:
    """Labels of nodes that a pod asks for and that the team was not granted, as key or as key=value."""
    pair = "k + '=' + o.spec.nodeSelector[k]"
    unknown = f"!(k in variables.nodeLabels) && !({pair} in variables.nodeLabels)"
    selector = f"o.?spec.?nodeSelector.orValue({{}}).filter(k, {unknown}).map(k, {pair})"
    affinity = "o.?spec.?affinity.?nodeAffinity"
    terms = f"({affinity}.?{REQUIRED}.?nodeSelectorTerms.orValue([])"
    terms += f" + {affinity}.?{PREFERRED}.orValue([]).map(p, p.preference))"
    values = "e.operator == 'In' && e.?values.orValue([]).all(v, e.key + '=' + v in variables.nodeLabels)"
    asked = "(m.?matchExpressions.orValue([]) + m.?matchFields.orValue([]))"
    asked += f".filter(e, !(e.key in variables.nodeLabels) && !({values})).map(e, e.key)"
    in_terms = first(f"{terms}.map(m, {asked})")
    return each("pods", f"({selector} + {in_terms})")


# What a container with GPUs may set for NVIDIA's runtime; NVIDIA_VISIBLE_DEVICES is the device plugin's
GPU_VARIABLES = (
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_TF32_OVERRIDE",
)


# By these, the container runtimes of other makers do what NVIDIA's does
OTHER_VARIABLES = (
    "AMD_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
    "HABANA_VISIBLE_DEVICES",
    "MTHREADS_VISIBLE_DEVICES",
)


def environment(path: Path) -> str:
    """Variables by which a node's runtime gives a container devices, also hidden behind a prefix or in a ConfigMap."""
    others = quoted(*OTHER_VARIABLES)
    usual = f"n in {quoted(*GPU_VARIABLES)} && {ASKS_FOR_GPUS}"
    names = f"c.?env.orValue([]).filter(e, !({WITHOUT_GPUS})).map(e, e.?name.orValue(''))"
    names += f".filter(n, n.startsWith('NVIDIA_') && !({usual}) || n in {others})"
    hidden = "p.startsWith('NVIDIA_') || 'NVIDIA_'.startsWith(p)"
    hidden = f"p != '' && ({hidden} || {others}.exists(v, v.startsWith(p)))"
    prefixes = f"c.?envFrom.orValue([]).map(e, e.?prefix.orValue('')).filter(p, {hidden})"
    in_containers = first(f"({CONTAINERS}).map(c, {names} + {prefixes})")
    own = f"({path.variables}).filter(n, n.startsWith('NVIDIA_') || n in {others})"
    return f"{own} + {each('pods', in_containers)}"


RESOURCES = ("cpu", "memory", "ephemeral-storage")


def resources(_: Path) -> str:
    """Names of resources that no cap of the team has, so that no queue and no quota counts them."""
    names = " + ".join(f"c.?resources.?{part}.orValue({{}}).map(k, k)" for part in ("limits", "requests"))
    return each("pods", first(f"({CONTAINERS}).map(c, {ungranted(names, 'resources')})"))


# The requests of a claim or of a template of claims
REQUESTS = "(object.?spec.?spec.?devices.?requests.orValue([]) + object.?spec.?devices.?requests.orValue([]))"


def device_classes(path: Path) -> str:
    """Device classes that the team does not have, and all devices of a class: no queue counts how many these are."""
    return f"({path.devices}).filter(d, d != '' && !(d in variables.deviceClasses))"


MOST_PODS = 10_000  # of one job, where the team's pods are unlimited


def pod_counts(path: Path) -> str:
    """Numbers of pods that the team may never have: a controller makes them all in its memory, for all teams."""
    most = "int(variables.podCounts[0].split(' ')[0])"
    return f"({path.replicas}).filter(n, n > {most}).map(n, string(n))"


MOST_AMOUNT = "8P"  # of one resource: the scheduler counts in thousandths, in 64 bits


def amounts(path: Path) -> str:
    """Amounts of which the scheduler of all teams ends with an error, in containers and in an object.

    These are amounts below 0, and those so large that the scheduler's number overflows, which makes it negative.
    """

    def wrong(amount: str) -> str:
        one = f"quantity(string({amount}[k]))"
        outside = f"{one}.isLessThan(quantity('0')) || {one}.isGreaterThan(quantity('{MOST_AMOUNT}'))"
        return f"{amount}.filter(k, {outside}).map(k, k + ': ' + string({amount}[k]))"

    parts = " + ".join(wrong(f"c.?resources.?{part}.orValue({{}})") for part in ("limits", "requests"))
    own = first(f"({path.amounts}).map(m, {wrong('m')})")
    return f"{own} + {each('pods', first(f'({CONTAINERS}).map(c, {parts})'))}"


def taken_names(path: Path) -> str:
    """Names of new objects under which the controller of a job writes and removes its own."""
    return f"oldObject != null ? [] : ({path.names}).filter(n, n.endsWith('{QUEUE_SYSTEM.ssh_suffix}'))"


def secrets(path: Path) -> str:
    """Secrets that the team was not granted; the queue system gives pods one of its own."""
    in_env = "c.?env.orValue([]).map(e, e.?valueFrom.?secretKeyRef.?name.orValue(''))"
    in_env += " + c.?envFrom.orValue([]).map(e, e.?secretRef.?name.orValue(''))"
    in_volume = "[v.?secret.?secretName.orValue('')]"
    in_volume += " + v.?projected.?sources.orValue([]).map(s, s.?secret.?name.orValue(''))"
    own = f"filter(x, x != {QUEUE_SYSTEM.ssh_keys})"
    in_containers = first(f"({CONTAINERS}).map(c, {ungranted(in_env, 'secrets')}.{own})")
    in_volumes = first(f"{VOLUMES}.map(v, {ungranted(in_volume, 'secrets')}.{own})")
    return f"{ungranted(path.secrets, 'secrets')} + {each('pods', f'({in_containers} + {in_volumes})')}"


VOLUME_TYPES = ("configMap", "downwardAPI", "emptyDir", "image", "persistentVolumeClaim", "projected", "secret")
BY_TYPE = "refused by volume type"  # as census.yml has it
LEVEL = "pod-security.kubernetes.io/enforce"  # label of a namespace


def volume_types(_: Path) -> str:
    """Types of volumes that the kubelet mounts from its node: Pod Security admits them below `restricted`."""
    types = [field.name for field in load().with_verdict(BY_TYPE)]
    chosen = "".join(f"v.?{name}.hasValue() ? '{name}' : " for name in types)
    in_pods = each("pods", f"{VOLUMES}.map(v, {chosen}'').filter(t, t != '')")
    return f"{NAMESPACE}.labels[?'{LEVEL}'].orValue('') == 'privileged' ? [] : {in_pods}"


IN_TERMS = "{0}.?" + REQUIRED + ".orValue([]).exists(x, x.?FIELD.hasValue())"
IN_TERMS += " || {0}.?" + PREFERRED + ".orValue([]).exists(x, x.podAffinityTerm.?FIELD.hasValue())"
# What the kubelet asks of a container, from the node, past every NetworkPolicy
HANDLERS = (*(f"{part}Probe" for part in PROBES), *(f"lifecycle.?{part}" for part in ("postStart", "preStop")))
# Whether a pod has a field of these types; FIELD stands for its name
IN_PODS = {
    **{
        name: f"({CONTAINERS}).exists(c, {' || '.join(f'c.?{part}.?{field}.?FIELD.hasValue()' for part in HANDLERS)})"
        for name, field in (("HTTPGetAction", "httpGet"), ("TCPSocketAction", "tcpSocket"))
    },
    "PodAffinityTerm": " || ".join(
        IN_TERMS.format(f"o.?spec.?affinity.?{part}") for part in ("podAffinity", "podAntiAffinity")
    ),
    "PodSpec": "o.?spec.?FIELD.hasValue()",
    "Volume": f"{VOLUMES}.exists(v, v.?FIELD.hasValue())",
    "VolumeProjection": f"{VOLUMES}.exists(v, v.?projected.?sources.orValue([]).exists(s, s.?FIELD.hasValue()))",
}
# The same of an object itself
IN_OBJECTS = {
    "DeviceRequest": f"{REQUESTS}.exists(r, r.?FIELD.hasValue())",
    # Before resource.k8s.io/v1, a request had these fields itself
    "ExactDeviceRequest": f"{REQUESTS}.exists(r, r.?exactly.?FIELD.hasValue() || r.?FIELD.hasValue())",
    # The quota has room for the team's own claims, and for a moment when one is added
    "VolcanoVolume": "(object.?spec.?volumes.orValue([]) + object.?spec.?jobTemplate.?spec.?volumes.orValue([]))"
    ".exists(v, v.?FIELD.hasValue())",
    "FlowProbe": "object.?spec.?flows.orValue([]).exists(f, f.?dependsOn.?probe.?FIELD.hasValue())",
}


def fields(_: Path) -> str:
    """Fields that the census refuses to all teams: CEL cannot list the fields of an object, so each is asked for."""

    def asked(places: dict[str, str]) -> str:
        rows = [row for row in load().with_verdict("refused") if row.type in places]
        texts = [f"({places[row.type].replace('FIELD', row.name)} ? ['{row}'] : [])" for row in rows]
        return "(" + " + ".join(texts) + ")"

    return f"{asked(IN_OBJECTS)} + {each('pods', asked(IN_PODS))}"
