"""A release is as asked only if its chart's content is too and its objects are there; the role puts the rest right."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.cluster.client import Kube
from gangplank.cluster.helm_processes import Note, Place
from gangplank.site.components import COMPONENTS
from tests.cluster.conftest import ROOT, STATE
from tests.support.api_faults import Proxy
from tests.support.processes import descendants, kill_with_descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.conftest import Lab

NAMESPACE = "release-test"
CONFIG = """apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {word: {{ .Values.word | quote }}, kept: same}
"""
WEB = """apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: web, image: "registry.k8s.io/pause:3.10.1"}]
"""

TOYS = """apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.release-test.example.com}
spec:
  group: release-test.example.com
  names: {kind: Toy, plural: toys}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
"""
TOY = "{apiVersion: release-test.example.com/v1, kind: Toy, metadata: {name: bear}}"

STRUCK = [("/secrets", "cut"), ("/configmaps", "lost cut"), ("/deployments", "lost cut")]


class Site:
    """A chart, and the role that installs it."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder, self.chart = lab, folder, folder / "chart"
        (self.chart / "templates").mkdir(parents=True)
        (self.chart / "Chart.yaml").write_text("{apiVersion: v2, name: small, version: 1.0.0}\n")
        self.source = self.chart
        self.write(config=CONFIG, web=WEB)
        self.helm = [f"{lab.parts['bin']['helm']}/helm", f"--kubeconfig={STATE}/admin.kubeconfig",
                     f"--namespace={NAMESPACE}"]

    def write(self, **templates: str) -> None:
        """Give the chart these templates; the version stays."""
        for name, text in templates.items():
            (self.chart / f"templates/{name}.yaml").write_text(text)

    kubeconfig: str = f"{STATE}/admin.kubeconfig"
    name, namespace = "small", NAMESPACE

    def play(self, *words: str, tasks: str = "main") -> tuple[bool, str]:
        """Run the role; whether it reports a change, and what it printed. It fails with what it printed."""
        command = self.command(*words, tasks=tasks)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
        assert "Traceback" not in done.stdout + done.stderr
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        return " changed=0 " not in done.stdout, done.stdout

    def command(self, *words: str, tasks: str = "main") -> list[str]:
        """Write a play of the role; what runs it."""
        values = {"name": self.name, "namespace": self.namespace, "chart": str(self.source),
                  "values": {"word": "first"}, "timeout_s": 180}  # fmt: skip
        role = {"name": "helm_release", "tasks_from": tasks}
        variables = {f"helm_release_{name}": value for name, value in values.items()}
        book = self.folder / "play.yml"
        book.write_text(yaml.safe_dump([{
            "hosts": "localhost",
            "environment": {"K8S_AUTH_KUBECONFIG": self.kubeconfig,
                            "PATH": f"{self.lab.parts['bin']['helm']}:{os.environ['PATH']}"},
            "tasks": [{"name": "Do it", "ansible.builtin.include_role": role, "vars": variables}],
        }]))
        return [str(Path(sys.executable).with_name("ansible-playbook")), str(book), *words]

    def pack(self) -> None:
        """Install the chart as it is now from an archive, as from a repository, from now on."""
        subprocess.run([*self.helm, "package", self.chart, "--destination", self.folder], check=True, timeout=60)
        self.source = self.folder / "small-1.0.0.tgz"

    def changes(self, *words: str) -> bool:
        """Whether the role reports a change."""
        return self.play(*words)[0]

    def get(self, kind: str, name: str) -> Any:
        """A live object of the test's namespace."""
        return self.lab.get("--namespace", NAMESPACE, kind, name)

    def revisions(self) -> dict[str, str]:
        """The status of each revision."""
        secrets = self.lab.get("--namespace", NAMESPACE, "secrets", "--selector=owner=helm")
        return {item["metadata"]["name"]: item["metadata"]["labels"]["status"] for item in secrets}


@pytest.fixture
def site(lab: Lab, tmp_path: Path) -> Iterator[Site]:
    """A site without the release, before and after."""
    remove = ("delete", "namespace", NAMESPACE, "later", "--ignore-not-found")
    lab.kubectl(*remove)
    yield Site(lab, tmp_path)
    lab.kubectl(*remove)
    lab.kubectl("delete", "crd", f"toys.{NAMESPACE}.example.com", "--ignore-not-found")


@pytest.mark.parametrize("packed", [False, True], ids=["of a folder", "of an archive"])
def test_d7_templates_changed_without_another_version_are_installed(site: Site, *, packed: bool) -> None:
    if packed:
        site.pack()
    assert [site.changes() for _ in range(2)] == [True, False]
    site.write(config=CONFIG.replace("same", "other"))
    if packed:
        site.pack()
    assert site.changes("--check")
    assert site.get("configmap", "config")["data"]["kept"] == "same", "check mode changed it"
    assert [site.changes() for _ in range(2)] == [True, False]
    assert site.get("configmap", "config")["data"] == {"word": "first", "kept": "other"}


def test_d7_objects_that_are_gone_or_changed_are_repaired(site: Site) -> None:
    assert site.changes()
    before, kubectl = site.revisions(), ("--namespace", NAMESPACE)
    site.lab.kubectl(*kubectl, "delete", "deployment", "web")
    site.lab.kubectl(*kubectl, "patch", "configmap", "config", "--patch", '{"data": {"word": "wrong", "more": "1"}}')
    assert site.changes("--check", "--diff")
    assert "NotFound" in site.lab.kubectl(*kubectl, "get", "deployment", "web", check=False), "check mode created it"
    assert [site.changes() for _ in range(2)] == [True, False]
    assert site.get("configmap", "config")["data"] == {"word": "first", "kept": "same", "more": "1"}
    assert site.get("deployment", "web")["status"]["availableReplicas"] == 1, "the role waits for it"
    site.lab.kubectl(*kubectl, "scale", "deployment", "web", "--replicas=0")
    assert [site.changes() for _ in range(2)] == [False, False], "the chart names no number"
    site.lab.kubectl(*kubectl, "delete", "deployment", "web")
    wrong = WEB.replace("app: web}", "app: another}")
    site.lab.kubectl("apply", "--namespace", NAMESPACE, "--filename=-", stdin=wrong)
    with pytest.raises(AssertionError, match=r"Deployment release-test/web of the release small: got .*immutable"):
        site.play()
    site.lab.kubectl(*kubectl, "delete", "deployment", "web")
    assert [site.changes() for _ in range(2)] == [True, False]
    assert site.revisions() == before, "Helm had nothing to do"


def test_d7_check_mode_sees_deleted_objects_of_a_chart_that_only_helm_has_read(site: Site) -> None:
    site.source = Path(site.chart.name)  # beside the play; to the role, a name like that of a chart in a repository
    assert [site.changes() for _ in range(2)] == [True, False]
    assert not site.changes("--check")
    site.lab.kubectl("--namespace", NAMESPACE, "delete", "configmap", "config")
    assert site.changes("--check")
    assert "NotFound" in site.lab.kubectl("--namespace", NAMESPACE, "get", "configmap", "config", check=False)
    assert [site.changes() for _ in range(2)] == [True, False]


def test_d7_a_daemonset_is_repaired_though_it_has_no_condition_to_wait_for(site: Site) -> None:
    site.write(web=WEB.replace("kind: Deployment", "kind: DaemonSet"))
    assert site.changes()
    site.lab.kubectl("--namespace", NAMESPACE, "delete", "daemonset", "web")
    assert [site.changes() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("words", [
    ("cronjob", "others", "--image=registry.k8s.io/pause:3.10.1", "--schedule=0 0 1 1 *"),
    ("secret", "generic", "others"), ("configmap", "others"), ("service", "clusterip", "others", "--tcp=80"),
    ("role", "others", "--verb=get", "--resource=pods"), ("serviceaccount", "others"), ("quota", "others"),
    ("poddisruptionbudget", "others", "--selector=a=b", "--min-available=1"),
], ids=["CronJob", "Secret", "ConfigMap", "Service", "Role", "ServiceAccount", "ResourceQuota",
        "PodDisruptionBudget"])  # fmt: skip
def test_a_namespace_that_holds_what_others_made_outlives_the_release(
    site: Site, words: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    site.play()
    kind = request.node.callspec.id
    site.lab.kubectl("--namespace", NAMESPACE, "create", *words)
    said = " ".join(site.play(tasks="remove")[1].split())
    assert f"The namespace {NAMESPACE} stays, because of these objects: {kind}/others" in said
    assert site.revisions() == {}
    site.lab.kubectl("--namespace", NAMESPACE, "delete", words[0], "others")
    site.play(tasks="remove")
    assert "NotFound" in site.lab.kubectl("get", "namespace", NAMESPACE, check=False)


def test_a_namespace_with_another_release_outlives_this_one(site: Site) -> None:
    """Its record is all that a release of storage classes has there: without it, Helm cannot remove them."""
    site.play()
    site.write(config="", web="")
    subprocess.run([*site.helm, "install", "other", site.chart], check=True, stdout=subprocess.DEVNULL, timeout=60)
    site.play(tasks="remove")
    assert list(site.revisions()) == ["sh.helm.release.v1.other.v1"]


def test_a_release_whose_pods_do_not_start_says_which_and_why(site: Site) -> None:
    site.write(web=WEB.replace("registry.k8s.io/pause:3.10.1", "registry.example.org/none:1"))
    with pytest.raises(AssertionError) as failure:
        site.play("-e", "helm_release_timeout_s=60")
    text = " ".join(str(failure.value).replace("\\n", " ").split())
    said = r"not ready: web-\S+: (ErrImagePull|ImagePullBackOff): .*registry\.example\.org/none:1"
    assert re.search(said, text), text
    site.write(web=WEB)
    assert [site.changes() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("packed", [False, True], ids=["of a folder", "of an archive"])
def test_d7_a_failed_release_of_the_same_chart_and_values_is_tried_again(site: Site, *, packed: bool) -> None:
    """Helm's module takes a failed revision for up to date."""
    site.write(late=CONFIG.replace("name: config", "name: config, namespace: later"))
    if packed:
        site.pack()
    with pytest.raises(AssertionError, match="later"):
        site.play()
    assert list(site.revisions().values()) == ["failed"]
    site.lab.kubectl("create", "namespace", "later")
    assert [site.changes() for _ in range(2)] == [True, False]
    assert list(site.revisions().values())[-1] == "deployed"


def test_d7_the_values_of_an_upgrade_that_failed_are_installed_by_the_next_run(site: Site) -> None:
    assert site.changes()
    site.write(late=CONFIG.replace("name: config", "name: config, namespace: later"))
    second = ("-e", json.dumps({"helm_release_values": {"word": "second"}}))
    with pytest.raises(AssertionError, match="later"):
        site.play(*second)
    assert sorted(site.revisions().values()) == ["deployed", "failed"]
    site.lab.kubectl("create", "namespace", "later")
    assert [site.changes(*second) for _ in range(2)] == [True, False]
    assert site.get("configmap", "config")["data"]["word"] == "second"


def test_d7_an_upgrade_of_the_same_version_that_was_killed_is_not_taken_for_complete(site: Site) -> None:
    assert site.changes()
    site.write(config=CONFIG.replace("same", "other"), web=WEB.replace("pause:3.10.1", "no-such-image:1"))
    with subprocess.Popen(site.command(), cwd=ROOT, stdout=subprocess.DEVNULL) as play:
        site.lab.wait("the upgrade", lambda: "pending-upgrade" in site.revisions().values())
        kill_with_descendants(play.pid)
    site.write(web=WEB)
    assert [site.changes() for _ in range(2)] == [True, False]
    assert site.get("configmap", "config")["data"]["kept"] == "other"
    assert sorted(site.revisions().values()) == ["deployed", "superseded"]


def test_d7_an_upgrade_by_a_helm_that_the_kernel_killed_is_repeated_by_the_next_run(site: Site) -> None:
    assert site.changes()
    site.write(config=CONFIG.replace("same", "other"), web=WEB.replace("pause:3.10.1", "no-such-image:1"))
    with subprocess.Popen(site.command(), cwd=ROOT, stdout=subprocess.PIPE, text=True) as play:
        site.lab.wait("the upgrade", lambda: "pending-upgrade" in site.revisions().values())
        programs = {pid: Path(f"/proc/{pid}/exe").resolve().name for pid in descendants(play.pid)}
        os.kill(next(pid for pid, program in programs.items() if program == "helm"), signal.SIGKILL)
        said = play.communicate(timeout=600)[0]
    assert play.returncode != 0
    assert f"release {NAMESPACE}/small: got an error from Helm (" in " ".join(said.split())
    site.write(web=WEB)
    assert [site.changes("-e", "helm_release_timeout_s=120") for _ in range(2)] == [True, False], "it waits for nobody"
    assert site.get("configmap", "config")["data"]["kept"] == "other"


def test_an_upgrade_to_a_chart_without_a_crd_leaves_the_crd_and_its_objects(site: Site) -> None:
    """A third-party chart may have it among its templates, as Kubeflow's of Trainer does."""
    site.write(toys=TOYS)
    words = ["install", "small", str(site.chart), "--create-namespace", "--set=word=theirs"]
    subprocess.run([*site.helm, *words], check=True, stdout=subprocess.DEVNULL, timeout=60)
    apply = ("--namespace", NAMESPACE, "apply", "--filename=-")
    site.lab.wait("toys are served", lambda: site.lab.kubectl(*apply, stdin=TOY))
    lost = f"got CRDs in its manifest, with which Helm would remove Toy/{NAMESPACE}/bear; expected none of them"
    with pytest.raises(AssertionError) as refusal:
        site.play(tasks="remove")
    assert lost in " ".join(str(refusal.value).split())
    assert list(site.revisions().values()) == ["deployed"]
    (site.chart / "templates/toys.yaml").unlink()
    assert [site.changes() for _ in range(2)] == [True, False]
    site.play(tasks="remove")
    assert site.revisions() == {}
    assert site.get("toys", "bear")["metadata"]["name"] == "bear"


def test_a_third_party_release_under_a_default_name_is_left_alone_until_it_is_handed_over(site: Site) -> None:
    component = COMPONENTS["gpu_dra_driver"]
    site.name, site.namespace = component.release, component.namespace
    assert "NotFound" in site.lab.kubectl("get", "namespace", site.namespace, check=False), "another test left it"
    theirs = [*site.helm[:2], f"--namespace={site.namespace}"]
    words = ["install", site.name, str(site.chart), "--create-namespace", "--set=word=theirs"]
    try:
        subprocess.run([*theirs, *words], check=True, stdout=subprocess.DEVNULL, timeout=60)
        command = [sys.executable, "-m", "gangplank", "preflight", "--components=gpu_dra_driver",
                   f"--kubeconfig={site.kubeconfig}"]  # fmt: skip
        examined = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        with pytest.raises(AssertionError) as failure:
            site.play()
        for said in (str(failure.value), examined.stdout):
            refusal = " ".join(said.replace("''", "'").split())
            assert f"Helm's release {site.name} in {site.namespace}: got a third-party one" in refusal
        assert examined.returncode != 0
        left = " ".join(site.play(tasks="remove")[1].replace("''", "'").split())
        assert f"It stays, with all its objects. Helm's release {site.name} in {site.namespace}: got" in left
        config = site.lab.get("--namespace", site.namespace, "configmap", "config")
        assert config["data"]["word"] == "theirs"
        site.lab.kubectl(*re.findall(r"\(kubectl (annotate .*?)\)", refusal)[0].split())
        assert [site.changes() for _ in range(2)] == [True, False]
        assert site.lab.get("--namespace", site.namespace, "configmap", "config")["data"]["word"] == "first"
        site.play(tasks="remove")
        assert "NotFound" in site.lab.kubectl("--namespace", site.namespace, "get", "configmap", "config", check=False)
    finally:
        site.lab.kubectl("delete", "namespace", site.namespace, "--ignore-not-found")


@pytest.mark.parametrize("tasks", ["main", "remove"])
def test_d6_the_revision_of_a_helm_that_is_at_work_is_left_alone(site: Site, tasks: str) -> None:
    assert site.changes()
    site.write(web=WEB.replace("pause:3.10.1", "no-such-image:1"))
    upgrade = [*site.helm, "upgrade", "small", str(site.chart), "--set=word=first", "--wait", "--timeout=300s"]
    with subprocess.Popen(upgrade, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as helm:
        try:
            site.lab.wait("the upgrade", lambda: "pending-upgrade" in site.revisions().values())
            before = site.lab.get("--namespace", NAMESPACE, "secrets", "--selector=owner=helm")
            said = rf"got process {helm.pid} \(\S+/helm .*upgrade.*expected its end within 5 s"
            with pytest.raises(AssertionError, match=said):
                site.play("-e", "helm_release_timeout_s=5", tasks=tasks)
            assert site.lab.get("--namespace", NAMESPACE, "secrets", "--selector=owner=helm") == before
        finally:
            helm.terminate()
    assert helm.returncode != 0
    site.write(web=WEB)
    assert [site.changes() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("tasks", ["main", "remove"])
def test_d7_a_removal_that_was_killed_is_resumed(site: Site, tasks: str) -> None:
    site.play()  # a Service of others keeps the namespace, and with it whatever the removal leaves
    site.lab.kubectl("--namespace", NAMESPACE, "create", "service", "clusterip", "others", "--tcp=80")
    hold = ("--namespace", NAMESPACE, "patch", "configmap", "config", "--type=merge", "--patch")
    site.lab.kubectl(*hold, '{"metadata": {"finalizers": ["example.com/hold"]}}')
    with subprocess.Popen([*site.helm, "uninstall", "small", "--wait"], stdout=subprocess.DEVNULL) as helm:
        site.lab.wait("the removal of the ConfigMap",
                      lambda: site.get("configmap", "config")["metadata"].get("deletionTimestamp"))
        helm.send_signal(signal.SIGKILL)
    assert list(site.revisions().values()) == ["uninstalling"]
    site.lab.kubectl(*hold, '{"metadata": {"finalizers": null}}')
    with pytest.raises(AssertionError, match=r"got revision \d uninstalling since 20.*, expected its end within 5 s"):
        site.play("-e", "helm_release_timeout_s=5", tasks=tasks)  # for all it knows, that Helm is another machine's
    note = Note(Place(Kube(site.kubeconfig).api.configuration.host, NAMESPACE, "small"))
    note.write([f"sh.helm.release.v1.small.v{version}" for version in range(1, 9)])  # as if a play here had called it
    site.play(tasks=tasks)
    assert list(site.revisions().values()) == (["deployed"] if tasks == "main" else [])
    assert not site.play(tasks=tasks)[0]


def test_d7_a_secret_of_unknown_format_is_no_traceback(site: Site) -> None:
    site.play()
    name = next(iter(site.revisions()))
    for text in ("bm90IGJhc2U2NA==", "", "SDRzSUFBQUFBQUFBLzhzb1V3UUFXdVVwM0FNQUFBQT0="):
        patch = f'{{"data": {{"release": "{text}"}}}}'
        site.lab.kubectl("--namespace", NAMESPACE, "patch", "secret", name, "--type=merge", "--patch", patch)
        done = subprocess.run(site.command(), cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said[-3000:]
        assert done.returncode == 0 or "got an error from Helm" in said, said[-3000:]


class Strike(Proxy):
    """The first requests of a method, below a path, have a fault; the others have none."""

    method, where, kind, left = "", "", "", 0

    def choose(self, method: str, where: str = "") -> str:
        """The fault as long as it lasts."""
        self.left -= (struck := self.left > 0 and method == self.method and self.where in where)
        return self.kind if struck else ""


@pytest.fixture
def strike(site: Site, tmp_path: Path) -> Iterator[Strike]:
    """The way of the site's Helm to the server."""
    with Strike(Path(f"{STATE}/admin.kubeconfig")) as proxy:
        site.kubeconfig = proxy.client_config(tmp_path)
        yield proxy


@pytest.mark.parametrize(("where", "kind"), STRUCK, ids=[f"{kind} of {where}" for where, kind in STRUCK])
def test_d4_helm_is_asked_again_when_a_write_fails(site: Site, strike: Strike, where: str, kind: str) -> None:
    for method, tasks, statuses in (("POST", "main", ["deployed"]), ("DELETE", "remove", [])):
        strike.method, strike.where, strike.kind, strike.left = method, where, kind, 1
        changed, output = site.play(tasks=tasks)
        assert strike.left == 0, strike.requests
        assert changed
        assert "Helm is asked again, 2 of 5 times" in " ".join(output.split())
        assert [status for status in site.revisions().values() if status not in {"failed", "superseded"}] == statuses
        assert not site.play(tasks=tasks)[0]


def test_d4_helm_is_asked_five_times_at_most(site: Site, strike: Strike) -> None:
    strike.method, strike.where, strike.kind, strike.left = "POST", "/configmaps", "cut", 100
    with pytest.raises(AssertionError, match=r"got an error from Helm in 5 tries \(.*EOF\)"):
        site.play()
    assert strike.left == 95


def test_d4_helm_is_not_asked_again_for_what_it_would_fail_at_again(site: Site) -> None:
    site.write(late=CONFIG.replace("name: config", "name: config, namespace: later"))
    with pytest.raises(AssertionError, match=r"got an error from Helm \(") as failure:
        site.play()
    assert "asked again" not in str(failure.value)
