"""What the README promises of the lab, on a real one. The tests run in this order and share it."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from gangplank.k8s.dump import as_yaml
from lab.build.own_image import write_own_image  # the recipe of lab/images/example
from tests.cluster.conftest import INVENTORY, ROOT, STATE, Lab, snapshot, tasks_that
from tests.cluster.test_registry import has, on_node
from tests.unit.cli.test_completion import completions
from tests.unit.cluster.test_progress import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ON_NODES = ("containerd", "kubelet", "kube-proxy", "network-policy")


def settled(lab: Lab) -> bool:
    """Every node Ready, DNS up, and every program of supervisord's running."""
    dns = lab.get("deployment", "coredns", "-n", "kube-system")
    running = all(program["statename"] == "RUNNING" for program in lab.programs().values())
    return running and lab.ready() == {"node-0", "node-1"} and dns["status"].get("readyReplicas") == 1


def test_every_part_tells_its_version(lab: Lab) -> None:
    parts = yaml.safe_load((ROOT / "lab/versions.yml").read_text())["parts"]
    pins = {name: part["version"] for name, part in parts.items()}
    folders = lab.parts["bin"]
    said = {
        "kubernetes": ["kubectl", "version", "--client"],
        "etcd": ["etcd", "--version"],
        "containerd": ["containerd", "--version"],
        "helm": ["helm", "version", "--short"],
        "coredns": ["coredns", "-version"],
        "volcano": ["vc-scheduler", "--version"],
        "local-path-provisioner": ["local-path-provisioner", "--version"],
        "cni-plugins": ["bridge"],
    }
    for part, (program, *arguments) in said.items():
        done = subprocess.run([f"{folders[part]}/{program}", *arguments], capture_output=True, text=True, check=False)
        assert pins[part].removeprefix("v") in done.stdout + done.stderr, (part, done.stdout, done.stderr)
    assert {node["status"]["nodeInfo"]["kubeletVersion"] for node in lab.get("nodes")} == {pins["kubernetes"]}


def test_kubectl_reads_each_text_of_our_yaml_as_text(lab: Lab, tmp_path: Path) -> None:
    """Also those that only its own reader takes for numbers or booleans, such as a learning rate of 1e-05."""
    draw = random.Random(20261128)
    letters = ("0123456789+-._eE", "0123456789+-._:eExXobByYnNaAfF~tT ")
    words = ["".join(draw.choices(some, k=draw.randint(1, 7))) for some in letters for _ in range(10_000)]
    words += ["1e-05", "08", "0o17", "y", "n", "2026-1-2"]
    container = {"name": "train", "image": "train", "args": words}
    labels = {word: word for word in ("1e3", "y", "08")}
    meta = {"name": "train", "labels": labels}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}
    (tmp_path / "pod.yml").write_text(as_yaml([pod]))
    kubectl = [f"{lab.parts['bin']['kubernetes']}/kubectl", "label", "--local", "-o", "json", "-f", "pod.yml", "a=b"]
    done = subprocess.run(kubectl, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    read = json.loads(done.stdout)
    assert read["spec"]["containers"][0]["args"] == words
    assert read["metadata"]["labels"] == {**labels, "a": "b"}


def test_a_second_run_changes_nothing(lab: Lab) -> None:
    lab.playbook("playbooks/lab.yml")  # tests before this one may have asked for other components
    output = lab.playbook("playbooks/lab.yml")
    assert tasks_that(output, "changed") == []
    recap = re.findall(r"^(\S+) .*changed=(\d+)", output, re.MULTILINE)
    assert dict(recap) == {"localhost": "0"}


def test_check_mode_says_so_too(lab: Lab) -> None:
    recap = re.findall(r"changed=(\d+)", lab.playbook("playbooks/lab.yml", "--check", "--diff"))
    assert set(recap) == {"0"}


FIXED = ("/var/lib/kubelet/device-plugins", "/var/log/containers", "/opt/local-path-provisioner")


@pytest.mark.parametrize("folder", FIXED)
def test_nodes_share_no_fixed_folder_with_each_other_or_the_host(lab: Lab, folder: str) -> None:
    on_host = sorted(Path(folder).glob("*"))
    for node in ("node-0", "node-1"):
        lab.inside(node, "mkdir", "-p", folder)
        lab.inside(node, "touch", f"{folder}/made-on-{node}")
    for node, other in (("node-0", "node-1"), ("node-1", "node-0")):
        names = lab.inside(node, "ls", folder).split()
        assert f"made-on-{node}" in names
        assert f"made-on-{other}" not in names
    assert sorted(Path(folder).glob("*")) == on_host


@pytest.mark.usefixtures("lab")
def test_the_host_has_its_own_kubelet_folder_as_before(before: dict[str, list[str]]) -> None:
    assert snapshot()["kubelet"] == before["kubelet"]


@pytest.mark.usefixtures("lab")
def test_the_host_keeps_its_firewall_and_sees_no_mount_of_a_pod(before: dict[str, list[str]]) -> None:
    now = snapshot()
    assert now["firewall"] == before["firewall"]
    assert not [mount for mount in now["mounts"] if "kubelet" in mount or "containerd" in mount]


def test_a_node_reads_the_images_layers_and_cannot_write_them(lab: Lab) -> None:
    kept = Path(lab.parts["store"]) / "images.json"
    assert kept.stat().st_nlink == 3  # a link per node: builds leave it there
    layers = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"
    assert lab.inside("node-1", "sh", "-c", f"ls {layers}/1/")
    with pytest.raises(subprocess.CalledProcessError):
        lab.inside("node-1", "touch", f"/mnt/stores/{kept.parent.name}/touched")


@pytest.mark.usefixtures("lab")
def test_the_cache_is_not_removed_under_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "cache/gangplank").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    done = subprocess.run(
        ["make", "clean"],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Fix: make down" in done.stderr
    assert (tmp_path / "cache/gangplank").is_dir()


def test_nothing_in_a_node_has_a_way_out(lab: Lab) -> None:
    for node in ("node-0", "node-1"):
        routes = lab.inside(node, "ip", "route").splitlines()
        assert routes
        assert all(route.startswith(("198.18.", "198.19.")) for route in routes)


def test_allocatable_memory_adds_up_to_no_more_than_the_machine_has(lab: Lab) -> None:
    offered = sum(int(node["status"]["allocatable"]["memory"].removesuffix("Ki")) for node in lab.get("nodes"))
    total = int(re.findall(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[0])
    assert total // 2 < offered <= total


@pytest.mark.usefixtures("lab")
def test_strangers_are_not_answered() -> None:
    config = yaml.safe_load((STATE / "admin.kubeconfig").read_text())["clusters"][0]["cluster"]
    context = ssl.create_default_context(cafile=config["certificate-authority"])
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    for path in ("/version", "/healthz", "/api/v1/namespaces"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            opener.open(config["server"] + path, timeout=5)
        with contextlib.closing(refused.value):
            assert refused.value.code == 401


@pytest.mark.usefixtures("lab")
def test_a_gang_of_a_thousand_is_created_over_one_connection() -> None:
    """The server's first frame of HTTP/2 has how many requests it takes at a time (RFC 9113, 6.5)."""
    config = yaml.safe_load((STATE / "admin.kubeconfig").read_text())["clusters"][0]["cluster"]
    server = urllib.parse.urlsplit(config["server"])
    context = ssl.create_default_context(cafile=config["certificate-authority"])
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((server.hostname or "", server.port or 0), timeout=5) as raw,
        context.wrap_socket(raw, server_hostname=server.hostname) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")  # and no settings of ours
        head = answers.read(9)
        assert head[3] == 4  # SETTINGS
        settings = dict(struct.iter_unpack(">HI", answers.read(int.from_bytes(head[:3], "big"))))
    assert settings[3] == 1000  # MAX_CONCURRENT_STREAMS


@pytest.fixture(scope="module")
def objects_that_stay(lab: Lab) -> None:
    """Whatever happens to the lab."""
    lab.kubectl("create", "configmap", "plain", "--from-literal=key=readable-marker-3141")
    lab.kubectl("create", "secret", "generic", "hidden", "--from-literal=key=hidden-marker-2718")


@pytest.mark.usefixtures("objects_that_stay")
def test_secrets_are_encrypted_at_rest() -> None:
    written = b"".join(path.read_bytes() for path in (STATE / "etcd").rglob("*") if path.is_file())
    assert b"readable-marker-3141" in written
    assert b"hidden-marker-2718" not in written
    assert b"k8s:enc:secretbox" in written


@pytest.mark.usefixtures("objects_that_stay")
def test_requests_that_change_something_are_audited_without_their_content(lab: Lab) -> None:
    audit = lab.wait("the audit log", (STATE / "audit/audit.log").read_text)
    assert '"verb":"create"' in audit
    assert '"name":"hidden"' in audit
    assert "hidden-marker-2718" not in audit


def test_a_privileged_pod_is_refused(lab: Lab) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mighty"}, "spec": {"containers": [
        {"name": "c", "image": "registry.k8s.io/pause:3.10.1", "securityContext": {"privileged": True}}]}}  # fmt: skip
    answer = lab.kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod), check=False)
    assert 'violates PodSecurity "baseline:latest"' in answer


def test_nobody_s_service_takes_an_address_of_the_host(lab: Lab) -> None:
    """kube-proxy would send what goes there, the API server's own traffic too, to the Service's pods."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "trap"}, "spec": {
        "ports": [{"port": 6443}], "externalIPs": ["198.18.0.1"]}}  # fmt: skip
    answer = lab.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(service), check=False)
    assert "Use of external IPs is denied by admission control" in answer


def test_a_missing_image_fails_at_once_with_its_name(lab: Lab) -> None:
    lab.kubectl("run", "lost", "--image=example.invalid/no/such:1", "--restart=Never")

    def waiting() -> Any:
        state = lab.get("pod", "lost")["status"]["containerStatuses"][0]["state"]["waiting"]
        return state if state["reason"] in ("ErrImagePull", "ImagePullBackOff") else None

    assert "example.invalid/no/such:1" in lab.wait("the pull's failure", waiting)["message"]
    lab.kubectl("delete", "pod", "lost", "--now")


def test_the_tab_key_offers_the_names_of_jobs(lab: Lab) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    spec = {"suspend": True, "completionMode": "Indexed", "completions": 1, "template": template}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "tab-key"}, "spec": spec}
    lab.kubectl("create", "-f", "-", stdin=json.dumps(job))
    access = {"KUBECONFIG": str(STATE / "admin.kubeconfig")}
    lab.wait("the name of the job", lambda: completions("gangplank status tab", **access) == ["tab-key"])
    lab.kubectl("delete", "job", "tab-key")


def test_the_listing_of_the_uninstall_scenarios_has_what_kubectl_has(lab: Lab) -> None:
    """By the dynamic client of the package openshift: before and after an uninstall it has to miss nothing."""
    listed = lab.listing()
    for plural, resource in (("clusterroles", "rbac.authorization.k8s.io/clusterroles"), ("nodes", "/nodes"),
                             ("serviceaccounts", "/serviceaccounts"), ("deployments", "apps/deployments")):  # fmt: skip
        metas = [item["metadata"] for item in lab.get(plural, "--all-namespaces")]
        assert metas, plural
        assert {f"{resource} {meta.get('namespace', '')}/{meta['name']}" for meta in metas} <= listed


def test_an_image_removed_from_a_node_is_loaded_again(lab: Lab) -> None:
    name = next(image["name"] for image in lab.parts["images"] if "busybox" in image["name"])
    on_node(lab, "node-1", "rm", "--sync", name)
    assert name not in has(lab, "node-1")
    recaps = [re.findall(r"^(\S+) .*changed=(\d+)", lab.playbook("playbooks/lab.yml"), re.MULTILINE) for _ in range(2)]
    assert [dict(recap) for recap in recaps] == [{"localhost": number} for number in "10"]
    assert name in has(lab, "node-1")


def succeeded(lab: Lab, name: str) -> bool:
    return bool(lab.get("pod", name)["status"]["phase"] == "Succeeded")


def test_a_persons_own_image_runs_on_every_node(lab: Lab, tmp_path: Path) -> None:
    script = tmp_path / "mine"
    script.mkdir()
    (script / "hello.py").write_text("print('hello from my own image')\n")
    base = next(image for image in lab.parts["images"] if "/trainer:" in image["name"])
    archive = tmp_path / "mine.tar"
    write_own_image("example.com/mine:1", Path(base["archive"]), script, archive)
    out = lab.playbook("playbooks/lab-load.yml", "-e", f"lab_cluster_load={archive}")
    assert "changed=1" in out
    assert "changed=1" not in lab.playbook("playbooks/lab-load.yml", "-e", f"lab_cluster_load={archive}")
    for node in ("node-0", "node-1"):
        spec = {"nodeName": node, "restartPolicy": "Never", "containers": [
            {"name": "c", "image": "example.com/mine:1", "command": ["python3", "/opt/mine/hello.py"]}]}  # fmt: skip
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"mine-{node}"}, "spec": spec}
        lab.kubectl("create", "-f", "-", stdin=yaml.safe_dump(pod))
    for node in ("node-0", "node-1"):
        lab.wait("the pod's end", functools.partial(succeeded, lab, f"mine-{node}"))
        assert lab.kubectl("logs", f"mine-{node}") == "hello from my own image\n"


# Three ranks without Volcano and without a claim: what proves them is in their logs or nowhere.
FOLLOWED: dict[str, Any] = {
    "name": "followed", "backend": "indexed", "image": "gangplank.dev/trainer:0.1.0", "workers": 2,
    "script": "/opt/gangplank/trainer/train.py", "resources": {"cpu": "50m", "memory": "256Mi"},
    "hyperparameters": {"epochs": 60, "batch_size": 32, "seed": 1, "log_interval": 5},
}  # fmt: skip
AWAY_S = 5.0  # of the API server, in the middle of the training
# A trainer among the lines of other programs, which another thread prints: 2,000 as fast as it can, and one of 10 MiB.
LOUD = """
import runpy, sys, threading, time
LINES = {lines!r}
def shout():
    for line in LINES:
        print(line, flush=True)
        sys.stdout.buffer.write(b"\\xff\\xfe half a line")
        time.sleep(0.02)
    print("x" * (10 << 20), flush=True)
    for number in range(2000):
        print("a line of many", number, flush=True)
sys.path.insert(0, "/opt/gangplank/trainer")
sys.argv = ["train.py", "--epochs", "3", "--seed", "1", "--log-interval", "5"]
shout()
threading.Thread(target=shout).start()
try:
    runpy.run_path("/opt/gangplank/trainer/train.py", run_name="__main__")
finally:
    shout()
"""


@pytest.fixture
def namespace(lab: Lab) -> Iterator[str]:
    name = "followed"
    lab.kubectl("create", "namespace", name)
    yield name
    lab.kubectl("delete", "namespace", name, "--timeout=110s")


def train(folder: Path, job: dict[str, Any], *, begun: Callable[[], None] = lambda: None) -> str:
    """What train.yml prints of a job that ends well; `begun` is called once its ranks have joined."""
    (folder / "job.yml").write_text(yaml.safe_dump({"training_job": job}))
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(INVENTORY), str(ROOT / "playbooks/train.yml")]
    command += ["-e", f"@{folder}/job.yml", "-e", f"training_job_report_folder={folder}/reports"]
    command += ["-e", "training_job_timeout_s=1800"]
    config = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    lines: list[str] = []
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=folder, env=config, **pipe) as play:  # a script is looked up there
        for line in play.stdout or ():
            if "3/3 ranks joined" in line and not any("3/3 ranks joined" in before for before in lines):
                begun()
            lines.append(line)
    assert play.returncode == 0, "".join(lines)[-4000:]
    return "".join(lines)


def test_d4_a_training_is_followed_over_a_killed_api_server(lab: Lab, namespace: str, tmp_path: Path) -> None:
    def another(old: int) -> bool:
        return lab.programs()["kube-apiserver"]["pid"] not in (0, old)

    def kill() -> None:
        """Again and again: one that comes back takes connections before it answers, which looks like a slow one."""
        end = time.monotonic() + AWAY_S
        while time.monotonic() < end:
            pid = lab.programs()["kube-apiserver"]["pid"]
            os.kill(pid, signal.SIGKILL)
            lab.wait("another API server", functools.partial(another, pid))

    output = train(tmp_path, {**FOLLOWED, "namespace": namespace}, begun=kill)
    assert "the API server does not answer (" in output
    assert "the API server answers again after " in output
    assert re.search(r"PROVEN: (\d+) of \1 claims hold", output), output[-3000:]


@pytest.mark.usefixtures("lab")
def test_d3_a_training_among_lines_of_any_kind_is_proven(namespace: str, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD.format(lines=[line[:20_000] for line in HOSTILE]))
    job = {key: value for key, value in FOLLOWED.items() if key != "hyperparameters"}
    output = train(tmp_path, {**job, "namespace": namespace, "script": "loud.py"})
    assert re.search(r"PROVEN: (\d+) of \1 claims hold", output), output[-3000:]


def test_an_edited_script_is_refused_and_runs_when_it_replaces_the_job(lab: Lab, tmp_path: Path) -> None:
    job, script = tmp_path / "job.yml", tmp_path / "mine.py"
    described = {"name": "edited", "namespace": "edited", "backend": "indexed", "workers": 1}
    described |= {"image": "gangplank.dev/trainer:0.1.0", "script": os.path.relpath(script, ROOT)}
    job.write_text(yaml.safe_dump({"training_job": described}))
    lab.kubectl("create", "namespace", "edited")

    def objects() -> dict[str, str]:
        items = lab.get("configmaps,services,jobs,pods", "-n", "edited", "-l", "gangplank.dev/job=edited")
        return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in items}

    train = ("playbooks/train.yml", "-e", f"@{job}", "-e", f"training_job_report_folder={tmp_path}")
    script.write_text("print('the first script')\n")
    lab.playbook(*train, inventory=INVENTORY.parent)  # the folder will do, as the file does
    before = objects()
    assert len([name for name in before if name.startswith("ConfigMap/")]) == 1
    assert "changed=0" in lab.playbook(*train)
    script.write_text("print('the second script')\n")
    for check in ([], ["--check"]):
        with pytest.raises(AssertionError, match=r"the script was edited(.|\n)*training_job_replace=true"):
            lab.playbook(*train, *check)
    assert objects() == before
    replace = ("-e", "training_job_replace=true")
    lab.playbook(*train, *replace, "--check")
    assert objects() == before
    lab.playbook(*train, *replace)
    log = lab.kubectl("logs", "-n", "edited", "-l", "gangplank.dev/job=edited", "--tail=-1")
    assert ("the second script" in log, "the first script" in log) == (True, False)
    assert len([name for name in objects() if name.startswith("ConfigMap/")]) == 1
    lab.kubectl("delete", "namespace", "edited", "--timeout=60s")


@pytest.mark.usefixtures("objects_that_stay")
def test_d_each_killed_program_comes_back(lab: Lab) -> None:
    names = [*PROGRAMS, *(f"{name}-{node}" for name in ON_NODES for node in ("node-0", "node-1"))]
    killed = {name: lab.programs()[name]["pid"] for name in names}
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    lab.wait("all programs back", lambda: settled(lab))
    assert all(lab.programs()[name]["pid"] != pid for name, pid in killed.items())
    assert lab.get("configmap", "plain")["data"]["key"] == "readable-marker-3141"


@pytest.mark.usefixtures("objects_that_stay")
def test_d2_one_command_brings_back_a_lab_whose_every_process_was_killed(lab: Lab) -> None:
    own = Path("/sys/fs/cgroup/pids/gangplank")
    own = own if own.exists() else Path("/sys/fs/cgroup/gangplank")  # cgroup v1, v2
    while pids := {int(pid) for listing in own.rglob("cgroup.procs") for pid in listing.read_text().split()}:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert "refused" in lab.kubectl("get", "nodes", check=False)
    output = lab.playbook("playbooks/lab.yml")
    assert "no supervisord answered; it is started again with its programs" in output
    lab.wait("the lab as it was", lambda: settled(lab))
    assert "changed=0" in lab.playbook("playbooks/lab.yml")
    assert lab.get("configmap", "plain")["data"]["key"] == "readable-marker-3141"


def test_d11_a_full_etcd_is_noticed_and_takes_writes_again(lab: Lab) -> None:
    size = (STATE / "etcd/data/member/snap/db").stat().st_size
    quota = ("-e", f"lab_cluster_etcd_quota_mib={(size >> 20) + 12}")
    lab.playbook("playbooks/lab.yml", *quota)

    def write() -> str:
        text = base64.b64encode(os.urandom(600 << 10)).decode()
        full = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "full"}, "data": {"text": text}}
        return lab.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(full), check=False)

    answers = [write() for _ in range(60)]
    assert "database space exceeded" in answers[-1]
    assert "serverside-applied" in answers[0]
    output = lab.playbook("playbooks/lab.yml", *quota)
    assert re.search(r"etcd: it refused writes, with .*; compacted and defragmented to .*, it takes them again", output)
    assert "serverside-applied" in write()
    lab.kubectl("delete", "configmap", "full")


def expire(folder: Path) -> None:
    """Let every certificate of the folder have ended a minute ago, by the authority's own key."""
    certificates = {path.stem: x509.load_pem_x509_certificate(path.read_bytes()) for path in folder.glob("*.crt")}
    authorities = {one.subject: serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), None)
                   for name, one in certificates.items() if one.subject == one.issuer}  # fmt: skip
    end = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=1)
    for name, one in certificates.items():
        builder = x509.CertificateBuilder(one.issuer, one.subject, one.public_key(), one.serial_number,
                                          one.not_valid_before_utc, end, list(one.extensions))  # fmt: skip
        signed = builder.sign(authorities[one.issuer], hashes.SHA256())  # type: ignore[arg-type]  # all are EC keys
        (folder / f"{name}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def test_d5_certificates_that_have_expired_are_renewed_and_named(lab: Lab) -> None:
    expire(STATE / "pki")
    lab.wait("a refusal", lambda: "expired" in lab.kubectl("get", "nodes", check=False), 120)
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-}"
    output = lab.playbook("playbooks/lab.yml")
    for name in ("ca", "etcd-ca", "kube-apiserver", "admin", "kubelet-node-1"):
        assert f"{name}: {name}.crt is valid only until {today}" in output, output[-3000:]
    lab.wait("the lab as it was", lambda: settled(lab))
    lab.kubectl("run", "renewed", "--image=registry.k8s.io/pause:3.10.1")
    lab.wait("a new pod", lambda: lab.get("pod", "renewed")["status"]["phase"] == "Running", 60)
    lab.kubectl("delete", "pod", "renewed", "--now")


def test_d5_a_lab_without_the_key_of_its_secrets_is_left_as_it_is(lab: Lab) -> None:
    key = STATE / "pki/encryption.json"
    content = key.read_bytes()
    key.unlink()
    with pytest.raises(AssertionError, match=r"encryption\.json is missing, expected the key of the Secrets in"):
        lab.playbook("playbooks/lab.yml")
    assert not key.exists()
    key.write_bytes(content)
    assert lab.get("secret", "hidden")["data"]["key"] == "aGlkZGVuLW1hcmtlci0yNzE4"


def test_a_drained_node_takes_pods_again_and_a_lost_one_comes_back(lab: Lab) -> None:
    lab.kubectl("create", "deployment", "spread", "--image=registry.k8s.io/pause:3.10.1", "--replicas=4")
    lab.wait("the pods", lambda: lab.get("deployment", "spread")["status"].get("readyReplicas") == 4)
    lab.kubectl("drain", "node-1", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")

    def homes() -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in lab.get("pods", "-l", "app=spread")]

    lab.wait("everything on node-0", lambda: homes() == ["node-0"] * 4)
    lab.kubectl("uncordon", "node-1")
    lab.playbook("tests/cluster/lose.yml", "-e", "lose_node=node-1")
    lab.wait("the loss is noticed", lambda: lab.ready() == {"node-0"}, 90)
    lab.playbook("playbooks/lab.yml")
    lab.wait("both nodes", lambda: settled(lab))
    lab.kubectl("delete", "deployment", "spread", "--now")


# A volume in a folder of node-1, the claim on it, and a pod that adds a line to a file there each time it starts.
KEPT = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: kept}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  hostPath: {path: /opt/local-path-provisioner/kept, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: by-hand
  resources: {requests: {storage: 1Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: kept}
spec:
  nodeName: node-1
  terminationGracePeriodSeconds: 0
  containers:
    - name: c
      image: docker.io/library/busybox:1.37
      command: [sh, -c, echo line >> /data/lines; sleep 3600]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: kept}}]
"""


@pytest.mark.usefixtures("objects_that_stay")
def test_a_lab_that_was_asked_to_keep_its_data_comes_back_as_the_same_cluster(
    lab: Lab, before: dict[str, list[str]]
) -> None:
    def lines() -> list[str]:
        return lab.kubectl("exec", "kept", "--", "cat", "/data/lines").split()

    lab.kubectl("create", "-f", "-", stdin=KEPT)
    lab.wait("the pod's line", lambda: lines() == ["line"])
    (STATE / "shared/kept").write_text("on the folder that all nodes share")
    uids = {name: lab.get(*name)["metadata"]["uid"] for name in (("namespace", "default"), ("pod", "kept"))}

    keep = ("playbooks/lab-down.yml", "-e", "lab_cluster_keep=true")
    lab.playbook(*keep)
    now = snapshot()
    assert {kind: now[kind] for kind in before if kind != "files"} == {k: v for k, v in before.items() if k != "files"}
    assert now["files"] == ["/var/lib/gangplank"]
    assert "changed=0" in lab.playbook(*keep)

    lab.playbook("playbooks/lab.yml")
    lab.wait("the lab as it was", lambda: settled(lab))
    lab.wait("the pod's second line", lambda: lines() == ["line", "line"])
    assert {name: lab.get(*name)["metadata"]["uid"] for name in uids} == uids
    assert lab.get("secret", "hidden")["data"]["key"] == "aGlkZGVuLW1hcmtlci0yNzE4"
    assert (STATE / "shared/kept").read_text() == "on the folder that all nodes share"
    assert lab.get("configmap", "plain")["data"]["key"] == "readable-marker-3141"
    lab.kubectl("delete", "pod/kept", "pvc/kept", "pv/kept", "--now")


@pytest.mark.parametrize(("value", "message"), [
    ("lab_cluster_keep=ture", "not a valid boolean"),
    ("lab_cluster_folder=MINE", "with other files in it, expected the folder of a lab"),
])  # fmt: skip
def test_d9_a_misspelt_wish_to_keep_and_a_folder_of_the_users_remove_nothing(
    lab: Lab, tmp_path: Path, value: str, message: str
) -> None:
    (tmp_path / "mine").write_text("precious")

    def kept() -> dict[str, Any]:
        with lab.supervisor() as server:
            supervisord = server.getPID()
        now = snapshot()
        return {"supervisord": supervisord, "programs": set(lab.programs())} | {
            kind: now[kind] for kind in ("network namespaces", "links", "addresses", "files")
        }

    lab.wait("the lab as it was", lambda: settled(lab))
    kept_before = kept()
    with pytest.raises(AssertionError, match=message):
        lab.playbook("playbooks/lab-down.yml", "-e", value.replace("MINE", str(tmp_path)))
    assert kept() == kept_before
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"mine": "precious"}
    lab.wait("the lab as it was", lambda: settled(lab))


def test_a_third_node_is_one_more_line(lab: Lab, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "group_vars").symlink_to(INVENTORY.parent / "group_vars")
    text = INVENTORY.read_text()
    (site / "hosts.yml").write_text(text.replace("        node-1:\n", "        node-1:\n        node-2:\n"))
    lab.playbook("playbooks/lab.yml", inventory=site / "hosts.yml")
    assert lab.ready() == {"node-0", "node-1", "node-2"}
    test_allocatable_memory_adds_up_to_no_more_than_the_machine_has(lab)
    lab.kubectl("run", "third", "--image=registry.k8s.io/pause:3.10.1", '--overrides={"spec":{"nodeName":"node-2"}}')
    lab.wait("a pod on it", lambda: lab.get("pod", "third")["status"]["phase"] == "Running")


def test_nodes_see_a_folder_of_the_machine(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/digits").write_text("here")

    def binds(source: Path, target: str) -> tuple[str, str]:
        return "-e", json.dumps({"lab_cluster_binds": [{"source": str(source), "target": target}]})

    lab.playbook("playbooks/lab.yml", *binds(tmp_path / "data", "/mnt/data"))
    for node in ("node-0", "node-1"):
        assert lab.inside(node, "cat", "/mnt/data/digits") == "here"
        with pytest.raises(subprocess.CalledProcessError):
            lab.inside(node, "touch", "/mnt/data/touched")
    absent, there = tmp_path / "absent", tmp_path / "data"
    for source, target in ((absent, "/mnt/data"), (there, "/mnt/pki"), (there, "/usr/a")):
        with pytest.raises(AssertionError, match=f"lab_cluster_binds: got {source} at {target}, expected a folder"):
            lab.playbook("playbooks/lab.yml", *binds(source, target))
    assert not absent.exists()


def test_removing_the_lab_leaves_the_machine_as_it_was(lab: Lab, before: dict[str, list[str]]) -> None:
    lab.playbook("playbooks/lab-down.yml")
    after = snapshot()
    assert {kind: after[kind] for kind in before} == before
