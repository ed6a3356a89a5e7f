"""What the Tab key offers, asked as bash asks: with the printed script loaded and the line as far as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cli import completion, main
from gangplank.cli.parser import command_line
from gangplank.wait import polls

if TYPE_CHECKING:
    from tests.unit.conftest import Api

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent
VOLCANO = "/apis/batch.volcano.sh/v1alpha1/namespaces"
INDEXED = "/apis/batch/v1/namespaces/default/jobs"
ASK = """
source <(gangplank completion bash)
COMP_LINE=$1; COMP_POINT=${#1}
function=$(complete -p gangplank); function=${function#*-F }
${function%% *} gangplank
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completions(line: str, **environment: str) -> list[str]:
    """What bash offers for a line, without the blank that ends a single one."""
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environment}
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", line], capture_output=True, text=True, env=env, check=True, timeout=60, cwd=ROOT
    )
    assert done.stderr == ""
    return [word.removesuffix(" ") for word in done.stdout.splitlines() if word]


@pytest.fixture
def jobs(api: Api) -> None:
    """A job of each of two back-ends, one in another namespace, and two Jobs that are not training jobs."""

    def job(name: str, **metadata: Any) -> dict[str, Any]:
        return {"metadata": {"name": name, **metadata}, "spec": {"completionMode": "Indexed"}}

    api.objects = {
        f"{VOLCANO}/default/jobs/digits": {**job("digits"), "status": {"state": {"phase": "Running"}}},
        f"{VOLCANO}/vision/jobs/faces": job("faces"),
        f"{INDEXED}/linear": job("linear"),
        f"{INDEXED}/child": job("child", ownerReferences=[{"kind": "JobSet"}]),
        f"{INDEXED}/backup": {"metadata": {"name": "backup"}, "spec": {}},
    }


def names(line: str, expected: list[str]) -> None:
    """Press Tab until the names are there: on a busy machine the cluster may not be heard in time."""
    offered: list[str] = []
    for _ in polls(300, 0):
        offered = sorted(completions(line))
        if offered == expected:
            return
    assert offered == expected


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gangplank e", ["expand"]),
        ("gangplank team ", ["kubeconfig"]),
        ("gangplank team kubeconfig --t", ["--ttl"]),
        ("gangplank expand --o", ["--objects", "--output"]),
        ("gangplank expand --backend ", ["volcano", "pytorchjob", "trainjob", "indexed"]),
        ("gangplank expand -o y", ["yaml"]),
        ("gangplank expand jobs/lin", ["jobs/linear.yml"]),
        ("gangplank drift inventories/la", ["inventories/lab/"]),
        ("gangplank completion f", ["fish"]),
    ],
)
def test_completes_commands_options_values_and_files(line: str, offered: list[str]) -> None:
    assert completions(line) == offered


@pytest.mark.slow
@pytest.mark.usefixtures("jobs")
def test_completes_the_jobs_of_the_namespace() -> None:
    names("gangplank logs d", ["digits", "docs/"])
    names("gangplank status l", ["lab/", "linear"])
    names("gangplank scale -n vision f", ["faces"])


@pytest.mark.usefixtures("jobs")
def test_a_shell_that_shows_descriptions_gets_back_end_and_state(
    api: Api, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "CLUSTER_S", 60)
    args = command_line().parse_args(["status"])
    assert completion.files_and_jobs("dig", args) == {"digits": "volcano, Running", "linear": "indexed, Pending"}
    api.set_namespace("vision")
    assert completion.files_and_jobs("fac", args) == {"faces": "volcano, Pending"}
    assert capsys.readouterr() == ("", "")


def test_without_a_cluster_files_are_offered(tmp_path: Path) -> None:
    assert completions("gangplank status jobs/lin", KUBECONFIG=str(tmp_path / "none")) == ["jobs/linear.yml"]


def test_a_silent_cluster_is_not_waited_for_by_the_tab_key(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    longer_than_the_shell_may_take_s = 600
    monkeypatch.setattr(api, "answer", lambda *_: end.wait(longer_than_the_shell_may_take_s) and (200, b"{}"))
    try:
        assert completions("gangplank status jobs/lin") == ["jobs/linear.yml"]
    finally:
        end.set()
    assert completion.CLUSTER_S < 2


@pytest.mark.parametrize(("shell", "line"), [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete -")])
def test_every_shell_has_a_script(capsys: pytest.CaptureFixture[str], shell: str, line: str) -> None:
    assert main(["completion", shell]) == 0
    assert any(line in text and "gangplank" in text for text in capsys.readouterr().out.splitlines())
