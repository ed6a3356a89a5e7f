"""The rules of the admission: what of an object is compared with what its team has, and what to do about a refusal.

A rule is one `Rule`: the values that it refuses and those that it allows are CEL expressions over the variables of a
policy, and census.yml names it at each field that it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.teams import conditions as cel
from gangplank.teams import metadata as labels
from gangplank.teams.conditions import granted, of_pods

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.backends.base import Path


@dataclass(frozen=True)
class Rule:
    """One rule: the variables bad<Name> and <plural> of every policy, and the validation that compares them."""

    name: str  # what a value is, in the refusal
    plural: str  # the variable with the allowed values
    refused: Callable[[Path], str]  # CEL: the values that are refused
    allowed: str  # CEL: the values that are allowed
    fix: str
    of_members: bool = False  # controllers and administrators may, because they set it themselves

    @property
    def bad(self) -> str:
        """The variable with the refused values."""
        return f"bad{self.plural[0].upper()}{self.plural[1:]}"

    def holds(self) -> str:
        """The validation as a CEL expression."""
        text = f"!variables.fresh || variables.{self.bad}.size() == 0"
        return f"{text} || variables.trusted" if self.of_members else text

    def message(self) -> str:
        """The refusal as a CEL expression: the value, the allowed values, the fix."""
        named = f"variables.{self.plural}.filter(a, a != '')"
        some = f"({named}.size() > 0 ? {named}.join(', ') : 'none')"
        start = f"'team ' + variables.team + ': {self.name} \"' + variables.{self.bad}[0] + '\" is not one of its "
        return f"{start}{self.plural} (' + {some} + '); {self.fix}'"


RULES = (
    Rule(
        "queue",
        "queues",
        lambda path: f"({path.queues}).filter(q, !(q in variables.queues))",
        granted(labels.QUEUES),
        f'name a queue: {QUEUE_SYSTEM.title} puts work that names none into "{QUEUE_SYSTEM.default}"',
    ),
    Rule(
        "scheduler",
        "schedulers",
        lambda path: f"({path.schedulers} + "
        f"variables.templates.map(t, t.spec.?schedulerName.orValue('{labels.SCHEDULER}')))"
        ".filter(s, !(s in variables.schedulers))",
        granted(labels.SCHEDULERS),
        f"set schedulerName: {QUEUE_SYSTEM.scheduler}, or have the team file grant it under team_schedulers",
    ),
    Rule(
        "priority",
        "priorities",
        lambda path: of_pods("priorityClassName", "priorities", path.priorities),
        granted(labels.PRIORITIES),
        "leave it out, or have the team file grant it under team_priorities",
    ),
    Rule(
        "service account",
        "accounts",
        lambda _: of_pods("serviceAccountName", "accounts"),
        granted(labels.ACCOUNTS),
        "leave it out, or have the team file grant it under team_service_accounts",
    ),
    # A pod that names its node bypasses every scheduler and queue. On update, the scheduler itself names the node.
    Rule(
        "node",
        "nodes",
        lambda _: f"oldObject != null ? [] : {of_pods('nodeName', 'nodes')}",
        "['']",
        "leave nodeName out: the scheduler chooses, and nodeSelector narrows",
    ),
    Rule(
        "image",
        "images",
        cel.images,
        granted(labels.IMAGES),
        "use one that matches, or have the team file grant it under team_images",
    ),
    Rule(
        "mark",
        "marks",
        cel.marks,
        "['']",
        "leave it out: no job keeps what another queue deserves, or gets ahead in line by itself",
    ),
    Rule(
        "annotation or label",
        "domains",
        cel.domains,
        f"{cel.quoted(*cel.DOMAINS)} + {granted(labels.DOMAINS)}",
        "leave it out, or have the team file grant its domain under team_annotation_domains",
        of_members=True,
    ),
    Rule(
        "label",
        "labels",
        cel.own_labels,
        "['']",
        "leave it out: it is for the pods of the job of this name, and for this team",
        of_members=True,
    ),
    Rule(
        "finalizer",
        "finalizers",
        cel.finalizers,
        "['']",
        "leave it out: only a controller could remove it, and until then nothing is deleted",
        of_members=True,
    ),
    Rule(
        "owner",
        "owners",
        cel.owners,
        "['']",
        "leave ownerReferences out: what a job owns is made by its controller",
        of_members=True,
    ),
    Rule(
        "toleration",
        "tolerations",
        cel.tolerations,
        granted(labels.TOLERATIONS),
        "leave it out, or have the team file grant the taint under team_tolerations",
    ),
    Rule(
        "node label",
        "nodeLabels",
        cel.node_labels,
        f"{cel.quoted(*cel.NODE_LABELS)} + {granted(labels.NODE_LABELS)}",
        "leave it out, or have the team file grant it under team_node_labels",
    ),
    Rule(
        "runtime class",
        "runtimeClasses",
        lambda _: of_pods("runtimeClassName", "runtimeClasses"),
        granted(labels.RUNTIME_CLASSES),
        "leave it out, or have the team file grant it under team_runtime_classes",
    ),
    Rule(
        "grace period",
        "gracePeriods",
        cel.grace_periods,
        f"['{cel.MOST_GRACE_S} or less']",
        f"set {cel.MOST_GRACE_S} s or less: a pod that is displaced keeps its place until it ends",
    ),
    Rule(
        "environment variable",
        "variables",
        cel.environment,
        "['']",
        "leave it out and ask for GPUs under resources: the device plugin then names them",
    ),
    Rule(
        "resource",
        "resources",
        cel.resources,
        f"{cel.quoted(*cel.RESOURCES)} + {granted(labels.RESOURCES)}",
        "leave it out, or have the team file give an amount of it under team_cap",
    ),
    Rule(
        "amount",
        "amounts",
        cel.amounts,
        f"['0 to {cel.MOST_AMOUNT}']",
        "ask for an amount between these: the scheduler of all teams ends with an error on others",
    ),
    Rule(
        "pod count",
        "podCounts",
        cel.pod_counts,
        f"[({granted(labels.PODS)} + ['{cel.MOST_PODS}'])[0]].map(n, n + ' or less')",
        "ask for fewer replicas, or have the team file give more pods under team_cap",
    ),
    Rule(
        "name",
        "names",
        cel.taken_names,
        "['']",
        f"end it otherwise: {QUEUE_SYSTEM.title} replaces and removes what has the name of a job and this ending",
        of_members=True,
    ),
    Rule(
        "secret",
        "secrets",
        cel.secrets,
        granted(labels.SECRETS),
        "leave it out, or have the team file grant it under team_secrets",
    ),
    Rule(
        "field",
        "fields",
        cel.fields,
        "['']",
        "leave it out: no team may set it",
    ),
    Rule(
        "volume type",
        "volumeTypes",
        cel.volume_types,
        cel.quoted(*cel.VOLUME_TYPES),
        "mount a volume claim: the kubelet mounts this type from its node, past every NetworkPolicy",
    ),
    Rule(
        "device class",
        "deviceClasses",
        cel.device_classes,
        granted(labels.DEVICE_CLASSES),
        "ask for a number of devices of one of these, or have the team file give an amount of it under team_cap",
    ),
    Rule(
        "target",
        "targets",
        lambda path: f"({path.targets}).filter(t, !(t in variables.targets))",
        f"['{QUEUE_SYSTEM.commanded}']",
        f"name a {QUEUE_SYSTEM.title} Job: queues are opened and closed by an administrator",
    ),
    Rule(
        "exposure",
        "exposures",
        lambda path: f"({path.exposures}).filter(e, !(e in variables.exposures))",
        "['type: ClusterIP']",
        "leave the field out: a Service of a team is reached from the cluster alone, at an address of its own",
    ),
    # The last one: what else is wrong with an object is said first.
    Rule(
        "kind",
        "kinds",
        lambda path: path.unread,
        "['']",
        "let an administrator create it: one that its controller cannot read stops that for all teams",
        of_members=True,
    ),
)
