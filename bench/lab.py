"""Time from nothing to a finished training on warm caches, compared with a bare shell loop: `make bench-lab`.

The peer starts the same programs with the same files, in order, each as soon as the previous one answers. It creates no
certificate, no namespace and no file, so it is the floor: the least time that any tool needs.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STATE = Path("/var/lib/gangplank/lab")
CGROUP = "gangplank/system"
PLAYBOOKS = ["playbooks/lab.yml", "playbooks/site.yml", "playbooks/train.yml", "-e", "@jobs/digits.yml"]
# Printed by Ansible when the step before is done; tests/repository/test_playbooks.py compares them with the roles.
MARKS = {
    "TASK [lab_cluster : Network |": "nodes Ready",
    "TASK [storage : Validate |": "Volcano accepts jobs",
    "TASK [training_job : Submit |": "job submitted",
}


def playbook(*arguments: str) -> tuple[dict[str, float], list[str]]:
    """Run ansible-playbook; return the seconds until each mark and until the end, and the printed lines."""
    started, marks, lines = time.monotonic(), {}, []
    command = [str(ROOT / ".venv/bin/ansible-playbook"), *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line)
            for mark, name in MARKS.items():
                if line.startswith(mark) and name not in marks:
                    marks[name] = time.monotonic() - started
    if process.returncode:
        sys.exit("".join(lines[-40:]))
    return marks | {"finished": time.monotonic() - started}, lines


def commands() -> dict[str, str]:
    """The lab's programs and their command lines, from supervisord's files."""
    command_lines = {}
    for path in sorted((STATE / "supervisor").glob("*.conf")):
        parser = configparser.RawConfigParser()
        parser.read(path)
        for section in parser.sections():
            if section.startswith("program:"):
                command_lines[section.removeprefix("program:")] = parser.get(section, "command").replace("%%", "%")
    return command_lines


def kill_programs() -> None:
    """End supervisord and all its programs; the namespaces stay."""
    while True:
        listing = Path("/sys/fs/cgroup/pids", CGROUP, "cgroup.procs")
        pids = listing.read_text().split() if listing.exists() else []
        if not pids:
            return
        for pid in pids:
            subprocess.run(["kill", "-9", pid], check=False, capture_output=True)
        time.sleep(0.1)


FLOOR = """
set -eu
api() { "$KUBECTL" --kubeconfig "$ADMIN" get --raw "$1" >/dev/null 2>&1; }
start() { name=$1; shift; "$@" >"$LOGS/$name.log" 2>&1 & }
@STARTS@
"""


def floor() -> float:
    """Seconds of the bare shell loop from its first program to both nodes Ready."""
    kill_programs()
    for folder in (STATE / "etcd", *(STATE / "nodes").glob("*/kubelet")):
        for path in folder.iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    lines = commands()
    logs = STATE / "floor"
    logs.mkdir(exist_ok=True)
    order = ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
    steps = []
    for name in [*order, *sorted(name for name in lines if name.startswith("containerd-")),
                 *sorted(name for name in lines if name.startswith("kubelet-")),
                 *sorted(name for name in lines if name.startswith("kube-proxy-"))]:  # fmt: skip
        steps.append(f"start {name} {lines[name]}")
        if name == "kube-apiserver":
            steps.append("until api /readyz; do sleep 0.1; done")
        if name.startswith("containerd-"):  # a kubelet without a runtime exits
            version = re.sub(r"/containerd -c .*", "/ctr version", lines[name])
            steps.append(f"until {version} >/dev/null 2>&1; do sleep 0.1; done")
    ready = r'get nodes --no-headers 2>/dev/null | grep -c " Ready "'
    steps.append(f'until [ "$("$KUBECTL" --kubeconfig "$ADMIN" {ready})" = 2 ]; do sleep 0.1; done')
    parts = re.search(r"(\S+/parts)/kubernetes-\S+?/bin", (STATE / "parts.json").read_text().replace('"', " "))
    binaries = parts.group(0) if parts else ""
    env = os.environ | {"KUBECTL": f"{binaries}/kubectl", "ADMIN": f"{STATE}/admin.kubeconfig", "LOGS": str(logs)}
    script = FLOOR.replace("@STARTS@", "\n".join(steps))
    started = time.monotonic()
    done = subprocess.run(["sh", "-c", script], env=env, check=False, timeout=90, stdin=subprocess.DEVNULL)
    took = time.monotonic() - started
    if done.returncode:
        sys.exit(f"the floor failed, see {logs}")
    for command in ("etcd", "kube-", "containerd", "kubelet"):
        subprocess.run(["pkill", "-9", "-f", f"^/mnt/parts/.*/{command}"], check=False)
    return took


def idle(seconds: float = 30.0) -> tuple[float, float]:
    """MiB resident (shared pages once) and percent of a core of all the lab's programs, measured over `seconds`."""
    time.sleep(10)  # the previous run has just ended, and its last pods are being removed

    def ticks() -> dict[str, int]:
        ticks_by_pid = {}
        for pid in Path("/sys/fs/cgroup/pids", CGROUP, "cgroup.procs").read_text().split():
            with contextlib.suppress(FileNotFoundError):  # a program's short-lived helper
                stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks_by_pid[pid] = int(stat[11]) + int(stat[12])
        return ticks_by_pid

    before = ticks()
    time.sleep(seconds)
    after = ticks()
    pids = before.keys() & after.keys()
    used = sum(after[pid] - before[pid] for pid in pids) / os.sysconf("SC_CLK_TCK") / seconds * 100
    maps = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids)  # two kubelets share one program's pages
    resident = sum(int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0]) for text in maps)
    return resident / 1024, used


def main() -> None:
    """Measure and print; nothing is asserted."""
    playbook("playbooks/lab-down.yml")
    first, _ = playbook(*PLAYBOOKS)
    second, lines = playbook(*PLAYBOOKS)
    changed = sum(int(count) for count in re.findall(r"changed=(\d+)", "".join(lines)))
    resident, core = idle()
    bare = floor()
    playbook("playbooks/lab-down.yml")
    ratio = first["nodes Ready"] / bare
    rows = [
        ("nothing running -> both nodes Ready", first["nodes Ready"], f"{ratio:.2f} x floor", "1.25 x"),
        ("the floor: a bare shell loop to both nodes Ready", bare, "1", ""),
        ("nothing running -> Volcano accepts jobs", first["Volcano accepts jobs"], "", "45 s"),
        ("nothing running -> training finished", first["finished"], "", "150 s"),
        ("second run", second["finished"], f"{second['finished'] / first['finished']:.2f} x first", "0.20 x"),
    ]
    print(f"{'figure':52} {'seconds':>8}  {'ratio':16} goal")
    for name, value, beside, goal in rows:
        print(f"{name:52} {value:8.1f}  {beside:16} {goal}")
    print(f"changed in the second run: {changed} (goal 0)")
    print(f"idle programs of the lab: {resident:.0f} MiB resident (goal 1024), {core:.1f} % of a core (goal 10)")


if __name__ == "__main__":
    main()
