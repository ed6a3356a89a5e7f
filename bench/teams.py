"""Teams by the hundred, beside `kubectl diff` and beside one module call per object: `make bench-teams`.

A control plane of its own (etcd, kube-apiserver, the controllers of quotas and namespaces, all of the lab's parts, with
Volcano's CRDs) on loopback ports, gone afterwards. Volcano's webhook for queues is not part of it.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gangplank.teams.inventory import plain_inventory
from gangplank.teams.load import teams_of
from gangplank.teams.objects import team_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = 40  # objects that the module is called for one by one
DEADLINE_S = 60
CONTROLLERS = "resourcequota-controller,namespace-controller,serviceaccount-controller"


def part(name: str) -> Path:
    """A folder of a built part."""
    command = [sys.executable, "-m", "lab.build", "--show", name]
    return Path(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip())


def port() -> int:
    """A free port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(*command: object, **environment: str) -> tuple[float, str]:
    """Run a program to its end: seconds, and what it printed."""
    started = time.monotonic()
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[:4])} ...: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return time.monotonic() - started, done.stdout


def start(stack: ExitStack, folder: Path, name: str, *command: object) -> None:
    """Start a program that ends with the stack."""
    log = stack.enter_context((folder / f"{name}.log").open("w"))
    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    stack.callback(process.wait, 90)
    stack.callback(process.terminate)


def control_plane(stack: ExitStack, folder: Path) -> Path:
    """Start one, with Volcano's CRDs; its administrator's kubeconfig."""
    etcd, kubernetes, volcano = part("bin.etcd"), part("bin.kubernetes"), part("charts.volcano")
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
    end = time.monotonic() + DEADLINE_S
    while subprocess.run([kubernetes / "kubectl", f"--kubeconfig={kubeconfig}", "get", "--raw=/readyz"],
                         capture_output=True, check=False).returncode:  # fmt: skip
        if time.monotonic() > end:
            sys.exit((folder / "kube-apiserver.log").read_text()[-3000:])
        time.sleep(0.5)
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


def playbook(folder: Path, kubeconfig: Path) -> tuple[float, int]:
    """One run of playbooks/teams.yml: seconds and what changed."""
    inputs = ["-i", folder, "-e", f"team_kubeconfig={kubeconfig}", "-e", f"ansible_python_interpreter={sys.executable}"]
    command = [sys.executable, "-m", "ansible", "playbook", "playbooks/teams.yml", *inputs]
    seconds, text = run(*command, K8S_AUTH_KUBECONFIG=str(kubeconfig), ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
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
    seconds, _ = run(*command, ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"))
    return seconds / SAMPLE


def rows(sizes: list[int], folder: Path, kubeconfig: Path) -> Iterator[tuple[str, str, str]]:
    """The figures: what, how much, beside what."""
    second: dict[int, float] = {}
    for count in sizes:
        teams = folder / f"teams-{count}"
        objects = write(teams, count)
        first, changed = playbook(teams, kubeconfig)
        again = [playbook(teams, kubeconfig) for _ in range(3)]
        second[count] = min(seconds for seconds, _ in again)
        yield f"{count} teams ({len(objects)} objects), first run", f"{first:.1f} s", f"changed: {changed}"
        yield f"{count} teams, second run (best of 3)", f"{second[count]:.1f} s", f"changed: {sum(c for _, c in again)}"
        if count == sizes[0]:
            file = folder / "objects.yml"
            file.write_text(yaml.safe_dump_all(objects))
            kubectl = part("bin.kubernetes") / "kubectl"
            diff, _ = run(kubectl, f"--kubeconfig={kubeconfig}", "diff", "-f", file)
            yield "kubectl diff of the same objects", f"{diff:.1f} s", ""
            yield "second run / kubectl diff", f"{second[count] / diff:.2f}", "goal: at most 3"
            each = one_by_one(objects, folder, kubeconfig)
            yield (
                f"one module call per object, by {SAMPLE} of them",
                f"{each * len(objects):.0f} s",
                f"{each:.2f} s each",
            )
            yield "one call per object / first run", f"{each * len(objects) / first:.1f}", "goal: at least 10"
        else:
            ratio = second[count] / second[sizes[0]]
            yield f"second run, {count} / {sizes[0]} teams", f"{ratio:.2f}", f"goal: at most {1.2 * count / sizes[0]:g}"


def main() -> None:
    """Print the figures as they come."""
    parser = argparse.ArgumentParser(description="Teams by the hundred, beside kubectl diff and single module calls.")
    parser.add_argument("sizes", nargs="*", type=int, default=[100, 500], help="numbers of teams; default: 100 500")
    sizes = parser.parse_args().sizes
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        kubeconfig = control_plane(stack, Path(name))
        for row in rows(sizes, Path(name), kubeconfig):
            print(f"{row[0]:52}{row[1]:>10}  {row[2]}", flush=True)


if __name__ == "__main__":
    main()
