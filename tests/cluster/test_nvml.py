"""The library of lab/modules/nvidia-programs, as NVIDIA's unchanged programs see it.

Molecule `nvml` has the device plugin on a lab. No lab is needed here: NVIDIA's programs run on the C library of the
root that built them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplank.site.gpu_devices import PluginState, without_devices
from lab.build.go_commands import IN_ROOT
from lab.build.parts import build

ROOT = Path(__file__).resolve().parents[2]
# It wants a cluster's address, and does not talk to the cluster without the NodeFeature API.
NOWHERE = {
    "apiVersion": "v1", "kind": "Config", "current-context": "a", "users": [{"name": "a"}],
    "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
}  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """A folder with the library, and NVIDIA's programs that load it."""

    programs: Path
    root: str
    folder: Path

    def states(self, **files: str) -> None:
        """Write what the machine is like."""
        for name, text in files.items():
            (self.folder / "nvml.d" / name).write_text(text + "\n")

    def labels(self, mig_strategy: str = "none") -> dict[str, str]:
        """What feature discovery finds; AssertionError with its log if it ends with an error."""
        (self.folder / "kubeconfig").write_text(json.dumps(NOWHERE))
        output = self.folder / "labels"
        output.unlink(missing_ok=True)
        command = [*IN_ROOT, self.root, str(self.programs / "gpu-feature-discovery"), "--oneshot", "--no-timestamp"]
        command += [f"--mig-strategy={mig_strategy}"]
        command += [f"--output-file={output}", "--use-node-feature-api=false", f"--kubeconfig={self.folder}/kubeconfig"]
        env = {"PATH": "/usr/sbin:/usr/bin", "LD_LIBRARY_PATH": str(self.folder), "NODE_NAME": "n", "NAMESPACE": "n"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        lines = (line.split("=", 1) for line in output.read_text().splitlines())
        return {name.removeprefix("nvidia.com/"): value for name, value in lines}

    def plugin(self, *, library: bool) -> str:
        """What the device plugin says before it ends, for want of a GPU."""
        own = 'mount -t tmpfs tmpfs /var/lib; mkdir -p /var/lib/kubelet/device-plugins; exec "$@"'
        first = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", own, "sh"]  # the root has no shell
        command = [*first, *IN_ROOT, self.root, str(self.programs / "nvidia-device-plugin")]
        env = {"PATH": "/usr/sbin:/usr/bin", "NODE_NAME": "n"} | (
            {"LD_LIBRARY_PATH": str(self.folder)} if library else {}
        )
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 1, done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def built() -> tuple[Path, str]:
    result = build(["nvidia-programs"], print, roots=("compiler",))
    return Path(result["bin"]["nvidia-programs"]), result["roots"]["compiler"]


@pytest.fixture
def machine(built: tuple[Path, str], tmp_path: Path) -> Machine:
    programs, root = built
    shutil.copy(programs / "libnvidia-ml.so.1", tmp_path)
    (tmp_path / "nvml.d").mkdir()
    here = Machine(programs, root, tmp_path)
    here.states(node="n", profile="8xh100")
    return here


PROFILES = {
    "8xa100-80gb": {"count": "8", "product": "NVIDIA-A100-SXM4-80GB", "memory": "81920", "family": "ampere"},
    "8xh100": {"count": "8", "product": "NVIDIA-H100-80GB-HBM3", "memory": "81559", "family": "hopper"},
    "4xt4": {"count": "4", "product": "Tesla-T4", "memory": "15360", "family": "turing"},
    "none": {},
}


@pytest.mark.parametrize("profile", PROFILES)
def test_feature_discovery_labels_the_profile(machine: Machine, profile: str) -> None:
    machine.states(profile=profile)
    labels = machine.labels()
    assert {name: labels.get(f"gpu.{name}") for name in PROFILES[profile]} == PROFILES[profile]
    assert bool(PROFILES[profile]) == ("gpu.count" in labels)


def test_the_hook_that_containerd_runs_links_the_drivers_library(built: tuple[Path, str], tmp_path: Path) -> None:
    """Of a pod with a real GPU; its root is that of an OCI bundle."""
    (tmp_path / "rootfs/usr/lib64").mkdir(parents=True)
    (tmp_path / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", "root": {"path": "rootfs"}}))
    state = {"ociVersion": "1.0.2", "id": "a", "status": "created", "pid": 1, "bundle": str(tmp_path)}
    command = [
        str(built[0] / "nvidia-cdi-hook"),
        "create-symlinks",
        "--link",
        "libcuda.so.580::/usr/lib64/libcuda.so.1",
    ]
    subprocess.run(command, input=json.dumps(state), text=True, check=True, timeout=30)
    assert (tmp_path / "rootfs/usr/lib64/libcuda.so.1").readlink() == Path("libcuda.so.580")


def test_a_gpu_that_mig_splits_evenly_counts_its_parts(machine: Machine) -> None:
    machine.states(profile="8xa100-80gb", mig="\n".join(f"{gpu} 1g.10gb" for gpu in range(8) for _ in range(7)))
    labels = machine.labels("single")
    assert (labels["gpu.count"], labels["gpu.memory"]) == ("56", "9728")
    assert labels["gpu.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"


def test_parts_of_several_sizes_have_a_resource_each(machine: Machine) -> None:
    machine.states(mig="0 3g.40gb\n0 3g.40gb\n1 1g.10gb\n1 2g.20gb\n1 4g.40gb")
    labels = machine.labels("mixed")
    counts = {name: labels[f"mig-{name}.count"] for name in ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb")}
    assert counts == {"1g.10gb": "1", "2g.20gb": "1", "3g.40gb": "2", "4g.40gb": "1"}
    assert labels["gpu.count"] == "8"


def test_a_gpu_without_mig_cannot_be_split(machine: Machine) -> None:
    machine.states(profile="4xt4", mig="0 1g.10gb")
    labels = machine.labels("mixed")
    assert labels["mig.capable"] == "false"
    assert not [name for name in labels if name.startswith("mig-")]


def test_the_role_labels_simulated_gpus_as_feature_discovery_would(machine: Machine) -> None:
    defaults = yaml.safe_load((ROOT / "roles/gpu_device_plugin/defaults/main.yml").read_text())
    simulated = defaults["gpu_device_plugin_simulated"]
    labels = machine.labels()
    assert (labels["gpu.product"], labels["gpu.family"]) == (simulated["product"], simulated["family"])
    assert labels["gpu.memory"] == str(simulated["memory_mib"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"init": "18"}, "Driver/library version mismatch"),
        ({"lost": "5"}, "GPU is lost"),
        ({"profile": "2xb200"}, "Driver Not Loaded"),
    ],
    ids=["another version of the driver", "a GPU off the bus", "an unknown profile"],
)
def test_an_error_on_demand_reaches_nvidias_program(machine: Machine, files: dict[str, str], message: str) -> None:
    machine.states(**files)
    with pytest.raises(AssertionError, match=message):
        machine.labels()


ROOT_VOLUME = {"volumes": [{"name": "driver-root"}]}
LACKS: dict[str, tuple[dict[str, str] | None, dict[str, Any], str]] = {
    "NVIDIA's runtime": (None, {}, "wrong runtime class"),
    "a driver, although the runtime is NVIDIA's": (None, {"runtimeClassName": "nvidia"}, "no driver"),
    "a driver in a container": (None, ROOT_VOLUME, "no driver"),
    "a driver of its library's version": ({"init": "18"}, ROOT_VOLUME, "no driver"),
    "a GPU": ({"lost": "5"}, ROOT_VOLUME, "GPU lost"),
}


@pytest.mark.parametrize("lacks", LACKS)
def test_the_role_names_what_nvidias_plugin_lacks(machine: Machine, lacks: str) -> None:
    files, template, cause = LACKS[lacks]
    machine.states(**(files or {}))
    owned = {"name": "plugin-x", "ownerReferences": [{"uid": "a"}]}
    ended = {"state": {"waiting": {}}, "lastState": {"terminated": {"reason": "Error", "exitCode": 1}}}
    pod = {"metadata": owned, "spec": {"nodeName": "n"}, "status": {"phase": "Running", "containerStatuses": [ended]}}
    daemonset = {"metadata": {"name": "plugin", "uid": "a"}, "spec": {"template": {"spec": template}}}
    state = PluginState(daemonset, [pod], {"plugin-x": machine.plugin(library=files is not None)})
    (finding,) = without_devices([{"metadata": {"name": "n"}, "spec": {}}], state, "nvidia.com/gpu")
    assert finding.cause == cause
