"""How the client reaches the API server."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, NoReturn

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


@pytest.mark.parametrize(("server", "own", "expected"), [
    ("https://198.18.0.1:6443", "", None), ("https://198.18.0.1:6443", "http://127.0.0.1:8", "http://127.0.0.1:8"),
    ("https://192.0.2.1:6443", "", NOBODY),
])  # fmt: skip
def test_the_environments_proxy_is_not_used_for_this_machines_own_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, server: str, own: str, expected: str | None
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", NOBODY)
    cluster = {"server": server, **({"proxy-url": own} if own else {})}
    named = {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": {"token": "t"}}]}
    contexts = [{"name": "c", "context": {"cluster": "c", "user": "u"}}]
    (tmp_path / "config").write_text(json.dumps({**named, "contexts": contexts, "current-context": "c"}))
    assert Kube(str(tmp_path / "config")).api.configuration.proxy == expected


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
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    kube = Kube()
    assert kube.call("GET", "/version")["gitVersion"]
    assert api.seen == ["GET /version"]
    assert kube.namespace == "vision"
    (tmp_path / "namespace").unlink()
    assert Kube().namespace == "default"


def test_the_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u", **more}}
                for name, more in (("ada@vision", {"namespace": "vision"}), ("admin", {}))]
    config = {"current-context": "ada@vision", "contexts": contexts, "users": [{"name": "u", "user": {}}],
              "clusters": [{"name": "c", "cluster": {"server": NOBODY}}]}
    place = tmp_path / "config"
    place.write_text(json.dumps(config))
    assert [Kube(str(place), context).namespace for context in (None, "admin")] == ["vision", "default"]


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


def kubeconfig(place: Path, server: str, current: str | None = None, user: object = None, **cluster: object) -> str:
    """A kubeconfig with one context, which has the name of the file."""
    name = place.name
    config = {"contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
              "users": [{"name": name, "user": user or {"token": "t"}}],
              "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
              **({} if current is None else {"current-context": current})}  # fmt: skip
    place.write_text(json.dumps(config))
    return str(place)


@pytest.mark.parametrize("current", [None, "", "removed"])
def test_a_context_that_is_named_needs_no_current_one(tmp_path: Path, current: str | None) -> None:
    assert "context lab of" in str(Kube(kubeconfig(tmp_path / "lab", NOBODY, current), "lab"))


@pytest.mark.parametrize(("currents", "expected"), [(("a", "b"), "a"), (("", "b"), "b"), ((None, "b"), "b"),
                                                    (("a", ""), "a")])  # fmt: skip
def test_of_several_files_the_first_current_context_counts_as_for_kubectl(
    tmp_path: Path, currents: tuple[str | None, str], expected: str
) -> None:
    files = [kubeconfig(tmp_path / name, NOBODY, current) for name, current in zip("ab", currents, strict=True)]
    assert f"context {expected} of" in str(Kube(":".join(files)))


def test_an_empty_kubeconfig_variable_stands_for_the_file_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube/config", NOBODY, "config")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", "")  # as KUBECONFIG= makes it
    assert "context config of ~/.kube/config" in str(Kube())


@pytest.mark.parametrize("excepted", ["", "198.51.100.1"])
def test_the_proxy_of_a_kubeconfig_is_used_whatever_the_environment_says(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("NO_PROXY", excepted)
    proxy = Kube(api.kubeconfig).api.configuration.host
    place = kubeconfig(tmp_path / "far", "http://198.51.100.1", "far", **{"proxy-url": proxy})
    with pytest.raises(KubeError, match="not found"):  # as the small API server is not a proxy
        Kube(place).call("GET", "/version")
    assert api.seen == ["GET http://198.51.100.1/version"]


def test_a_token_file_may_end_with_a_newline_and_is_read_again_as_its_token_rotates(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    host = Kube(api.kubeconfig).api.configuration.host
    kube = Kube(kubeconfig(tmp_path / "job", host, "job", {"tokenFile": "token"}))
    assert kube.call("GET", "/version")["gitVersion"]
    assert kube.api.configuration.get_api_key_with_prefix("authorization") == "Bearer one"
    token.write_text("two\n")
    assert kube.api.configuration.get_api_key_with_prefix("authorization") == "Bearer two"


@pytest.mark.parametrize("field", [{"as": "ada"}, {"as-groups": ["team"]}])
def test_a_user_that_acts_as_another_one_does_not_act_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: dict[str, Any]
) -> None:
    """An administrator narrows its rights in this way, and kubectl heeds it. Nor does a pod's own account then act."""
    monkeypatch.setattr("gangplank.cluster.client.in_cluster", lambda: True)
    with pytest.raises(KubeError, match=r"a user that acts as another one \(`as`\), expected one that acts itself"):
        Kube(kubeconfig(tmp_path / "job", "http://198.51.100.1", "job", {"token": "one", **field}))


def test_credentials_that_were_renewed_are_taken_and_expired_ones_named(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of `gangplank team kubeconfig` last for 8 hours, and a training that is followed may take longer."""
    host, answer, refusals = Kube(api.kubeconfig).api.configuration.host, api.answer, [0]

    def until_asked_again(*request: Any) -> tuple[int, bytes]:
        if refusals[0]:
            refusals[0] -= 1
            return 401, b'{"message": "Unauthorized"}'
        return answer(*request)

    monkeypatch.setattr(api, "answer", until_asked_again)
    place = kubeconfig(tmp_path / "job", host, "job", {"token": "one"})
    kube = Kube(place).patient()
    refusals[0] = 1
    message = r"Unauthorized, expected credentials that are valid .* Fix: renew them or choose another"
    with pytest.raises(KubeError, match=message) as refused:
        kube.call("GET", "/version")
    assert refused.value.status == 401
    kubeconfig(tmp_path / "job", host, "job", {"token": "two"})
    refusals[0] = 1
    assert kube.call("GET", "/version")["gitVersion"]
    assert kube.api.configuration.get_api_key_with_prefix("authorization") == "Bearer two"
    assert refusals == [0]
    refusals[0] = 2
    kubeconfig(tmp_path / "job", host, "job", {"token": "three"})
    with pytest.raises(KubeError, match="Unauthorized"):  # it asks again once
        kube.call("GET", "/version")
