"""Where a kind that reaches beyond its namespace names queues, pods and all else that a team's admission judges: CEL.

https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
How a kind names its queue: docs/teams.md, "Every way to a queue".
"""

from __future__ import annotations

from dataclasses import dataclass

from gangplank.backends.queueing import VOLCANO


@dataclass(frozen=True)
class Path:
    """One kind that reaches beyond its namespace: where it names queues, pods and all else that is judged."""

    name: str
    group: str
    resources: tuple[str, ...]
    queues: str = "[]"  # CEL: a list of text; '' is a queue that is not given
    templates: str = "[]"  # CEL: a list of pods or pod templates
    priorities: str = "[]"  # CEL: a list of text, beside those of the templates
    schedulers: str = "[]"  # CEL: a list of text, beside those of the templates
    images: str = "[]"  # CEL: a list of text, beside those of the templates
    targets: str = "[]"  # CEL: a list of text: API version and kind of what a Command is for
    exposures: str = "[]"  # CEL: a list of text: how a Service is reached, as field: value


ANNOTATIONS = "['" + "', '".join(VOLCANO.annotations) + "']"


def of_pod(pod: str) -> str:
    """The queues that a pod or a pod template names; '' when Volcano would have to take its default queue."""
    named = f"{ANNOTATIONS}.map(k, {pod}.?metadata.?annotations[?k].orValue('')).filter(q, q != '')"
    grouped = f"{pod}.?metadata.?annotations[?'{VOLCANO.group}'].orValue('') != ''"
    elsewhere = f"{pod}.spec.?schedulerName.orValue('') != '{VOLCANO.scheduler}'"
    return f"{named}.size() > 0 || {grouped} || {elsewhere} ? {named} : ['']"


def of_template(name: str, group: str, *resources: str, template: str = "object.spec.template") -> Path:
    """A kind that makes pods of one template: its pods are judged too, but a person who submits it hears at once."""
    return Path(name, group, resources, queues=of_pod(template), templates=f"[{template}]")
