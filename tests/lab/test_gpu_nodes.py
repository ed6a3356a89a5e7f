"""playbooks/gpu_nodes.yml against a machine without anything of NVIDIA's, and against one that is prepared.

The machine is this one, with other folders mounted for each of the commands that come over ssh. Its containerd is the
lab's. What the kernel, the dynamic linker and the toolkit say of NVIDIA's parts are files of the test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.build.parts import build

ROOT = Path(__file__).resolve().parents[2]
# In place of ssh: its last argument is the command.
SSH = """#!/bin/sh
for command; do :; done
exec unshare --mount --propagation private sh -ec '
mount --bind "$0/driver" /proc/driver
mount -t overlay -o "lowerdir=$0/etc:/etc" overlay /etc
[ ! -e "$0/ldconfig" ] || mount --bind "$0/ldconfig" /sbin/ldconfig
PATH="$0/bin:$PATH" exec sh -c "$1"' {folder} "$command"
"""
CONFIG = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
# As nvidia-ctk runtime configure writes it.
DROP_IN = """version = 3
[plugins."io.containerd.cri.v1.runtime".containerd]
{default}
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""
DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)\n"
LINKER = "#!/bin/sh\nprintf '\\t%s (libc6,x86-64) => %s\\n' libnvidia-ml.so.1 {folder}/libnvidia-ml.so.1\n"
TOOLKIT = "#!/bin/sh\necho NVIDIA Container Toolkit CLI version 1.19.1\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of what the machine has: a containerd with its own defaults, and nothing of NVIDIA's."""
    for name in ("driver", "bin", "etc/containerd/conf.d"):
        (tmp_path / name).mkdir(parents=True)
    containerd = Path(build(["containerd"], print, roots=())["bin"]["containerd"]) / "containerd"
    (tmp_path / "bin/containerd").symlink_to(containerd)
    (tmp_path / "etc/containerd/config.toml").write_text(CONFIG)
    (tmp_path / "ssh").write_text(SSH.format(folder=tmp_path))
    (tmp_path / "ssh").chmod(0o755)
    return tmp_path


def prepare(machine: Path, library: str = "580.95.05") -> None:
    """Driver, toolkit, and containerd's runtime."""
    (machine / f"libnvidia-ml.so.{library}").touch()
    (machine / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{library}")
    (machine / "ldconfig").write_text(LINKER.format(folder=machine))
    (machine / "ldconfig").chmod(0o755)
    (machine / "driver/nvidia").mkdir()
    (machine / "driver/nvidia/version").write_text(DRIVER)
    (machine / "bin/nvidia-ctk").write_text(TOOLKIT)
    (machine / "bin/nvidia-ctk").chmod(0o755)
    (machine / "etc/containerd/conf.d/99-nvidia.toml").write_text(DROP_IN.format(default=""))


def check(machine: Path, connection: str = "ssh", runtime_class: str = "nvidia") -> subprocess.CompletedProcess[str]:
    """Run the playbook."""
    host = {
        "ansible_connection": connection,
        "ansible_python_interpreter": sys.executable,
        "ansible_ssh_executable": str(machine / "ssh"),
        "ansible_ssh_transfer_method": "piped",
        "gpu_device_plugin_runtime_class": runtime_class,
    }
    inventory: dict[str, Any] = {"gpu_nodes": {"hosts": {"a-gpu-node": host}}}
    (machine / "hosts.json").write_text(json.dumps(inventory))
    command = [str(ROOT / ".venv/bin/ansible-playbook"), "-i", str(machine / "hosts.json"), "playbooks/gpu_nodes.yml"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)


def test_a_prepared_machine_is_accepted(machine: Path) -> None:
    prepare(machine)
    done = check(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=0" in done.stdout


def test_everything_that_a_bare_machine_lacks_is_reported_at_once(machine: Path) -> None:
    done = check(machine)
    assert done.returncode != 0
    for text in (
        "a-gpu-node is not prepared for GPUs:",
        "driver: got none",
        "driver's library: got none",
        "container toolkit: got none",
        "containerd: got runc, expected the runtime nvidia",
    ):
        assert text in done.stdout


def test_a_library_of_another_version_than_the_loaded_module_is_named(machine: Path) -> None:
    prepare(machine, "580.126.16")
    done = check(machine)
    assert done.returncode != 0
    assert "driver's library: got libnvidia-ml.so.580.126.16, expected the version of the loaded module" in done.stdout


def test_without_a_runtime_class_nvidias_runtime_has_to_be_the_default(machine: Path) -> None:
    prepare(machine)
    done = check(machine, runtime_class="")
    assert done.returncode != 0
    assert "containerd: got default_runtime_name runc, expected nvidia" in done.stdout
    drop_in = DROP_IN.format(default='default_runtime_name = "nvidia"')
    (machine / "etc/containerd/conf.d/99-nvidia.toml").write_text(drop_in)
    done = check(machine, runtime_class="")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("connection", ["local", "ansible.builtin.local"])
def test_this_machine_is_not_taken_for_the_node(machine: Path, connection: str) -> None:
    prepare(machine)
    done = check(machine, connection)
    assert done.returncode != 0
    assert "which would check this machine instead of a-gpu-node" in done.stdout
