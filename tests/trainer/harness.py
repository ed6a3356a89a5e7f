"""The trainer, run as it runs in a pod: by the image's own Python, in its root file system.

GANGPLANK_TRAINER_ROOT names the unpacked root of the trainer image. It stays as it is: tests see it through an overlay
in a mount namespace of their own, with this working tree's trainer/ laid over /opt/gangplank/trainer.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Json = dict[str, Any]
REPOSITORY = Path(__file__).parents[2]
TRAINER = "/opt/gangplank/trainer"
LIMIT_S = 120.0
ENVIRONMENT = {"USE_LIBUV": "0", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
               "PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin", "HOME": "/root"}
SET_UP = """
set -e
mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$WORK/upper,workdir=$WORK/work" "$WORK/merged"
mount -t proc proc "$WORK/merged/proc"
rm -rf "$WORK/merged/opt/gangplank/trainer"
mkdir -p "$WORK/merged/opt/gangplank/trainer" "$WORK/merged/tests" "$WORK/merged/out"
mount --bind "$REPOSITORY/trainer" "$WORK/merged/opt/gangplank/trainer"
mount --bind "$REPOSITORY/tests/trainer" "$WORK/merged/tests"
mount --bind "$WORK/out" "$WORK/merged/out"
cp "$REPOSITORY"/trainer/image/* "$WORK/merged/usr/lib/python3/dist-packages/"
echo ready
exec cat
"""


def wait_for(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll until `condition()` is true; fails with `what` when the limit has passed."""
    deadline = time.monotonic() + limit_s
    pause = 0.005
    while not condition():
        assert time.monotonic() < deadline, f"within {limit_s:.0f} s: {what}"
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)


@dataclass
class Rank:
    """What one process printed and how it ended."""

    code: int
    text: str

    @property
    def events(self) -> list[Json]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]

    def event(self, name: str) -> Json:
        """The last line of one kind."""
        events = [event for event in self.events if event["event"] == name]
        assert events, f"no {name!r} in:\n{self.text}"
        return events[-1]


class Running:
    """Ranks that are running."""

    def __init__(self, warm: Warm, pids: list[int], logs: list[Path]) -> None:
        self.warm, self.pids, self.logs = warm, pids, logs

    def text(self, rank: int) -> str:
        """What a rank has printed so far."""
        return self.logs[rank].read_text() if self.logs[rank].exists() else ""

    def ended(self, rank: int) -> bool:
        """Whether a rank has ended, however."""
        return _gone(self.pids[rank])

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Send one rank a signal."""
        os.kill(self.pids[rank], number)

    def until(self, condition: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
        """Whether it becomes true before the ranks print nothing, and none ends, for so long (they may be slow)."""
        last, pause, since = -1, 0.005, time.monotonic()
        while not condition():
            progress = sum(log.stat().st_size for log in self.logs if log.exists()) + sum(map(_gone, self.pids))
            if progress != last:
                last, since = progress, time.monotonic()
            elif time.monotonic() - since > limit_s:
                return False
            time.sleep(pause)
            pause = min(0.05, pause * 1.5)
        return True

    def wait(self, limit_s: float = LIMIT_S) -> list[Rank]:
        """All ranks, when they have ended; kills them and fails if nothing has happened for so long."""
        self.until(lambda: all(_gone(pid) for pid in self.pids), limit_s)
        stuck = [rank for rank, pid in enumerate(self.pids) if not _gone(pid)]
        for rank in stuck:
            self.kill(rank)
        codes = self.warm.ask({"do": "wait", "pids": self.pids})["codes"]
        assert isinstance(codes, list)
        assert not stuck, f"ranks {stuck} printed nothing for {limit_s:.0f} s:\n{self.text(stuck[0])}"
        return [Rank(code, self.text(rank)) for rank, code in enumerate(codes)]


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class Warm:
    """The forking server of warm.py, from outside."""

    def __init__(self, root: Root) -> None:
        self.process = subprocess.Popen(root.command(["python3", "/tests/warm.py"]), text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._answer()

    def _answer(self) -> dict[str, object]:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("@"):
                answer: dict[str, object] = json.loads(line[1:])
                return answer
        pytest.fail("the trainer's Python ended; does the root file system hold torch, numpy and safetensors?")

    def ask(self, request: Mapping[str, object]) -> dict[str, object]:
        """One request, one answer."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End it, and with it every rank; Python's own end takes a minute on a busy machine."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()


def free_port() -> int:
    """An unused port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Root:
    """The trainer image's file system, with a folder `out` that both sides see (inside: /out)."""

    wait_for = staticmethod(wait_for)
    free_port = staticmethod(free_port)

    def __init__(self, path: Path, work: Path) -> None:
        for name in ("upper", "work", "merged", "out"):
            (work / name).mkdir()
        self.out, self.merged = work / "out", work / "merged"
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", SET_UP], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "ROOT": str(path), "WORK": str(work), "REPOSITORY": str(REPOSITORY)})
        assert self.keeper.stdout
        assert self.keeper.stdout.readline() == "ready\n", "cannot lay an overlay over the trainer's root (needs root)"
        self.warm = Warm(self)
        self.runs = 0

    def close(self) -> None:
        """End the namespace, and every mount with it."""
        self.warm.close()
        assert self.keeper.stdin
        assert self.keeper.stdout
        self.keeper.stdin.close()
        self.keeper.wait(600)
        self.keeper.stdout.close()

    def command(self, words: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
        """A command line that runs `words` inside."""
        return ["nice", "nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", "chroot", str(self.merged), "env", "-i",
                *(f"{name}={value}" for name, value in {**ENVIRONMENT, **(env or {})}.items()), *words]

    def new(self) -> str:
        """A fresh folder's path inside; `host` returns it outside."""
        self.runs += 1
        (self.out / f"run-{self.runs}").mkdir()
        return f"/out/run-{self.runs}"

    def host(self, inside: str) -> Path:
        """The path outside of a path below /out."""
        return self.out / inside.removeprefix("/out/")

    def store(self) -> dict[str, object]:
        """A rendezvous store of its own; `close_store` ends it."""
        return self.warm.ask({"do": "store"})

    def close_store(self, store: Mapping[str, object]) -> None:
        """End a store."""
        pid = int(str(store["pid"]))
        os.kill(pid, signal.SIGKILL)
        self.warm.ask({"do": "wait", "pids": [pid]})

    def start(self, ranks: Sequence[int], world_size: int, *flags: str, port: object, script: str = "train.py",
              env: Mapping[str, str] | None = None, per_pod: int = 1, life: str = "") -> Running:
        """Start these ranks of a world; an empty value in `env` removes a variable. `life` ends the pods' uids."""
        logs = [self.out / f"log-{self.runs}-{time.monotonic_ns()}-{rank}" for rank in ranks]
        path = script if script.startswith("/") else f"{TRAINER}/{script}"
        each = [{"log": f"/out/{log.name}", "env": {
            **ENVIRONMENT, "RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test",
            "GANGPLANK_POD": f"pod-{rank // per_pod}", "GANGPLANK_POD_UID": f"uid-{rank // per_pod}{life}",
            "GANGPLANK_NODE": f"node-{rank // per_pod % 2}",
            "GANGPLANK_JOB_UID": "job-1", **(env or {})}} for rank, log in zip(ranks, logs, strict=True)]
        pids = self.warm.ask({"do": "ranks", "ranks": each, "script": path, "argv": list(flags)})["pids"]
        assert isinstance(pids, list)
        return Running(self.warm, pids, logs)

    def train(self, world_size: int, *flags: str, script: str = "train.py", limit_s: float = LIMIT_S,
              env: Mapping[str, str] | None = None) -> list[Rank]:
        """One whole run."""
        store = self.store()
        try:
            return self.start(range(world_size), world_size, *flags, port=store["port"], script=script,
                              env=env).wait(limit_s)
        finally:
            self.close_store(store)


    def inside(self, script: str, *args: str) -> str:
        """What a script of tests/trainer/inside prints."""
        rank = self.train(1, *args, script=f"/tests/inside/{script}", env={"GANGPLANK_OBSERVE": "0"})[0]
        assert rank.code == 0, rank.text
        return "".join(line + "\n" for line in rank.text.splitlines() if not line.startswith("["))

    def interrupt(self, world_size: int, until: str, victims: Mapping[int, int], *flags: str,
                  env: Mapping[str, str] | None = None) -> list[Rank]:
        """Start a run, wait until rank 0 has printed `until`, send each victim its signal, and let the run end."""
        store = self.store()
        running = self.start(range(world_size), world_size, *flags, port=store["port"], env=env)
        try:
            assert running.until(lambda: until in running.text(0)), f"rank 0 prints {until}"
            for victim, number in victims.items():
                running.kill(victim, number)
            return running.wait()
        finally:
            self.close_store(store)
