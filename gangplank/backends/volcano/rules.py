"""What no single field of a Volcano job shows: tasks that wait forever, and arguments that undo the wiring."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends.base import block
from gangplank.backends.pod_template import SCRIPT_FOLDER, SHM_FOLDER
from gangplank.backends.volcano import go_flags
from gangplank.backends.volcano.block import VolcanoBlock
from gangplank.backends.volcano.plugins import FLAGS, SVC_MOUNT
from gangplank.k8s import names

if TYPE_CHECKING:
    from gangplank.backends.base import Bad
    from gangplank.spec import JobSpec

SUFFIX = len("-0123456789ab")  # of the name that Volcano gives each of its volumes, after the job's


def tasks(spec: JobSpec, bad: Bad) -> None:
    """Volcano's tasks: what each needs at least, and which waits for which."""
    own = block(spec, VolcanoBlock)
    for role, least in own.min_task_member.items():
        most = spec.masters if role == "master" else spec.workers
        if least > most:
            bad(f"volcano.min_task_member.{role}", least, f"at most the {most} replicas of the role")
    if own.depends_on:
        waiting = sum(spec.masters if role == "master" else spec.workers for role in own.depends_on)
        ready = spec.replicas - waiting
        if spec.min_available is None or spec.min_available > ready:
            expected = f"at most {ready}, the pods that do not wait (a gang that counts waiting pods never starts)"
            bad("min_available", spec.min_available, expected, f"set min_available to {max(ready, 1)}")
        for role, others in own.depends_on.items():
            if role in others or set(others) - {"master", "worker"} or not others:
                bad(f"volcano.depends_on.{role}", list(others), "the other role: master or worker")
        if len(own.depends_on) > 1:
            expected = "one role that waits (two would wait forever)"
            bad("volcano.depends_on", dict(own.depends_on), expected, "remove one of them")


def plugins(spec: JobSpec, bad: Bad) -> None:
    """A plugin's arguments are all understood, and do not undo the wiring: Go's flags fail silently."""
    own: dict[str, go_flags.Value] = {"master": "master", "worker": "worker", "port": spec.port}
    for name, arguments in block(spec, VolcanoBlock).plugins.items():
        defaults = FLAGS[name] | (own if name == "pytorch" else {})
        parsed = go_flags.parse(arguments, defaults)
        if parsed.trouble:
            expected = f"arguments that the plugin understands ({parsed.trouble})"
            bad(f"volcano.plugins.{name}", list(arguments), expected, "correct or remove the argument")
        elif name == "pytorch" and any(parsed.values[key] != value for key, value in own.items()):
            fix = "use the field port; the tasks are always called master and worker"
            bad(f"volcano.plugins.{name}", list(arguments), "no --master, --worker or --port", fix)


def volumes(spec: JobSpec, bad: Bad) -> None:
    """Volcano mounts its own volumes when it makes the pods, which the API server then refuses, one after the other."""
    own = block(spec, VolcanoBlock).volumes
    if own and len(spec.name) + SUFFIX > names.LABEL_MAX:
        most = names.LABEL_MAX - SUFFIX
        bad("name", spec.name, f"at most {most} characters with volcano.volumes, which are named after the job")
    mounts = {names.normal_path(volume.mount) for volume in spec.volumes} | {SVC_MOUNT, SCRIPT_FOLDER}
    mounts |= {SHM_FOLDER} if spec.shm_size else set()
    for index, volume in enumerate(own):
        mount = names.normal_path(str(volume.get("mountPath") or ""))
        if mount in mounts:
            bad(f"volcano.volumes[{index}].mountPath", mount, "a path at which nothing else is mounted")
        mounts.add(mount)
