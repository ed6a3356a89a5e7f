"""The lab's certificates: what a strict client accepts, and when they are renewed."""

from __future__ import annotations

import datetime as dt
import itertools
import ssl
from typing import TYPE_CHECKING, Self

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab.errors import LabError
from lab.host import pki
from lab.host.pki import Leaf, ensure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

API = Leaf("api", "kube-apiserver", sans=("127.0.0.1", "localhost"))
CLIENT = Leaf("admin", "admin", "system:masters")


def greet(folder: Path, name: str, trusted: str = "ca.crt") -> None:
    """A TLS handshake, in memory, with a client as strict as Python 3.13's."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "api.crt", folder / "api.key")
    client = ssl.create_default_context(cafile=folder / trusted)
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
    assert list(ensure(tmp_path, ["ca"], [API, CLIENT])) == ["ca", "api", "admin", "sa", "encryption"]
    greet(tmp_path, name)


def test_it_accepts_no_other_name(tmp_path: Path) -> None:
    ensure(tmp_path, ["ca"], [API])
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(tmp_path, "elsewhere")


def test_existing_ones_stay(tmp_path: Path) -> None:
    ensure(tmp_path, ["ca"], [API, CLIENT])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert ensure(tmp_path, ["ca"], [API, CLIENT]) == {}
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_names_and_an_old_form_renew_a_certificate(tmp_path: Path) -> None:
    ensure(tmp_path, ["ca"], [API])
    more = Leaf("api", "kube-apiserver", sans=("127.0.0.1", "198.18.0.1"))
    assert list(ensure(tmp_path, ["ca"], [more])) == ["api"]
    old(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Authority Key Identifier"):
        greet(tmp_path, "127.0.0.1")
    assert list(ensure(tmp_path, ["ca"], [more])) == ["api"]
    greet(tmp_path, "127.0.0.1")


def old(folder: Path) -> None:
    """Replace the certificate with one of the old form: without its authority's key identifier."""
    key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    now = x509.load_pem_x509_certificate((folder / "api.crt").read_bytes())
    builder = x509.CertificateBuilder(now.issuer, now.subject, now.public_key(), now.serial_number,
                                      now.not_valid_before_utc, now.not_valid_after_utc)  # fmt: skip
    for extension in now.extensions:
        if not isinstance(extension.value, x509.AuthorityKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "api.crt").write_bytes(pem)


ALL = ["ca", "api", "admin"]
HALF = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
# What is wrong -> the file, its content (None: it is missing; a name: that of another file), what is made again, why.
BROKEN: dict[str, tuple[str, str | None, list[str], str]] = {
    "an empty authority": ("ca.crt", "", ["ca"], "ca.crt is not a certificate"),
    "an empty authority's key": ("ca.key", "", ALL, "ca.key is not a key"),
    "no authority's key": ("ca.key", None, ALL, "ca.key is missing"),
    "another authority's key": ("ca.key", "sa.key", ALL, "ca.crt and ca.key are not a pair"),
    "an empty certificate": ("api.crt", "", ["api"], "api.crt is not a certificate"),
    "half a certificate": ("api.crt", HALF, ["api"], "api.crt is not a certificate"),
    "an empty key": ("api.key", "", ["api"], "api.key is not a key"),
    "another's key": ("api.key", "admin.key", ["api"], "api.crt and api.key are not a pair"),
    "an empty service account key": ("sa.key", "", ["sa"], "sa.key is not a key"),
    "no service account key": ("sa.key", None, ["sa"], "sa.key is missing"),
    "an empty public key": ("sa.pub", "", ["sa"], "sa.key and sa.pub are not a pair"),
    "an empty encryption key": ("encryption.json", "", ["encryption"], "encryption.json has no key"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_d5_what_does_not_load_or_does_not_belong_together_is_made_again(tmp_path: Path, fault: str) -> None:
    ensure(tmp_path, ["ca"], [API, CLIENT])
    name, content, expected, reason = BROKEN[fault]
    if content is None:
        (tmp_path / name).unlink()
    else:
        other = tmp_path / content
        (tmp_path / name).write_text(other.read_text() if other.is_file() else content)
    dry = ensure(tmp_path, ["ca"], [API, CLIENT], dry=True)
    reasons = ensure(tmp_path, ["ca"], [API, CLIENT])
    assert list(reasons) == expected
    assert list(reasons) == list(dry)
    assert reasons[expected[0]] == reason
    assert ensure(tmp_path, ["ca"], [API, CLIENT]) == {}
    greet(tmp_path, "127.0.0.1")
    assert (tmp_path / "ca.key").read_bytes() != (tmp_path / "sa.key").read_bytes()


def flipped(content: bytes) -> Iterator[bytes]:
    """A content with the first or the last bit of one of its bytes the other way."""
    for place, bit in itertools.product(range(len(content)), (1, 128)):
        yield content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


@pytest.mark.slow  # thousands of handshakes
@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "api.crt", "api.key"])
def test_d5_a_file_with_a_bit_that_flipped_still_serves_or_is_made_again(tmp_path: Path, name: str) -> None:
    ensure(tmp_path, ["ca"], [API])
    whole = (tmp_path / name).read_text()
    label = whole.partition("\n")[0].strip("-").removeprefix("BEGIN ")
    content = ssl.PEM_cert_to_DER_cert(whole.replace(label, "CERTIFICATE"))
    altered = [ssl.DER_cert_to_PEM_cert(one).replace("CERTIFICATE", label).encode() for one in flipped(content)]
    for text in (*flipped(whole.encode()), *altered):
        (tmp_path / name).write_bytes(text)
        if not ensure(tmp_path, ["ca"], [API], dry=True):
            greet(tmp_path, "127.0.0.1")
    reasons = ensure(tmp_path, ["ca"], [API])
    assert next(iter(reasons)) == name.partition(".")[0]
    assert ensure(tmp_path, ["ca"], [API]) == {}
    greet(tmp_path, "127.0.0.1")


@pytest.mark.parametrize("life", [dt.timedelta(days=29), dt.timedelta(minutes=-1)])
def test_d5_certificates_are_renewed_before_and_after_they_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, life: dt.timedelta
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pki, "LIFE", life)
        pki.make_ca(tmp_path, "ca")
    (tmp_path / "before.crt").write_bytes((tmp_path / "ca.crt").read_bytes())
    end = (dt.datetime.now(dt.UTC) + life).date()
    assert ensure(tmp_path, ["ca"], [API])["ca"] == f"ca.crt is valid only until {end}"
    assert ensure(tmp_path, ["ca"], [API]) == {}
    greet(tmp_path, "127.0.0.1")
    if life > dt.timedelta(0):
        greet(tmp_path, "127.0.0.1", "before.crt")  # pods that read it before are not cut off


def test_d5_certificates_of_a_clock_that_was_ahead_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(days=2)

    class Ahead(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return cls.fromtimestamp(ahead.timestamp(), tz)

    with monkeypatch.context() as patch:
        patch.setattr("lab.host.pki.dt.datetime", Ahead)
        assert list(ensure(tmp_path, ["ca"], [API])) == ["ca", "api", "sa", "encryption"]
    with pytest.raises(ssl.SSLCertVerificationError, match="not yet valid"):
        greet(tmp_path, "127.0.0.1")
    reasons = ensure(tmp_path, ["ca"], [API])
    assert list(reasons) == ["ca", "api"]
    assert reasons["ca"].startswith("ca.crt is valid only from 20")
    assert ensure(tmp_path, ["ca"], [API]) == {}
    greet(tmp_path, "127.0.0.1")


def test_d5_a_public_key_is_made_of_the_key_that_signed_the_tokens(tmp_path: Path) -> None:
    ensure(tmp_path, [], [])
    before = {name: (tmp_path / name).read_bytes() for name in ("sa.key", "sa.pub")}
    (tmp_path / "sa.pub").write_text("")
    ensure(tmp_path, [], [])
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("dry", [True, False])
@pytest.mark.parametrize("content", ["", None])
def test_d5_the_key_of_existing_secrets_is_not_replaced(tmp_path: Path, content: str | None, dry: bool) -> None:
    data = tmp_path / "data"
    ensure(tmp_path / "pki", [], [], data)
    data.mkdir()
    file = tmp_path / "pki/encryption.json"
    file.unlink() if content is None else file.write_text(content)
    got = "encryption.json is missing" if content is None else "encryption.json has no key"
    message = f"{file}: got {got}, expected the key of the Secrets in {data}. Fix: restore it"
    with pytest.raises(LabError, match=message):
        ensure(tmp_path / "pki", [], [], data, dry=dry)
    assert (file.read_text() if file.exists() else None) == content
    data.rmdir()
    assert list(ensure(tmp_path / "pki", [], [], data, dry=dry)) == ["encryption"], "no Secret needs it"
