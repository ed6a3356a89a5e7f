"""The lab's cgroups in a hierarchy of v2: the controllers that the kubelet asks for, and what a removal leaves.

A machine with v1 has a v2 hierarchy too, with the controllers that no v1 hierarchy has; Debian's kernels have hugetlb.
It is mounted in a mount namespace of the test's own, as the only one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ONLY_V2 = "umount -R -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; "
START = """
import json, os
from pathlib import Path
from lab.errors import LabError
from lab.host import cgroups, facts
TOP = Path("/sys/fs/cgroup")
words = lambda name: sorted((TOP / name).read_text().split())
cgroups.SLICE = f"gangplank-test-{os.getppid()}"
own = cgroups.SLICE
"""
NODES = """
report = {"machine": words("cgroup.controllers"), "before": words("cgroup.subtree_control")}
try:
    report["changed"] = [cgroups.ensure_cgroup(name) for name in ("node-0", "node-0", "node-1")]
    report["node"] = words(f"{own}/node-0/cgroup.controllers")
    cgroups.remove_cgroup("node-0")
    report["other node removed"] = words(f"{own}/node-1/cgroup.controllers")
finally:
    cgroups.remove_cgroup()
report["after"] = words("cgroup.subtree_control")
print(json.dumps(report))
"""
# In a container with a cgroup namespace of its own: the top of its hierarchy has its processes.
CONTAINER = """
import subprocess
from lab.host import preflight
report = {"machine": words("cgroup.controllers"), "processes": facts.cgroup_processes()}
try:
    cgroups.ensure_cgroup("node-0")
except LabError as error:
    report["refusal"] = str(error)
finally:
    cgroups.remove_cgroup()
subprocess.run(["sh", "-ec", preflight.LEAVE_TOP], check=True)
report["afterwards"] = facts.cgroup_processes()
cgroups.ensure_cgroup("node-0")
report["node"] = words(f"{own}/node-0/cgroup.controllers")
cgroups.remove_cgroup()
print(json.dumps(report))
"""


def in_only_v2(code: str, cgroup: str = "") -> Any:
    """What `code` prints as JSON, with v2 as the only hierarchy, `cgroup` as its top in a namespace."""
    script = f'{ONLY_V2} exec "$@"'
    if cgroup:
        script = f'{ONLY_V2} echo $$ > {cgroup}/cgroup.procs; exec unshare --cgroup --mount sh -ec "$0" "$0" "$@"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, f'{ONLY_V2} exec "$@"']
    python = [sys.executable, "-c", START + code]
    done = subprocess.run([*command, *python], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_node_has_every_controller_of_the_machine_and_the_machine_gets_back_what_it_had() -> None:
    report = in_only_v2(NODES)
    if not report["machine"]:
        pytest.skip("every controller of this machine is bound to a hierarchy of v1")
    assert report["node"] == report["other node removed"] == report["machine"]
    assert report["changed"] == [True, False, True]
    assert report["after"] == report["before"]


def test_processes_in_the_top_of_a_containers_hierarchy_are_named_with_a_fix_that_helps() -> None:
    own = f"cgroups.SLICE = 'gangplank-container-{os.getpid()}'; "
    in_only_v2(f"{own} cgroups.ensure_cgroup('top'); print(0)")
    try:
        report = in_only_v2(CONTAINER, f"/sys/fs/cgroup/gangplank-container-{os.getpid()}/top")
    finally:
        in_only_v2(f"{own} cgroups.remove_cgroup(); print(0)")
    if not report["machine"]:
        pytest.skip("every controller of this machine is bound to a hierarchy of v1")
    assert report["processes"] > 0
    assert "cgroup.subtree_control: got" in report["refusal"]  # busy; with threaded controllers, not supported
    assert "Fix: move the processes" in report["refusal"]
    assert (report["afterwards"], report["node"]) == (0, report["machine"])
