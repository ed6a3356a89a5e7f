"""Teams by the hundred, beside `kubectl diff` and beside one module call per object.

A control plane of its own (etcd, kube-apiserver, the controllers of quotas and namespaces, all of the lab's parts, with
Volcano's CRDs) on loopback ports, gone afterwards. Volcano's webhook for queues is not part of it.
"""

from __future__ import annotations

import re
import socket
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import yaml

from bench.figures import Beside, figure
from bench.growth import WHY, n_log_n
from bench.part import ROOT, BenchError, Part, run, shown
from gangplank.teams.inventory import plain_inventory
from gangplank.teams.load import teams_of
from gangplank.teams.objects import team_objects
from gangplank.wait import late, polls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bench.figures import Figure
    from bench.part import Setting

PART = Part("playbooks/teams.yml for 100 teams, and for 500", minutes=6, usual=False)
SIZES = (100, 500)
ROUNDS = 3
SAMPLE = 40  # objects that the module is called for one by one
DEADLINE_S = 60
CONTROLLERS = "resourcequota-controller,namespace-controller,serviceaccount-controller"
LIKE_DIFF, FASTER = 3, 10


def port() -> int:
    """A free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def timed(*words: object, **environment: str) -> tuple[float, str]:
    """Seconds that a program takes, and what it printed."""
    begin = time.monotonic()
    text = run(*words, **environment)
    return time.monotonic() - begin, text


def start(stack: ExitStack, folder: Path, name: str, *command: object) -> None:
    """Start a program that ends with the stack."""
    log = stack.enter_context((folder / f"{name}.log").open("w"))
    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    stack.callback(process.wait, 90)
    stack.callback(process.terminate)


def control_plane(stack: ExitStack, folder: Path) -> Path:
    """Start one, with Volcano's CRDs; its administrator's kubeconfig."""
    etcd, kubernetes, volcano = shown("bin.etcd"), shown("bin.kubernetes"), shown("charts.volcano")
    client, peer, secure = port(), port(), port()
    key = folder / "sa.key"
    run("openssl", "genrsa", "-out", key, "2048")
    (folder / "tokens.csv").write_text('bench,admin,1,"system:masters"\n')
    urls = [f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}"]
    urls += [f"--{what}-peer-urls=http://127.0.0.1:{peer}" for what in ("listen", "initial-advertise")]
    urls.append(f"--initial-cluster=default=http://127.0.0.1:{peer}")
    start(stack, folder, "etcd", etcd / "etcd", f"--data-dir={folder}/etcd", "--log-level=error", *urls)
    flags = [f"--service-account-{what}-file={key}" for what in ("key", "signing-key")]
    flags += ["--service-account-issuer=https://bench", "--authorization-mode=RBAC", "--endpoint-reconciler-type=none"]
    flags += [f"--token-auth-file={folder}/tokens.csv", "--service-cluster-ip-range=198.19.7.0/24"]
    flags += [f"--etcd-servers=http://127.0.0.1:{client}", f"--cert-dir={folder}/certs", f"--secure-port={secure}"]
    flags += ["--bind-address=127.0.0.1", "--advertise-address=198.18.7.1"]
    start(stack, folder, "kube-apiserver", kubernetes / "kube-apiserver", *flags)
    kubeconfig = folder / "kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{secure}", "insecure-skip-tls-verify": True}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
    kubeconfig.write_text(yaml.safe_dump(value))
    asks = [str(kubernetes / "kubectl"), f"--kubeconfig={kubeconfig}", "get", "--raw=/readyz"]
    for _ in polls(DEADLINE_S, 0.5):
        if not subprocess.run(asks, capture_output=True, check=False).returncode:
            break
    else:
        raise BenchError(
            late("kube-apiserver", (folder / "kube-apiserver.log").read_text()[-3000:], "ready", DEADLINE_S)
        )
    flags = [f"--kubeconfig={kubeconfig}", f"--controllers={CONTROLLERS}", "--leader-elect=false", "--secure-port=0"]
    start(stack, folder, "kube-controller-manager", kubernetes / "kube-controller-manager", *flags)
    crds = [volcano / "crd/bases", volcano / "charts/jobflow/crd/bases"]
    run(kubernetes / "kubectl", f"--kubeconfig={kubeconfig}", "apply", "--server-side", *(f"-f{one}" for one in crds))
    return kubeconfig


def write(folder: Path, count: int) -> list[dict[str, object]]:
    """An inventory of so many teams; their objects."""
    (folder / "host_vars").mkdir(parents=True)
    (folder / "group_vars").mkdir()
    (folder / "group_vars/teams.yml").write_text(yaml.safe_dump({"team_site_capacity": {"cpu": 100 * count}}))
    hosts = {f"team-{number:03}": None for number in range(count)}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"teams": {"hosts": hosts}}}}))
    for number in range(count):
        members: list[dict[str, str]] = [{"user": f"lead-{number}", "role": "lead"}, {"user": f"user-{number}"}]
        cap = {"cpu": 4, "memory": "8Gi", "ephemeral_storage": "20Gi"}
        share = {"guaranteed": {"cpu": 1}, "deserved": {"cpu": 2}, "cap": cap}
        more = {"claims": [{"name": "data", "size": "1Gi"}], "service_accounts": ["trainer"], "max_jobs": 10}
        values = {f"team_{name}": value for name, value in {"members": members, **share, **more}.items()}
        (folder / f"host_vars/team-{number:03}.yml").write_text(yaml.safe_dump(values))
    site, teams = teams_of(plain_inventory(str(folder)))
    return list(team_objects(teams, site))


def playbook(folder: Path, kubeconfig: Path, before: Sequence[str] = ()) -> tuple[float, int]:
    """One run of playbooks/teams.yml: seconds and what changed; with words that stand before the command."""
    inputs = ["-i", folder, "-e", f"team_kubeconfig={kubeconfig}", "-e", f"ansible_python_interpreter={sys.executable}"]
    command = [sys.executable, "-m", "ansible", "playbook", "playbooks/teams.yml", *inputs]
    seconds, text = timed(
        *before, *command, K8S_AUTH_KUBECONFIG=str(kubeconfig), ANSIBLE_CONFIG=str(ROOT / "ansible.cfg")
    )
    return seconds, sum(map(int, re.findall(r"changed=(\d+)", text)))


def one_by_one(objects: list[dict[str, object]], folder: Path, kubeconfig: Path) -> float:
    """Seconds that one module call takes for one object that is there already."""
    task = {
        "name": "Apply | Ensure one object",
        "kubernetes.core.k8s": {"definition": "{{ item }}", "kubeconfig": str(kubeconfig)},
        "loop": objects[-SAMPLE:],
        "loop_control": {"label": "{{ item.kind }}"},
    }
    (folder / "one.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    command = [sys.executable, "-m", "ansible", "playbook", folder / "one.yml"]
    seconds, _ = timed(*command, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
    return seconds / SAMPLE


def measure(setting: Setting) -> Iterator[Figure]:
    """First and second runs."""
    with ExitStack() as stack:
        kubeconfig = control_plane(stack, setting.folder)
        seconds: dict[int, list[float]] = {}
        for count in SIZES:
            teams = setting.folder / f"teams-{count}"
            objects = write(teams, count)
            first, _ = playbook(teams, kubeconfig)
            again, diffs = [], []
            for _ in range(ROUNDS):
                again.append(playbook(teams, kubeconfig))
                if count == SIZES[0]:
                    diffs.append(diff_s(setting.folder, objects, kubeconfig))
            seconds[count] = [one for one, _ in again]
            peers = [*beside(diffs, one_by_one(objects, setting.folder, kubeconfig) * len(objects))] if diffs else []
            setting.say(f"{count} teams: {first:.1f} s, then {statistics.median(seconds[count]):.1f} s")
            yield from figures(count, len(objects), first, seconds[count], peers)
            changes = [float(changed) for _, changed in again]
            yield figure(
                f"teams.changes.{count}", f"changes of a second run, {count} teams", "changes", changes, goal=0
            )
    growth = [large / small for small, large in zip(*seconds.values(), strict=True)]
    yield figure("teams.growth", f"second run, {SIZES[1]} teams over {SIZES[0]}", "x", growth, goal=n_log_n(*SIZES),
                 why=WHY)  # fmt: skip


def diff_s(folder: Path, objects: list[dict[str, object]], kubeconfig: Path) -> float:
    """Seconds of `kubectl diff` of the same objects."""
    file = folder / "objects.yml"
    if not file.exists():
        file.write_text(yaml.safe_dump_all(objects))
    return timed(shown("bin.kubernetes") / "kubectl", f"--kubeconfig={kubeconfig}", "diff", "-f", file)[0]


def beside(diffs: list[float], calls_s: float) -> Iterator[Beside]:
    """`kubectl diff` of the same objects, and a module call for each of them, by a sample."""
    yield Beside.of("kubectl diff", diffs)
    yield Beside.of("a module call per object", [calls_s])


def figures(count: int, objects: int, first: float, again: list[float], peers: list[Beside]) -> Iterator[Figure]:
    """The figures of one size."""
    diff, calls = peers or (None, None)
    yield figure(
        f"teams.first.{count}", f"first run, {count} teams ({objects} objects)", "s", [first], peer=calls,
        goal=calls.value / FASTER if calls else None, why=f"a {FASTER}th of a module call per object" if calls else "",
    )  # fmt: skip
    yield figure(
        f"teams.second.{count}", f"second run, {count} teams", "s", again, peer=diff,
        goal=LIKE_DIFF * diff.value if diff else None, why=f"{LIKE_DIFF} x kubectl diff" if diff else "",
    )  # fmt: skip
