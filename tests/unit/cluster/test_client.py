"""How the client reaches the API server."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest
from urllib3.util import connection

from gangplank.cluster.client import Kube
from gangplank.errors import KubeError

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_pods_own_account_honours_it_too(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def incluster(client_configuration: object = None) -> None:
        """What kubernetes.config does in a pod, without a pod."""
        assert client_configuration is not None, "the settings would be lost"
        setattr(client_configuration, "host", host)  # noqa: B010  mypy knows no attribute of an object

    host = Kube().api.configuration.host
    monkeypatch.setenv("HTTP_PROXY", NOBODY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("kubernetes.config.load_incluster_config", incluster)
    (tmp_path / "token").touch()
    (tmp_path / "namespace").write_text("vision")
    monkeypatch.setattr("gangplank.cluster.client.ACCOUNT", tmp_path)
    monkeypatch.setattr("kubernetes.config.kube_config.KubeConfigMerger", lambda _: missing())
    kube = Kube()
    assert kube.call("GET", "/version")["gitVersion"]
    assert api.seen == ["GET /version"]
    assert kube.namespace == "vision"
    (tmp_path / "namespace").unlink()
    assert Kube().namespace == "default"


def missing() -> None:
    raise OSError("no kubeconfig")


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u", **more}}
                for name, more in (("ada@vision", {"namespace": "vision"}), ("admin", {}))]
    config = {"current-context": "ada@vision", "contexts": contexts, "users": [{"name": "u", "user": {}}],
              "clusters": [{"name": "c", "cluster": {"server": NOBODY}}]}
    place = tmp_path / "config"
    place.write_text(json.dumps(config))
    assert [Kube(str(place), context).namespace for context in (None, "admin")] == ["vision", "default"]


def written(place: Path, name: str, current: str | None) -> str:
    """A kubeconfig with one context, which has the name of its cluster and namespace; its path."""
    content = {"contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": name}}],
               "users": [{"name": name, "user": {}}], "clusters": [{"name": name, "cluster": {"server": NOBODY}}],
               **({} if current is None else {"current-context": current})}  # fmt: skip
    place.write_text(json.dumps(content))
    return str(place)


@pytest.mark.parametrize("current", ["a", "", None])
def test_the_current_context_is_that_of_the_first_file_that_has_one(tmp_path: Path, current: str | None) -> None:
    """As kubectl and Helm choose it."""
    files = [written(tmp_path / name, name, value) for name, value in (("a", current), ("b", "b"), ("c", "c"))]
    assert Kube(":".join([str(tmp_path / "missing"), *files])).namespace == (current or "b")
    assert Kube(":".join(files), "c").namespace == "c"


@pytest.mark.parametrize("current", [None, "", "removed"])
def test_a_named_context_needs_no_current_one(tmp_path: Path, current: str | None) -> None:
    file = written(tmp_path / "config", "a", current)
    assert Kube(file, "a").namespace == "a"
    with pytest.raises(KubeError, match=rf"kubeconfig {file}: got Invalid kube-config file"):
        Kube(file)


@pytest.mark.parametrize("address", ["https://198.18.1.1:6443", "http://198.19.255.254:80"])
def test_a_lab_that_does_not_run_is_named_at_once_and_nothing_is_sent_to_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    attempts: list[object] = []
    own = threading.current_thread()

    def connect(*words: object, **_: object) -> NoReturn:
        if threading.current_thread() is own:  # a watch of another test may still ask for its server
            attempts.append(words[0])
        raise OSError

    monkeypatch.setattr(connection, "create_connection", connect)
    contexts = [{"name": "lab", "context": {"cluster": "c", "user": "u"}}]
    config = {"current-context": "lab", "contexts": contexts, "users": [{"name": "u", "user": {}}],
              "clusters": [{"name": "c", "cluster": {"server": address}}]}
    place = tmp_path / "config"
    place.write_text(json.dumps(config))
    message = rf"{address} \(context lab of .*\): got an address of the lab, and no lab on this machine, expected a lab"
    with pytest.raises(KubeError, match=message) as error:
        Kube(str(place)).patient().call("GET", "/version")
    assert not error.value.outage, "it is not asked again"
    assert attempts == []
    place.write_text(place.read_text().replace(address, "http://127.0.0.1:9"))
    with pytest.raises(KubeError, match="got no answer"):
        Kube(str(place)).call("GET", "/version")
    assert attempts == [("127.0.0.1", 9)]
