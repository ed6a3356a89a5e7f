"""Helpers of the live tests of teams: the command, the playbook, a team's pod, waiting."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.errors import KubeError
from tests.support.inventories import LAB, fields_of, write_inventory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 180


def until(condition: Callable[[], object], what: str | Callable[[], str], deadline_s: float = DEADLINE_S) -> None:
    """Wait until a condition holds; after the deadline fail with its description, or that of a function."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what if isinstance(what, str) else what()}"
        time.sleep(0.5)


def gangplank(*words: str, kubeconfig: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    environment = os.environ | ({"K8S_AUTH_KUBECONFIG": kubeconfig} if kubeconfig else {})
    command = [sys.executable, "-m", "gangplank", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def teams(site: Path = LAB, *words: str, **extra: object) -> subprocess.CompletedProcess[str]:
    """Run playbooks/teams.yml for an inventory; with `check=True` it only reports what it would do."""
    flags = [*words, *(["--check"] if extra.pop("check", False) else [])]
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(site), "playbooks/teams.yml", *flags]
    if extra:
        command += ["-e", json.dumps(extra)]
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DIFF_ALWAYS": "0",
    }
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@contextlib.contextmanager
def allowing_admin_access(kube: Kube, namespace: str) -> Iterator[None]:
    """With the label of a namespace without which the API server itself refuses admin access to devices."""
    space, label = f"/api/v1/namespaces/{namespace}", "resource.kubernetes.io/admin-access"
    try:
        kube.call("PATCH", space, {"metadata": {"labels": {label: "true"}}})
        yield
    finally:
        kube.call("PATCH", space, {"metadata": {"labels": {label: None}}})


@contextlib.contextmanager
def team_of(
    name: str, fields: Json, kubeconfig: str, kube: Kube, folder: Path
) -> Iterator[Callable[[str], str]]:
    """The kubeconfig of each member of a team, which exists as long as the block runs, with its pods and claims."""
    site, configs = folder / "site", folder / "configs"
    configs.mkdir()
    write_inventory(site, {name: fields})

    def config(user: str) -> str:
        place = configs / user
        if not place.exists():
            done = gangplank("team", "kubeconfig", name, user, "--ttl", "1h", "-o", str(place), kubeconfig=kubeconfig)
            assert done.returncode == 0, done.stderr
        return str(place)

    pods = f"/api/v1/namespaces/{name}/pods"
    try:
        done = teams(site, team_kubeconfig=kubeconfig)
        assert done.returncode == 0, done.stdout + done.stderr
        yield config
    finally:
        for item in (kube.get(pods) or {"items": []})["items"]:
            kube.delete({"apiVersion": "v1", "kind": "Pod", "metadata": item["metadata"]})
        until(lambda: not (kube.get(pods) or {"items": []})["items"], "no pods of the team")
        for claim in fields.get("claims", []):  # which outlive their team
            meta = {"name": claim["name"], "namespace": name}
            kube.delete({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta})
        write_inventory(site, {})
        done = teams(site, team_kubeconfig=kubeconfig, teams_remove=[name])
        assert done.returncode == 0, done.stdout + done.stderr


def until_gone(kube: Kube, where: str, deadline_s: float = DEADLINE_S) -> None:
    """Wait until an object does not exist."""
    until(lambda: kube.get(where) is None, f"{where} is gone", deadline_s)


def edited_copy(folder: Path, drop: tuple[str, ...] = (), **teams_changes: Json) -> Path:
    """A copy of the lab's inventory without some teams and with some fields changed."""
    specs = {path.stem: fields_of(path) for path in LAB.glob("host_vars/*.yml") if path.stem not in drop}
    specs = {name: fields | teams_changes.get(name, {}) for name, fields in specs.items()}
    return write_inventory(folder, specs, fields_of(LAB / "group_vars/teams.yml", "team_site_"))


def answer(kube: Kube, method: str, where: str, body: object = None, **query: str) -> str:
    """The cluster's refusal of a request; empty if it obeys."""
    try:
        kube.call(method, where, body, query)
    except KubeError as error:
        return str(error)
    return ""


def pod(name: str, namespace: str, queue: str, *command: str, **resources: str) -> Json:
    """A pod that a team's namespace accepts as it is."""
    container = {
        "name": "main",
        "image": "gangplank.dev/trainer:0.1.0",
        "command": list(command) or ["true"],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"} | resources, "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "schedulerName": "volcano",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsUser": 1000, "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    meta = {"name": name, "namespace": namespace, "annotations": {"scheduling.volcano.sh/queue-name": queue}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
