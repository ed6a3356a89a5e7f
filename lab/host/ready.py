"""Wait until the lab's API answers and its nodes are Ready.

The requests, five a second, use only the standard library and not gangplank.cluster.client:

- The nodes boot meanwhile on the same cores. Importing `kubernetes` for two GETs takes a quarter of a second of a core
  and 54 MiB, while the lab is measured against a bare shell loop (bench/parts/lab.py).
- `kubernetes` 35 sends every request to HTTP_PROXY, whatever NO_PROXY says: with a proxy no lab would become Ready.
"""

from __future__ import annotations

import datetime as dt
import http.client
import json
import ssl
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import yaml

from gangplank.wait import late, polls
from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLL_S = 0.2
ANSWER_S = 30  # a slow machine has the time-out of the wait itself


class Api:
    """GET requests with the client certificate of a kubeconfig whose entries are file names."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read the one cluster and user of the file."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self.context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.context.load_cert_chain(user["client-certificate"], user["client-key"])
        # The API is on this machine: ignore the user's proxy.
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context)]
        self.opener = urllib.request.build_opener(*handlers)

    def get(self, path: str) -> bytes:
        """The body; raises OSError."""
        with self.opener.open(self.server + path, timeout=ANSWER_S) as answer:
            return bytes(answer.read())


def unready(api: Api, nodes: list[str], starts: dict[str, float]) -> str:
    """What is not ready yet in a few words; empty if everything is.

    `starts` are the times when the nodes' kubelets started, by node. What etcd has of a node from before then is of
    another kubelet: after a reboot it says Ready for 50 s.
    """
    try:
        api.get("/readyz")
        nodes_by_name = {item["metadata"]["name"]: item for item in json.loads(api.get("/api/v1/nodes"))["items"]}
    except (OSError, http.client.HTTPException, ValueError) as error:  # also an answer that breaks off
        return f"the API does not answer ({error})"
    for node in nodes:
        conditions = {c["type"]: c for c in nodes_by_name.get(node, {}).get("status", {}).get("conditions", [])}
        ready = conditions.get("Ready")
        if not ready:
            return f"node {node} is not registered"
        if ready["status"] != "True":
            return f"node {node} is not Ready: {ready.get('message', '')}"
        heartbeat = dt.datetime.fromisoformat(ready["lastHeartbeatTime"]).timestamp()
        if node not in starts or heartbeat < int(starts[node]):  # the API server has whole seconds
            return f"node {node} has not reported since its kubelet started"
    return ""


def last_lines(logs: Path, problem: str) -> str:
    """The last lines of the programs that the problem points to."""
    programs = ["kubelet*", "containerd*"] if problem.startswith("node") else ["etcd", "kube-apiserver"]
    sections = []
    for pattern in programs:
        for path in sorted(logs.glob(f"{pattern}.log")):
            lines = path.read_text(errors="replace").strip().splitlines()[-6:]
            sections.append(f"--- {path}\n" + "\n".join(line[:300] for line in lines))
    return "\n".join(sections)


def wait(
    kubeconfig: Path, nodes: list[str], timeout_s: int, logs: Path, starts: Callable[[], dict[str, float]]
) -> float:
    """Poll until every node is Ready; return the seconds it took. Raises LabError at the time limit."""
    api = Api(kubeconfig)
    problem = ""
    for waited_s in polls(timeout_s, POLL_S):
        problem = unready(api, nodes, starts())
        if not problem:
            return round(waited_s, 1)
    fix = "correct what the logs report, then run it again"
    raise LabError(f"{late('the lab', problem, 'every node Ready', timeout_s, fix)}\n{last_lines(logs, problem)}")
