"""Turns teams' files into TeamSpecs: converts each value once and reports every problem of every file together."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gangplank.backends.device_claims import resource_problem
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.errors import Problem, SpecError, shown
from gangplank.jobs.parse import label_problem, read_job
from gangplank.k8s import names, quantity
from gangplank.reading.fields import Fields, Problems, plain, unwritable
from gangplank.teams.shares import check
from gangplank.teams.spec import (
    LEAST,
    NEEDED,
    ROLES,
    SPARE,
    UNLIMITED,
    Claim,
    Member,
    Outside,
    QueueSpec,
    Share,
    SiteSpec,
    TeamSpec,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from fractions import Fraction

LEVELS = ("restricted", "baseline", "privileged")
EXAMPLES = {"cpu": "64", "memory": "256Gi", "ephemeral_storage": "500Gi"}
HUGE_PAGES = re.compile(r"hugepages-[1-9]\d{0,3}[KMG]i", re.ASCII)
MAX_JOBS = 50  # of each kind, where the file does not say
# Objects of each kind that one job may need: its controller's and its own.
PER_JOB = {"pods": 10, "configmaps": 2, "services": 1, "secrets": 1}
TEAM_MAX = 40  # characters: leaves room for names that contain it, of which <team>-<queue> is the longest
# Requests and limits of a container without any: a quota refuses pods without them.
DEFAULT_REQUESTS = {"cpu": "100m", "memory": "256Mi", "ephemeral_storage": "2Gi"}
TAKEN = (QUEUE_SYSTEM.default, QUEUE_SYSTEM.root)
RESERVED = re.compile(  # namespaces of the platform: Kubernetes' own, and what the roles install into by default
    rf"default|kube-.*|{QUEUE_SYSTEM.namespaces}|local-path-storage|kubeflow|kubeflow-system|gpu-device-plugin"
    r"|gpu-dra-driver|gangplank-.*"
)
USER = re.compile(r"[^\x00-\x1f\x7f\s][^\x00-\x1f\x7f]{0,252}")
PATTERN = re.compile(r"[A-Za-z0-9*][\w.\-/:@*]{0,510}", re.ASCII)


class TeamsError(SpecError):
    """All problems of several files, each under its file."""

    def __init__(self, errors: Sequence[SpecError]) -> None:
        super().__init__([problem for error in errors for problem in error.problems], "teams")
        self.errors = tuple(errors)
        self.args = ("\n".join(str(error) for error in errors),)


def parse_teams(
    files: Mapping[str, Any],
    site: object = None,
    site_source: str = "_site.yml",
    capacity: Mapping[str, Fraction] | None = None,
) -> Teams:
    """The site and its teams in the order of their names; TeamsError with every problem of every file.

    `capacity` is what the cluster has, used if the site does not set it.

    >>> cap = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}
    >>> _, teams = parse_teams({"a.yml": {"team": {"name": "a", "members": [{"user": "ada"}], "cap": cap}}})
    >>> teams[0].leaves
    ('a',)
    """
    errors: list[SpecError] = []
    teams: list[TeamSpec] = []
    site_spec = SiteSpec()
    try:
        site_spec = parse_site(site, site_source)
    except SpecError as error:
        errors.append(error)
    for source, value in files.items():
        try:
            teams.append(parse_team(value, source, site_spec))
        except SpecError as error:
            errors.append(error)
    errors += check(teams, site_spec, site_spec.capacity or capacity)
    if errors:
        raise TeamsError(errors)
    return site_spec, tuple(sorted(teams, key=lambda team: team.name))


Teams = tuple[SiteSpec, tuple[TeamSpec, ...]]


def top_fields(value: object, key: str, source: str, problems: Problems) -> Fields:
    """The fields below a file's only key."""
    try:
        whole = plain(value)
        problems += unwritable(whole, "")
        outer = Fields(whole, "", problems)
    except RecursionError:
        raise SpecError([Problem(key, "a value nested in itself", "a mapping of fields")], source) from None
    fields = outer.inner(key)
    if key not in outer.map:
        problems.append(Problem(key, "nothing", f"the key {key} with the fields below it"))
    outer.done()
    return fields


def parse_team(value: object, source: str = "team", site: SiteSpec | None = None) -> TeamSpec:
    """The team that a mapping describes, or a SpecError with all its problems."""
    problems: Problems = []
    site = site or SiteSpec()
    fields = top_fields(value, "team", source, problems)
    name = fields.text("name", "team", need=True, what=f"a-z, 0-9 and -, at most {TEAM_MAX}", ok=names.DNS1035)
    if len(name) > TEAM_MAX:
        expected = f"at most {TEAM_MAX} characters, since names of queues and files contain it"
        fields.bad("name", name, expected, "shorten it")
    if name in TAKEN:
        fields.bad("name", name, f"another name: {QUEUE_SYSTEM.title} has a queue with this one", "choose another name")
    own = fields.map.get("namespace") is not None
    namespace = fields.text("namespace", name, need=own, what="a namespace: a-z, 0-9 and -", ok=names.DNS1123)
    if RESERVED.fullmatch(namespace):
        expected = "a namespace of the team's own; this one belongs to the platform"
        fields.bad("namespace", namespace, expected, "choose another namespace")
    network = fields.inner("network")
    max_jobs = None if unlimited(fields, "max_jobs") else fields.integer("max_jobs", MAX_JOBS, 1)
    spec = TeamSpec(
        name=name,
        namespace=namespace,
        members=read_members(fields),
        queues=read_own_queues(fields, name, site),
        max_jobs=max_jobs,
        counts=read_counts(fields, max_jobs),
        priorities=read_priorities(fields, site),
        images=read_images(fields),
        default_requests=read_requests(fields.inner("default_requests")),
        claims=read_claims(fields),
        job_defaults=read_defaults(fields),
        talk_in=matching(network, "from", names.DNS1123, "a namespace"),
        talk_out=read_outside(network),
        pod_security=fields.choice("pod_security", "restricted", LEVELS),
        schedulers=matching(fields, "schedulers", names.DNS1123, "a scheduler's name, e.g. default-scheduler"),
        service_accounts=matching(fields, "service_accounts", names.SUBDOMAIN, "a service account's name"),
        source=source,
        **read_grants(fields),
    )
    network.done()
    fields.done()
    if problems:
        raise SpecError(problems, source)
    return spec


def read_images(fields: Fields) -> tuple[str, ...]:
    """The patterns of the team's images; none is written by leaving the field out, so an empty list is a mistake."""
    if "images" in fields.map and fields.map["images"] in (None, []):
        fields.bad("images", fields.map["images"], "at least one image", 'write "*" or leave the line out to allow any')
    return matching(fields, "images", PATTERN, "an image, with * for any characters, e.g. ghcr.io/acme/*")


LABEL = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?"
PAIR = re.compile(rf"{LABEL}(=[A-Za-z0-9]([-\w.]*[A-Za-z0-9])?)?", re.ASCII)
GRANTS = {
    "tolerations": (PAIR, "a taint as key or key=value, e.g. dedicated=vision"),
    "node_labels": (PAIR, "a label of nodes as key or key=value, e.g. nvidia.com/gpu.product"),
    "runtime_classes": (names.SUBDOMAIN, "a RuntimeClass's name"),
    "secrets": (names.SUBDOMAIN, "a Secret's name"),
    "annotation_domains": (names.SUBDOMAIN, "a domain, e.g. example.com"),
}


def read_grants(fields: Fields) -> dict[str, tuple[str, ...]]:
    """What the team's pods and objects may name beyond the defaults."""
    return {name: matching(fields, name, pattern, what) for name, (pattern, what) in GRANTS.items()}


def parse_site(value: object, source: str = "site") -> SiteSpec:
    """What a site holds for all teams; without a value, a site with only defaults."""
    if value is None:
        return SiteSpec()
    problems: Problems = []
    fields = top_fields(value, "site", source, problems)
    what = "a resource's name, e.g. nvidia.com/gpu"
    gpu = fields.text("gpu_resource", "nvidia.com/gpu", what=what, ok=names.RESOURCE)
    if expected := resource_problem(gpu):
        fields.bad("gpu_resource", gpu, expected)
    queues = tuple(read_queue(inner, gpu, "") for inner in fields.each("queues"))
    inner = fields.inner("priorities")
    priorities = {key: inner.integer(key, 0, -(10**9), 10**9) for key in inner.map if names.SUBDOMAIN.fullmatch(key)}
    for key in priorities:
        if key.startswith("system-"):
            inner.bad(key, key, "a name of your own; system- belongs to Kubernetes", "choose a name without system-")
    inner.done()
    capacity = read_amounts(fields, "capacity", gpu)
    fields.done()
    for queue in queues:
        if queue.name in TAKEN:
            expected = f"another name: {QUEUE_SYSTEM.title} has a queue with this one"
            problems.append(Problem(f"{queue.path}.name", shown(queue.name), expected, "choose another name"))
    if problems:
        raise SpecError(problems, source)
    exact = {key: quantity.parse(text) for key, text in capacity.items()}
    return SiteSpec(gpu, queues, priorities, exact or None, source)


def matching(fields: Fields, name: str, ok: re.Pattern[str], what: str) -> tuple[str, ...]:
    """A list of text whose items all match a pattern, without duplicates."""
    items = fields.words(name)
    for index, item in enumerate(items):
        if not ok.fullmatch(item):
            fields.bad(f"{name}[{index}]", item, what)
        elif item in items[:index]:
            fields.bad(f"{name}[{index}]", item, "each item once")
    return items


def read_priorities(fields: Fields, site: SiteSpec) -> tuple[str, ...]:
    """The team's PriorityClasses, all from the site's."""
    priorities = matching(fields, "priorities", names.SUBDOMAIN, "a PriorityClass's name")
    for index, item in enumerate(priorities):
        if item not in site.priorities:
            some = ", ".join(site.priorities) or "none yet"
            fields.bad(f"priorities[{index}]", item, f"a priority of the site ({some})", "add it to site.priorities")
    return priorities


def read_members(fields: Fields) -> tuple[Member, ...]:
    """The team's members, each listed once."""
    members: list[Member] = []
    for inner in fields.each("members"):
        role = inner.choice("role", "trainer", ROLES)
        user, group = inner.text("user", what="a user's name", ok=USER), inner.text("group", what="a group", ok=USER)
        account = inner.text("service_account", what="namespace/name of a service account")
        if sum(map(bool, (user, group, account))) != 1:
            inner.bad("", sorted(inner.map), "one of user, group and service_account")
        elif user.startswith("system:") or group.startswith("system:"):
            expected = "a name of your own; system: belongs to Kubernetes"
            inner.bad("user" if user else "group", user or group, expected, "choose a name without system:")
        elif account and not re.fullmatch(r"[a-z0-9][-a-z0-9]{0,62}/[a-z0-9][-a-z0-9.]{0,252}", account):
            inner.bad("service_account", account, "namespace/name, e.g. ci/runner")
        else:
            namespace, _, last = account.partition("/")
            kind = "User" if user else "Group" if group else "ServiceAccount"
            member = Member(kind, user or group or last, role, namespace)
            if any((other.kind, other.name, other.namespace) == (kind, member.name, namespace) for other in members):
                fix = "keep only the entry with the higher role, which includes the lower ones"
                inner.bad("", member.name, "each member once", fix)
            members.append(member)
        inner.done()
    if not members and not fields.map.get("members"):
        fields.bad("members", fields.map.get("members"), "at least one member", "add one: - {user: ada, role: lead}")
    return tuple(members)


def unlimited(fields: Fields, name: str) -> bool:
    """Whether a field says that there is no limit."""
    return fields.map.get(name) == UNLIMITED and bool(fields.raw(name))


def read_amounts(fields: Fields, name: str, gpu: str, others: Iterable[str] = ()) -> dict[str, str]:
    """Amounts by Kubernetes' resource names; those of a cap may be unlimited. `others` are fields beside them."""
    inner = fields.inner(name)
    amounts: dict[str, str] = {}
    for key in inner.map:
        if key == gpu:
            inner.bad(key, inner.map[key], "gpus, which stands for the site's resource", f"write gpus instead of {key}")
            inner.known.append(key)
            continue
        device = key == "gpus" or (names.RESOURCE.fullmatch(key) and not resource_problem(key))
        if not device and key not in NEEDED and not HUGE_PAGES.fullmatch(key):
            continue  # reported below
        resource = gpu if key == "gpus" else NEEDED.get(key, key)
        if name == "cap" and unlimited(inner, key):
            amounts[resource] = UNLIMITED
        else:
            amounts[resource] = str(inner.integer(key, 0, 0, 10**6)) if device else inner.quantity(key, need=True)
    inner.known.extend([*NEEDED, "gpus", *others])
    inner.done()
    return {key: text for key, text in amounts.items() if text}


def read_cap(fields: Fields, gpu: str, others: Iterable[str] = ()) -> dict[str, str]:
    """A queue's cap, which names what every pod needs: what it does not name is 0. Without one, nothing."""
    cap = read_amounts(fields, "cap", gpu, others)
    keys = fields.map.get("cap")
    if not isinstance(keys, Mapping) or not keys:
        return cap
    for key in [key for key in NEEDED if key not in keys]:
        expected = f"an amount or {UNLIMITED}: what a cap does not name is 0, and no pod runs without {key}"
        fix = f"add {key}: {EXAMPLES[key]}, or {key}: {UNLIMITED}"
        fields.problems.append(Problem(fields.at("cap"), f"no {key}", expected, fix))
    return cap


def read_counts(fields: Fields, max_jobs: int | None) -> dict[str, str]:
    """The most objects of each kind that the team may have: what its cap says, else enough for its jobs."""
    cap = fields.map.get("cap")
    own = {kind: cap[kind] for kind in PER_JOB if kind in cap} if isinstance(cap, Mapping) else {}
    inner, counts = Fields(own, fields.at("cap"), fields.problems), dict[str, str]()
    for kind, per_job in PER_JOB.items():
        default = None if max_jobs is None else SPARE + per_job * max_jobs
        if kind in inner.map and not unlimited(inner, kind):
            counts[kind] = str(inner.integer(kind, 1, 1, 10**6))
        elif kind not in inner.map and default is not None:
            counts[kind] = str(default)
    return counts


def read_share(fields: Fields, gpu: str, others: Iterable[str] = ()) -> Share:
    """Guaranteed, deserved and cap; what is guaranteed is deserved too, as Volcano's webhook requires."""
    guaranteed, deserved = (read_amounts(fields, name, gpu) for name in ("guaranteed", "deserved"))
    return Share(guaranteed, {**guaranteed, **deserved}, read_cap(fields, gpu, others))


def read_queue(fields: Fields, gpu: str, prefix: str, parent: str = "") -> QueueSpec:
    """A queue of a list of queues; with a prefix it is a team's child queue, whose parent is fixed."""
    name = fields.text("name", "queue", need=True, what="a-z, 0-9 and -", ok=names.DNS1123)
    if len(prefix + name) > names.LABEL_MAX:
        fields.bad("name", name, f"a name such that {prefix}{name} has at most {names.LABEL_MAX} characters")
    own = fields.text("parent", what="a queue of the site", ok=names.SUBDOMAIN) if not prefix else parent
    queue = queue_of(fields, prefix + name, gpu, own)
    fields.done()
    return queue


def queue_of(fields: Fields, name: str, gpu: str, parent: str, others: Iterable[str] = ()) -> QueueSpec:
    """The fields that every queue has; `others` are further fields of its cap."""
    return QueueSpec(
        name=name,
        share=read_share(fields, gpu, others),
        weight=fields.integer("weight", 1, 1, 65535),
        priority=fields.integer("queue_priority", 0, 0, 10**6),
        reclaimable=fields.flag("reclaimable", default=True),
        parent=parent,
        path=fields.path,
    )


def read_own_queues(fields: Fields, name: str, site: SiteSpec) -> tuple[QueueSpec, ...]:
    """The team's queue and its child queues."""
    parent = fields.text("parent", what="a queue of the site", ok=names.SUBDOMAIN)
    if parent and parent not in {queue.name for queue in site.queues}:
        some = ", ".join(queue.name for queue in site.queues) or "none yet"
        fields.bad("parent", parent, f"a queue of the site ({some})", "add it to site.queues")
    own = queue_of(fields, name, site.gpu_resource, parent, PER_JOB)
    if not fields.map.get("cap"):
        fix = f"set it, e.g. {{{', '.join(f'{key}: {text}' for key, text in EXAMPLES.items())}, gpus: 8}}"
        fields.bad("cap", fields.map.get("cap"), f"an amount or {UNLIMITED} of {', '.join(NEEDED)}", fix)
    return own, *(read_queue(inner, site.gpu_resource, f"{name}-", name) for inner in fields.each("queues"))


def read_requests(fields: Fields) -> dict[str, str]:
    """The requests of a container that sets none."""
    requests = {NEEDED[name]: fields.quantity(name, default) for name, default in DEFAULT_REQUESTS.items()}
    for name, resource in NEEDED.items():
        if quantity.parse(requests[resource]) < quantity.parse(LEAST[resource]):
            fields.bad(name, requests[resource], f"at least {LEAST[resource]}, the least that a container may request")
    fields.done()
    return requests


def read_claims(fields: Fields) -> tuple[Claim, ...]:
    """The team's volume claims, each with a different name."""
    claims: list[Claim] = []
    for inner in fields.each("claims"):
        name = inner.text("name", "claim", need=True, what="a claim's name", ok=names.SUBDOMAIN)
        if any(name == claim.name for claim in claims):
            inner.bad("name", name, "each claim once")
        size = inner.quantity("size", need=True, what="a quantity, e.g. 100Gi")
        modes = names.ACCESS_MODES
        access = matching(inner, "access", re.compile("|".join(modes)), f"one of {', '.join(modes)}")
        kind = inner.text("storage_class", what="a StorageClass's name", ok=names.SUBDOMAIN)
        labels = inner.pairs("labels", label_problem)
        inner.done()
        claims.append(Claim(name, size, access or (names.ACCESS_MODE,), kind, labels))
    return tuple(claims)


def read_outside(fields: Fields) -> tuple[Outside, ...]:
    """The addresses outside their namespace that pods may talk to."""
    addresses = []
    for inner in fields.each("to"):
        cidr = inner.text("cidr", "0.0.0.0/0", need=True, what="addresses, e.g. 192.0.2.0/24")
        try:
            cidr = str(ipaddress.ip_network(cidr))  # a single address gets a prefix: the API server wants one
        except ValueError as error:
            inner.bad("cidr", cidr, f"addresses, e.g. 192.0.2.0/24 ({error})")
        else:
            if "%" in cidr:  # an interface of one machine
                inner.bad("cidr", cidr, "addresses without an interface, e.g. fe80::/10")
        ports = tuple(inner.items("ports"))
        for index, port in enumerate(ports):
            if type(port) is not int or not 0 < port < 2**16:
                inner.bad(f"ports[{index}]", port, "a port from 1 to 65535")
        if "ports" in inner.map and inner.map["ports"] in (None, []):
            inner.bad("ports", inner.map["ports"], "at least one port", "leave the line out to allow all")
        inner.done()
        addresses.append(Outside(cidr, ports))
    return tuple(addresses)


def read_defaults(fields: Fields) -> dict[str, Any]:
    """Default values of the team's jobs; a job's own file overrides them."""
    inner = fields.inner("job_defaults")
    for name in ("name", "namespace", "team"):
        if name in inner.map:
            inner.bad(name, inner.map[name], "no default: each job has its own value", "delete this line")
    defaults = dict(inner.map)
    script = defaults.get("script")
    if isinstance(script, str) and script and not script.startswith("/"):
        inner.bad("script", script, "an absolute path in the image (a script that travels is a job's own)")
        defaults.pop("script")
    job = Fields({**defaults, "name": "job", "image": defaults.get("image", "image")}, inner.path, fields.problems)
    read_job(job, {})
    job.done()
    return defaults
