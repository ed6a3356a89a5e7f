"""Certificates of the lab's control plane, made with `cryptography`: EC P-256 keys, one CA per purpose."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lab.host.files import write

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LIFE = dt.timedelta(days=3650)
RENEW_BEFORE = dt.timedelta(days=30)


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


def ensure_ca(folder: Path, name: str) -> bool:
    """Make the CA <name>.crt and <name>.key if either is missing; return whether it did."""
    if (folder / f"{name}.crt").exists() and (folder / f"{name}.key").exists():
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"gangplank-lab-{name}")])
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
    return True


def _is_valid(path: Path, leaf: Leaf, ca: x509.Certificate) -> bool:
    """Whether the certificate is signed by `ca`, has this subject and these names, and does not expire soon."""
    if not (path.exists() and path.with_suffix(".key").exists()):
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    if certificate.not_valid_after_utc - dt.datetime.now(dt.UTC) < RENEW_BEFORE:
        return False
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):  # issuer, key or signature differs
        return False
    try:
        certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except x509.ExtensionNotFound:  # from before leaves had it
        return False
    try:
        names = list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        names = []
    return certificate.subject == _subject(leaf) and names == [_general(san) for san in leaf.sans]


def ensure_leaf(folder: Path, leaf: Leaf) -> bool:
    """Make <name>.crt and <name>.key if they are missing, expiring or for other names; return whether it did."""
    path = folder / f"{leaf.name}.crt"
    ca = x509.load_pem_x509_certificate((folder / f"{leaf.ca}.crt").read_bytes())
    if _is_valid(path, leaf, ca):
        return False
    signer = serialization.load_pem_private_key((folder / f"{leaf.ca}.key").read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{leaf.ca}.key is not an EC key")
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
    write(path.with_suffix(".key"), _pem(key), 0o600)
    write(path, builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)
    return True


def ensure_key(path: Path) -> bool:
    """Make an EC key for service account tokens and its public half, .pub, if one is missing."""
    public = path.with_suffix(".pub")
    if path.exists() and public.exists():
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    write(path, _pem(key), 0o600)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    write(public, key.public_key().public_bytes(serialization.Encoding.PEM, form), 0o644)
    return True


def ensure_encryption(path: Path) -> bool:
    """Make the API server's EncryptionConfiguration for Secrets, with its own key, if it is missing."""
    if path.exists():
        return False
    keys = [{"name": "lab", "secret": base64.b64encode(os.urandom(32)).decode()}]
    providers = [{"secretbox": {"keys": keys}}, {"identity": {}}]
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    write(path, json.dumps(config).encode(), 0o600)
    return True


def ensure(folder: Path, cas: Iterable[str], leaves: Iterable[Leaf]) -> list[str]:
    """Ensure all of it in `folder` (0700); return the names of the new files."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    renewed = [name for name in cas if ensure_ca(folder, name)]
    renewed += [leaf.name for leaf in leaves if ensure_leaf(folder, leaf)]
    renewed += ["sa"] if ensure_key(folder / "sa.key") else []
    renewed += ["encryption"] if ensure_encryption(folder / "encryption.json") else []
    return renewed
