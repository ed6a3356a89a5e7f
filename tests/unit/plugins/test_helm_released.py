"""A Helm that works on the release is waited for; what a dead one left is not."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.client import Kube
from gangplank.cluster.helm_processes import Note, Place, running
from gangplank.errors import GangplankError
from gangplank.wait import polls
from plugins.action.helm_released import ActionModule, wait_for_helm, wait_for_others
from tests.unit.plugins.test_cluster_actions import run
from tests.unit.plugins.test_cluster_ready import play

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
SERVER = "https://api.example.org:6443"
VOLCANO = Place(SERVER, "volcano-system", "volcano")


@pytest.fixture
def helm(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a Helm at work on the release volcano."""
    (tmp_path / "helm").symlink_to("/bin/sh")
    words = ["-c", "read line", "upgrade", "-i", "volcano", "--namespace=volcano-system", "chart"]
    environment = {"HELM_KUBEAPISERVER": SERVER}
    with subprocess.Popen([str(tmp_path / "helm"), *words], stdin=subprocess.PIPE, env=environment) as process:
        arguments = Path(f"/proc/{process.pid}/cmdline")
        for _ in polls(10, 0.01):  # the kernel shows them a moment after Popen returns
            if arguments.read_bytes():
                break
        yield process
        process.kill()


def test_d6_the_revision_of_a_living_helm_is_waited_for(helm: subprocess.Popen[bytes]) -> None:
    assert running(Place(SERVER, "other", "volcano")) == ""
    assert running(Place(SERVER, "volcano-system", "other")) == ""
    name = f"process {helm.pid} ("
    assert running(VOLCANO).startswith(name)
    with pytest.raises(GangplankError) as refusal:
        wait_for_helm(VOLCANO, 0.1)
    assert str(refusal.value).startswith(f"release volcano-system/volcano: got {name}")
    assert "expected its end within 0 s. Fix: wait for it or end it, then run it again" in str(refusal.value)
    threading.Timer(0.7, helm.kill).start()
    wait_for_helm(VOLCANO, 20)


def config(server: str, **context: str) -> str:
    """A kubeconfig."""
    return json.dumps({
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}},
                     {"name": "d", "cluster": {"server": "https://other.example.org"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", **context}},
                     {"name": "two", "context": {"cluster": "d", **context}}],
    })  # fmt: skip


@pytest.mark.parametrize(("command", "variables", "counts"), [
    ("helm upgrade volcano chart -n volcano-system", {}, True),
    ("helm uninstall volcano -nvolcano-system", {}, True),
    ("helm delete volcano -n=volcano-system", {}, True),
    ("helm del volcano --namespace volcano-system", {}, True),
    ("helm un volcano --namespace=volcano-system", {}, True),
    ("helm status volcano -n volcano-system", {}, False),
    ("kubectl delete volcano -n volcano-system", {}, False),
    ("helm un volcano", {}, False),
    ("helm un volcano", {"HELM_NAMESPACE": "volcano-system"}, True),
    ("helm un volcano", {"KUBECONFIG": "in-namespace"}, True),
    ("helm un volcano -n default", {"KUBECONFIG": "in-namespace"}, False),
    ("helm un volcano -n volcano-system", {"KUBECONFIG": "other"}, False),
    ("helm un volcano -n volcano-system --kubeconfig other", {}, False),
    ("helm un volcano -n volcano-system", {"KUBECONFIG": "missing:other"}, False),
    ("helm un volcano -n volcano-system", {"KUBECONFIG": "missing"}, True),
    ("helm un volcano -n volcano-system", {"KUBECONFIG": "broken"}, True),
    ("helm un volcano -n volcano-system --kube-context=two", {}, False),
    ("helm un volcano -n volcano-system", {"HELM_KUBECONTEXT": "two"}, False),
    ("helm un volcano -n volcano-system --kube-apiserver https://other.example.org", {}, False),
])  # fmt: skip
def test_d6_a_helm_counts_if_it_changes_this_release_of_this_cluster(
    tmp_path: Path, command: str, variables: dict[str, str], counts: bool
) -> None:
    process, home = tmp_path / "proc/17", tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    process.mkdir(parents=True)
    (home / ".kube/config").write_text(config(SERVER))
    (home / "in-namespace").write_text(config(SERVER, namespace="volcano-system"))
    (home / "other").write_text(config("https://api.example.org:6444"))
    (home / "broken").write_text("a: [")
    (process / "root").symlink_to("/")
    (process / "cwd").symlink_to(home)
    (process / "cmdline").write_text("\0".join(command.split()) + "\0")
    environment = {"HOME": str(home), **variables}
    (process / "environ").write_text("".join(f"{name}={value}\0" for name, value in environment.items()))
    assert bool(running(VOLCANO, tmp_path / "proc")) == counts


def revision(number: int, status: str, age_s: float = 0) -> dict[str, Any]:
    """A revision's Secret."""
    created = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)
    labels = {"status": status, "version": str(number)}
    name = f"sh.helm.release.v1.volcano.v{number}"
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": created.isoformat()}}


@pytest.fixture
def action(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The action over revisions that a test chooses, without a cluster."""
    monkeypatch.setattr(ActionModule, "revisions", lambda self, _place: self.secrets)
    one: Any = ActionModule.__new__(ActionModule)
    one.kube = SimpleNamespace(now=lambda: dt.datetime.now(dt.UTC))
    return one


def test_d6_a_young_pending_revision_of_another_machine_is_left_alone(action: Any, tmp_path: Path) -> None:
    note = Note(VOLCANO, {"XDG_CACHE_HOME": str(tmp_path)})
    action.secrets = [revision(1, "deployed"), revision(2, "pending-upgrade", 30)]
    with pytest.raises(GangplankError) as refusal:
        wait_for_others(VOLCANO, 0, lambda: action.living(VOLCANO, note, 300))
    message = str(refusal.value)
    assert message.startswith("release volcano-system/volcano: got revision 2 pending-upgrade since 20")
    assert "(kubectl delete secret -n volcano-system sh.helm.release.v1.volcano.v2), then run it again" in message
    for age_s, timeout_s, lives in ((599, 300, True), (601, 300, False), (601, 900, True), (901, 900, False)):
        action.secrets = [revision(2, "pending-install", age_s)]
        assert bool(action.living(VOLCANO, note, timeout_s)) == lives


def test_d6_a_young_removal_of_another_machine_is_waited_for(action: Any, tmp_path: Path) -> None:
    note = Note(VOLCANO, {"XDG_CACHE_HOME": str(tmp_path)})

    def removed(age_s: float, ahead_s: float = 0, **labels: str) -> list[dict[str, Any]]:
        secret = revision(3, "uninstalling", 86400)
        began = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age_s)
        label = {"manager": "kubectl-label", "time": dt.datetime.now(dt.UTC).isoformat()}
        secret["metadata"]["managedFields"] = [{"manager": "helm", "time": began.isoformat()}, label]
        secret["metadata"]["labels"] |= {"modifiedAt": str(int(began.timestamp() + ahead_s)), **labels}
        return [secret]

    action.secrets = removed(30)
    with pytest.raises(GangplankError, match=r"got revision 3 uninstalling since 20.* wait until 10 minutes after"):
        wait_for_others(VOLCANO, 0, lambda: action.living(VOLCANO, note, 300))
    note.write([])
    assert action.living(VOLCANO, note, 300), "this machine's Helm did not see that revision"
    note.write([action.secrets[0]["metadata"]["name"]])
    assert not action.living(VOLCANO, note, 300), "an interrupted run of this machine began it"
    a_day_ago = time.time() - 86400
    os.utime(note.path, (a_day_ago, a_day_ago))
    assert action.living(VOLCANO, note, 300), "that note is older than this removal can be"
    note.forget()
    for secrets, lives in ((removed(601), False), (removed(601, 86400), False), (removed(30, -86400), True),
                           (removed(30, modifiedAt="9" * 4301), True)):  # fmt: skip
        action.secrets = secrets
        assert bool(action.living(VOLCANO, note, 300)) == lives, "by the clock of the cluster"


def test_d6_a_removal_that_failed_is_resumed_at_once(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Helm leaves it `uninstalling`; the note says that it was this machine's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    note = Note(Place(Kube(api.kubeconfig).api.configuration.host, "volcano-system", "volcano"))
    where = "/api/v1/namespaces/volcano-system/secrets"
    named: dict[str, Any] = {"kubeconfig": api.kubeconfig, "name": "volcano", "namespace": "volcano-system"}
    named |= {"chart": "", "ended": True}
    for status, kept in (("uninstalling", True), ("failed", False)):
        note.write(["sh.helm.release.v1.volcano.v3"])
        secret = revision(3, status)
        secret["metadata"]["labels"] |= {"owner": "helm", "name": "volcano"}
        api.objects[f"{where}/{secret['metadata']['name']}"] = secret
        assert not run("helm_released", **named)["changed"]
        assert note.path.exists() == kept


def test_d6_the_age_of_a_revision_is_by_the_clock_of_the_cluster(action: Any, tmp_path: Path) -> None:
    """A machine whose clock is ahead would take a Helm that works for dead, and remove what it has begun."""
    action.secrets = [revision(2, "pending-upgrade", 700)]
    action.kube = SimpleNamespace(now=lambda: dt.datetime.now(dt.UTC) - dt.timedelta(seconds=660))
    assert action.living(VOLCANO, Note(VOLCANO, {"XDG_CACHE_HOME": str(tmp_path)}), 300)


def test_d6_what_an_interrupted_helm_of_this_machine_left_is_not_waited_for(action: Any, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    note = Note(VOLCANO, environment)
    note.write(["sh.helm.release.v1.volcano.v1"])
    action.secrets = [revision(1, "deployed"), revision(2, "pending-upgrade")]
    assert not action.living(VOLCANO, Note(VOLCANO, environment), 300)
    assert action.living(Place("https://other", *list(vars(VOLCANO).values())[1:]),
                         Note(Place("https://other", "volcano-system", "volcano"), environment), 300)  # fmt: skip
    Note(VOLCANO, environment).forget()
    assert action.living(VOLCANO, note, 300), "Helm had ended by itself"
    for text in ("", "{", "1"):  # torn
        note.path.write_text(text)
        assert action.living(VOLCANO, note, 300)


def test_d7_a_revision_that_came_long_after_an_interrupted_helm_is_another_s(action: Any, tmp_path: Path) -> None:
    note = Note(VOLCANO, {"XDG_CACHE_HOME": str(tmp_path)})
    note.write(["sh.helm.release.v1.volcano.v1"])
    a_day_ago = time.time() - 86400
    os.utime(note.path, (a_day_ago, a_day_ago))
    action.secrets = [revision(1, "deployed"), revision(2, "pending-upgrade", 5)]
    assert action.living(VOLCANO, note, 300)


def test_check_mode_keeps_the_note_of_an_interrupted_run(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the note, the next run would wait ten minutes for a Helm elsewhere."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    note = Note(Place(Kube(api.kubeconfig).api.configuration.host, "volcano-system", "volcano"))
    note.write(["sh.helm.release.v1.volcano.v1"])
    named = {"kubeconfig": api.kubeconfig, "name": "volcano", "namespace": "volcano-system", "chart": "", "ended": True}
    for check, left in ((True, ["v2"]), (False, [])):
        assert not run("helm_released", check=check, **named)["changed"]
        assert note.left({"v2": 0}) == left


@pytest.mark.slow
def test_check_mode_passes_over_a_pending_revision(api: Api, tmp_path: Path) -> None:
    """Helm refuses even a dry run while a revision is pending."""
    secrets = "/api/v1/namespaces/a/secrets"
    api.objects["/api/v1/namespaces/a"] = {"metadata": {"name": "a"}}
    for number, status in ((1, "failed"), (2, "pending-upgrade")):
        secret = {"kind": "Secret", **revision(number, status)}
        secret["metadata"]["labels"] |= {"owner": "helm", "name": "volcano"}
        api.objects[f"{secrets}/{secret['metadata']['name']}"] = secret
    (tmp_path / "helm").write_text("#!/bin/sh\necho another operation is in progress >&2\nexit 1\n")
    (tmp_path / "helm").chmod(0o755)
    values = {"helm_release_name": "volcano", "helm_release_namespace": "a", "helm_release_chart": "/none"}
    book = [{"hosts": "localhost", "connection": "local", "roles": [str(ROOT / "roles/helm_release")], "vars": values}]
    (tmp_path / "book.yml").write_text(json.dumps(book))
    path = {"K8S_AUTH_KUBECONFIG": api.kubeconfig, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = play(tmp_path, tmp_path / "book.yml", "--check", **path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=1 " in done.stdout
    assert len(api.objects) == 3


def cluster_at(server: str) -> Any:
    """A client that only has an address."""
    return SimpleNamespace(api=SimpleNamespace(configuration=SimpleNamespace(host=server)))


def test_helm_takes_no_proxy_to_this_machines_own_lab(action: Any) -> None:
    action._task, action.kube = SimpleNamespace(args={}), cluster_at("https://198.18.0.1:6443")
    action.environment = {"HTTPS_PROXY": "http://proxy.example.org:3128", "NO_PROXY": "example.org"}
    environment = action.helm_environment()
    assert {environment[name] for name in ("NO_PROXY", "no_proxy")} == {"example.org,198.18.0.0/15"}


@pytest.mark.parametrize("context", ["", "training"])
def test_helm_takes_the_cluster_of_the_kubeconfig_whatever_its_own_variables_say(action: Any, context: str) -> None:
    own = {"HELM_KUBECONTEXT": "production", "HELM_KUBEAPISERVER": SERVER, "HELM_KUBETOKEN": "t"}
    action._task = SimpleNamespace(args={})
    action.kube = cluster_at(SERVER)
    action.environment = {**own, "K8S_AUTH_KUBECONFIG": "~/a:/b", "KUBECONFIG": "/c", "K8S_AUTH_CONTEXT": context}
    expected = dict.fromkeys(("K8S_AUTH_KUBECONFIG", "HELM_KUBEAPISERVER", "HELM_KUBETOKEN"), "")
    files = {"KUBECONFIG": f"{Path.home()}/a:/b"}
    assert action.helm_environment() == {**expected, **files, "HELM_KUBECONTEXT": context}
    for file in sorted((ROOT / "roles/helm_release/tasks").glob("calls-*.yml")):
        for task in yaml.safe_load(file.read_text()):
            if {"kubernetes.core.helm", "ansible.builtin.command"} & task.keys():
                assert task["environment"] == "{{ __helm_release_state.environment }}", task["name"]
