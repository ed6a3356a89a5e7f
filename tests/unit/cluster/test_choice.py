"""Which kubeconfig is used, and whether the cluster is the one that the inventory names."""

from __future__ import annotations

import base64
import hashlib
import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.choice import chosen, other_cluster

if TYPE_CHECKING:
    from pathlib import Path

DER = b"a certificate"
OWN = hashlib.sha256(DER).hexdigest()


def kube(folder: Path, host: str = "https://203.0.113.10:6443", *, verify: bool = True) -> Any:
    """As much of a cluster's client as says which cluster it is."""
    ca = folder / "ca.crt"
    ca.write_text(f"-----BEGIN CERTIFICATE-----\n{base64.b64encode(DER).decode()}\n-----END CERTIFICATE-----\n")
    return SimpleNamespace(api=SimpleNamespace(
        configuration=SimpleNamespace(host=host, verify_ssl=verify, ssl_ca_cert=str(ca))))  # fmt: skip


@pytest.mark.parametrize("present", [set(some) for n in range(4) for some in itertools.combinations("abc", n)])
def test_one_order_for_kubeconfigs(present: set[str]) -> None:
    flag = "a" if "a" in present else None
    names = {"b": "K8S_AUTH_KUBECONFIG", "c": "KUBECONFIG"}
    environment = {name: key if key in present else "" for key, name in names.items()}
    assert chosen(flag, None, environment) == (min(present, default=None), None)


def test_a_context_of_the_flag_wins() -> None:
    assert chosen(None, "one", {"K8S_AUTH_CONTEXT": "two"}) == (None, "one")


@pytest.mark.parametrize(
    "expected",
    [
        "https://203.0.113.10:6443",
        "203.0.113.10:6443",
        "https://203.0.113.10:6443/",
        f"sha256:{OWN}",
        f"SHA256:{OWN.upper()}",
        "sha256:" + ":".join(OWN[at : at + 2] for at in range(0, 64, 2)),  # as openssl prints it
    ],
)
def test_accepts_the_cluster_that_is_named(tmp_path: Path, expected: str) -> None:
    assert not [*other_cluster(kube(tmp_path), expected)]


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ("https://203.0.113.10", "another cluster"),  # port 443
        ("https://203.0.113.11:6443", "another cluster"),
        ("203.0.113.10", "an API server's address"),
        ("https://203.0.113.10:x", "an API server's address"),
        (f"sha256:{'0' * 64}", f"one whose CA is sha256:{OWN}"),
        ("sha256:12", "64 hexadecimal digits"),
    ],
)
def test_refuses_another_cluster(tmp_path: Path, expected: str, words: str) -> None:
    (problem,) = other_cluster(kube(tmp_path), expected)
    assert words in str(problem)


RANCHER = "https://rancher.example.org/k8s/clusters/c-m-1"


@pytest.mark.parametrize(
    ("expected", "same"),
    [
        (RANCHER, True),
        (f"{RANCHER}/", True),
        ("rancher.example.org:443/k8s/clusters/c-m-1", True),
        ("https://rancher.example.org/k8s/clusters/c-m-2", False),
        ("https://rancher.example.org", False),
    ],
)
def test_tells_clusters_behind_one_host_apart(tmp_path: Path, expected: str, *, same: bool) -> None:
    assert bool([*other_cluster(kube(tmp_path, RANCHER), expected)]) != same


def test_a_server_that_is_not_checked_has_no_authority(tmp_path: Path) -> None:
    (problem,) = other_cluster(kube(tmp_path, verify=False), f"sha256:{OWN}")
    assert "not checked" in str(problem)
