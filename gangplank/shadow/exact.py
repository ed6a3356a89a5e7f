"""Asks the site's own scheduler, in a shadow of the site's control plane. The site itself is only read."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.backends.queueing import QUEUE_SYSTEM
from gangplank.cluster.client import FORBIDDEN, path
from gangplank.cluster.deployed import DEPLOYMENTS, in_one_word, mounted, running, words_of
from gangplank.cluster.situation import decided
from gangplank.cluster.snapshot import DENIED, items, taint_rules
from gangplank.errors import GangplankError, KubeError, Problem, Unreadable
from gangplank.scheduling import settings, volume_rules
from gangplank.scheduling.cause import Cause
from gangplank.scheduling.demand import DEFAULT_SCHEDULER, UNFORESEEN
from gangplank.scheduling.fit import Answer, Verdict
from gangplank.scheduling.preemption import named
from gangplank.shadow import programs, state
from gangplank.shadow.inside import FOLDER
from gangplank.shadow.plane import HERE, METRICS
from gangplank.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.cluster.client import Kube
    from gangplank.scheduling.why import Situation
    from gangplank.spec import Json

KUBERNETES = "kube-scheduler"
IMAGE = re.compile(rf"(?:^|/){QUEUE_SYSTEM.program}:(v[^@:/]+)")
# Flags that name files of the pod, or other servers; ours come last, and the last one counts
DROPPED = re.compile(r"--?(?:tls|ca-cert|kubeconfig|master|plugins-dir|scheduler-conf|leader-elect)")
OURS = ["--leader-elect=false", f"--listen-address={HERE}:{METRICS}", *QUEUE_SYSTEM.settings]
NAMESPACES = ("unshare", "--net", "--mount", "--ipc", "--pid", "--fork", "--kill-child")
LEAVE_S = 30  # for all processes to be gone


@dataclass(frozen=True)
class Scheduler:
    """Who places the job's pods at the site, or what keeps us from asking it."""

    program: str
    name: str
    version: str = ""
    words: tuple[str, ...] = ()
    configuration: str = ""
    flag: str = ""
    missing: tuple[str, ...] = ()

    def order(self) -> Json:
        """What the shadow has to know of it."""
        return {
            "program": self.program, "name": self.name, "words": list(self.words),
            "configuration": self.configuration, "flag": self.flag,
        }  # fmt: skip


@dataclass(frozen=True)
class Exact:
    """An answer, and who gave it."""

    answer: Answer
    ended: tuple[str, ...] = ()  # pods that the scheduler would end for the job; those of other namespaces as a sum
    answered_by: str = ""


def exact(
    kube: Kube, now: Situation, objects: Sequence[Json], folder: str | None = None, configuration: str | None = None
) -> Exact:
    """Whether a job would start now, as the site's own scheduler says."""
    if now.refusals:
        return Exact(Answer(Verdict.NO, causes=now.refusals), answered_by="the site's API server, by a dry run")
    if now.demand is None or not now.demand.parts:
        return unsure(UNFORESEEN)
    scheduler = scheduler_of(kube, now.demand.scheduler, configuration)
    placed = any(pod["spec"].get("nodeName") for pod in now.pods)
    group = [now.group["metadata"]["uid"]] if now.group else []
    again = {*(pod["metadata"]["uid"] for pod in now.pods), *group} if placed else set()
    copy = state.copied(kube, again)
    release = kube.call("GET", "/version")["gitVersion"]
    wanted = {"etcd": programs.ANY, "kube-apiserver": release, scheduler.program: scheduler.version or release}
    paths, problems = ({}, []) if scheduler.missing else programs.find(wanted, folder)
    missing = [*scheduler.missing, *problems, *copy.missing, *volumes(now), *devices(kube, objects)]
    if missing:
        return unsure(*missing)
    order = {
        **submission(now, objects, fresh=placed),
        "programs": paths,
        "objects": copy.objects,
        "scheduler": scheduler.order(),
        "minimum": now.demand.minimum,
        "namespace": now.demand.namespace,
    }
    result = asked(order)
    size = f"{counted(copy.count('minions'), 'node')} and {counted(copy.count('pods'), 'pod')}"
    who = f"{scheduler.program} {scheduler.version or release}, in a copy of the site with {size}"
    if result["verdict"] == "yes":
        titles = {decided(name): name for part in now.demand.parts for name in part.pods}
        nodes = {titles.get(name, name): node for name, node in result["placement"].items()}
        return Exact(Answer(Verdict.YES, nodes=nodes), named(result["ended"], now.demand.namespace), who)
    said = "; ".join(result["messages"]) or "nothing"
    return Exact(Answer(Verdict.NO, causes=(Cause("scheduler", f"the scheduler says: {said}"),)), answered_by=who)


def unsure(*missing: str) -> Exact:
    """The answer without what would have to be known."""
    return Exact(Answer(Verdict.CANNOT_TELL, missing=missing))


def submission(now: Situation, objects: Sequence[Json], *, fresh: bool) -> Json:
    """What has to be created so that the job is as complete as its controllers would make it."""
    live = [] if fresh else [pod["metadata"]["name"] for pod in now.pods]
    live_group = None if fresh else now.group
    namespace = now.demand.namespace if now.demand else ""
    create: list[tuple[str, Json]] = []
    pods, group = list(live), live_group["metadata"]["name"] if live_group else ""
    groups = f"/apis/{QUEUE_SYSTEM.pod_group.api_version}/namespaces/{namespace}/{QUEUE_SYSTEM.pod_group.plural}"
    size = now.demand.size if now.demand else 0
    for item in map(decided, objects):
        name = item["metadata"].get("name") or ""
        if item["kind"] == QUEUE_SYSTEM.pod_group.kind and not group:
            group = name
            create.append((groups, bare(item)))
        elif item["kind"] == "Pod" and name not in live and len(pods) < size:
            pods.append(name)
            create.append((path("v1", "Pod", namespace), bare(item)))
    return {"create": create, "pods": pods, "group": f"{groups}/{group}" if group else ""}


def bare(item: Json) -> Json:
    """An object as a controller would submit it, without owners, which the shadow does not have."""
    kept = ("name", "namespace", "labels", "annotations")
    meta = {key: item["metadata"][key] for key in kept if key in item["metadata"]}
    return {**{key: value for key, value in item.items() if key != "status"}, "metadata": meta}


def volumes(now: Situation) -> list[str]:
    """Claims of the job that get their volume only from controllers, which the shadow does not have."""
    mounted = volume_rules.names(now.demand) if now.demand else []
    late = [claim["metadata"]["name"] for claim in now.state.claims if volume_rules.late_class(claim, now.state)]
    return [f"where volume claim {name} gets its volume: it is made for the first pod that mounts it"
            for name in mounted if name in late]


def devices(kube: Kube, objects: Sequence[Json]) -> list[str]:
    """What the copy cannot know of the devices that pods claim."""
    claims = [one for item in objects if item["kind"] == "Pod" for one in item["spec"].get("resourceClaims") or ()]
    if any(one.get("resourceClaimTemplateName") for one in claims):
        return ["devices of claims that are made from templates: no controller makes them in the copy"]
    if claims and taint_rules(kube) != []:
        return ["devices behind resource claims: the copy has no rules that taint some (DeviceTaintRules)"]
    return []


def scheduler_of(kube: Kube, name: str, configuration: str | None) -> Scheduler:
    """The scheduler of a name, with its flags and its configuration at the site."""
    if name == DEFAULT_SCHEDULER:
        return kubernetes(kube, configuration)
    deployments = items(kube, DEPLOYMENTS)
    if deployments is None:
        return Scheduler(QUEUE_SYSTEM.program, name, missing=(f"deployments of all namespaces ({DENIED})",))
    for item, container in running(deployments, QUEUE_SYSTEM.program):
        words = in_one_word(words_of(container))
        flags = dict(word.lstrip("-").partition("=")[::2] for word in words)
        if flags.get("scheduler-name", QUEUE_SYSTEM.scheduler) == name:
            return queueing(kube, item, container, words, flags)
    problem = Problem(f"scheduler {name}", "no Deployment of it", f"{DEFAULT_SCHEDULER} or {QUEUE_SYSTEM.title}'s")
    return Scheduler(QUEUE_SYSTEM.program, name, missing=(str(problem),))


def queueing(kube: Kube, deployment: Json, container: Json, words: list[str], flags: dict[str, str]) -> Scheduler:
    """The queue system's scheduler as its Deployment runs it."""
    meta, missing = deployment["metadata"], list[str]()
    where = f"deployment {meta['namespace']}/{meta['name']}"
    image = IMAGE.search(container["image"])
    if image is None:
        expected = f"a tag that is a version, like {QUEUE_SYSTEM.program}:v1.15.1"
        missing.append(str(Problem(f"{where}, image", container["image"], expected)))
    if "plugins-dir" in flags:
        missing.append(f"{where}: what the plugins of {flags['plugins-dir']} do, which are not in the copy")
    named = flags.get("scheduler-conf", "")
    text = configured(kube, deployment, container, named)
    if not text:
        missing.append(f"{where}: its configuration {named} (you may not read it, or no ConfigMap has it)")
    used = sorted({*QUEUE_SYSTEM.elsewhere} & {*settings.read(text).plugins})
    missing += [f"{where}: what its plugin {one} learns from a server, which the copy cannot ask" for one in used]
    kept = [word for word in words if not DROPPED.match(word)]
    name = flags.get("scheduler-name", QUEUE_SYSTEM.scheduler)
    version = image[1] if image else ""
    return Scheduler(
        QUEUE_SYSTEM.program, name, version, (*kept, *OURS), text, "--scheduler-conf", tuple(missing)
    )


def configured(kube: Kube, deployment: Json, container: Json, place: str) -> str:
    """The text of a file that a container has from a ConfigMap; "" if there is none, or if it may not be read."""
    try:
        return mounted(kube, deployment, container, PurePosixPath(place or "/"))
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return ""


def kubernetes(kube: Kube, configuration: str | None) -> Scheduler:
    """Kubernetes' own scheduler. Its configuration is a file of its host, which the API server does not show."""
    kubeconfig = str(FOLDER / "kubeconfig")
    value: Any = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    if configuration:
        try:
            value = yaml.safe_load(Path(configuration).read_text())
        except (OSError, ValueError, yaml.YAMLError) as error:
            reason = " ".join(str(error).split())
            raise Unreadable(str(Problem(configuration, reason, "the configuration of kube-scheduler"))) from None
        if not isinstance(value, dict) or value.get("kind") != "KubeSchedulerConfiguration":
            raise Unreadable(str(Problem(configuration, "another document", "a KubeSchedulerConfiguration")))
        if value.get("extenders"):
            line = f"{configuration}: what its extenders say, which the copy cannot ask"
            return Scheduler(KUBERNETES, DEFAULT_SCHEDULER, missing=(line,))
    else:
        pods = items(kube, "/api/v1/namespaces/kube-system/pods") or ()
        labelled = (pod for pod in pods if (pod["metadata"].get("labels") or {}).get("component") == KUBERNETES)
        first = (pod["spec"]["containers"][0] for pod in labelled)
        words = [word for one in first for word in words_of(one)]
        if own := [word for word in words if word.startswith("--config")]:
            fix = "copy this file here, and name it with --scheduler-config"
            problem = Problem("the pod of kube-scheduler", own[0], "its default configuration", fix)
            return Scheduler(KUBERNETES, DEFAULT_SCHEDULER, missing=(str(problem),))
    value = {**value, "clientConnection": {"kubeconfig": kubeconfig}, "leaderElection": {"leaderElect": False}}
    words = [f"--bind-address={HERE}", "--authentication-skip-lookup=true"]
    return Scheduler(KUBERNETES, DEFAULT_SCHEDULER, "", tuple(words), json.dumps(value), "--config")


def asked(order: Json) -> Json:
    """Start the shadow in namespaces of its own, and return its answer. It is gone when this ends, however it ends."""
    home = Path(__file__).resolve().parents[2]
    command = [*NAMESPACES, *([] if os.geteuid() == 0 else ["--map-root-user"])]
    command += [sys.executable, "-m", "gangplank.shadow.inside"]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(home)}
    try:
        shadow = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        fix = "run it on Linux, with util-linux"
        raise GangplankError(str(Problem("unshare", error.strerror or str(error), "it installed", fix))) from None
    try:
        line = reply(shadow, json.dumps(order))
        if not line:
            last = (shadow.stderr.read() if shadow.stderr else "").strip().splitlines()[-1:] or ["nothing"]
            fix = "run it as root, or allow user namespaces"
            raise GangplankError(str(Problem("the copy of the control plane", last[0], "an answer", fix)))
    finally:
        leave(shadow)
    answer: Json = json.loads(line)
    if "error" in answer:
        raise GangplankError(str(answer["error"]))
    return answer


def reply(shadow: subprocess.Popen[str], order: str) -> str:
    """The line that answers an order; "" without one."""
    if shadow.stdin is None or shadow.stdout is None:
        return ""
    try:
        shadow.stdin.write(f"{order}\n")
        shadow.stdin.flush()
    except BrokenPipeError:
        return ""
    return shadow.stdout.readline()


def leave(shadow: subprocess.Popen[str]) -> None:
    """End the shadow: with its standard input goes its first process, and with that the others."""
    with shadow:
        if shadow.stdin:
            with contextlib.suppress(BrokenPipeError):
                shadow.stdin.close()
        try:
            shadow.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            shadow.kill()
