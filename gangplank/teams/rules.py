"""The rules of the admission: what of an object is compared with what its team has, and what to do about a refusal.

A rule is one `Rule`: the values that it refuses and those that it allows are CEL expressions over the variables of a
policy, and census.yml names it at each field that it judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.teams import metadata as labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from gangplank.backends.base import Path

NAMESPACE = "namespaceObject.metadata"
PATTERN = "'^' + p.replace('.', '[.]').replace('*', '.*') + '$'"  # RE2 takes every other allowed character literally
MARKED = "['" + "', '".join(QUEUE_SYSTEM.marks) + "']"
MARKABLE = ("annotations", "labels")
CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def granted(annotation: str) -> str:
    """CEL: what an annotation of the namespace lists; nothing where it is empty or absent.

    >>> granted("a.b/c")
    "namespaceObject.metadata.?annotations[?'a.b/c'].orValue('').split(',').filter(i, i != '')"
    """
    return f"{NAMESPACE}.?annotations[?'{annotation}'].orValue('').split(',').filter(i, i != '')"


def first(lists: str) -> str:
    """CEL: the first item of each list that has one, because CEL cannot flatten a list of lists."""
    return f"{lists}.filter(l, l.size() > 0).map(l, l[0])"


def each_pod(texts: str) -> str:
    """CEL: the first of `texts`, a list of text of the pod or pod template t, for each of an object's."""
    return first(f"variables.templates.map(t, {texts})")


def images(path: Path) -> str:
    """CEL: an image that no pattern matches, from each place that names images."""
    places = " + ".join(f"t.spec.?{part}.orValue([]).map(c, c.?image.orValue(''))" for part in CONTAINERS)
    places += " + t.spec.?volumes.orValue([]).filter(v, has(v.image)).map(v, v.image.?reference.orValue(''))"
    refused = f"([{path.images}] + variables.templates.map(t, {places}))"
    refused += f".map(l, l.filter(i, !variables.images.exists(p, i.matches({PATTERN}))))"
    return f"variables.images.size() == 0 ? [] : {first(refused)}"


def marks(_: Path) -> str:
    """CEL: a mark of each object or template that has one."""
    in_either = " || ".join(f"k in o.?metadata.?{part}.orValue({{}})" for part in MARKABLE)
    return first(f"([object] + variables.templates).map(o, {MARKED}.filter(k, {in_either}))")


@dataclass(frozen=True)
class Rule:
    """One rule: the variables bad<Name> and <plural> of every policy, and the validation that compares them."""

    name: str  # what a value is, in the refusal
    plural: str  # the variable with the allowed values
    refused: Callable[[Path], str]  # CEL: the values that are refused
    allowed: str  # CEL: the values that are allowed
    fix: str

    @property
    def bad(self) -> str:
        """The variable with the refused values."""
        return f"bad{self.plural[0].upper()}{self.plural[1:]}"

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
        f"set schedulerName: {QUEUE_SYSTEM.scheduler}, or have the team file grant it under schedulers",
    ),
    Rule(
        "priority",
        "priorities",
        lambda path: f"({path.priorities} + variables.templates.map(t, t.spec.?priorityClassName.orValue('')))"
        ".filter(p, p != '' && !(p in variables.priorities))",
        granted(labels.PRIORITIES),
        "leave it out, or have the team file grant it under priorities",
    ),
    Rule(
        "service account",
        "accounts",
        lambda _: "variables.templates.map(t, t.spec.?serviceAccountName.orValue('default'))"
        ".filter(a, !(a in variables.accounts))",
        granted(labels.ACCOUNTS),
        "leave it out, or have the team file grant it under service_accounts",
    ),
    # A pod that names its node bypasses every scheduler and queue. On update, the scheduler itself names the node.
    Rule(
        "node",
        "nodes",
        lambda _: "oldObject != null ? [] : "
        "variables.templates.map(t, t.spec.?nodeName.orValue('')).filter(n, !(n in variables.nodes))",
        "['']",
        "leave nodeName out: the scheduler chooses, and nodeSelector narrows",
    ),
    Rule(
        "image",
        "images",
        images,
        granted(labels.IMAGES),
        "use one that matches, or have the team file grant it under images",
    ),
    Rule(
        "annotation or label",
        "marks",
        marks,
        "['']",
        "leave it out: what is above what its queue deserves is given back when another queue deserves it",
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
)
