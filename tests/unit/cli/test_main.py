"""The command says what becomes of a job, and what is wrong, with exit codes that scripts can use."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangplank.cli import main, terminal

ROOT = Path(__file__).resolve().parents[3]
DIGITS = str(ROOT / "jobs/digits.yml")
ANYWHERE = str(ROOT / "jobs/digits-anywhere.yml")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_shows_a_table_of_the_pods(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "expand", DIGITS)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "digits in default on volcano: 3 pods, a gang of 3"
    assert lines[1].split() == ["POD", "RANK", "HOST", "MASTER", "WORLD_SIZE", "REQUESTS", "VOLUMES"]
    assert lines[4].split()[:5] == [
        "digits-worker-1",
        "2",
        "digits-worker-1.digits",
        "digits-master-0.digits:23456",
        "3",
    ]
    assert "\x1b" not in out


def test_yaml_is_what_is_submitted_and_objects_what_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "expand", DIGITS, "-o", "yaml")
    assert [item["kind"] for item in yaml.safe_load_all(out)] == ["Job"]
    _, out, _ = run(capsys, "expand", DIGITS, "-o", "yaml", "--objects")
    kinds = [item["kind"] for item in yaml.safe_load_all(out)]
    assert kinds == ["ConfigMap", "Service", "NetworkPolicy", "PodGroup", "Pod", "Pod", "Pod"]


def test_json_is_a_list_that_kubectl_takes(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "expand", DIGITS, "-o", "json")
    document = json.loads(out)
    assert (document["kind"], len(document["items"])) == ("List", 1)


def test_runs_a_job_on_another_back_end(capsys: pytest.CaptureFixture[str]) -> None:
    for backend, kind in {"pytorchjob": "PyTorchJob", "trainjob": "TrainJob", "volcano": "Job"}.items():
        code, out, _ = run(capsys, "expand", ANYWHERE, "--backend", backend, "-o", "yaml")
        assert (code, list(yaml.safe_load_all(out))[-1]["kind"]) == (0, kind)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_manifests_are_written_as_utf_8_whatever_the_locale(tmp_path: Path, encoding: str) -> None:
    """Another value would be submitted where this is piped to kubectl."""
    file = tmp_path / "job.yml"
    file.write_text("name: a\nimage: i\nscript: /a.py\nenv: {CITY: 東京é}\n", encoding="utf-8")
    for output, load in (("yaml", yaml.safe_load), ("json", json.loads)):
        command = [sys.executable, "-m", "gangplank", "expand", str(file), "-o", output]
        env = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
        done = subprocess.run(command, capture_output=True, check=True, env=env, cwd=ROOT)
        assert "東京é" in str(load(done.stdout.decode("utf-8")))


def test_a_raw_manifest_expands_like_the_job_it_came_from(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, text, _ = run(capsys, "expand", DIGITS, "-o", "yaml")
    raw = tmp_path / "raw.yaml"
    raw.write_text(text + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n")
    _, objects, _ = run(capsys, "expand", DIGITS, "--objects", "-o", "yaml")
    code, again, _ = run(capsys, "expand", "-f", str(raw), "--objects", "-o", "yaml")
    assert (code, again) == (0, objects)


def test_a_list_of_manifests_is_taken_apart(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, text, _ = run(capsys, "expand", DIGITS, "-o", "json")
    raw = tmp_path / "raw.json"
    raw.write_text(text)
    _, out, _ = run(capsys, "expand", "-f", str(raw))
    assert out.startswith("digits in default on volcano: 3 pods")


def test_carries_a_script_from_the_checkout_wherever_it_is_called(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, _ = run(capsys, "expand", str(ROOT / "jobs/linear.yml"), "-o", "yaml")
    carried = next(yaml.safe_load_all(out))
    assert carried["data"]["linear.py"] == (ROOT / "trainer/linear.py").read_text()
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/linear.py").write_text("print('mine')\n")
    _, out, _ = run(capsys, "expand", str(ROOT / "jobs/linear.yml"), "-o", "yaml")
    assert next(yaml.safe_load_all(out))["data"]["linear.py"] == "print('mine')\n"


HALF_A_GPU = """apiVersion: batch/v1
kind: Job
metadata: {{name: a}}
spec: {{template: {{spec: {{containers: [{{name: a, resources: {{limits: {{nvidia.com/gpu: {}, cpu: 500m}}}}}}]}}}}}}
"""
OF_GPU = ": 1 problem\n  document 1, Job.spec.template.spec.containers[0].resources.limits.nvidia.com/gpu"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("training_job: {name: no}", 1, "does not read as a boolean"),
        ("training_job: {name: a, image: b, workers: x}", 1, "training_job.workers"),
        ("a: 1\na: 2\n", 1, "each key once"),
        ("", 1, "expected a job file"),
        ("- 1\n", 1, ": 1 problem\n  job: got [1], expected a mapping with the key training_job. Fix: begin with"),
        ("training_job: [1]\n", 1, ": 1 problem\n  training_job: got [1], expected a mapping of fields. Fix: indent"),
        ("training_job: [\n", 1, "got text that is not YAML ("),
        (
            "training_job: {name: a, image: b, script: /c, workrs: 2}", 1,
            "training_job.workrs: got an unknown field, expected one that exists. Did you mean workers?\n",
        ),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", 1, "got no job, only Pod, expected a job file"),
        ("apiVersion: v1\n", 1, "apiVersion and kind"),
        ("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\n", 1, "PyTorchJob.spec"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: []\nspec: {}\n", 1, "a mapping"),
        (HALF_A_GPU.format("0.5"), 1, f"{OF_GPU}: got 0.5, expected a whole number. Fix: ask for whole devices"),
        (HALF_A_GPU.format("1500m"), 1, f'{OF_GPU}: got "1500m", expected a whole number. Fix: ask for whole devices'),
        (HALF_A_GPU.format("one"), 1, f'{OF_GPU}: got "one", expected a quantity'),
    ],
)
def test_a_bad_file_is_one_message_and_a_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, code: int, said: str
) -> None:
    file = tmp_path / "job.yml"
    file.write_text(text)
    status, _, err = run(capsys, "expand", str(file))
    assert status == code
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["nowhere.yml", ".", "a\x00b", "x" * 5000])
def test_a_file_that_cannot_be_read_is_code_3(capsys: pytest.CaptureFixture[str], name: str) -> None:
    code, _, err = run(capsys, "expand", name)
    assert code == 3
    assert "jobs/digits.yml" in err


def test_every_file_of_a_command_line_is_read_before_one_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.yml").write_text("training_job: {name: bad, image: bad, workers: -1}")
    code, out, err = run(capsys, "expand", "nosuch.yml", DIGITS, str(tmp_path / "bad.yml"))
    assert (code, out) == (3, "")
    assert "nosuch.yml: got No such file" in err
    assert "training_job.workers: got -1" in err


def test_bare_words_hide_no_other_problem_and_no_other_job(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    jobs = ("{name: bad, image: bad, port: 1, workers: 1_000}", "{name: Bad, image: bad}")
    (tmp_path / "bad.yml").write_text("\n---\n".join(f"training_job: {job}" for job in jobs))
    code, out, err = run(capsys, "expand", str(tmp_path / "bad.yml"))
    assert (code, out) == (1, "")
    assert "bad.yml: 3 problems\n" in err
    for part in ("line 1: got the bare word 1_000", "training_job.port: got 1", 'training_job.name: got "Bad"'):
        assert part in err


def test_numbers_that_only_kubectl_takes_for_numbers_are_quoted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = {"name": "a", "image": "a", "script": "/a.py", "hyperparameters": {"learning_rate": 1e-5}, "env": {"A": "y"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    code, out, _ = run(capsys, "expand", str(tmp_path / "job.json"), "-o", "yaml")
    assert code == 0
    assert "- '1e-05'\n" in out
    assert "value: 'y'\n" in out


def test_a_file_that_is_no_text_is_code_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "job.yml"
    file.write_bytes(b"training_job: \xff\xfe")
    code, _, err = run(capsys, "expand", str(file))
    assert code == 3
    assert "save the file as UTF-8" in err


def test_no_job_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "expand")[0] == 2
    with pytest.raises(SystemExit) as caught:
        main(["expand", "--backend", "nope", DIGITS])
    assert caught.value.code == 2


def test_refuses_to_change_the_back_end_of_a_raw_manifest(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, text, _ = run(capsys, "expand", DIGITS, "-o", "yaml")
    (tmp_path / "raw.yml").write_text(text)
    code, _, err = run(capsys, "expand", str(tmp_path / "raw.yml"), "--backend", "indexed")
    assert (code, "has its back-end" in err) == (1, True)


class Terminal:
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.coloured(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.coloured(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.coloured(Terminal())


def shell(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONUNBUFFERED", None)  # with it Python itself forgets what a closed pipe did not take
    return subprocess.run(
        words, input=stdin, capture_output=True, text=True, env=environment, check=False, timeout=60, cwd=ROOT
    )


def test_reads_standard_input() -> None:
    done = shell(sys.executable, "-m", "gangplank", "expand", "-", stdin=Path(ANYWHERE).read_text())
    assert done.returncode == 0
    assert done.stdout.startswith("digits-anywhere in default on indexed")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    many = tmp_path / "many.yml"  # more than a pipe holds
    many.write_text(Path(ANYWHERE).read_text().replace("workers: 2", "workers: 300"))
    line = f"{sys.executable} -m gangplank expand {many} --objects -o yaml | head -1; echo ${{PIPESTATUS[0]}}"
    done = shell("bash", "-c", line)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0", "")


def test_a_reader_that_goes_away_before_all_is_done_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """`gangplank run a.py | grep -m1 epoch && promote` promotes nothing."""

    def cut(_: object) -> int:
        raise BrokenPipeError

    monkeypatch.setattr("gangplank.cli.run", cut)
    monkeypatch.setattr("gangplank.cli.leave_output", lambda: None)
    assert [main([*words]) for words in (["run", "a.py"], ["delete", "a"], ["logs", "a"])] == [141, 141, 0]


def test_a_character_that_the_terminal_cannot_show_ends_nothing() -> None:
    """As a progress bar's are in a locale with another encoding."""
    code = "import sys\nfrom gangplank.cli import main\nmain(['expand', '-'])\nprint('\u2588')"
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], input=Path(ANYWHERE).read_text(), env=env, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout.splitlines()[-1], done.stderr) == (0, "\\u2588", "")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from gangplank.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print(sorted(sys.modules))"
    )
    done = shell(sys.executable, "-c", code)
    loaded = done.stdout.splitlines()[-1]
    for module in ("'yaml'", "'gangplank.jobs.parse'", "'hypothesis'", "'kubernetes'", "'ansible'"):
        assert module not in loaded
    assert "exit codes:" in done.stdout


def test_a_missing_package_is_one_of_a_file_that_a_checkout_and_a_wheel_come_with(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    code, _, err = run(capsys, "status")
    assert code == 4
    assert f"Fix: {sys.executable} -m pip install --require-hashes -r requirements-site.txt, which lies beside" in err
    locked = (ROOT / "requirements-site.txt").read_text()
    assert {"cryptography", "jinja2", "kubernetes", "prometheus-client", "tensorboardx"} <= {
        line.partition("==")[0] for line in locked.splitlines()
    }


@pytest.mark.parametrize("words", [["expand"], ["run"], ["fit"], ["submit", "--dry-run"]])
def test_a_word_that_no_file_can_be_called_is_refused(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = run(capsys, *words, "a" * 5000)
    assert code != 0
    assert out == ""
    assert err.startswith("gangplank: ")
    assert ", expected " in err
