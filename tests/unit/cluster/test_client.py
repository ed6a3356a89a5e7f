"""How the client reaches the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gangplank.cluster.client import Kube
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from tests.unit.conftest import Api

NOBODY = "http://127.0.0.1:9"  # a proxy that does not answer


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("NO_PROXY", "127.0.0.1"), ("no_proxy", "example.com, 127.0.0.1"), ("NO_PROXY", "127.0.0.0/8"), ("NO_PROXY", "*")],
)
def test_no_proxy_is_used_for_a_server_that_no_proxy_names(
    monkeypatch: pytest.MonkeyPatch, proxy: str, name: str, value: str
) -> None:
    monkeypatch.setenv(proxy, NOBODY)
    monkeypatch.setenv(name, value)
    assert Kube().call("GET", "/version")["gitVersion"]


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("others", ["", "example.com", "10.0.0.0/8"])
def test_the_proxy_is_used_for_every_other_server(monkeypatch: pytest.MonkeyPatch, others: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", NOBODY)
    monkeypatch.setenv("NO_PROXY", others)
    with pytest.raises(KubeError, match=r"got no answer \(.*\), expected one from the API server\. Fix: "):
        Kube().call("GET", "/version")


def test_a_pods_own_account_honours_it_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def incluster(client_configuration: object = None) -> None:
        """What kubernetes.config does in a pod, without a pod."""
        assert client_configuration is not None, "the settings would be lost"
        setattr(client_configuration, "host", host)  # noqa: B010  mypy knows no attribute of an object

    host = Kube().api.configuration.host
    monkeypatch.setenv("HTTP_PROXY", NOBODY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("kubernetes.config.load_incluster_config", incluster)
    monkeypatch.setattr("gangplank.cluster.client.in_cluster", lambda: True)
    monkeypatch.setattr("kubernetes.config.list_kube_config_contexts", lambda **_: missing())
    assert Kube().call("GET", "/version")["gitVersion"]
    assert api.seen == ["GET /version"]


def missing() -> None:
    raise OSError("no kubeconfig")
