"""Submit a job that may exist already: compare it with the live one, report every obstacle, then act."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, backend_of, is_submitted_job
from gangplank.backends.code_pieces import is_piece
from gangplank.backends.device_claims import is_template
from gangplank.backends.pod_template import JOB_LABEL, carried_by, named_in
from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster import code, queues
from gangplank.cluster.client import FORBIDDEN, group_path, is_ours, unknown_kind
from gangplank.cluster.leftovers import scripts_left
from gangplank.cluster.patience import silent
from gangplank.cluster.progress import phase
from gangplank.errors import KubeError, Problem, shown
from gangplank.k8s.diff import differences
from gangplank.k8s.plan import Plan
from gangplank.site.volume_claims import mount_problems
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

GONE_S = 120  # for a job and its pods to disappear
OTHER_NAME = "give the job another name"
POLL_S, LONG = 0.5, 6  # seconds between two looks, and after how many one is reported
CLAIM = ("v1", "PersistentVolumeClaim")
# Fields that an older API drops in silence, although the job needs them: what has to have them
DROPPED = {
    "resourceClaims": "a job whose pods can claim devices",
    "runtimePatches": "Kubeflow Trainer 2.3 or later, in which a job can have volumes and a script",
}


def title(item: Json) -> str:
    """What a message calls an object."""
    meta = item["metadata"]
    return f"{item['kind']} {meta['namespace']}/{meta['name']}"


def plan(kube: Kube, manifests: Sequence[Json], volumes: Sequence[Mapping[str, Any]] = (), *, replace: bool) -> Plan:
    """Compare what would be submitted, the job last, with what exists; `volumes` as gangplank.spec.Volume has them.

    A job that exists as described is left alone: values filled in by webhooks are not differences, and no controller
    accepts an update. With `replace`, a job that differs or has failed is removed first; one that is being deleted is
    waited for, whatever it is like.
    """
    *beside, job = manifests
    live = live_object(kube, job)
    if live and is_submitted_job(job) and not is_submitted_job(live):
        return Plan(refused=(str(Problem(title(job), what_else(live), "none yet, or a training", OTHER_NAME)),))
    pieces = [item for item in beside if is_piece(item)]  # named by their content, and compared in the pod
    beside = [item for item in beside if not is_piece(item)]
    before = [live_object(kube, item) for item in beside]
    # A script's ConfigMap is named after its content and immutable: one with other content was edited by hand.
    altered = [old for item, old in zip(beside, before, strict=True) if old and contents(item) != contents(old)]
    by_hand = (f"{title(old)}: the script in it was changed by hand" for old in altered)
    leaves = bool(live and live["metadata"].get("deletionTimestamp"))  # by a deletion that waits for its pods
    differs = (*differences_in_words(job, live), *by_hand) if live and not leaves else ()
    if differs and not replace:
        return Plan(refused=(refusal(job, differs),), differences=differs)
    again = live if live and (leaves or differs or (replace and phase(live).failed)) else None
    if live and not again:  # an earlier run may have been interrupted before the job owned its templates
        beside = [owned(item, job, live) if is_template(item) else item for item in beside]
    submit = [
        item
        for item, old in zip(beside, before, strict=True)
        if old is None or [*differences(item, old)] or (has_owner(item) and not has_owner(old))
    ]
    if again or not live:
        if problems := unfit(kube, job, volumes):
            return Plan(refused=("\n  ".join([f"{title(job)} cannot be submitted:", *map(str, problems)]),))
        templates = [item for item in beside if is_template(item)]  # those of an earlier job go with it
        submit = [*pieces, *templates, *(item for item in submit if not is_template(item)), job]
    remove = [*([again, *scripts_of(again, except_for=beside)] if again else []), *altered]
    return Plan(remove=tuple(remove), write=tuple(submit), differences=differs)


def what_else(live: Json) -> str:
    """What a message calls a live job that is not a training that a user submitted."""
    owners = live["metadata"].get("ownerReferences")
    return f"one of {owners[0]['kind']} {owners[0]['name']}" if owners else "one that is not a training"


def owned(item: Json, job: Json, live: Json) -> Json:
    """An object that a live job owns, so that it is deleted with it."""
    meta = {"apiVersion": job["apiVersion"], "kind": job["kind"], "name": job["metadata"]["name"]}
    return {**item, "metadata": {**item["metadata"], "ownerReferences": [{**meta, "uid": live["metadata"]["uid"]}]}}


def has_owner(item: Json) -> bool:
    """Whether an object is deleted with another."""
    return bool(item["metadata"].get("ownerReferences"))


def contents(item: Json) -> tuple[Any, Any]:
    """What a ConfigMap carries."""
    return item.get("data"), item.get("binaryData")


def unfit(kube: Kube, job: Json, volumes: Sequence[Mapping[str, Any]] = ()) -> list[Problem]:
    """Why this cluster cannot run a job, before anything is created."""
    live_queues = kube.queues() if queues.queue_of(job).name else None  # None too without the right to list them
    problems = queues.problems(job, live_queues) if live_queues is not None else unscheduled(kube, job)
    if volumes and (claims := volume_claims(kube, job["metadata"]["namespace"])) is not None:
        problems += mount_problems(volumes, claims)
    return problems


def volume_claims(kube: Kube, namespace: str) -> list[Json] | None:
    """The volume claims of a namespace; None without the right to list them."""
    try:
        return kube.items(*CLAIM, namespace)
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return None


def lacks_queues(kube: Kube, job: Json) -> bool:
    """Whether a cluster knows a job's kind, and has no queue system; everybody may read both."""
    return bool(kube.get(group_path(job["apiVersion"]))) and not kube.get(f"/apis/{QUEUE_SYSTEM.queue.group}")


def unscheduled(kube: Kube, job: Json) -> list[Problem]:
    """What is wrong with a job that names the queue system's scheduler in a cluster without it: its pods would wait."""
    backend = backend_of(job)
    way = BACKENDS[backend].without_queues(job) if backend else ""
    if not way or not lacks_queues(kube, job):
        return []
    expected = f"a scheduler that this cluster has (it has no {QUEUE_SYSTEM.title})"
    fix = f"{way}, or install {QUEUE_SYSTEM.title}"
    return [Problem("schedulerName", shown(QUEUE_SYSTEM.scheduler), expected, fix)]


def gangless(kube: Kube, job: Json) -> str:
    """What the user of a job has to know that runs without a gang as this cluster has none; "" for any other job."""
    backend = backend_of(job)
    if not backend or QUEUE_SYSTEM.pod_group.kind not in BACKENDS[backend].makes or not lacks_queues(kube, job):
        return ""
    waits = "its pods start one by one, and those that start first wait for the others"
    return f"{title(job)} trains without a gang, as this cluster has no {QUEUE_SYSTEM.title}: {waits}"


def differences_in_words(job: Json, live: Json | None) -> tuple[str, ...]:
    """Where a live job is not as described; an edited script gets a line of its own."""
    backend = backend_of(job)
    expected = BACKENDS[backend].with_changes(job, live) if live and backend else job
    lines = tuple(differences(expected, live)) if live else ()
    described, running = (carried_by(item, job["metadata"]["name"]) for item in (job, live))
    if not (described and running and described != running):
        return lines
    edited = f"the script was edited: that job runs the one in ConfigMap {running}, this one would run {described}"
    return (edited, *(line for line in lines if not line.endswith(f"described {described!r}")))


def scripts_of(live: Json, except_for: Sequence[Json] = ()) -> list[Json]:
    """The ConfigMap that carries a live job's script, unless it is one of those that are submitted again."""
    meta = live["metadata"]
    name = carried_by(live, meta["name"])
    if not name or name in {item["metadata"]["name"] for item in except_for}:
        return []
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": meta["namespace"]}}]


def job_of(item: Json) -> str | None:
    """The job that an object has a label of."""
    return (item["metadata"].get("labels") or {}).get(JOB_LABEL)


def belonging(live: Json, submitted: Sequence[Json]) -> list[Json]:
    """What a file has for a live job: what has its label; without a label, what of the file's jobs only it uses."""
    meta, backend = live["metadata"], BACKENDS[str(backend_of(live))]
    kinds = {("v1", "ConfigMap"), *backend.beside}

    def identity(item: Json) -> tuple[str, str, str]:
        return item["kind"], item["metadata"]["name"], item["metadata"].get("namespace") or meta["namespace"]

    others = [item for item in submitted if backend_of(item) and identity(item) != identity(live)]
    used = named_in(live) | {(kind, meta["name"]) for _, kind in backend.beside}
    used -= set().union(*map(named_in, others))

    def own(item: Json) -> bool:
        kind, name, namespace = identity(item)
        label = job_of(item)
        return namespace == meta["namespace"] and (label == meta["name"] if label else (kind, name) in used)

    return [item for item in submitted if is_template(item) or (item["apiVersion"], item["kind"]) in kinds
            if own(item) and not is_piece(item)]  # fmt: skip


def made_for(kube: Kube, job: Json, kinds: Sequence[tuple[str, str]]) -> list[Json]:
    """The live objects of some kinds and a job's name that have its label, or that it owns."""
    meta = job["metadata"]

    def own(item: Json) -> bool:
        owners = [one["uid"] for one in item["metadata"].get("ownerReferences") or ()]
        return job_of(item) == meta["name"] or meta["uid"] in owners

    named = (live_object(kube, {"apiVersion": version, "kind": kind, "metadata": meta}) for version, kind in kinds)
    return [item for item in named if item and own(item)]


def live_object(kube: Kube, item: Json) -> Json | None:
    """The live object of a manifest, None if there is none."""
    meta = item["metadata"]
    return kube.find(meta["namespace"], meta["name"], [(item["apiVersion"], item["kind"])])


def refusal(job: Json, differs: Sequence[str]) -> str:
    """Why an existing job stays as it is."""
    head = f"{title(job)} already exists and differs from this description:"
    fix = (
        "Its controller refuses such updates. Fix: -e training_job_replace=true deletes that job (its volume claims\n"
        "stay) and runs this one; or give this one another name."
    )
    return "\n".join([head, *(f"  {line}" for line in differs), fix])


def carry_out(kube: Kube, todo: Plan, *, dry_run: bool, report: Callable[[str], None] = silent) -> None:
    """Do what the plan says, once the server's dry run has accepted all of it; `dry_run` stops there.

    `report` gets a line for each object that is written.
    """
    rehearse(kube, todo, report if dry_run else silent)
    if dry_run:
        return
    for item in todo.remove:
        kube.delete(item, "Foreground")
        wait_until_gone(kube, item)
    code.send(kube, todo.write, report)
    for item in todo.write:
        if is_template(item):
            release(kube, item)
        if not is_piece(item):
            report(f"{title(item)} {submit_object(kube, item, dry_run=False)}")
    for item in todo.write:
        if backend_of(item):
            adopt(kube, item, todo.write)
            name = item["metadata"]["name"]
            with contextlib.suppress(KubeError):  # the job exists, and the next submission tries again
                for script in scripts_left(kube, item["metadata"]["namespace"], name, keep=carried_by(item, name)):
                    kube.delete(script)


def rehearse(kube: Kube, todo: Plan, report: Callable[[str], None]) -> None:
    """Ask the server for a dry run of all that the plan writes."""
    removed = [(item["kind"], item["metadata"]["name"]) for item in todo.remove]
    for item in code.first(todo.write):
        refuse_foreign(kube, item)
        try:
            outcome = submit_object(kube, item, dry_run=True)
        except KubeError as error:
            replaced = (item["kind"], item["metadata"]["name"]) in removed
            if not (replaced and removal_helps(item, error)):
                raise
        else:
            report(f"{title(item)} {outcome} (dry run)")


def refuse_foreign(kube: Kube, item: Json) -> None:
    """Raise ExistsError if a job's Service would replace one that is not the job's: its pods would lose their names."""
    label = job_of(item)
    live = live_object(kube, item) if item["kind"] == "Service" and label else None
    if live is None:
        return
    owners, other = live["metadata"].get("ownerReferences"), job_of(live)
    if owners or other != label:
        whose = f"{owners[0]['kind']} {owners[0]['name']}" if owners else f"job {other}" if other else ""
        got = f"that of {whose}" if whose else f"one without the label {JOB_LABEL}"
        fix = f"{OTHER_NAME}; nothing was changed"
        raise ExistsError(str(Problem(title(item), got, f"none yet, or that of job {label}", fix)), 409)


def release(kube: Kube, template: Json) -> None:
    """Remove a template that belongs to an earlier job of this name: it would go with that job in a moment."""
    live = live_object(kube, template)
    if live and has_owner(live) and not has_owner(template):
        kube.delete(live)
        wait_until_gone(kube, live)


def adopt(kube: Kube, job: Json, submitted: Sequence[Json]) -> None:
    """Make a job own the templates of its pods' claims, so that they are deleted with it."""
    meta = job["metadata"]
    own = [item for item in submitted if is_template(item) and item["metadata"]["namespace"] == meta["namespace"]
           and job_of(item) == meta["name"]]  # fmt: skip
    live = live_object(kube, job) if own else None
    if not live:
        return
    for item in own:
        kube.patch(item, {"metadata": {"ownerReferences": owned(item, job, live)["metadata"]["ownerReferences"]}})


def removal_helps(item: Json, error: KubeError) -> bool:
    """Whether the server refuses an object only because its predecessor still exists; it checks that after webhooks."""
    return error.status == 409 or "exceeded quota" in str(error) or item["kind"] == "ConfigMap"


def wait_until_gone(kube: Kube, item: Json, report: Callable[[str], None] = silent) -> None:
    """Wait until what was removed is gone, a job with its pods; a new one of its name does not count."""
    patient, uid = kube.patient(limit_s=GONE_S), item["metadata"].get("uid")
    for number, _ in enumerate(polls(GONE_S, POLL_S)):
        live = live_object(patient, item)
        if not live or (uid and live["metadata"].get("uid") != uid):
            return
        if number == LONG:
            report(f"{title(item)}: waits until its pods have ended")
    fix = "look at its pods: at their finalizers, and whether their nodes answer"
    raise KubeError(late(title(item), "an object that still exists", "its removal", GONE_S, fix))


def submit_object(kube: Kube, item: Json, *, dry_run: bool) -> str:
    """Submit one object; what was done, or KubeError with the fix."""
    strict = dry_run and bool(backend_of(item)) and any(asks_for(item, field) for field in DROPPED)
    try:
        return kube.create(item, dry_run=dry_run, strict=strict)
    except KubeError as error:
        if strict and "unknown field" in str(error):
            needs = next((text for field, text in DROPPED.items() if field in str(error)), "fields that it knows")
            expected = f"{needs} (this cluster's API drops what it does not know)"
            fix = "update the CRDs of its operator, or choose another back-end with --backend"
            raise KubeError(str(Problem(title(item), str(error), expected, fix)), error.status) from None
        if error.status == 409 and is_ours(item) and (live := live_object(kube, item)):
            raise ExistsError(exists(item, live), 409) from None
        if error.status == 404 and "namespaces" not in str(error):
            fix = "install its operator, or choose another back-end with --backend (gangplank expand --help)"
            raise unknown_kind(item["kind"], item["apiVersion"], fix) from None
        raise


def asks_for(value: object, field: str) -> bool:
    """Whether a field is set anywhere in a manifest."""
    if isinstance(value, dict):
        return field in value or any(asks_for(item, field) for item in value.values())
    return isinstance(value, list) and any(asks_for(item, field) for item in value)


class ExistsError(KubeError):
    """A job whose name is taken; the cluster itself works."""

    exit_code = 1


def exists(job: Json, live: Json) -> str:
    """The message about a job whose name is taken."""
    words = f"{job['metadata']['name']} -n {job['metadata']['namespace']}"
    differs = "".join(f"\n  {line}" for line in differences_in_words(job, live))
    detail = f" and differs from this description:{differs}\n" if differs else ". "
    fix = f"Fix: gangplank delete {words} removes it; gangplank status {words} shows it"
    return f"{title(job)} already exists{detail}{fix}"
