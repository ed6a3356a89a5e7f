"""torchrun.py: torchrun's own flags and exit status, and ranks that a new interpreter would not tell from its own."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.trainer.harness import Root

SCRIPT = """
import sys
forked = "torch" in sys.modules
import json, os, signal
from beside import WORD
own = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
print(json.dumps({"rank": int(os.environ["RANK"]), "size": os.environ["WORLD_SIZE"], "argv": sys.argv, "word": WORD,
                  "name": __name__, "forked": forked, "own": own, "comm": open("/proc/self/comm").read().strip(),
                  "nvml": os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")}))
sys.exit(int(sys.argv[1]) if os.environ["RANK"] == "1" else 0)
"""


LINES = """
import os
for line in range(3000):
    print("rank", os.environ["RANK"], "line", f"{line:04}")
"""


def run(root: Root, *words: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    """Two ranks of the script, in one pod."""
    folder = root.new()
    (root.host(folder) / "job.py").write_text(script)
    (root.host(folder) / "beside.py").write_text("WORD = 'found'\n")
    command = ["python3", "/opt/gangplank/trainer/torchrun.py", "--nnodes=1", "--node-rank=0",
               "--master-addr=127.0.0.1", f"--master-port={root.free_port()}", "--nproc-per-node=2", f"{folder}/job.py"]
    return subprocess.run(root.command([*command, *words]), capture_output=True, text=True, check=False, timeout=60)


def test_a_rank_finds_its_script_its_neighbours_and_its_signals(root: Root) -> None:
    done = run(root, "0", "--flag")
    assert done.returncode == 0, done.stderr
    records = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda line: line["rank"])
    assert [(line.pop("rank"), line.pop("comm")) for line in records] == [(0, "rank-0"), (1, "rank-1")]
    script = records[0]["argv"][0]
    assert script.endswith("/job.py")
    same = {"size": "2", "argv": [script, "0", "--flag"], "word": "found", "name": "__main__", "forked": True,
            "own": True, "nvml": "1"}  # else torchrun's look at the GPUs would leave its forks without CUDA
    assert records == [same, same]


def test_lines_of_the_ranks_of_a_pod_are_never_torn(root: Root) -> None:
    """Both ranks write to one pipe: each print is one write, also where PYTHONUNBUFFERED is set as in the image."""
    done = run(root, "0", script=LINES)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines) == sorted(f"rank {rank} line {line:04}" for rank in range(2) for line in range(3000))


def test_a_rank_that_fails_ends_the_pod_and_is_named(root: Root) -> None:
    done = run(root, "7")
    assert done.returncode == 1
    assert "rank      : 1 (local_rank: 1)" in done.stderr
    assert "exitcode  : 7" in done.stderr
