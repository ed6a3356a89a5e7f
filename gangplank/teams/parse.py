"""Makes TeamSpecs of teams' files: converts once, refuses once, and names every problem of every file together."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any

from gangplank.errors import Problem, SpecError, shown
from gangplank.jobs.parse import label_problem, read_job
from gangplank.k8s import names, quantity
from gangplank.reading.fields import Fields, Problems, plain
from gangplank.teams.shares import check
from gangplank.teams.spec import ROLES, Claim, Member, Outside, QueueSpec, Share, SiteSpec, TeamSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

LEVELS = ("restricted", "baseline", "privileged")
AMOUNTS = ("cpu", "memory", "gpus")
TEAM_MAX = 40  # characters: room for the names made of it, <team>-<queue> the longest
DEFAULT_REQUESTS = {"cpu": "100m", "memory": "256Mi"}  # a quota refuses pods that ask for nothing
TAKEN = ("default", "root")  # Volcano's own queues
RESERVED = re.compile(  # namespaces of the platform: Kubernetes' own, and what the roles install into by default
    r"default|kube-.*|volcano-.*|local-path-storage|kubeflow|kubeflow-system|gpu-device-plugin|gangplank-.*"
)
USER = re.compile(r"[^\x00-\x1f\x7f\s][^\x00-\x1f\x7f]{0,252}")
PATTERN = re.compile(r"[A-Za-z0-9*][\w.\-/:@*]{0,510}", re.ASCII)


class TeamsError(SpecError):
    """All that is wrong with several files, each problem under its file."""

    def __init__(self, found: Sequence[SpecError]) -> None:
        super().__init__([problem for error in found for problem in error.problems], "teams")
        self.args = ("\n".join(str(error) for error in found),)


def parse_teams(
    files: Mapping[str, Any],
    site: object = None,
    site_source: str = "_site.yml",
    capacity: Mapping[str, Fraction] | None = None,
) -> Teams:
    """The site and its teams by file, in the order of their names; TeamsError with every problem of every file.

    `capacity` is what the cluster has, where the site does not say it.

    >>> _, teams = parse_teams({"a.yml": {"team": {"name": "a", "members": [{"user": "ada"}], "cap": {"cpu": 4}}}})
    >>> teams[0].leaves
    ('a',)
    """
    bad: list[SpecError] = []
    teams: list[TeamSpec] = []
    held = SiteSpec()
    try:
        held = parse_site(site, site_source)
    except SpecError as error:
        bad.append(error)
    for source, value in files.items():
        try:
            teams.append(parse_team(value, source, held))
        except SpecError as error:
            bad.append(error)
    bad += check(teams, held, held.capacity or capacity)
    if bad:
        raise TeamsError(bad)
    return held, tuple(sorted(teams, key=lambda team: team.name))


Teams = tuple[SiteSpec, tuple[TeamSpec, ...]]


def top(value: object, key: str, source: str, problems: Problems) -> Fields:
    """The fields below a file's one key."""
    try:
        outer = Fields(plain(value), "", problems)
    except RecursionError:
        raise SpecError([Problem(key, "a value nested in itself", "a mapping of fields")], source) from None
    found = outer.inner(key)
    if key not in outer.map:
        problems.append(Problem(key, "nothing", f"the key {key} with the fields below it"))
    outer.done()
    return found


def parse_team(value: object, source: str = "team", site: SiteSpec | None = None) -> TeamSpec:
    """The team that a mapping describes, or a SpecError with all that is wrong with it."""
    problems: Problems = []
    held = site or SiteSpec()
    fields = top(value, "team", source, problems)
    name = fields.text("name", "team", need=True, what=f"a-z, 0-9 and -, at most {TEAM_MAX}", ok=names.DNS1035)
    if len(name) > TEAM_MAX:
        fields.bad("name", name, f"at most {TEAM_MAX} characters", "names of queues and files are made of it")
    if name in TAKEN:
        fields.bad("name", name, "another name", "Volcano has a queue of this name")
    namespace = fields.text("namespace", name, what="a namespace: a-z, 0-9 and -", ok=names.DNS1123)
    if RESERVED.fullmatch(namespace):
        fields.bad("namespace", namespace, "a namespace of the team's own", "this one belongs to the platform")
    network = fields.inner("network")
    spec = TeamSpec(
        name=name,
        namespace=namespace,
        members=read_members(fields),
        queues=read_own_queues(fields, name, held),
        max_jobs=fields.maybe("max_jobs", 1),
        priorities=known(fields, "priorities", held),
        images=matching(fields, "images", PATTERN, "an image, * for any characters, e.g. ghcr.io/acme/*"),
        default_requests=read_requests(fields.inner("default_requests")),
        claims=read_claims(fields),
        job_defaults=read_defaults(fields),
        talk_in=matching(network, "from", names.DNS1123, "a namespace"),
        talk_out=read_outside(network),
        pod_security=fields.choice("pod_security", "restricted", LEVELS),
        schedulers=matching(fields, "schedulers", names.DNS1123, "a scheduler's name, e.g. default-scheduler"),
        service_accounts=matching(fields, "service_accounts", names.SUBDOMAIN, "a service account's name"),
        source=source,
    )
    network.done()
    fields.done()
    if problems:
        raise SpecError(problems, source)
    return spec


def parse_site(value: object, source: str = "site") -> SiteSpec:
    """What a site holds for all teams; nothing is a site with defaults alone."""
    if value is None:
        return SiteSpec()
    problems: Problems = []
    fields = top(value, "site", source, problems)
    what = "a resource's name, e.g. nvidia.com/gpu"
    gpu = fields.text("gpu_resource", "nvidia.com/gpu", what=what, ok=names.RESOURCE)
    queues = tuple(read_queue(inner, gpu, "") for inner in listed(fields, "queues"))
    inner = fields.inner("priorities")
    priorities = {key: inner.integer(key, 0, -(10**9), 10**9) for key in inner.map if names.SUBDOMAIN.fullmatch(key)}
    inner.done()
    capacity = read_amounts(fields, "capacity", gpu)
    fields.done()
    for queue in queues:
        if queue.name in TAKEN:
            problems.append(Problem(f"{queue.path}.name", shown(queue.name), "another name", "Volcano has this queue"))
    if problems:
        raise SpecError(problems, source)
    exact = {key: quantity.parse(text) for key, text in capacity.items()}
    return SiteSpec(gpu, queues, priorities, exact or None, source)


def listed(fields: Fields, name: str) -> list[Fields]:
    """The mappings of a list, each as fields."""
    return [Fields(item, fields.at(f"{name}[{at}]"), fields.problems) for at, item in enumerate(fields.items(name))]


def matching(fields: Fields, name: str, ok: re.Pattern[str], what: str) -> tuple[str, ...]:
    """A list of text of which every item has one form and stands once."""
    found = fields.words(name)
    for index, item in enumerate(found):
        if not ok.fullmatch(item):
            fields.bad(f"{name}[{index}]", item, what)
        elif item in found[:index]:
            fields.bad(f"{name}[{index}]", item, "each once")
    return found


def known(fields: Fields, name: str, site: SiteSpec) -> tuple[str, ...]:
    """PriorityClasses, each one of the site's."""
    found = matching(fields, name, names.SUBDOMAIN, "a PriorityClass's name")
    for index, item in enumerate(found):
        if item not in site.priorities:
            some = ", ".join(site.priorities) or "none yet"
            fields.bad(f"{name}[{index}]", item, f"a priority of the site ({some})", "add it to site.priorities")
    return found


def read_members(fields: Fields) -> tuple[Member, ...]:
    """Who may do what; a person stands once."""
    found: list[Member] = []
    for inner in listed(fields, "members"):
        role = inner.choice("role", "trainer", ROLES)
        user, group = inner.text("user", what="a user's name", ok=USER), inner.text("group", what="a group", ok=USER)
        account = inner.text("service_account", what="namespace/name of a service account")
        if sum(map(bool, (user, group, account))) != 1:
            inner.bad("", sorted(inner.map), "one of user, group and service_account")
        elif user.startswith("system:") or group.startswith("system:"):
            inner.bad("user" if user else "group", user or group, "a name of your own", "system: belongs to Kubernetes")
        elif account and not re.fullmatch(r"[a-z0-9][-a-z0-9]{0,62}/[a-z0-9][-a-z0-9.]{0,252}", account):
            inner.bad("service_account", account, "namespace/name", "e.g. ci/runner")
        else:
            namespace, _, last = account.partition("/")
            kind = "User" if user else "Group" if group else "ServiceAccount"
            member = Member(kind, user or group or last, role, namespace)
            if any((other.kind, other.name, other.namespace) == (kind, member.name, namespace) for other in found):
                inner.bad("", member.name, "each member once", "the higher role includes the lower ones")
            found.append(member)
        inner.done()
    if not found and not fields.map.get("members"):
        fields.bad("members", fields.map.get("members"), "at least one member", "e.g. - {user: ada, role: lead}")
    return tuple(found)


def read_amounts(fields: Fields, name: str, gpu: str) -> dict[str, str]:
    """Amounts by Kubernetes' names."""
    inner = fields.inner(name)
    found: dict[str, str] = {key: inner.quantity(key) for key in ("cpu", "memory") if key in inner.map}
    if "gpus" in inner.map:
        found[gpu] = str(inner.integer("gpus", 0, 0, 10**6))
    inner.known.extend(AMOUNTS)
    inner.done()
    return {key: text for key, text in found.items() if text}


def read_share(fields: Fields, gpu: str) -> Share:
    """Guaranteed, deserved and cap; what is guaranteed is deserved too, as Volcano's webhook wants it."""
    guaranteed, deserved, cap = (read_amounts(fields, name, gpu) for name in ("guaranteed", "deserved", "cap"))
    return Share(guaranteed, {**guaranteed, **deserved}, cap)


def read_queue(fields: Fields, gpu: str, prefix: str, parent: str = "") -> QueueSpec:
    """A queue of a list of queues; with a prefix it is a team's child queue, and has no parent of its own choice."""
    name = fields.text("name", "queue", need=True, what="a-z, 0-9 and -", ok=names.DNS1123)
    if len(prefix + name) > names.LABEL_MAX:
        fields.bad("name", name, f"a name such that {prefix}{name} has at most {names.LABEL_MAX} characters")
    own = fields.text("parent", what="a queue of the site", ok=names.SUBDOMAIN) if not prefix else parent
    found = queue_of(fields, prefix + name, gpu, own)
    fields.done()
    return found


def queue_of(fields: Fields, name: str, gpu: str, parent: str) -> QueueSpec:
    """The fields that every queue has."""
    return QueueSpec(
        name=name,
        share=read_share(fields, gpu),
        weight=fields.integer("weight", 1, 1, 65535),
        priority=fields.integer("queue_priority", 0, 0, 10**6),
        reclaimable=fields.flag("reclaimable", default=True),
        parent=parent,
        path=fields.path,
    )


def read_own_queues(fields: Fields, name: str, site: SiteSpec) -> tuple[QueueSpec, ...]:
    """The team's queue, and below it those of its list."""
    parent = fields.text("parent", what="a queue of the site", ok=names.SUBDOMAIN)
    if parent and parent not in {queue.name for queue in site.queues}:
        some = ", ".join(queue.name for queue in site.queues) or "none yet"
        fields.bad("parent", parent, f"a queue of the site ({some})", "add it to site.queues")
    own = queue_of(fields, name, site.gpu_resource, parent)
    if not own.share.cap:
        fields.bad("cap", fields.map.get("cap"), "at least one of cpu, memory and gpus", "e.g. cap: {gpus: 8, cpu: 64}")
    return own, *(read_queue(inner, site.gpu_resource, f"{name}-", name) for inner in listed(fields, "queues"))


def read_requests(fields: Fields) -> dict[str, str]:
    """What a container asks for that says nothing itself."""
    found = {name: fields.quantity(name, default) for name, default in DEFAULT_REQUESTS.items()}
    fields.done()
    return found


def read_claims(fields: Fields) -> tuple[Claim, ...]:
    """The team's claims, each under a name of its own."""
    found: list[Claim] = []
    for inner in listed(fields, "claims"):
        name = inner.text("name", "claim", need=True, what="a claim's name", ok=names.SUBDOMAIN)
        if any(name == claim.name for claim in found):
            inner.bad("name", name, "each claim once")
        size = inner.quantity("size", what="a quantity, e.g. 100Gi")
        if "size" not in inner.map:
            inner.bad("size", None, "a quantity, e.g. 100Gi")
        modes = names.ACCESS_MODES
        access = matching(inner, "access", re.compile("|".join(modes)), f"one of {', '.join(modes)}")
        kind = inner.text("storage_class", what="a StorageClass's name", ok=names.SUBDOMAIN)
        labels = inner.pairs("labels", label_problem)
        inner.done()
        found.append(Claim(name, size, access or ("ReadWriteOnce",), kind, labels))
    return tuple(found)


def read_outside(fields: Fields) -> tuple[Outside, ...]:
    """Where pods may talk to beyond their namespace."""
    found = []
    for inner in listed(fields, "to"):
        cidr = inner.text("cidr", "0.0.0.0/0", need=True, what="addresses, e.g. 192.0.2.0/24")
        try:
            ipaddress.ip_network(cidr)
        except ValueError as error:
            inner.bad("cidr", cidr, "addresses, e.g. 192.0.2.0/24", str(error))
        ports = tuple(port for port in inner.items("ports") if isinstance(port, int) and 0 < port < 2**16)
        if len(ports) != len(inner.map.get("ports") or []):
            inner.bad("ports", inner.map["ports"], "ports from 1 to 65535")
        inner.done()
        found.append(Outside(cidr, ports))
    return tuple(found)


def read_defaults(fields: Fields) -> dict[str, Any]:
    """Values that the team's jobs start from; each job's own file decides."""
    inner = fields.inner("job_defaults")
    for name in ("name", "namespace", "team"):
        if name in inner.map:
            inner.bad(name, inner.map[name], "no such default", "each job has its own")
    found = dict(inner.map)
    job = Fields({**found, "name": "job", "image": found.get("image", "image")}, inner.path, fields.problems)
    read_job(job, {})
    job.done()
    return found
