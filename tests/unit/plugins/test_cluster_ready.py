"""A site on a cluster that is there: which cluster is meant, and what is missing is said before anything is changed."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail

from tests.unit.plugins.test_cluster_actions import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "inventories/example"
PLAYBOOKS = ("site.yml", "teams.yml", "train.yml", "uninstall.yml")
KINDS = ("K8S_AUTH_KUBECONFIG", "KUBECONFIG", "HOME")  # where a kubeconfig can come from, best first


def play(folder: Path, book: str | Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a playbook with a copy of the example, from another folder, in an environment of its own."""
    site = folder / "my-site"
    if not site.exists():
        shutil.copytree(EXAMPLE, site)
    command = [sys.executable, "-m", "ansible", "playbook", "-i", str(site), str(ROOT / "playbooks" / book), *words]
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "HOME": str(folder), "PATH": str(folder)}
    env = own | {"LC_ALL": "C.UTF-8", "ANSIBLE_LOCAL_TEMP": str(folder / "tmp")} | environment
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=120)


def config(file: Path, port: int, *contexts: str) -> str:
    """Write a kubeconfig for a cluster that does not answer; its path."""
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    named = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in contexts]
    users = [{"name": "u", "user": {"token": "t"}}]
    file.parent.mkdir(parents=True, exist_ok=True)
    other_parts = {"clusters": [cluster], "contexts": named, "users": users}
    file.write_text(json.dumps({"current-context": contexts[0], **other_parts}))
    return str(file)


class Refusing(http.server.BaseHTTPRequestHandler):
    """A cluster that refuses everything, with its port."""

    def refuse(self) -> None:
        """Answer 403."""
        assert isinstance(self.server, http.server.HTTPServer)
        data = json.dumps({"message": f"port={self.server.server_port}"}).encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = refuse  # noqa: N815  the names that http.server calls

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Where clusters are that refuse everything, one for each kind of kubeconfig."""
    servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) for _ in KINDS]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield [server.server_port for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("missing", range(len(KINDS)))
def test_the_cluster_is_the_one_that_every_module_takes(tmp_path: Path, ports: list[int], missing: int) -> None:
    (tmp_path / "book.yml").write_text(yaml.safe_dump([{
        "hosts": "localhost", "environment": "{{ site_environment | default({}) }}", "ignore_errors": True, "tasks": [
            {"name": "Ours", "gangplank.gangplank.cluster_read": {"paths": ["/version"]}},
            {"name": "Teams", "gangplank.gangplank.team_plan": {"group": "teams"}},
            {"name": "Theirs", "kubernetes.core.k8s_info": {"kind": "Namespace", "api_version": "v1"}},
            {"name": "Another context", "gangplank.gangplank.cluster_ready": {},
             "environment": {"K8S_AUTH_CONTEXT": "other"}},
        ]}]))  # fmt: skip
    files = {"K8S_AUTH_KUBECONFIG": "a", "KUBECONFIG": "b", "HOME": ".kube/config"}
    kinds = KINDS[missing:]
    env = {name: config(tmp_path / files[name], ports[KINDS.index(name)], name, "other") for name in kinds}
    env["HOME"] = str(tmp_path)
    port = ports[missing]
    said = play(tmp_path, tmp_path / "book.yml", **env, PATH="/usr/bin:/bin").stdout
    for task in ("Ours", "Teams", "Theirs"):
        failed = said.partition(f"TASK [{task}]")[2].partition("TASK [")[0]
        assert f"port={port}" in failed, said
    name = "~/.kube/config" if kinds[0] == "HOME" else env[kinds[0]]
    assert f"cluster: http://127.0.0.1:{port} (context other of {name})" in said


@pytest.mark.slow
@pytest.mark.parametrize("book", ["site.yml", "uninstall.yml"])
def test_without_helm_nothing_is_changed_and_one_message_says_what_to_do(tmp_path: Path, api: Api, book: str) -> None:
    done = play(tmp_path, book, K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert done.returncode != 0
    assert "helm: got none on PATH" in done.stdout
    assert "install Helm 3" in done.stdout
    assert "changed=0" in done.stdout
    asked = [line for line in api.seen if "selfsubjectaccessreviews" not in line and "dryRun=All" not in line]
    assert {line.split()[0] for line in asked} == {"GET"}
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("book", PLAYBOOKS)
def test_every_playbook_names_the_cluster_first(tmp_path: Path, api: Api, book: str) -> None:
    job = ("-e", f"@{ROOT}/jobs/digits.yml") if book == "train.yml" else ()
    done = play(tmp_path, book, *job, "--check", K8S_AUTH_KUBECONFIG=api.kubeconfig)
    server = json.loads(Path(api.kubeconfig).read_text())["clusters"][0]["cluster"]["server"]
    before, named, _ = done.stdout.partition(f"    cluster: {server} (context x of {api.kubeconfig})")
    assert named, done.stdout
    assert len([line for line in before.splitlines() if line.startswith("TASK")]) <= 2
    assert api.objects == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("book", "kind", "right"),
    [
        ("site.yml", "daemonsets", "create daemonsets.apps, patch daemonsets.apps, delete daemonsets.apps"),
        ("teams.yml", "queues", "create queues.scheduling.volcano.sh, patch queues.scheduling.volcano.sh"),
        ("uninstall.yml", "daemonsets", "delete daemonsets.apps"),
    ],
)
def test_each_playbook_asks_for_its_own_rights_and_says_together_what_is_missing(
    tmp_path: Path, api: Api, book: str, kind: str, right: str
) -> None:
    api.forbidden = {kind}
    done = play(tmp_path, book, K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert done.returncode != 0
    assert done.stdout.count("fatal: ") == 1
    assert f"an account that may not {right}" in done.stdout
    assert "create namespaces" not in done.stdout
    assert ("helm: got none on PATH" in done.stdout) == (book != "teams.yml")
    assert "changed=0" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--tags", "--skip-tags"])
def test_a_removal_refuses_the_tags_of_components(tmp_path: Path, api: Api, option: str) -> None:
    done = play(tmp_path, "uninstall.yml", option, "storage", K8S_AUTH_KUBECONFIG=api.kubeconfig)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert f"{option}: got storage, expected no tags, because uninstall.yml removes all of site_components" in said
    assert "changed=0" in said


def test_a_removal_refuses_an_unknown_component(api: Api) -> None:
    with pytest.raises(AnsibleActionFail, match="Got no match for: vulcano"):
        run("cluster_ready", run="uninstall", removes=["vulcano"], kubeconfig=api.kubeconfig)


def test_a_node_whose_taint_the_values_of_a_component_tolerate_takes_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.action.cluster_ready.STARTING_S", 0)
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"pods": "9"}}
    spec = {"taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]}
    api.objects["/api/v1/nodes/a"] = {"metadata": {"name": "a"}, "spec": spec, "status": status}
    values = {"custom": {"default_tolerations": [{"key": "dedicated", "value": "ml"}]}}
    assert not run("cluster_ready", components={"volcano": {"values": values}}, kubeconfig=api.kubeconfig).get("failed")
    message = run("cluster_ready", components={"volcano": {"values": {}}}, kubeconfig=api.kubeconfig)["msg"]
    assert "with taints: a (dedicated=ml:NoSchedule), expected room for 4 pods" in message
    assert "or tolerate it in volcano_values" in message


def test_another_helm_than_3_is_refused_and_a_missing_one_is_named_once(
    tmp_path: Path, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    words: dict[str, Any] = {"components": {"storage": {}}, "programs": ["helm"], "kubeconfig": api.kubeconfig}
    assert run("cluster_ready", **words)["msg"].count("helm: got none on PATH") == 1
    (tmp_path / "helm").write_text("#!/bin/sh\necho v4.0.1+g12500dd\n")
    (tmp_path / "helm").chmod(0o755)
    assert "helm: got v4.0.1+g12500dd, expected Helm 3" in run("cluster_ready", **words)["msg"]


BROKEN = {"missing": None, "empty": "", "not YAML": "a: [", "no kubeconfig": "a: 1"}


@pytest.mark.parametrize("name", BROKEN)
def test_a_kubeconfig_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file, text = tmp_path / "broken", BROKEN[name]
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", str(file))
    result = run("cluster_ready")
    assert result["failed"]
    assert f"kubeconfig {file}: " in result["msg"]
    assert "K8S_AUTH_KUBECONFIG" in result["msg"]
    assert "Traceback" not in str(result)


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    said = play(tmp_path, "teams.yml", K8S_AUTH_KUBECONFIG=config(tmp_path / "dead", 1, "x")).stdout
    assert "http://127.0.0.1:1: got no answer (" in said
    assert "Traceback" not in said
    assert "failed=1" in said
