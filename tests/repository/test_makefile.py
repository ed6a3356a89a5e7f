"""`make` refuses a wrong argument in one message, before anything is done."""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lab.build.cache import one_at_a_time
from lab.build.verify import STATE
from lab.host.namespaces import RUN

ROOT = Path(__file__).resolve().parents[2]
START = "begin with `training_job:` and indent the fields below it, as in jobs/digits.yml"


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The command, as a user starts it who is not inside another `make`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=60)


def train(job: Path) -> subprocess.CompletedProcess[str]:
    """`make train` in this checkout, which is set up; it prints where it would start Ansible."""
    return run(["make", "-o", "setup", "train", f"JOB={job}", "PLAYBOOK=echo ansible-playbook"], ROOT)


def test_the_tests_of_make_test_exist_and_have_a_part_of_each_guide() -> None:
    text = (ROOT / "Makefile").read_text()
    lines = [re.search(rf"^{name} \??= ((?:.*\\\n)*.*)", text, re.MULTILINE) for name in ("WITHOUT_LAB", "TESTS")]
    names = " ".join(line[1] for line in lines if line).replace("\\\n", " ").replace("$(WITHOUT_LAB)", "").split()
    for path, _, test in (name.partition("::") for name in names):
        assert (ROOT / path).exists(), path
        assert not test or f"\ndef {test}(" in (ROOT / path).read_text(), test
    guides = {f"tests/guides/{path.name}" for path in (ROOT / "tests/guides").glob("test_*.py")}
    assert len(guides) == 5
    assert guides <= {name.partition("::")[0] for name in names}


def test_the_cache_is_not_removed_under_a_lab_in_any_folder(tmp_path: Path) -> None:
    """The guard runs with other folders, and never the line that removes the cache."""
    guard, _ = guards_of_clean(tmp_path)
    places = [tmp_path / "lab", tmp_path / "run"]
    for real, place in zip((STATE, RUN), places, strict=True):
        assert f" -e {real} " in guard
        guard = guard.replace(f" -e {real} ", f" -e {place} ")
    for present in ([], places[:1], places[1:], places):
        for place in present:
            place.mkdir()
        done = run(["sh", "-c", guard], tmp_path)
        assert (done.returncode, "Fix: make down" in done.stderr) == ((1, True) if present else (0, False))
        for place in present:
            place.rmdir()
    # A lab that was kept, in a folder of its own: its nodes have links to a store of images.
    (tmp_path / "cache/stores/one").mkdir(parents=True)
    (tmp_path / "cache/stores/one/images.json").touch()
    assert run(["sh", "-c", guard], tmp_path).returncode == 0
    (tmp_path / "node").hardlink_to(tmp_path / "cache/stores/one/images.json")
    assert "Fix: make down" in run(["sh", "-c", guard], tmp_path).stderr


def test_d6_the_cache_is_not_removed_under_a_build(tmp_path: Path) -> None:
    _, guard = guards_of_clean(tmp_path)
    assert run(["sh", "-c", guard], tmp_path).returncode == 0
    (tmp_path / "cache").mkdir()
    with one_at_a_time(tmp_path / "cache", print):
        assert "a build fills the cache" in run(["sh", "-c", guard], tmp_path).stderr
    assert run(["sh", "-c", guard], tmp_path).returncode == 0


def test_d1_an_interrupted_clean_leaves_no_half_of_the_cache_under_its_name(tmp_path: Path) -> None:
    *_, removal = lines_of_clean(tmp_path)
    for present in (False, True):
        if present:
            (tmp_path / "cache/parts").mkdir(parents=True)
        ends = f"rm() {{ if test -e '{tmp_path}/cache.gone'; then exit 9; fi; }}"
        done = run(["sh", "-c", f"{ends}; {removal}"], tmp_path)
        assert done.returncode == (9 if present else 0), done.stderr  # interrupted at the first removal of something
    assert [path.name for path in tmp_path.iterdir()] == ["cache.gone"]
    assert run(["sh", "-c", removal], tmp_path).returncode == 0
    assert not list(tmp_path.iterdir())


def test_without_a_home_the_cache_is_in_the_users_own() -> None:
    done = run(["env", "-u", "HOME", "-u", "XDG_CACHE_HOME", "make", "--dry-run", "clean"], ROOT)
    assert f'"{pwd.getpwuid(os.getuid()).pw_dir}/.cache/gangplank.gone"' in done.stdout


def test_d8_a_virtual_environment_of_the_users_own_outlives_a_clean(tmp_path: Path) -> None:
    *_, removal = lines_of_clean(tmp_path)
    (tmp_path / ".venv").mkdir()
    assert run(["sh", "-c", removal], tmp_path).returncode == 0
    assert (tmp_path / ".venv").is_dir()
    (tmp_path / ".venv/stamp").touch()
    assert run(["sh", "-c", removal], tmp_path).returncode == 0
    assert not (tmp_path / ".venv").exists()


def test_d1_a_cache_behind_a_link_is_emptied_and_the_link_stays(tmp_path: Path) -> None:
    *_, removal = lines_of_clean(tmp_path)
    (tmp_path / "disk/parts").mkdir(parents=True)
    (tmp_path / "cache").symlink_to("disk")
    assert run(["sh", "-c", removal], tmp_path).returncode == 0
    assert (tmp_path / "cache").is_symlink()
    assert list((tmp_path / "disk").iterdir()) == []


def test_d6_the_cache_is_not_removed_under_make_setup(tmp_path: Path) -> None:
    *_, guard, _ = lines_of_clean(tmp_path)
    assert run(["sh", "-c", guard], tmp_path).returncode == 0
    (tmp_path / "cache/venv").mkdir(parents=True)
    with (tmp_path / "cache/venv/lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "make setup fills the cache" in run(["sh", "-c", guard], tmp_path).stderr
    assert run(["sh", "-c", guard], tmp_path).returncode == 0


def guards_of_clean(folder: Path) -> tuple[str, str]:
    """The commands of `make clean` before the one that removes the cache, of another cache."""
    lab, build, *_ = lines_of_clean(folder)
    return lab, build


def lines_of_clean(folder: Path) -> list[str]:
    """The commands of `make clean`, of another cache."""
    recipe = re.search(r"^clean:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe
    lines = recipe[1].replace("\\\n\t", "").replace("$(CACHE)", str(folder / "cache")).splitlines()
    assert [number for number, line in enumerate(lines) if "rm -rf" in line] == [3]
    return [line.strip().removeprefix("@") for line in lines]


def test_a_job_that_does_not_exist_is_refused_before_setup_with_the_jobs_that_do(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    shutil.copytree(ROOT / "jobs", tmp_path / "jobs")
    command = ["make", "train", "JOB=nosuch.yml"]  # a folder without tools/setup-venv: whatever comes next would fail
    done = run(command, tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    refusal, *rest = done.stderr.splitlines()
    assert refusal.startswith("JOB: got nosuch.yml, expected a job file that exists. Fix: make train JOB=FILE, with")
    assert {f"jobs/{path.name}" for path in (ROOT / "jobs").glob("*.yml")} <= set(refusal.split())
    assert all(line.startswith("make: ") for line in rest)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training_job: [a", "line 1, column 17: got text that is not YAML (expected ',' or ']', but got"),
        ("training_job:\n  name: a\n\tscript: b", "line 3, column 1: got found character '\\t' that cannot start any"),
        ("training_job: {name: no}", "line 1: got the bare word no, expected a word that YAML does not read as a"),
        ("- training_job", f'got ["training_job"], expected a mapping with the key training_job. Fix: {START}'),
        ("hello", f'got "hello", expected a mapping with the key training_job. Fix: {START}'),
        ("", f"got nothing, expected a mapping with the key training_job. Fix: {START}"),
        ("name: a", f'got {{"name": "a"}}, expected a mapping with the key training_job. Fix: {START}'),
        ("training_job: a", f'got {{"training_job": "a"}}, expected a mapping with the key training_job. Fix: {START}'),
    ],
    ids=["bracket", "tab", "bare word", "list", "text", "empty", "no training_job", "training_job is text"],
)
def test_a_job_file_that_is_not_yaml_or_not_a_mapping_is_refused_in_one_line_before_ansible(
    tmp_path: Path, text: str, message: str
) -> None:
    job = tmp_path / "bad.yml"
    job.write_text(text)
    done = train(job)
    refusal, *rest = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert refusal.startswith(f"{job}: {message}")
    assert ". Fix: " in refusal
    assert all(line.startswith("make: ") for line in rest)


@pytest.mark.parametrize("job", sorted((ROOT / "jobs").glob("*.yml")), ids=lambda job: job.name)
def test_a_job_of_ours_reaches_ansible(job: Path) -> None:
    done = train(job)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("ansible-playbook playbooks/lab.yml ")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "message"), [
    (["sweep", "NAME=nosuch"], 'NAME: got "nosuch", expected one of honest, host-kills,'),
    (["sweep", "NAME=honest", "PART=4/3"], 'PART: got "4/3", expected i/n with i from 1 to n. Fix: '),
    (["test-full", "PART=4/3"], 'PART: got "4/3", expected i/n with i from 1 to n. Fix: '),
], ids=["name", "part of a sweep", "part of the tests"])  # fmt: skip
def test_a_wrong_sweep_or_part_is_refused_before_anything_is_built(words: list[str], message: str) -> None:
    done = run(["make", "-o", "setup", *words], ROOT)
    refusals = [line for line in done.stderr.splitlines() if line.startswith(message)]
    assert (done.returncode, done.stdout, len(refusals)) == (2, "", 1)


@pytest.mark.parametrize(("target", "part"), [("bench-why", "fit"), ("bench-faults", "faults")])
def test_a_target_of_the_bench_measures_its_part(target: str, part: str) -> None:
    done = run(["make", "-n", "-o", "setup", target], ROOT)
    assert done.stdout.split() == [".venv/bin/python", "-m", "bench", part]
    assert re.search(rf"^{target} +\S", run(["make"], ROOT).stdout, re.MULTILINE), "`make` lists it"
