"""The lab's certificates: what a strict client accepts, and when they are renewed."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from lab.host.pki import Leaf, ensure

if TYPE_CHECKING:
    from pathlib import Path

API = Leaf("api", "kube-apiserver", sans=("127.0.0.1", "localhost"))
CLIENT = Leaf("admin", "admin", "system:masters")


def greet(folder: Path, name: str) -> None:
    """A TLS handshake, in memory, with a client as strict as Python 3.13's."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "api.crt", folder / "api.key")
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    outbound, inbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(inbound, outbound, server_hostname=name),
        server.wrap_bio(outbound, inbound, server_side=True),
    ]
    for end in ends * 2:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_strict_client_accepts_the_server(tmp_path: Path, name: str) -> None:
    assert ensure(tmp_path, ["ca"], [API, CLIENT]) == ["ca", "api", "admin", "sa", "encryption"]
    greet(tmp_path, name)


def test_it_accepts_no_other_name(tmp_path: Path) -> None:
    ensure(tmp_path, ["ca"], [API])
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(tmp_path, "elsewhere")


def test_existing_ones_stay(tmp_path: Path) -> None:
    ensure(tmp_path, ["ca"], [API, CLIENT])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert ensure(tmp_path, ["ca"], [API, CLIENT]) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_names_and_an_old_form_renew_a_certificate(tmp_path: Path) -> None:
    ensure(tmp_path, ["ca"], [API])
    more = Leaf("api", "kube-apiserver", sans=("127.0.0.1", "198.18.0.1"))
    assert ensure(tmp_path, ["ca"], [more]) == ["api"]
    old(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Authority Key Identifier"):
        greet(tmp_path, "127.0.0.1")
    assert ensure(tmp_path, ["ca"], [more]) == ["api"]
    greet(tmp_path, "127.0.0.1")


def old(folder: Path) -> None:
    """Replace the certificate with one of the old form: without its authority's key identifier."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    now = x509.load_pem_x509_certificate((folder / "api.crt").read_bytes())
    builder = x509.CertificateBuilder(now.issuer, now.subject, now.public_key(), now.serial_number,
                                      now.not_valid_before_utc, now.not_valid_after_utc)  # fmt: skip
    for extension in now.extensions:
        if not isinstance(extension.value, x509.AuthorityKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "api.crt").write_bytes(pem)
