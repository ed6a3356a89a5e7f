"""Whether a machine is prepared for NVIDIA's device plugin: driver with library, toolkit, containerd's runtime. Pure.

https://github.com/NVIDIA/k8s-device-plugin#prerequisites
"""

from __future__ import annotations

import re
from pathlib import PurePath

from gangplank.errors import Problem

DRIVER_MINIMUM = (384, 81)
TOOLKIT_MINIMUM = (1, 7, 0)
INSTALL = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"


def version(text: str, pattern: str) -> tuple[int, ...]:
    """The first version after a pattern; () if the text has none.

    >>> version("NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct", "Kernel Module +")
    (535, 129, 3)
    """
    match = re.search(pattern + r"(\d+(?:\.\d+)+)", text)
    return tuple(int(digits) for digits in match.group(1).split(".")) if match else ()


def nvml_path(linker: str) -> str:
    r"""Where the dynamic linker finds the driver's library, by the output of `ldconfig -p`; if nowhere, no file's path.

    >>> nvml_path("\tlibnvidia-ml.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1\n")
    '/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1'
    """
    match = re.search(r"libnvidia-ml\.so\.1 \(.*64\) => (\S+)", linker)
    return match[1] if match else "/nonexistent"


def unprepared(driver: str, toolkit: str, runtime: str, handler: str, library: str) -> list[Problem]:
    """What a machine lacks.

    `driver` is the content of /proc/driver/nvidia/version. `toolkit` is the output of `nvidia-ctk --version`, `runtime`
    that of `containerd config dump`. Each is empty if missing. `handler` is the runtime that the site's RuntimeClass
    names; it is empty where NVIDIA's must be the default. `library` is the file that libnvidia-ml.so.1 stands for, such
    as libnvidia-ml.so.580.95.05: after an upgrade of the driver, it may be another version than the loaded module.
    """
    problems = []
    module, of_library = version(driver, r"Kernel Module.*?\s"), version(library, r"libnvidia-ml\.so\.")
    if module < DRIVER_MINIMUM:
        fix = "install the distribution's NVIDIA driver, load it (modprobe nvidia), check that nvidia-smi works"
        problems.append(Problem("driver", first(driver), f"NVIDIA's driver, at least {dotted(DRIVER_MINIMUM)}", fix))
    if not library:
        fix = "install the user-space part of the driver, run ldconfig, and check that nvidia-smi works"
        problems.append(Problem("driver's library", "none", "libnvidia-ml.so.1 in the output of ldconfig -p", fix))
    elif module and of_library and module != of_library:
        fix = "restart the machine, which loads the module that came with the library"
        expected = f"the version of the loaded module ({first(driver)})"
        problems.append(Problem("driver's library", PurePath(library).name, expected, fix))
    if version(toolkit, "version ") < TOOLKIT_MINIMUM:
        expected = f"nvidia-container-toolkit, at least {dotted(TOOLKIT_MINIMUM)}"
        problems.append(Problem("container toolkit", first(toolkit), expected, f"install it: {INSTALL}"))
    names = {"".join(groups) for groups in re.findall(r"runtimes\.(?:['\"]([\w.-]+)['\"]|([\w-]+))\]", runtime)}
    default = re.search(r"default_runtime_name = ['\"]([\w.-]+)['\"]", runtime)
    fix = "nvidia-ctk runtime configure --runtime=containerd, then restart containerd"
    if handler and handler not in names:
        got = ", ".join(sorted(names)) or "no runtime"
        problems.append(Problem("containerd", got, f"the runtime {handler} of the RuntimeClass", fix))
    if not handler and (default.group(1) if default else "") != "nvidia":
        got = f"default_runtime_name {default.group(1) if default else 'not set'}"
        expected = "nvidia, as no RuntimeClass is set"
        problems.append(Problem("containerd", got, expected, f"{fix.replace(',', ' --set-as-default,', 1)}"))
    return problems


def first(text: str) -> str:
    """The first line of a text, "none" if it is empty."""
    return (text.strip().splitlines() or ["none"])[0]


def dotted(number: tuple[int, ...]) -> str:
    """A version as text: 1.17.8."""
    return ".".join(map(str, number))
