"""What a job leaves that is removed without Gangplank, as by its time limit: its scripts, and its Service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplank.backends import BACKENDS, submitted_kinds
from gangplank.backends.pod_template import JOB_LABEL, is_script_of, named_in
from gangplank.cluster.client import FORBIDDEN
from gangplank.errors import KubeError
from gangplank.k8s import names

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

CRON_JOB = ("batch/v1", "CronJob")  # may have been made of a job's manifests


def scripts_left(kube: Kube, namespace: str, name: str, keep: str = "") -> list[Json]:
    """The ConfigMaps with scripts of a job that nothing there runs; none without the right to know that.

    `keep` is one that is known to be in use.
    """
    if not (len(name) <= names.LABEL_MAX and names.SUBDOMAIN.fullmatch(name) and names.SUBDOMAIN.fullmatch(namespace)):
        return []
    try:
        maps = kube.items("v1", "ConfigMap", namespace, f"{JOB_LABEL}={name}")
        maps = [item for item in maps if is_script_of(name, own := item["metadata"]["name"]) and own != keep]
        others = kube.listed(namespace, (*submitted_kinds(), CRON_JOB)) if maps else []
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return []
    used = named_in(others)
    return [{"apiVersion": "v1", "kind": "ConfigMap", **item} for item in maps
            if ("ConfigMap", item["metadata"]["name"]) not in used]


def left(kube: Kube, namespace: str, name: str) -> list[Json]:
    """All that is left of a job if no job of its name exists; of a job of another kind, its unused scripts."""
    scripts = scripts_left(kube, namespace, name)
    try:
        if live_jobs(kube, namespace, name):
            return scripts
        kinds = dict.fromkeys(kind for backend in BACKENDS.values() for kind in backend.beside)
        beside = [item for kind in kinds if (item := kube.find(namespace, name, [kind]))]
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
        return scripts
    return [*scripts, *(item for item in beside if (item["metadata"].get("labels") or {}).get(JOB_LABEL) == name)]


def live_jobs(kube: Kube, namespace: str, name: str) -> list[Json]:
    """The jobs of a name, of all kinds that can be submitted."""
    return [job for kind in submitted_kinds() if (job := kube.find(namespace, name, [kind]))]
