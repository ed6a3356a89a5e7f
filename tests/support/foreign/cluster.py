"""Make and remove the cluster: certificates, control plane, kube-proxy, DNS and kubelets are kubeadm's."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.wait import late, polls
from tests.support.foreign import documents

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = {"foreign-control": "198.51.100.10", "foreign-worker": "198.51.100.11"}  # RFC 5737: addresses of examples
CONTROL, WORKER = NODES
HOST_ADDRESS, HOST_LINK = "198.51.100.1/24", "gpforeign0"
CGROUPS, SLICE = Path("/sys/fs/cgroup"), "gangplank-foreign"
PARENT = Path("/var/lib/gangplank")  # of the folders of molecule `foreign` and of the lab
SCRIPT = Path(__file__).parent / "node.sh"
# This machine is not one that kubeadm knows: no systemd, a kernel without a readable configuration, swap perhaps.
IGNORED = "SystemVerification,Swap,Mem,NumCPU,FileExisting-ethtool,FileExisting-socat"
CONTROL_IMAGES = ("kube-", "/etcd:", "/coredns:", "/pause:")


class ForeignError(Exception):
    """The cluster cannot be made; the message has the log's end."""


def run(command: list[str], stdin: str | None = None, timeout_s: int = 60) -> str:
    """The output of a command; raises ForeignError with all that it printed."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        output = b"".join(part for part in (error.stdout, error.stderr) if isinstance(part, bytes)).decode()
        raise ForeignError(f"{' '.join(command[:12])}: no end after {timeout_s} s\n{output}") from None
    if done.returncode:
        raise ForeignError(f"{' '.join(command[:12])}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Cluster:
    """All that it writes on disk is below `folder`; `parts` is what lab.build built, and is not needed to remove it."""

    def __init__(self, folder: Path, parts: dict[str, Any], say: Callable[[str], None]) -> None:
        """Nothing is made yet."""
        self.folder, self.parts, self.say = folder, parts, say
        self.kubeconfig = folder / "admin.kubeconfig"

    def make(self) -> Path:
        """The path of an administrator's kubeconfig, when both nodes are Ready and the default class is there."""
        self.remove()
        self.folder.mkdir(parents=True)
        for name in NODES:
            self.start(name)
        self.connect()
        for name in NODES:
            self.import_images(name)
        self.say("kubeadm init")
        self.write(CONTROL, "/etc/kubernetes/pod-security.yaml", documents.POD_SECURITY)
        self.write(CONTROL, "/run/init.yaml", documents.init(NODES[CONTROL], CONTROL, self.flags(CONTROL)))
        self.kubeadm(CONTROL, "init", "--config=/run/init.yaml", "--skip-token-print")
        self.kubeconfig.write_text(self.inside(CONTROL, "cat", "/etc/kubernetes/admin.conf"))
        self.kubeconfig.chmod(0o600)
        self.say("kubeadm join")
        words = self.kubeadm(CONTROL, "token", "create", "--print-join-command").split()
        token, digest = words[words.index("--token") + 1], words[words.index("--discovery-token-ca-cert-hash") + 1]
        joining = documents.join(NODES[CONTROL], WORKER, self.flags(WORKER), token, digest)
        self.write(WORKER, "/run/join.yaml", joining)
        self.kubeadm(WORKER, "join", "--config=/run/join.yaml")
        self.add_pod_network()
        self.add_storage()
        return self.kubeconfig

    def start(self, name: str) -> None:
        """Start process 1 of a node, and wait until it has its mounts."""
        own = self.folder / name
        own.mkdir()
        for base in self.hierarchies():
            for folder in (base / SLICE, base / SLICE / name):
                folder.mkdir(exist_ok=True)
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    if (folder / setting).exists() and not (base / "cgroup.controllers").exists():
                        (folder / setting).write_text((folder.parent / setting).read_text())
        bins = self.parts["bin"]
        parts = Path(bins["kubeadm"]).parents[1]
        paths = [str(Path("/mnt/parts") / Path(folder).relative_to(parts)) for folder in
                 (bins[part] for part in ("kubeadm", "containerd"))]  # fmt: skip
        self.path = ":".join([*paths, "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
        plugins = Path("/mnt/parts") / Path(bins["cni-plugins"]).relative_to(parts)
        self.put(own / "upper/etc/containerd/config.toml", documents.containerd(self.pause, str(plugins), privileged()))
        self.put(own / "upper/etc/resolv.conf", f"nameserver {NODES[name]}\n")  # nobody answers there, at once
        self.put(own / "upper/etc/hostname", f"{name}\n")
        hosts = "".join(f"{address} {node}\n" for node, address in NODES.items())
        self.put(own / "upper/etc/hosts", f"127.0.0.1 localhost\n{hosts}")
        isolated = ["unshare", "--mount", "--net", "--pid", "--uts", "--ipc", "--propagation", "private"]
        command = [*isolated, "--fork", "--kill-child", "sh", "-c", f'hostname {name}; exec sh "$@"', "sh", str(SCRIPT),
                   str(own), self.parts["roots"]["node"], str(parts), self.path]  # fmt: skip
        null = subprocess.DEVNULL
        with (own / "log").open("w") as log:
            process = subprocess.Popen(command, stdin=null, stdout=log, stderr=log, start_new_session=True)
        (own / "pid").write_text(str(process.pid))
        for _ in polls(120, 0.1):
            pid = self.pid(name) if process.poll() is None else None
            if pid and Path("/proc", str(pid), "root", "run/node-is-up").exists():
                return
        raise ForeignError(late(f"node {name}", (own / "log").read_text(), "its mounts", 30))

    @staticmethod
    def put(path: Path, text: str) -> None:
        """Write a file of a node's root before the node starts."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def pause(self) -> str:
        """The name of the image that holds a pod's namespaces."""
        return str(next(image["name"] for image in self.parts["images"] if "/pause:" in image["name"]))

    @staticmethod
    def hierarchies() -> list[Path]:
        """One of each controller of cgroup v1, or the one of v2."""
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS]
        return sorted(path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists())

    def flags(self, name: str) -> dict[str, str]:
        """The kubelet's flags that differ between nodes."""
        return {"cgroup-root": f"/{SLICE}/{name}", "node-ip": NODES[name]}

    def pid(self, name: str) -> int | None:
        """Process 1 of a node, as this machine numbers it."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = (self.folder / name / "pid").read_text()
            # A number of long ago may be another process by now.
            if str(SCRIPT.name).encode() in Path(f"/proc/{parent}/cmdline").read_bytes():
                return int(Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])
        return None

    def enter(self, name: str) -> list[str]:
        """The command prefix that runs a command in a node."""
        namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--wdns=/"]
        return ["nsenter", f"--target={self.pid(name)}", *namespaces, "env", f"PATH={self.path}", "HOME=/root"]

    def inside(self, name: str, *command: str, stdin: str | None = None, timeout_s: int = 60) -> str:
        """The output of a command in a node."""
        return run([*self.enter(name), *command], stdin, timeout_s)

    def write(self, name: str, path: str, text: str) -> None:
        """Write a file in a node."""
        self.inside(name, "sh", "-c", 'mkdir -p "$(dirname "$1")" && cat > "$1"', "sh", path, stdin=text)

    def kubeadm(self, name: str, *words: str) -> str:
        """The output of kubeadm in a node; its log is kept."""
        phase = ["--ignore-preflight-errors", IGNORED] if words[0] in ("init", "join") else []
        try:
            output = self.inside(name, "kubeadm", *words, *phase, timeout_s=420)
        except ForeignError as error:
            kubelet = self.inside(name, "tail", "-n", "60", "/var/log/kubelet.log")
            raise ForeignError(f"{error}\nthe kubelet's log:\n{kubelet}") from error
        (self.folder / f"kubeadm-{words[0]}.log").write_text(output)
        return output

    def connect(self) -> None:
        """Join the nodes and this machine: a bridge in the control plane's node, a veth pair for each of the others."""
        control, worker = (self.pid(name) for name in NODES)
        run(["ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", "host", "netns", str(control)])
        run(["ip", "address", "add", HOST_ADDRESS, "dev", HOST_LINK])
        run(["ip", "link", "set", HOST_LINK, "up"])
        lines = [
            f"link add worker type veth peer name eth0 netns {worker}",
            "link add eth0 type bridge forward_delay 0",
            "link set host master eth0",
            "link set worker master eth0",
            *(f"link set {link} up" for link in ("lo", "host", "worker", "eth0")),
        ]
        run(["nsenter", f"--net=/proc/{control}/ns/net", "ip", "-batch", "-"], "\n".join(lines))
        for pid, address in ((control, NODES[CONTROL]), (worker, NODES[WORKER])):
            batch = ["link set lo up", "link set eth0 up", f"address add {address}/24 dev eth0",
                     "route add default via 198.51.100.1"]  # fmt: skip
            net = ["nsenter", f"--net=/proc/{pid}/ns/net"]
            run([*net, "ip", "-batch", "-"], "\n".join(batch))
            names = ("net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables", "net.ipv6.conf.all.disable_ipv6")
            script = "; ".join(f"echo 1 > /proc/sys/{name.replace('.', '/')}" for name in names)
            run([*net, "sh", "-euc", script])

    def import_images(self, name: str) -> None:
        """Give a node the images that it needs: the control plane's node takes no pods of others."""
        for image in self.parts["images"]:
            if name == CONTROL and not any(part in image["name"] for part in CONTROL_IMAGES):
                continue
            self.say(f"{name}: {image['name']}")
            with Path(image["archive"]).open("rb") as stream:
                command = [*self.enter(name), "ctr", "-n", "k8s.io", "images", "import", "--local", "-"]
                done = subprocess.run(command, stdin=stream, capture_output=True, check=False, timeout=1200)
            if done.returncode:
                raise ForeignError(f"{image['name']}: {done.stderr.decode()}")

    def kubectl(self, *words: str, stdin: str | None = None, timeout_s: int = 60) -> str:
        """The output of kubectl on this machine."""
        command = [f"{self.parts['bin']['kubeadm']}/kubectl", f"--kubeconfig={self.kubeconfig}", *words]
        return run(command, stdin, timeout_s)

    def add_pod_network(self) -> None:
        """Give each node a bridge for the pod range that the controller manager has allotted to it, and a route."""
        self.say("pod network")
        ranges = {}
        for name in NODES:
            self.kubectl("wait", f"node/{name}", "--for=jsonpath={.spec.podCIDR}", "--timeout=180s", timeout_s=200)
            ranges[name] = self.kubectl("get", "node", name, "-o", "jsonpath={.spec.podCIDR}")
            self.write(name, "/etc/cni/net.d/10-bridge.conflist", documents.pod_network(ranges[name]))
        for name in NODES:
            for other in NODES.keys() - {name}:
                self.inside(name, "ip", "route", "add", ranges[other], "via", NODES[other])
        self.kubectl("wait", "node", "--all", "--for=condition=Ready", "--timeout=180s", timeout_s=200)
        self.kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s", timeout_s=200)

    def add_storage(self) -> None:
        """Install the provisioner of the default class, as somebody else would."""
        self.say("storage class")
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {
            "name": "site-storage", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}  # fmt: skip
        self.kubectl("apply", "-f", "-", stdin=documents.text(namespace))
        helm = [f"{self.parts['bin']['helm']}/helm", f"--kubeconfig={self.kubeconfig}", "install", "site-storage"]
        options = ["--namespace=site-storage", "--values=-", "--wait", "--timeout=180s"]
        chart = self.parts["charts"]["local-path-provisioner"]
        run([*helm, chart, *options], documents.text(documents.STORAGE), 200)

    def remove(self) -> None:
        """End both nodes, and remove the link, the cgroups and the folder; nothing of it is left."""
        for name in NODES:
            if pid := self.pid(name):
                os.kill(pid, signal.SIGKILL)
                for _ in polls(30, 0.1):
                    if not Path(f"/proc/{pid}").exists():
                        break
        if Path(f"/sys/class/net/{HOST_LINK}").exists():  # it ends with the namespace of its other end, some time later
            with contextlib.suppress(ForeignError):
                run(["ip", "link", "del", HOST_LINK])
        for base in self.hierarchies():
            top = base / SLICE
            for folder in [*sorted(top.rglob("*"), key=lambda path: -len(path.parts)), top]:
                if folder.is_dir():
                    self.remove_cgroup(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            raise ForeignError(f"{self.folder}: got a folder that cannot be removed, expected it gone")
        if self.folder.parent == PARENT:
            with contextlib.suppress(OSError):  # a lab is in it
                PARENT.rmdir()

    @staticmethod
    def remove_cgroup(folder: Path) -> None:
        """Remove a cgroup; a killed process stays in it for a moment."""
        for _ in polls(60, 0.05):
            try:
                folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                continue
            return
        raise ForeignError(f"{folder}: got a busy cgroup, expected it without processes")


def privileged() -> bool:
    """Whether this machine lets root set OOM scores (CAP_SYS_RESOURCE, bit 24)."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.split("CapEff:")[1].split()[0], 16) >> 24 & 1)
