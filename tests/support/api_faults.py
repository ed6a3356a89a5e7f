"""A proxy on the loopback before a real API server: at seeded moments it answers as a server in trouble does.

`Proxy(kubeconfig, seed)` forwards with the credentials of a kubeconfig. Clients use the kubeconfig that `client_config`
writes, over plain HTTP.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import random
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

RESET = struct.pack("ii", 1, 0)  # close without a word, as the kernel does for a process that was killed
# What a server says that cannot answer now, or client-go of a proxy's page
SAYS = {
    410: "The provided continue parameter is too old",
    429: "the server has received too many requests and has asked us to try again later",
    500: "Internal error occurred: etcdserver: leader changed",
    502: 'an error on the server ("Bad Gateway") has prevented the request from succeeding',
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
STATUSES = (429, 500, 502, 503, 504)
HOPS = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "trailer", "upgrade"}
# What happens to a request, with its share of all faults. `lost` ones are carried out, and only their answer is not
# what the server said: the worst that can happen to a write.
FAULTS = {"busy": 4, "gone": 1, "cut": 2, "lost cut": 3, "lost 504": 3, "truncated": 3, "late": 2}
PIECE = 16 << 10  # bytes of a stream that are forwarded together
STREAM = (200, 40_000)  # bytes after which a stream is ended
MOST_IN_A_ROW = 6  # faults, after which one request passes: no client has patience forever


@dataclass(frozen=True)
class Request:
    """One request, what was done to it, and what the real server answered; 0 if it was not asked."""

    method: str
    where: str
    query: str
    fault: str
    status: int

    @property
    def created(self) -> str:
        """The collection in which this request created an object; '' if it did not."""
        return self.where if self.method == "POST" and self.status == 201 and "dryRun" not in self.query else ""


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    server: Door
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        """Answer one request."""
        proxy = self.server.proxy
        where, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) or None
        fault = proxy.choose(self.command, where)
        status = 0
        try:
            if fault == "late":
                time.sleep(proxy.chance.uniform(0.2, 2))  # that is the fault
            if fault == "busy":
                self.says(proxy.chance.choice(STATUSES))
            elif fault == "gone":  # only of reads, as when etcd was compacted
                self.says(410 if self.command == "GET" else 503)
            elif fault == "cut":
                self.cut()
            else:
                status = self.pass_on(body, fault)
        finally:
            proxy.requests.append(Request(self.command, where, query, fault, status))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward  # noqa: N815  the names that http.server calls

    def pass_on(self, body: bytes | None, fault: str) -> int:
        """Ask the real server; hand on what it says, or less."""
        with contextlib.closing(self.server.proxy.connection()) as upstream:
            headers = {key: value for key, value in self.headers.items() if key.lower() not in {*HOPS, "host"}}
            upstream.request(self.command, self.path, body, headers)
            answer = upstream.getresponse()
            if fault == "lost cut":
                answer.read()
                self.cut()
            elif fault == "lost 504":
                answer.read()
                self.says(504)
            elif fault == "truncated" or (answer.chunked and "follow=true" in self.path):
                self.stream(answer, fault)
            else:
                self.whole(answer.status, answer.read(), answer.getheader("Content-Type") or "")
            return answer.status

    def whole(self, status: int, data: bytes, kind: str, **more: str) -> None:
        """An answer of known length."""
        self.send_response(status)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(data)), **more}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def says(self, status: int) -> None:
        """What the API server says when it cannot answer now."""
        message = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status,
                   "message": SAYS[status]}
        self.whole(status, json.dumps(message).encode(), "application/json", Retry_After="1")

    def stream(self, answer: http.client.HTTPResponse, fault: str) -> None:
        """Hand on a body as it comes; a truncated one breaks in a chunk or ends as if that were all."""
        chance = self.server.proxy.chance
        left = chance.randint(*STREAM) if fault == "truncated" else 1 << 62
        clean = "follow=true" in self.path and chance.random() < 0.5  # a kubelet that restarts ends a followed log so
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type") or "")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := answer.read1(PIECE):
            if len(data) >= left:
                data = data[:left]
                self.wfile.write(b"%x\r\n%b" % (len(data) + (0 if clean else 7), data))
                if not clean:
                    self.cut()
                    return
                self.wfile.write(b"\r\n")
                break
            left -= len(data)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        else:
            if left < 1 << 62 and not clean:  # a body that was shorter: it has no end
                self.cut()
                return
        self.wfile.write(b"0\r\n\r\n")

    def cut(self) -> None:
        """End the connection as a killed server does."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.connection.shutdown(socket.SHUT_RDWR)

    def handle(self) -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # one of the two sides is gone
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


class Door(http.server.ThreadingHTTPServer):
    """Where clients come in."""

    proxy: Proxy
    daemon_threads = True

    def handle_error(self, *_words: object) -> None:
        """Say nothing."""

    def shutdown_request(self, request: Any) -> None:
        with contextlib.suppress(OSError):
            super().shutdown_request(request)


@dataclass
class Proxy:
    """The proxy: a share of the requests has a fault, by `seed`."""

    kubeconfig: Path
    seed: int = 0
    share: float = 0.25
    requests: list[Request] = field(default_factory=list)
    row: int = 0

    def __enter__(self) -> Self:
        self.chance = random.Random(self.seed)
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.address = urlsplit(cluster["server"])
        with tempfile.TemporaryDirectory() as folder:
            self.context = ssl.create_default_context(cafile=named(cluster, "certificate-authority", folder))
            self.context.load_cert_chain(named(user, "client-certificate", folder), named(user, "client-key", folder))
        self.door = Door(("127.0.0.1", 0), Handler)
        self.door.proxy = self
        threading.Thread(target=self.door.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_words: object) -> None:
        self.door.shutdown()
        self.door.server_close()

    def connection(self) -> http.client.HTTPSConnection:
        """A connection to the real server."""
        return http.client.HTTPSConnection(str(self.address.hostname), self.address.port, context=self.context)

    def choose(self, method: str, _: str = "") -> str:
        """What happens to a request to a path, by chance."""
        if self.row >= MOST_IN_A_ROW or self.chance.random() >= self.share:
            self.row = 0
            return ""
        self.row += 1
        fault = self.chance.choices([*FAULTS], [*FAULTS.values()])[0]
        return "lost cut" if fault == "truncated" and method != "GET" else fault

    def faults(self) -> Counter[str]:
        """How often each fault struck."""
        return Counter(request.fault for request in self.requests if request.fault)

    def struck(self, method: str) -> Iterator[Request]:
        """The requests of a method that had a fault."""
        return (request for request in self.requests if request.method == method and request.fault)

    def client_config(self, folder: Path) -> str:
        """A kubeconfig for clients of the proxy."""
        place = folder / "kubeconfig"
        server = f"http://127.0.0.1:{self.door.server_port}"
        place.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "faults",
            "clusters": [{"name": "faults", "cluster": {"server": server}}], "users": [{"name": "faults", "user": {}}],
            "contexts": [{"name": "faults", "context": {"cluster": "faults", "user": "faults"}}]}))  # fmt: skip
        return str(place)


def named(entry: dict[str, str], key: str, folder: str) -> str:
    """The file of a kubeconfig's certificate or key, which may also be in the kubeconfig itself."""
    if key in entry:
        return entry[key]
    place = Path(folder, key)
    place.write_bytes(base64.b64decode(entry[f"{key}-data"]))
    return str(place)
