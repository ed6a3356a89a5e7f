"""One lab for all of tests/cluster: up before the first test, down after the last, on a machine that had none."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.part import SOCKET
from gangplank.cluster.client import Kube
from gangplank.site.components import COMPONENTS as OF_SITE
from tests.support.sweeps import FULL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
STATE = Path("/var/lib/gangplank/lab")
INVENTORY = ROOT / "inventories" / "lab" / "hosts.yml"
THREE = ("node-0", "node-1", "node-2")


def snapshot() -> dict[str, list[str]]:
    """What a lab could leave on this machine, by kind."""

    def lines(*command: str) -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return sorted(done.stdout.splitlines())

    cgroups = [str(path) for path in Path("/sys/fs/cgroup").rglob("*") if path.is_dir()]
    sockets = [line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "/" in line]
    programs = ("etcd", "kube", "containerd", "network-policy", "supervisord", "coredns", "vc-", "pause")
    running = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0")[0].decode() if entry.name.isdigit() else ""
        except OSError:
            continue
        if command.rsplit("/", 1)[-1].startswith(programs):
            running.append(command)
    return {
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "network namespaces": sorted(str(path) for path in Path("/run/netns").glob("*")),
        "links": lines("ip", "-o", "link", "show", "type", "veth"),
        "addresses": [line for line in lines("ip", "-o", "address") if "198.18." in line],
        "routes": lines("ip", "route"),
        "firewall": lines("sh", "-c", "iptables-save 2>/dev/null; nft list ruleset 2>/dev/null"),
        "cgroups": sorted(path for path in cgroups if "gangplank" in path),
        "sockets": sorted(path for path in sockets if "gangplank" in path or "containerd" in path),
        "processes": sorted(running),
        "files": [str(path) for path in (Path("/run/gangplank"), Path("/var/lib/gangplank")) if path.exists()],
        "kubelet": sorted(str(path) for path in Path("/var/lib/kubelet").rglob("*")),
    }


def tasks_that(output: str, *ends: str) -> list[str]:
    """The tasks of a playbook that it says ended so, such as `changed` or `fatal`, each with its host."""
    task, tasks = "", []
    for line in output.splitlines():
        if match := re.match(r"TASK \[(.*)\]", line):
            task = match[1]
        elif match := re.match(rf"(?:{'|'.join(ends)}): \[(\S+?)[ \]]", line):
            tasks.append(f"{match[1]}: {task}")
    return tasks


class Lab:
    """The running lab, as its user sees it."""

    more: tuple[str, ...] = ()
    """Inventories beside the lab's, once it has more nodes."""

    def playbook(self, *arguments: str, inventory: Path = INVENTORY) -> str:
        """Run ansible-playbook and return what it printed; fails with it."""
        sources = [word for source in (str(inventory), *self.more) for word in ("-i", source)]
        command = [str(ROOT / ".venv/bin/ansible-playbook"), *sources, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
        return done.stdout

    def installed(self) -> list[str]:
        """The components that tests share and that are installed: those whose namespaces exist."""
        namespaces = {item["metadata"]["name"] for item in self.get("namespaces")}
        return [name for name in COMPONENTS if OF_SITE[name].namespace in namespaces]

    def install(self, components: list[str]) -> None:
        """Install components of the site."""
        self.playbook("playbooks/site.yml", "-e", json.dumps({"site_components": components}))

    @property
    def parts(self) -> dict[str, Any]:
        """Where the parts of this lab lie."""
        return dict(json.loads((STATE / "parts.json").read_text()))

    def kubectl(self, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """Run the lab's own kubectl as its admin."""
        command = [f"{self.parts['bin']['kubernetes']}/kubectl", f"--kubeconfig={STATE}/admin.kubeconfig", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=700)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + ("" if check else done.stderr)

    def get(self, *arguments: str) -> Any:
        """The object, or the items of the list, that kubectl get prints."""
        answer = json.loads(self.kubectl("get", "-o", "json", *arguments))
        return answer["items"] if answer["kind"] == "List" else answer

    def listing(self) -> set[str]:
        """Every object of the cluster, as the uninstall scenarios list them."""
        command = [sys.executable, str(ROOT / "molecule/uninstall/listing.py")]
        env = os.environ | {"K8S_AUTH_KUBECONFIG": str(STATE / "admin.kubeconfig")}
        return set(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines())

    def enter(self, node: str) -> list[str]:
        """What a command begins with that runs in the node's namespaces."""
        return ["nsenter", f"--net=/run/netns/gangplank-{node}", f"--mount=/run/gangplank/mnt/{node}", "--wdns=/", "--"]

    def inside(self, node: str, *command: str) -> str:
        """Run a command in the node's namespaces."""
        line = [*self.enter(node), *command]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=60).stdout

    def wait(self, what: str, check: Callable[[], Any], timeout_s: float = 300) -> Any:
        """Poll until `check` returns something true; errors of a cluster that is coming back count as not yet."""
        end = time.monotonic() + timeout_s
        last: object = None
        while time.monotonic() < end:
            try:
                last = check()
            except (AssertionError, OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
                last = error
            else:
                if last:
                    return last
            time.sleep(0.5)
        return pytest.fail(f"{what}: not within {timeout_s:.0f} s; last: {last}")

    def ready(self) -> set[str]:
        """The names of the nodes that are Ready."""
        return {
            node["metadata"]["name"]
            for node in self.get("nodes")
            if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])
        }

    @contextlib.contextmanager
    def supervisor(self) -> Iterator[Any]:
        """The lab's supervisord."""
        import xmlrpc.client

        from supervisor.xmlrpc import SupervisorTransport

        transport = SupervisorTransport(None, None, f"unix://{SOCKET}")
        try:
            server: Any = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
            yield server.supervisor
        finally:
            transport.close()

    def programs(self) -> dict[str, dict[str, Any]]:
        """What the lab's supervisord says of each program, by name."""
        with self.supervisor() as server:
            return {process["name"]: process for process in server.getAllProcessInfo()}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that end the lab last, whatever order they were named in: the others share what is installed."""
    with_nodes = ("test_gpu_gangs.py", "test_node_leaves.py", "test_cluster_faults.py")
    last = (*with_nodes, "test_playbook_kills.py", "test_lab.py")
    items.sort(key=lambda item: last.index(item.path.name) + 1 if item.path.name in last else 0)


@pytest.fixture(scope="session")
def before() -> dict[str, list[str]]:
    """The machine without a lab."""
    if os.geteuid() != 0:
        pytest.fail("tests/cluster bring up a real lab and need root: sudo make test")
    Lab().playbook("playbooks/lab-down.yml")
    return snapshot()


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab, shared by all tests, removed at the end whatever happened.

    With GANGPLANK_KUBECONFIG, during development, the running one, which stays up.
    """
    running = Lab()
    if os.environ.get("GANGPLANK_KUBECONFIG"):
        yield running
        return
    assert request.getfixturevalue("before")["files"] == []
    try:
        running.playbook("playbooks/lab.yml")
        yield running
    finally:
        print("removing the lab", file=sys.stderr)
        running.playbook("playbooks/lab-down.yml")


SOME_COMPONENTS = ["volcano", "storage"]
COMPONENTS = [*SOME_COMPONENTS, "training_operator", "trainer_v2"]


@contextlib.contextmanager
def backends_installed(lab: Lab, namespace: str) -> Iterator[None]:
    """The lab with Volcano, in full runs with every back-end's controller, and a namespace of its own."""
    components = COMPONENTS if FULL else SOME_COMPONENTS
    lab.playbook("playbooks/lab.yml", "playbooks/site.yml", "-e", json.dumps({"site_components": components}))
    lab.kubectl("create", "namespace", namespace)
    try:
        yield
    finally:
        lab.kubectl("delete", "namespace", namespace, "--wait=false")


@contextlib.contextmanager
def more_nodes(lab: Lab, inventory: str, number: int) -> Iterator[Lab]:
    """The lab with the nodes of another inventory beside its own, so many in all."""
    lab.more = (str(ROOT / "tests/cluster" / inventory),)
    try:
        if len(lab.ready()) < number:
            lab.playbook("playbooks/lab.yml")
        yield lab
    finally:
        lab.more = ()
        if not os.environ.get("GANGPLANK_KUBECONFIG"):  # a node goes with its lab
            lab.playbook("playbooks/lab-down.yml")
            lab.playbook("playbooks/lab.yml")


@pytest.fixture(scope="module")
def three_nodes(lab: Lab) -> Iterator[Lab]:
    """The lab with a third node, as long as a module needs it."""
    with more_nodes(lab, "three.yml", len(THREE)):
        yield lab


@pytest.fixture(scope="module")
def four_nodes(lab: Lab) -> Iterator[Lab]:
    """The lab with four nodes, as long as a module needs them."""
    with more_nodes(lab, "four.yml", 4):
        yield lab


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> str:
    """Of a cluster with Volcano and storage: GANGPLANK_KUBECONFIG names an existing one, else it is our own."""
    existing = os.environ.get("GANGPLANK_KUBECONFIG")
    if existing:
        return existing
    request.getfixturevalue("lab").playbook("playbooks/site.yml")
    return str(STATE / "admin.kubeconfig")


@pytest.fixture(scope="session")
def full_kubeconfig(request: pytest.FixtureRequest) -> str:
    """The same with every operator."""
    existing = os.environ.get("GANGPLANK_KUBECONFIG")
    if existing:
        return existing
    asked = json.dumps({"site_components": COMPONENTS})
    request.getfixturevalue("lab").playbook("playbooks/lab.yml", "playbooks/site.yml", "-e", asked)
    return str(STATE / "admin.kubeconfig")


@pytest.fixture(scope="session")
def kube(kubeconfig: str) -> Kube:
    """The cluster as its administrator."""
    return Kube(kubeconfig)
