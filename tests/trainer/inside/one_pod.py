"""Three ranks of own.py, which lies beside this, all in the first of three pods; the others do nothing."""

import os
import subprocess
import sys
from pathlib import Path

if os.environ["RANK"] == "0":
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29777"}
    del env["TORCHELASTIC_USE_AGENT_STORE"]  # of the launcher's own world
    script = [sys.executable, str(Path(__file__).with_name("own.py")), "ddp"]
    ranks = [subprocess.Popen(script, env={**env, "RANK": str(rank)}) for rank in range(3)]
    sys.exit(max(rank.wait() for rank in ranks))
