"""Certificates of the lab's control plane, made with `cryptography`: EC P-256 keys, one CA per purpose."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, SignatureAlgorithmOID

from gangplank.errors import Problem
from lab.errors import LabError
from lab.host.files import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

LIFE = dt.timedelta(days=3650)
RENEW_BEFORE = dt.timedelta(days=30)


class BrokenError(Exception):
    """What is wrong with a file of ours, in a few words."""


@dataclass(frozen=True)
class Leaf:
    """A leaf certificate: file name, subject, names, and the CA that signs it."""

    name: str
    common_name: str
    organization: str = ""
    sans: tuple[str, ...] = ()
    ca: str = "ca"


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(leaf: Leaf) -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, leaf.organization)] if leaf.organization else []
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + LIFE)


def _load(folder: Path, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The certificate <name>.crt and its key <name>.key; raises BrokenError."""
    path = folder / f"{name}.crt"
    key = _load_key(path.with_suffix(".key"))
    certificate = _load_certificate(path)
    if certificate.public_key() != key.public_key():
        raise BrokenError(f"{path.name} and {name}.key are not a pair")
    now = dt.datetime.now(dt.UTC)
    if certificate.not_valid_before_utc > now:  # made while the clock was ahead
        raise BrokenError(f"{path.name} is valid only from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on")
    if certificate.not_valid_after_utc - now < RENEW_BEFORE:
        raise BrokenError(f"{path.name} is valid only until {certificate.not_valid_after_utc:%Y-%m-%d}")
    return certificate, key


def _load_certificate(path: Path) -> x509.Certificate:
    """The certificate, whose public key loads too, in a file as it was written; raises BrokenError."""
    text = _read(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of a serial number, say: the signature decides
            certificate = x509.load_pem_x509_certificate(text)
        certificate.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise BrokenError(f"{path.name} is not a certificate") from error
    if certificate.public_bytes(serialization.Encoding.PEM) != text:  # OpenSSL may refuse what was read here
        raise BrokenError(f"{path.name} was altered")
    return certificate


def _load_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """The private key, in a file as it was written; raises BrokenError."""
    text = _read(path)
    try:
        key = serialization.load_pem_private_key(text, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BrokenError(f"{path.name} is not a key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BrokenError(f"{path.name} is not an EC key")
    if _pem(key) != text:
        raise BrokenError(f"{path.name} was altered")
    return key


def _read(path: Path) -> bytes:
    if not path.exists():
        raise BrokenError(f"{path.name} is missing")
    return path.read_bytes()


def _check_ca(folder: Path, name: str) -> None:
    """Raise BrokenError unless the certificate is a CA's of this name, as its own key has signed it."""
    certificate, _ = _load(folder, name)
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, InvalidSignature) as error:
        raise BrokenError(f"{name}.crt is not as it was signed") from error
    if certificate.subject != _issuer(name):
        raise BrokenError(f"{name}.crt has another subject")


def _check_leaf(folder: Path, leaf: Leaf) -> None:
    """Raise BrokenError unless the certificate is signed by its CA and has this subject and these names.

    The CA's key decides: its certificate may have to be made again, which a check mode leaves for later.
    """
    certificate, _ = _load(folder, leaf.name)
    key, algorithm = _load_key(folder / f"{leaf.ca}.key").public_key(), ec.ECDSA(hashes.SHA256())
    try:
        key.verify(certificate.signature, certificate.tbs_certificate_bytes, algorithm)
    except InvalidSignature as error:
        raise BrokenError(f"{leaf.name}.crt is not signed by {leaf.ca}.crt") from error
    # Neither of these is part of what is signed.
    as_written = certificate.public_bytes(serialization.Encoding.DER).endswith(b"\0" + certificate.signature)
    as_written &= certificate.signature_algorithm_oid == SignatureAlgorithmOID.ECDSA_WITH_SHA256
    if certificate.issuer != _issuer(leaf.ca) or not as_written:
        raise BrokenError(f"{leaf.name}.crt is not signed by {leaf.ca}.crt")
    extensions = {type(extension.value): extension.value for extension in certificate.extensions}
    if x509.AuthorityKeyIdentifier not in extensions:  # from before leaves had it
        raise BrokenError(f"{leaf.name}.crt does not identify its authority's key")
    names = extensions.get(x509.SubjectAlternativeName, ())
    if certificate.subject != _subject(leaf) or list(names) != [_general(san) for san in leaf.sans]:
        raise BrokenError(f"{leaf.name}.crt has another subject or other names")


def _check_public(path: Path) -> None:
    """Raise BrokenError unless the key loads and <name>.pub is its public half."""
    if _public_pem(_load_key(path)) != _read(path.with_suffix(".pub")):
        raise BrokenError(f"{path.name} and {path.stem}.pub are not a pair")


def _check_encryption(path: Path) -> None:
    """Raise BrokenError unless the file has a key of 32 bytes."""
    try:
        config = json.loads(_read(path))
        secret = config["resources"][0]["providers"][0]["secretbox"]["keys"][0]["secret"]
        complete = len(base64.b64decode(secret, validate=True)) == 32
    except (ValueError, LookupError, TypeError) as error:
        raise BrokenError(f"{path.name} has no key") from error
    if not complete:
        raise BrokenError(f"{path.name} has no key of 32 bytes")


def _public_pem(key: ec.EllipticCurvePrivateKey | x509.Certificate) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


def authority(folder: Path, name: str = "ca") -> bytes:
    """The public key by which others know a CA; b"" if its certificate does not load."""
    try:
        return _public_pem(_load_certificate(folder / f"{name}.crt"))
    except BrokenError:
        return b""


def _issuer(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gangplank-lab-{name}")])


def _own_key(folder: Path, name: str) -> ec.EllipticCurvePrivateKey | None:
    """The key of a CA; None if it does not load, or if it is another one's than the certificate's, which does."""
    try:
        key = _load_key(folder / f"{name}.key")
    except BrokenError:
        return None
    return key if authority(folder, name) in {b"", _public_pem(key)} else None


def make_ca(folder: Path, name: str) -> None:
    """Make the CA <name>.crt, and <name>.key if there is none of its own.

    With the same key, what trusts or was signed by the certificate before still fits this one: pods read it only once.
    """
    key = _own_key(folder, name) or ec.generate_private_key(ec.SECP256R1())
    subject = _issuer(name)
    builder = _builder(subject, subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
    write(folder / f"{name}.key", _pem(key), 0o600)
    write(folder / f"{name}.crt", builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)


def make_leaf(folder: Path, leaf: Leaf) -> None:
    """Make <name>.crt and <name>.key, signed by its CA."""
    ca, signer = _load(folder, leaf.ca)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(leaf), ca.subject, key.public_key())
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(signed_by, critical=False)  # Python 3.13 accepts no server without it
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if leaf.sans:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_general(san) for san in leaf.sans])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    write(folder / f"{leaf.name}.key", _pem(key), 0o600)
    pem = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    write(folder / f"{leaf.name}.crt", pem, 0o644)


def make_key(path: Path) -> None:
    """Make the public half, .pub, of an EC key for service account tokens, and the key if it does not load."""
    try:
        key = _load_key(path)  # the tokens that it signed stay valid
    except BrokenError:
        key = ec.generate_private_key(ec.SECP256R1())
        write(path, _pem(key), 0o600)
    write(path.with_suffix(".pub"), _public_pem(key), 0o644)


def make_encryption(path: Path) -> None:
    """Make the API server's EncryptionConfiguration for Secrets, with its own key."""
    keys = [{"name": "lab", "secret": base64.b64encode(os.urandom(32)).decode()}]
    providers = [{"secretbox": {"keys": keys}}, {"identity": {}}]
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    write(path, json.dumps(config).encode(), 0o600)


def ensure(
    folder: Path, cas: Iterable[str], leaves: Iterable[Leaf], data: Path | None = None, *, dry: bool = False
) -> dict[str, str]:
    """Ensure all of it in `folder` (0700); return why each was made, by name.

    `data` is etcd's folder. Its Secrets can be read with their key only, so a broken or missing one raises LabError. A
    lost key of the service accounts is made again: the kubelets, restarted for it, get new tokens for their pods.
    """
    if not dry:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key, encryption = folder / "sa.key", folder / "encryption.json"
    steps: list[tuple[str, Callable[[], object], Callable[[], None]]] = [
        *((name, partial(_check_ca, folder, name), partial(make_ca, folder, name)) for name in cas),
        *((leaf.name, partial(_check_leaf, folder, leaf), partial(make_leaf, folder, leaf)) for leaf in leaves),
        ("sa", partial(_check_public, key), partial(make_key, key)),
        ("encryption", partial(_check_encryption, encryption), partial(make_encryption, encryption)),
    ]
    reasons = {}
    for name, check, make in steps:
        try:
            check()
        except BrokenError as error:
            if name == "encryption" and data and data.exists():
                fix = "restore it, or remove the lab with its data (make down)"
                problem = Problem(str(encryption), str(error), f"the key of the Secrets in {data}", fix)
                raise LabError(str(problem)) from error
            reasons[name] = str(error)
            if not dry:
                make()
    return reasons
