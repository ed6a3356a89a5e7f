"""A control plane of a few programs, with a copy of a cluster's state in its etcd. It runs in namespaces of its own.

The state is written into etcd before the API server starts: so every object keeps its uid, its age and its status, and
no admission is asked a second time.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
import socket
import struct
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Self

from gangplank.cluster.client import Kube
from gangplank.errors import GangplankError, KubeError, Problem
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from gangplank.spec import Json

HERE = "127.0.0.1"
ETCD, ETCD_PEER, API, METRICS, HEALTH = 2379, 2380, 6443, 8080, 11251  # ports of a network that nobody else is in
NOBODY = "192.0.2.1"  # an address for documentation: the API server must advertise one that is not the loopback
STORE = "/registry"
BATCH = 256  # objects of one write
START_S, POLL_S = 300, 0.05
LINES = 5  # of the log of a program that ended
MEMORY = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}  # programs that live for seconds need not collect what they drop
LO_UP = struct.pack("16sH", b"lo", 1)  # ifreq with IFF_UP
SIOCSIFFLAGS = 0x8914


class Plane:
    """The programs, and the folder that they keep everything in."""

    def __init__(self, programs: dict[str, str], folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.kubeconfig = folder / "kubeconfig"
        self.served: list[str] = []  # paths that the API server has to know before it is ready for this state
        self.ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def __enter__(self) -> Self:
        with socket.socket() as any_socket:
            fcntl.ioctl(any_socket, SIOCSIFFLAGS, LO_UP)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()

    def start(self, name: str, words: Sequence[str]) -> None:
        """Start a program; what it prints goes to a file of its name."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [self.programs[name], *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=os.environ | MEMORY,
            )  # fmt: skip

    def alive(self) -> None:
        """Refuse to wait for a program that has ended; the message has its last lines."""
        for name, process in self.running.items():
            if process.poll() is not None:
                log = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
                lines = [line for line in log if line.strip()][-LINES:]
                got = f"exit status {process.returncode} after: {' / '.join(lines)}"
                raise GangplankError(str(Problem(self.programs[name], got, "it to run", "correct what it reports")))

    def waiting(self, what: str, limit_s: float = START_S) -> Iterator[None]:
        """Poll as long as all programs run; raises GangplankError after the limit."""
        for _ in polls(limit_s, POLL_S):
            self.alive()
            yield
        raise GangplankError(late(what, "no answer", "one", limit_s, "use a machine that is less busy"))

    def answers(self, url: str) -> bool:
        """Whether something answers there with success."""
        with contextlib.suppress(OSError), self.ask(url, timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def start_etcd(self) -> None:
        """The store, without a care for power cuts."""
        clients, peers = f"http://{HERE}:{ETCD}", f"http://{HERE}:{ETCD_PEER}"
        self.start("etcd", [
            "--name=shadow", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--log-level=warn",
            f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=shadow={peers}",
            f"--max-txn-ops={BATCH}", f"--max-request-bytes={2**26}", f"--quota-backend-bytes={2**32}",
        ])  # fmt: skip
        for _ in self.waiting("etcd"):
            if self.answers(f"{clients}/health"):
                return

    def load(self, state: Iterable[tuple[str, Json]]) -> None:
        """Write objects under their keys, as the API server would have."""
        puts = []
        for key, item in state:
            puts.append({"requestPut": {"key": coded(f"{STORE}/{key}"), "value": coded(json.dumps(item))}})
            if item["kind"] == "CustomResourceDefinition":
                spec = item["spec"]
                versions = [one["name"] for one in spec["versions"] if one["served"]]
                self.served += [f"/apis/{spec['group']}/{name}/{spec['names']['plural']}" for name in versions]
        for start in range(0, len(puts), BATCH):
            body = json.dumps({"success": puts[start : start + BATCH]}).encode()
            request = urllib.request.Request(f"http://{HERE}:{ETCD}/v3/kv/txn", body)
            with self.ask(request, timeout=START_S) as answer:
                answer.read()

    def start_api(self, *more: str) -> Kube:
        """The API server. Its one token allows everything, and nobody but these programs can reach it."""
        token, tokens = secrets.token_hex(16), self.folder / "tokens.csv"
        tokens.write_text(f"{token},shadow,shadow,system:masters\n")
        key = self.folder / "accounts.key"
        key.write_bytes(account_key())
        self.start("kube-apiserver", [
            f"--etcd-servers=http://{HERE}:{ETCD}", f"--bind-address={HERE}", f"--secure-port={API}",
            f"--cert-dir={self.folder}/certificates", f"--advertise-address={NOBODY}",
            "--endpoint-reconciler-type=none", f"--service-cluster-ip-range={NOBODY}/24",
            f"--token-auth-file={tokens}", "--authorization-mode=AlwaysAllow",
            "--service-account-issuer=https://shadow", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", "--profiling=false", *more,
        ])  # fmt: skip
        certificate = self.folder / "certificates/apiserver.crt"
        cluster = {"server": f"https://{HERE}:{API}", "certificate-authority": str(certificate)}
        name = "shadow"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        }))  # fmt: skip
        kube: Kube | None = None
        for _ in self.waiting("kube-apiserver"):
            if certificate.exists():
                with contextlib.suppress(KubeError):
                    kube = kube or Kube(str(self.kubeconfig))
                    kube.read("GET", "/readyz")
                    if all(kube.get(where, {"limit": "1"}) is not None for where in self.served):
                        break
        if kube is None:
            raise AssertionError
        return kube

    def start_scheduler(self, scheduler: Json) -> None:
        """The scheduler of the job: its program, its flags, and the text of its configuration."""
        name, words = scheduler["program"], list(scheduler["words"])
        if scheduler["configuration"]:
            place = self.folder / "scheduler.conf"
            place.write_text(scheduler["configuration"])
            words.append(f"{scheduler['flag']}={place}")
        self.start(name, [*words, f"--kubeconfig={self.kubeconfig}"])

    def metric(self, name: str) -> float:
        """The value of one of the scheduler's metrics, 0 before it has one."""
        with contextlib.suppress(OSError), self.ask(f"http://{HERE}:{METRICS}/metrics", timeout=5) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith((f"{name} ", f"{name}{{")):
                    return float(line.rpartition(" ")[2])
        return 0.0


def coded(text: str) -> str:
    """A text as etcd's JSON has it."""
    return base64.b64encode(text.encode()).decode()


def account_key() -> bytes:
    """A key for the tokens of service accounts, which nobody asks for."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
