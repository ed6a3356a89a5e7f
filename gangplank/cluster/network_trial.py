"""Try whether a cluster's network enforces NetworkPolicies: three pods and a policy, in a namespace of their own."""

from __future__ import annotations

import http
from typing import TYPE_CHECKING

from gangplank.cluster.preflight import POD
from gangplank.errors import KubeError, Problem
from gangplank.k8s.age import age_s
from gangplank.k8s.conditions import has_condition
from gangplank.site.preflight import YOUNG, Check
from gangplank.wait import polls

if TYPE_CHECKING:
    from gangplank.cluster.client import Kube
    from gangplank.spec import Json

SPACE = "gangplank-network-trial"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
NAME = "network policies"
PORT = 8000
OLD_S = 600.0  # more than a trial takes, with all its waits
LIMIT_S, POLL_S = 180.0, 0.5  # for the image to be pulled and the pods to start
# The open pod has to be reached, or the trial shows nothing. Some networks need seconds until a policy of theirs holds.
ASK = f"""
import socket, sys, time
def reached(address):
    try:
        socket.create_connection((address, {PORT}), 2).close()
    except OSError:
        return False
    return True
end = time.monotonic() + 30
while not reached(sys.argv[1]):
    if time.monotonic() > end:
        print("unreachable")
        sys.exit()
    time.sleep(0.5)
closed = 0
while closed < 3 and time.monotonic() < end + 30:
    closed = 0 if reached(sys.argv[2]) else closed + 1
    time.sleep(0.5)
print("enforced" if closed == 3 else "open")
"""
SERVE = ["python3", "-m", "http.server", str(PORT)]
# A pod that does not listen yet is not reached either. It asks itself, as a policy may keep its node from it.
LISTENS = ["python3", "-c", f"import socket; socket.create_connection(('localhost', {PORT}), 5)"]
PROBE: Json = {"exec": {"command": LISTENS}, "periodSeconds": 1, "timeoutSeconds": 10}
RESOURCES = {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
POLICY: Json = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "closed", "namespace": SPACE},
    "spec": {"podSelector": {"matchLabels": {"app": "closed"}}, "policyTypes": ["Ingress"], "ingress": []},
}


def trial(kube: Kube, image: str, limit_s: float = LIMIT_S) -> Check:
    """What a pod reached of another that a policy closes; KubeError if the trial could not begin."""
    take_space(kube, limit_s)
    uid = kube.call("GET", f"/api/v1/namespaces/{SPACE}")["metadata"]["uid"]
    try:
        return judged(answer(kube, image, limit_s))
    finally:
        kube.delete_at(f"/api/v1/namespaces/{SPACE}", uid)


def take_space(kube: Kube, limit_s: float) -> None:
    """Create the namespace, once that of an earlier trial is gone; one that was killed leaves it for us to remove."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}
    refusal = KubeError("")
    for _ in polls(limit_s, POLL_S):
        try:
            kube.post("/api/v1/namespaces", space)
        except KubeError as error:
            refusal = error
            if error.status != http.HTTPStatus.CONFLICT or not (ending(kube) or abandoned(kube)):
                break
        else:
            return
    fix = f"wait until another trial is over, or: kubectl delete namespace {SPACE}"
    raise KubeError(str(Problem(f"namespace {SPACE}", str(refusal), "to create it", fix)), refusal.status)


def ending(kube: Kube) -> bool:
    """Whether the namespace goes, or is gone by now."""
    live = kube.get(f"/api/v1/namespaces/{SPACE}")
    return live is None or "deletionTimestamp" in live["metadata"]


def abandoned(kube: Kube) -> bool:
    """Whether no trial can be at work in the namespace any more; it is removed then."""
    where = f"/api/v1/namespaces/{SPACE}"
    meta = (kube.get(where) or {"metadata": {}})["metadata"]
    if age_s(meta.get("creationTimestamp"), kube.now()) < OLD_S:
        return False
    kube.delete_at(where, meta["uid"])
    return True


def judged(result: str) -> Check:
    """The check of what the asking pod printed, or of why it did not run.

    >>> judged("enforced").finding
    'enforced: a pod that a policy closes was not reached'
    """
    if result == "enforced":
        return Check(NAME, "enforced: a pod that a policy closes was not reached")
    fixes = {
        "open": "install a network plugin that enforces them, such as Calico or Cilium; until then every pod of the"
        " cluster reaches the pods of every team",
        "unreachable": "repair the cluster's network: pods do not reach one another, so the trial shows nothing",
    }
    got = {
        "open": "a pod was reached that a policy closes",
        "unreachable": "a pod that no policy closes was not reached",
    }
    fix = fixes.get(result, "repair that, or name another image that has python3: --try-network IMAGE")
    return Check(NAME, problems=(Problem(NAME, got.get(result, result), "a network that enforces them", fix),))


def answer(kube: Kube, image: str, limit_s: float) -> str:
    """What the asking pod printed, or why it did not run."""
    kube.post(f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/networkpolicies", POLICY)
    waiting = "nothing"
    for _ in polls(limit_s, POLL_S):
        for name in ("open", "closed"):
            start(kube, name, image, SERVE, PROBE)
        pods = {name: kube.get(f"{PODS}/{name}") for name in ("open", "closed")}
        if bad := next((pod for pod in pods.values() if pod and pod.get("status", {}).get("phase") == "Failed"), None):
            return f"a pod that failed ({state(bad)})"
        ready = [pod for pod in pods.values() if pod and has_condition(pod, "Ready")]
        if len(ready) == len(pods):
            start(kube, "asks", image, ["python3", "-c", ASK, *(pod["status"]["podIP"] for pod in ready)])
            pods["asks"] = kube.get(f"{PODS}/asks")
            asks = pods["asks"]
            if asks and asks.get("status", {}).get("phase") in ("Succeeded", "Failed"):
                return (kube.log(asks, last=1) or ["no line"])[0]
        waiting = next((why for pod in pods.values() if pod and (why := state(pod))), waiting)
    return f"pods that did not run within {limit_s:.0f} s ({waiting})"


def start(kube: Kube, name: str, image: str, command: list[str], probe: Json | None = None) -> None:
    """Ensure a pod; a namespace has no service account in its first moments."""
    (container,) = POD["spec"]["containers"]
    container = {**container, "image": image, "command": command, "resources": RESOURCES, "readinessProbe": probe}
    spec = {**POD["spec"], "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {**POD, "metadata": {"name": name, "namespace": SPACE, "labels": {"app": name}}, "spec": spec}
    if kube.get(f"{PODS}/{name}") is None:
        try:
            kube.post(PODS, pod, unique=True)
        except KubeError as error:
            if YOUNG not in str(error):
                raise


def state(pod: Json) -> str:
    """Why a pod does not run, or has failed; empty if it runs."""
    status = pod.get("status", {})
    states = [one.get("state", {}) for one in status.get("containerStatuses") or []]
    reasons = [one.get("waiting") or one.get("terminated") or {} for one in states]
    texts = [f"{one['reason']}: {one.get('message', '')}" for one in reasons if one.get("reason")]
    scheduled = [one["message"] for one in status.get("conditions") or [] if one.get("reason") == "Unschedulable"]
    return f"{pod['metadata']['name']}: {'; '.join([*texts, *scheduled])}" if texts or scheduled else ""
