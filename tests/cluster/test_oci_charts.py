"""Charts and CRDs come from a registry with TLS (oci://), as from a repository. No real cluster is asked."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import json
import os
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import tests.unit.plugins.conftest  # noqa: F401  it lets plugins import one another
from lab.build.parts import build
from tests.charts.test_source_release import Source
from tests.support.registry import Registry, registry
from tests.unit.conftest import api  # noqa: F401  a fixture
from tests.unit.plugins.test_cluster_actions import KINDS, config_map, run, writes
from tools.bundle import chart_of_crds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.conftest import Api

HOST = "127.0.0.1:5043"
CHARTS = {"volcano": ("volcano", "volcano"), "gpu_device_plugin": ("nvidia-device-plugin", "nvidia-device-plugin")}


def certificate(folder: Path, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """A certificate for an address that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    day, now = dt.timedelta(days=1), dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(now - day).not_valid_after(now + day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    form = serialization.Encoding.PEM
    (folder / "tls.crt").write_bytes(signed.public_bytes(form))
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.key").write_bytes(key.private_bytes(form, *plain))
    return folder / "tls.crt", folder / "tls.key"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A registry, whose certificate helm trusts."""
    folder = tmp_path_factory.mktemp("registry")
    tls = certificate(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(tls[0]))
        with registry(folder, HOST, tls=tls) as there:
            yield there


def push(helm: str, chart: str | Path, registry: Registry, folder: Path) -> Path:
    """Push a chart: its archive."""
    subprocess.run([helm, "package", str(chart), "-d", str(folder)], check=True, timeout=60)
    (archive,) = folder.glob("*.tgz")
    subprocess.run([helm, "push", str(archive), f"oci://{registry.host}/charts"], check=True, timeout=60, env={
        **os.environ, "HELM_CONFIG_HOME": str(folder), "HELM_CACHE_HOME": str(folder)})  # fmt: skip
    return archive


@pytest.fixture(scope="module", params=CHARTS)
def source(request: pytest.FixtureRequest, running: Registry, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A role's chart in the registry."""
    part, chart = CHARTS[request.param]
    parts, folder = build(["helm", part], print), tmp_path_factory.mktemp("charts")
    helm = f"{parts['bin']['helm']}/helm"
    archive = push(helm, parts["charts"][chart], running, folder)
    where = {f"{request.param}_chart_repository": f"oci://{running.host}/charts"}
    return Source(request.param, folder, archive, where, parts["bin"]["helm"])


def test_a_chart_in_a_registry_gets_as_far_as_the_cluster(source: Source, running: Registry, tmp_path: Path) -> None:
    digest = hashlib.sha256(source.archive.read_bytes()).hexdigest()
    said = source.play(tmp_path, **{f"{source.role}_chart_sha256": digest})
    assert f"{tmp_path}/none" in said  # the kubeconfig that does not exist
    assert "sha256" not in said
    assert f"/blobs/sha256:{digest}" in json.dumps(running.log)


def test_other_bytes_in_a_registry_are_refused(source: Source, tmp_path: Path) -> None:
    said = source.play(tmp_path, **{f"{source.role}_chart_sha256": "0" * 64})
    assert f"expected {'0' * 64}; nothing was installed. Fix: " in said


@pytest.fixture(scope="module")
def crds(running: Registry, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A file in the registry, in a chart that holds nothing else: its address, and its sha256."""
    folder, scratch = tmp_path_factory.mktemp("crds"), tmp_path_factory.mktemp("chart")
    (folder / "a.yaml").write_text(yaml.safe_dump(config_map("a")))
    helm = f"{build(['helm'], print)['bin']['helm']}/helm"
    push(helm, chart_of_crds(folder, "some-crds", "v1.2.3", scratch), running, scratch)
    return (f"oci://{running.host}/charts/some-crds:1.2.3/a.yaml",
            hashlib.sha256((folder / "a.yaml").read_bytes()).hexdigest())  # fmt: skip


@pytest.fixture
def maps(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:  # noqa: F811  the fixture
    """A cluster with ConfigMaps, and helm on PATH."""
    monkeypatch.setenv("PATH", f"{build(['helm'], print)['bin']['helm']}:{os.environ['PATH']}")
    api.groups["/api/v1"] = KINDS
    return api


def test_crds_in_a_registry_are_applied_with_their_hash_alone(maps: Api, crds: tuple[str, str]) -> None:
    address, digest = crds
    other = run("cluster_apply", files=[address], sha256={"a.yaml": "0" * 64})
    assert f"{address}: got sha256 {digest}, expected {'0' * 64}. Fix: " in other["msg"]
    without = run("cluster_apply", files=[address])
    assert f"{address}: got an address without a sha256" in without["msg"]
    assert writes(maps) == []
    assert run("cluster_apply", files=[address], sha256={"a.yaml": digest})["changed"]
    assert len(writes(maps)) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [(("1.2.3", "9.9.9"), "got no chart ("), (("a.yaml", "b.yaml"), "got a chart without crds/b.yaml, expected ")],
)
def test_crds_that_a_registry_lacks_are_named(
    maps: Api, crds: tuple[str, str], change: tuple[str, str], reason: str
) -> None:
    address = crds[0].replace(*change)
    message = run("cluster_apply", files=[address], sha256={address.rpartition("/")[2]: "0" * 64})["msg"]
    assert message.startswith(f"{address}: {reason}")
    assert writes(maps) == []
