"""gangplank/site/gpu_node.py: everything that a machine lacks to run NVIDIA's plugin."""

from __future__ import annotations

import pytest

from gangplank.site.gpu_node import unprepared

DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: 12"
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build"
TOOLKIT = "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.129.03"
V2 = """[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
"""
V3 = """[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'nvidia'
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
"""


@pytest.mark.parametrize("driver", [DRIVER, DRIVER.replace("Kernel Module ", "Open Kernel Module for x86_64")])
@pytest.mark.parametrize("runtime", [V2, V3])
def test_a_prepared_machine_lacks_nothing(driver: str, runtime: str) -> None:
    assert unprepared(driver, TOOLKIT, runtime, "nvidia", LIBRARY) == []


def test_everything_that_a_bare_machine_lacks_is_reported() -> None:
    problems = unprepared("", "", "", "nvidia", "")
    assert [problem.path for problem in problems] == ["driver", "driver's library", "container toolkit", "containerd"]
    assert all(problem.fix and problem.got for problem in problems)


@pytest.mark.parametrize(
    ("driver", "toolkit", "runtime", "path", "got"),
    [
        (DRIVER, TOOLKIT.replace("1.17.8", "1.6.0"), V2, "container toolkit", "1.6.0"),
        (DRIVER, TOOLKIT, V2.replace("nvidia", "kata"), "containerd", "kata, runc"),
        (DRIVER, TOOLKIT, V3.replace(".nvidia]", ".'kata.a']"), "containerd", "kata.a, runc"),
    ],
)
def test_what_is_too_old_or_missing_is_named(driver: str, toolkit: str, runtime: str, path: str, got: str) -> None:
    (problem,) = unprepared(driver, toolkit, runtime, "nvidia", LIBRARY)
    assert problem.path == path
    assert got in problem.got
    assert "options" not in problem.got


def test_without_a_runtime_class_nvidias_runtime_has_to_be_the_default() -> None:
    assert unprepared(DRIVER, TOOLKIT, V3, "", LIBRARY) == []
    (problem,) = unprepared(DRIVER, TOOLKIT, V2, "", LIBRARY)
    assert problem.got == "default_runtime_name runc"
    assert "--set-as-default" in problem.fix


def test_a_driver_that_is_too_old_is_named() -> None:
    (problem,) = unprepared(DRIVER.replace("535.129.03", "340.108"), TOOLKIT, V2, "nvidia", "libnvidia-ml.so.340.108")
    assert (problem.path, "340.108" in problem.got) == ("driver", True)


def test_after_an_upgrade_of_the_driver_the_module_that_is_still_loaded_is_named() -> None:
    (problem,) = unprepared(DRIVER, TOOLKIT, V2, "nvidia", LIBRARY.replace("129.03", "183.01"))
    assert (problem.path, problem.got) == ("driver's library", "libnvidia-ml.so.535.183.01")
    assert "535.129.03" in problem.expected
    assert unprepared(DRIVER, TOOLKIT, V2, "nvidia", "/usr/lib64/libnvidia-ml.so.1") == [], "its version is not known"
    assert len(unprepared(OPEN_DRIVER, TOOLKIT, V2, "nvidia", LIBRARY)) == 1
