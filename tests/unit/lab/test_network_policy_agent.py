"""The Go tests of the network policy agent, with the pinned toolchain; skipped until `make parts` has fetched it."""

from __future__ import annotations

import subprocess

import pytest

from lab.build.cache import cache_home
from lab.build.go_toolchain import go_environment
from lab.build.versions import MODULES, load_pins

GO = cache_home() / "go" / load_pins().go_version / "bin/go"


@pytest.mark.skipif(not GO.exists(), reason="the pinned Go is fetched by the first build")
def test_b3_b4_the_agents_own_tests_pass() -> None:
    command = [str(GO), "test", "./..."]
    done = subprocess.run(
        command, cwd=MODULES / "network-policy", env=go_environment(GO), capture_output=True, text=True, check=False,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
