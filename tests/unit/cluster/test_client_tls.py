"""What the client says of a TLS connection that fails, and what it waits out."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest

from gangplank.cluster.client import Kube
from gangplank.cluster.patience import Patience
from gangplank.errors import KubeError
from lab.host import pki

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """A folder with two authorities, `ca` and `other`, and a certificate that the first signed for 127.0.0.1."""
    pki.ensure(tmp_path, ["ca", "other"], [pki.Leaf("api", "api", sans=("127.0.0.1",))])
    return tmp_path


@contextlib.contextmanager
def serving(authority: Path, *, cut: int) -> Iterator[int]:
    """A server's port: it closes the first `cut` connections before it has said a word, as a load balancer does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "api.crt", authority / "api.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for number in range(1_000_000):
                try:
                    connection, _ = listener.accept()
                except OSError:  # closed
                    return
                with connection, contextlib.suppress(OSError):
                    if number >= cut:
                        with context.wrap_socket(connection, server_side=True) as stream:
                            stream.recv(1 << 16)
                            stream.sendall(ANSWER)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(5)


def client(authority: Path, port: int, bearer: str = "t", **cluster: str) -> Kube:
    """A client of the server on this port."""
    entry = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(authority / "ca.crt"), **cluster}
    content = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": entry}],
        "users": [{"name": "x", "user": {"token": bearer}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    (authority / "config").write_text(json.dumps(content))
    return Kube(str(authority / "config"))


@pytest.mark.parametrize("wrong", ["authority", "name"])
def test_a_certificate_that_is_not_trusted_is_named_at_once(authority: Path, wrong: str) -> None:
    entry = (
        {"tls-server-name": "a.example"} if wrong == "name" else {"certificate-authority": str(authority / "other.crt")}
    )
    with serving(authority, cut=0) as port:
        kube = client(authority, port, **entry)
        kube.patience = Patience(60)
        with pytest.raises(KubeError, match=r"got a certificate with .*Fix: correct certificate-authority") as refusal:
            kube.get("/version")
    assert not refusal.value.outage


def test_a_server_that_closes_the_connection_before_tls_is_waited_for(authority: Path) -> None:
    lines: list[str] = []
    with serving(authority, cut=2) as port:
        kube = client(authority, port)
        kube.patience = Patience(60, say=lines.append)
        assert kube.get("/version") == {}
    assert [line.partition(" (")[0] for line in lines[:1]] == ["the API server does not answer"]
    assert lines[-1].startswith("the API server answers again")


@pytest.mark.parametrize("server", ["https://a..b:6443", "https://127.0.0.1:99999", "https://exa mple.com"])
def test_a_server_that_has_no_address_is_not_taken_for_a_wrong_token(authority: Path, server: str) -> None:
    with pytest.raises(KubeError, match="got no answer") as refusal:
        client(authority, 9, server=server).get("/version")
    assert "token" not in str(refusal.value)


@pytest.mark.parametrize("token", ["one\n", "é€"])
def test_a_token_that_no_request_can_carry_is_named(authority: Path, token: str) -> None:
    with (
        serving(authority, cut=0) as port,
        pytest.raises(KubeError, match="got credentials that no request can carry"),
    ):
        client(authority, port, token).get("/version")
