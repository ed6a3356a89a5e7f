"""Volcano's job plugins: what svc, pytorch, env and ssh make of a pod, and the objects they add to a job.

Follows volcano.sh/volcano v1.15.1, pkg/controllers/job/plugins. The order of the plugins is random upstream, hence all
of a pod's environment, volumes and mounts is to be read by name.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from gangplank.backends.base import RANDOM
from gangplank.backends.queueing import JOB_NAME
from gangplank.backends.volcano import go_flags
from gangplank.k8s.build import add_env, add_mount, containers, namespace, owner, value

if TYPE_CHECKING:
    from gangplank.spec import Json

PYTORCH: dict[str, go_flags.Value] = {
    "master": "master",
    "worker": "worker",
    "port": 23456,
    "wait-master-enabled": False,
    "wait-master-timeout": 300,  # seconds
    "wait-master-image": "busybox:1.36.1",
}
SVC: dict[str, go_flags.Value] = {"publish-not-ready-addresses": False, "disable-network-policy": False}
SSH: dict[str, go_flags.Value] = {
    "ssh-key-file-path": "/root/.ssh",
    "ssh-private-key": "",
    "ssh-public-key": "",
    "ssh-port": 22,
}
FLAGS: dict[str, dict[str, go_flags.Value]] = {"pytorch": PYTORCH, "svc": SVC, "ssh": SSH, "env": {}}
SVC_MOUNT = "/etc/volcano"  # of the hosts of every task
SSH_FILES = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
WAIT = """echo "Waiting for master node {a}:{p} to be ready..."
TIMEOUT={t}
ELAPSED=0
until {{ nc -z {a} {p} || echo > /dev/tcp/{a}/{p}; }} 2>/dev/null; do
  if [ $ELAPSED -ge $TIMEOUT ]; then
    echo "Timeout waiting for master after ${{TIMEOUT}} seconds"
    exit 1
  fi
  echo "Master not ready yet, retrying in 2 seconds... (elapsed: ${{ELAPSED}}s)"
  sleep 2
  ELAPSED=$((ELAPSED + 2))
done
echo "Master node is ready!\""""


def settings(job: Json, plugin: str) -> dict[str, go_flags.Value]:
    """The settings that the arguments of a plugin make."""
    return go_flags.parse(job["spec"]["plugins"].get(plugin) or [], FLAGS[plugin]).values


def hosts(job: Json, task: Json) -> list[tuple[str, str]]:
    """The host names and subdomains of a task's pods; a hostname of the template's own counts once."""
    pod = task["template"]["spec"]
    name, subdomain = job["metadata"]["name"], pod.get("subdomain") or job["metadata"]["name"]
    if pod.get("hostname"):
        return [(pod["hostname"], subdomain)] if task["replicas"] else []
    return [(f"{name}-{task['name']}-{index}", subdomain) for index in range(task["replicas"])]


def selector(job: Json) -> dict[str, str]:
    """The labels that all pods of a job have."""
    return {JOB_NAME: job["metadata"]["name"], "volcano.sh/job-namespace": namespace(job)}


def meta(job: Json, name: str, uid: str) -> Json:
    """The metadata of an object that a plugin makes."""
    return {"name": name, "namespace": namespace(job), "ownerReferences": owner(job, uid)}


# What a pod gets --------------------------------------------------------------------------------------------------


def svc_pod(job: Json, pod: Json) -> None:
    """Names the pod within the job's Service, and gives it the hosts of every task."""
    name, spec = job["metadata"]["name"], pod["spec"]
    spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
    spec["subdomain"] = spec.get("subdomain") or name
    keys = []
    for task in job["spec"]["tasks"]:
        upper = task["name"].replace("-", "_").upper()
        keys += [f"VC_{upper}_HOSTS", f"VC_{upper}_NUM"]
    variables = [{"name": key, "valueFrom": {"configMapKeyRef": {"name": f"{name}-svc", "key": key}}} for key in keys]
    spec.setdefault("volumes", []).append({"name": f"{name}-svc", "configMap": {"name": f"{name}-svc"}})
    for container in containers(spec, init=True):
        add_env(container, variables)
        add_mount(container, {"name": f"{name}-svc", "mountPath": SVC_MOUNT})


def pytorch_pod(job: Json, pod: Json, task: Json, index: int) -> None:
    """Opens the port and sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK; without a master task it does nothing."""
    flags = settings(job, "pytorch")
    tasks = {item["name"]: item for item in job["spec"]["tasks"]}
    master = tasks.get(str(flags["master"]))
    if master is None:
        return
    template, name = master["template"]["spec"], job["metadata"]["name"]
    host = template.get("hostname") or f"{name}-{master['name']}-0"
    address = f"{host}.{template.get('subdomain') or name}"
    world = sum(item["replicas"] for item in job["spec"]["tasks"] if item["name"] in {flags["master"], flags["worker"]})
    variables = [value("MASTER_ADDR", address), value("MASTER_PORT", flags["port"]), value("WORLD_SIZE", world)]
    if task["name"] == flags["worker"]:
        variables.append(value("RANK", index + 1))
    elif task["name"] == flags["master"]:
        variables.append(value("RANK", 0))
    for container in containers(pod["spec"]):
        if all(port.get("containerPort") != flags["port"] for port in container.get("ports", [])):
            port = {"name": "pytorchjob-port", "containerPort": flags["port"]}
            container.setdefault("ports", []).append(port)
        add_env(container, variables)
    if task["name"] == flags["worker"] and flags["wait-master-enabled"]:
        wait_for_master(pod["spec"], address, flags)


def wait_for_master(spec: Json, address: str, flags: dict[str, go_flags.Value]) -> None:
    """Appends the init container that waits for the master's port, unless the pod has one of that name."""
    init = spec.setdefault("initContainers", [])
    if all(container.get("name") != "wait-for-master" for container in init):
        script = WAIT.format(a=address, p=flags["port"], t=flags["wait-master-timeout"])
        image = flags["wait-master-image"]
        init.append({"name": "wait-for-master", "image": image, "command": ["sh", "-c", script]})


def env_pod(pod: Json, index: int) -> None:
    """Gives the pod its index within its task, under an old and a new name."""
    for container in containers(pod["spec"], init=True):
        add_env(container, [value("VK_TASK_INDEX", index), value("VC_TASK_INDEX", index)])


def ssh_pod(job: Json, pod: Json) -> None:
    """Mounts the job's keys."""
    name, path = f"{job['metadata']['name']}-ssh", settings(job, "ssh")["ssh-key-file-path"]
    secret = {
        "secretName": name,
        "items": [{"key": key, "path": f".ssh/{key}"} for key in SSH_FILES],
        "defaultMode": 0o600 if path == "/root/.ssh" else 0o644,
    }
    pod["spec"].setdefault("volumes", []).append({"name": name, "secret": secret})
    for container in containers(pod["spec"], init=True):
        add_mount(container, {"name": name, "mountPath": path, "subPath": ".ssh"})


# What a job gets --------------------------------------------------------------------------------------------------


def svc_objects(job: Json, uid: str) -> list[Json]:
    """The ConfigMap of hosts, the headless Service and the NetworkPolicy of a job."""
    name, flags, data = job["metadata"]["name"], settings(job, "svc"), {}
    for task in job["spec"]["tasks"]:
        addresses, key = [".".join(host) for host in hosts(job, task)], task["name"].replace("-", "_")
        data[f"{key}.host"] = "\n".join(addresses)
        data[f"VC_{key.upper()}_HOSTS"] = ",".join(addresses)
        data[f"VC_{key.upper()}_NUM"] = str(len(addresses))
    service: Json = {"clusterIP": "None", "selector": selector(job)}
    if flags["publish-not-ready-addresses"]:
        service["publishNotReadyAddresses"] = True
    items: list[Json] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta(job, f"{name}-svc", uid), "data": data},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta(job, name, uid), "spec": service},
    ]
    if not flags["disable-network-policy"]:
        policy = {
            "podSelector": {"matchLabels": selector(job)},
            "ingress": [{"from": [{"podSelector": {"matchLabels": selector(job)}}]}],
            "policyTypes": ["Ingress"],
        }
        where = meta(job, name, uid)
        items.append({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": where, "spec": policy})
    return items


def ssh_objects(job: Json, uid: str) -> list[Json]:
    """The Secret with the job's keys and the ssh configuration of all its hosts."""
    flags = settings(job, "ssh")
    port = flags["ssh-port"] if 1 <= int(flags["ssh-port"]) <= 65535 else 22
    config = "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
    for task in job["spec"]["tasks"]:
        for host, subdomain in hosts(job, task):
            config += f"Host {host}\n  HostName {host}.{subdomain}\n  Port {port}\n"
    own = bool(flags["ssh-private-key"])
    private, public = (flags["ssh-private-key"], flags["ssh-public-key"]) if own else (RANDOM, RANDOM)
    texts = {"id_rsa": private, "id_rsa.pub": public, "authorized_keys": public, "config": config}
    data = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
    where = meta(job, f"{job['metadata']['name']}-ssh", uid)
    return [{"apiVersion": "v1", "kind": "Secret", "metadata": where, "data": data}]
