"""`make setup`: packages once in the cache, and in each checkout a .venv that runs this checkout's code."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import select
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest
from ansible.release import __version__ as ansible_core

from tests.support.checkout import PYTHON

ROOT = Path(__file__).resolve().parents[3]


def checkout(folder: Path, version: str) -> Path:
    """A copy of this checkout that calls itself `version`."""
    for name in ("tools", "gangplank"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.txt", folder)
    (folder / "gangplank/__init__.py").write_text(f'"""A copy."""\n\n__version__ = "{version}"\n')
    return folder


def program(path: Path, text: str) -> None:
    """A program that tools/setup-venv calls."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def environment() -> dict[str, str]:
    names = ("HOME", "PATH", "XDG_CACHE_HOME")
    return {name: os.environ[name] for name in names if name in os.environ}


def run(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
def test_two_checkouts_run_their_own_code_with_the_same_packages(tmp_path: Path) -> None:
    one, two = checkout(tmp_path / "one clone", "1.0.1"), checkout(tmp_path / "two", "2.0.2")
    for folder, version in ((one, "1.0.1"), (two, "2.0.2")):
        done = run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(f".venv: Python {platform.python_version()}, ansible-core {ansible_core}\n")
        # From another folder, and also after the other checkout was set up.
        assert run(one / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"
        assert run(folder / ".venv/bin/gangplank", "--version", cwd=Path("/")).stdout == f"gangplank {version}\n"
        shown = run(folder / ".venv/bin/python", "-c", "import yaml; print(yaml.__file__)", cwd=tmp_path).stdout
        assert "/gangplank/venv/" in shown
        assert run(folder / ".venv/bin/ansible-playbook", "--version", cwd=tmp_path).returncode == 0
    before = (one / ".venv/stamp").stat().st_mtime_ns
    assert run(one / "tools/setup-venv", cwd=tmp_path).stdout == ""
    assert (one / ".venv/stamp").stat().st_mtime_ns == before


def index(tmp_path: Path) -> tuple[str, dict[str, str]]:
    """A requirements.txt of one small package, and the environment with an empty cache that installs it."""
    about, wheel = "ansible_core-9.9.dist-info", tmp_path / "ansible_core-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: ansible-core\nVersion: 9.9\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    # The index is this folder: nothing of another is asked.
    env = environment() | {"XDG_CACHE_HOME": f"{tmp_path}/cache", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    return f"ansible-core==9.9 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n", env


@pytest.mark.slow
def test_d6_two_checkouts_that_begin_at_once_set_up_the_packages_once(tmp_path: Path) -> None:
    pinned, env = index(tmp_path)
    running = []
    for name in ("one", "two"):
        folder = checkout(tmp_path / name, "1.0.1")
        (folder / "requirements.txt").write_text(pinned)
        running.append(subprocess.Popen([folder / "tools/setup-venv", PYTHON], env=env, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE))  # fmt: skip
    said = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert sorted(stdout.count("setting up packages") for stdout, _ in said) == [0, 1]
    assert all(stdout.endswith(", ansible-core 9.9\n") for stdout, _ in said)


@pytest.mark.slow
def test_d6_two_runs_in_one_checkout_make_its_commands_once(tmp_path: Path) -> None:
    """Also where the packages are there already, as in a fresh clone beside another."""
    pinned, env = index(tmp_path)
    for name in ("first", "second"):
        folder = checkout(tmp_path / name, "1.0.1")
        (folder / "requirements.txt").write_text(pinned)
        count = 1 if name == "first" else 4
        running = [subprocess.Popen([folder / "tools/setup-venv", PYTHON], env=env, text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE) for _ in range(count)]  # fmt: skip
        said = [process.communicate(timeout=300) for process in running]
        assert [(process.returncode, errors) for process, (_, errors) in zip(running, said, strict=True)] == [
            (0, "")] * count, said  # fmt: skip
    assert sum("ansible-core 9.9" in stdout for stdout, _ in said) == 1


@pytest.mark.slow
def test_c6_packages_and_commands_are_on_the_disk_before_their_marks(tmp_path: Path) -> None:
    folder, log = checkout(tmp_path / "clone", "1.0.1"), tmp_path / "log"
    pinned, env = index(tmp_path)
    (folder / "requirements.txt").write_text(pinned)
    text = f'#!/bin/sh\necho "$@" >>{log}\n[ ! -e "$2/complete" ] && [ ! -e "$2/stamp" ]\n'
    program(tmp_path / "programs/sync", text)
    env |= {"PATH": f"{tmp_path}/programs:{os.environ['PATH']}"}
    command = [folder / "tools/setup-venv", PYTHON]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (mark,) = tmp_path.glob("cache/gangplank/venv/*/complete")
    assert log.read_text() == f"-f {mark.parent}\n-f .venv\n"


@pytest.mark.slow
def test_packages_in_a_cache_that_cannot_be_written_are_enough(tmp_path: Path) -> None:
    """As one of an image; here it is only the lock, because root writes to every folder."""
    pinned, env = index(tmp_path)
    held = tmp_path / "cache/gangplank/venv/lock"
    for name in ("first", "second"):
        folder = checkout(tmp_path / name, "1.0.1")
        (folder / "requirements.txt").write_text(pinned)
        command = [folder / "tools/setup-venv", PYTHON]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(", ansible-core 9.9\n")
        if held.is_file():
            held.unlink()
            held.mkdir()


def test_d6_a_run_that_waits_for_another_names_it_and_its_lock(tmp_path: Path) -> None:
    folder, held = checkout(tmp_path / "clone", "1.0.1"), tmp_path / "cache/gangplank/venv/lock"
    held.parent.mkdir(parents=True)
    env = environment() | {"XDG_CACHE_HOME": f"{tmp_path}/cache"}
    with held.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        command = [folder / "tools/setup-venv", PYTHON]
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stdout
            try:
                assert select.select([process.stdout], [], [], 20)[0]
                line = f"another run (process {os.getpid()}) sets up packages: waiting for its lock, {held}\n"
                assert process.stdout.readline() == line
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def test_d1_an_interrupted_run_is_repaired_by_the_next(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/unfinished").touch()
    assert run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path).returncode == 0
    assert run(folder / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"


# Of the n-th call about .venv, rm removes only the marks, as a killed one may have, and the run is killed after it.
STEPS = """#!/bin/sh
case "$*" in *.venv*) ;; *) exec {program} "$@" ;; esac
step=$(($(cat {count}) + 1))
echo $step >{count}
[ $step = {kill} ] || exec {program} "$@"
if [ {program} = {rm} ]; then
  for folder; do {rm} -f "$folder/stamp" "$folder/unfinished"; done
else
  {program} "$@"
fi
kill -9 $PPID
"""


@pytest.mark.slow
@pytest.mark.parametrize("before", ["new", "other packages", "a link"])
def test_d1_a_run_that_is_killed_at_any_step_is_repaired_by_the_next(tmp_path: Path, before: str) -> None:
    folder, programs, count = checkout(tmp_path / "clone", "1.0.1"), tmp_path / "programs", tmp_path / "count"
    env = environment() | {"PATH": f"{programs}:{os.environ['PATH']}"}
    command = [folder / "tools/setup-venv", PYTHON]
    killed = 0
    while True:
        shutil.rmtree(folder / ".venv", ignore_errors=True)
        (folder / ".venv").unlink(missing_ok=True)
        if before == "a link":
            (folder / ".venv").symlink_to(tmp_path)
        elif before != "new":
            (folder / ".venv/bin").mkdir(parents=True)
            (folder / ".venv/stamp").touch()
        count.write_text("0")
        for name in ("mkdir", "touch", "rm", "mv"):
            words = {"program": shutil.which(name), "rm": shutil.which("rm"), "count": count, "kill": killed + 1}
            program(programs / name, STEPS.format(**words))
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        if not done.returncode:
            break
        assert done.returncode == -9, done.stderr
        killed += 1
        done = run(*command, cwd=tmp_path)
        assert done.returncode == 0, f"killed after step {killed}: {done.stderr}"
        assert run(folder / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"
        assert sorted(path.name for path in folder.glob(".venv*")) == [".venv"]
    assert killed > 3


def test_a_virtual_environment_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / ".venv/bin/mine").touch()
    done = run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(".venv: got a virtual environment that is not of this project's making. Fix: ")
    assert (folder / ".venv/bin/mine").exists()


def test_a_checkout_keeps_its_python_and_an_older_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    assert run(folder / "tools/setup-venv", PYTHON, cwd=tmp_path).returncode == 0
    (tmp_path / "old").mkdir()
    (tmp_path / "old/python3").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.10.12\n')
    (tmp_path / "old/python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}/.venv/bin:{tmp_path}/old", prepend=os.pathsep)  # as make has it
    done = run(folder / "tools/setup-venv", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for program, version in {"python3": "Python 3.10.12", "/nonexistent/python3": "no such program"}.items():
        done = run(folder / "tools/setup-venv", program, cwd=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{program}: got {version}, expected Python 3.11 or newer. Fix: ")
        assert done.stderr.count("\n") == 1
        assert run(folder / ".venv/bin/gangplank", "--version", cwd=tmp_path).stdout == "gangplank 1.0.1\n"


@pytest.mark.parametrize(("version", "said"), [
    ("23.0.1+dfsg-1", "python3-pip-whl 23.0.1+dfsg-1: got sha256 {}, expected cc373690a1cb469f"),
    ("99.0", "python3-pip-whl 99.0: no hash in tools/setup-venv, so the archive's signature alone vouches for it\n"),
])  # fmt: skip
def test_c1_other_bytes_of_debians_pip_are_not_run(tmp_path: Path, version: str, said: str) -> None:
    """Of a Python without pip, and an apt-get that delivers another package under the name of the pinned one."""
    folder, programs, deb = checkout(tmp_path / "clone", "1.0.1"), tmp_path / "programs", tmp_path / "pip.deb"
    control = tmp_path / "package/DEBIAN/control"
    control.parent.mkdir(parents=True)
    fields = {"Package": "python3-pip-whl", "Version": version, "Architecture": "all", "Maintainer": "T <t@example>"}
    control.write_text("".join(f"{key}: {value}\n" for key, value in {**fields, "Description": "test"}.items()))
    wheel = tmp_path / "package/usr/share/python-wheels/pip-1.whl"
    wheel.mkdir(parents=True)
    (wheel / "pip.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    subprocess.run(["dpkg-deb", "--build", control.parents[1], deb], check=True, capture_output=True)
    scripts = {
        "apt-get": f'[ "$2" != download ] || cp {deb} "python3-pip-whl_{version}_all.deb"',
        "python": f'case "$*" in "-m venv "[!-]*) exit 1 ;; esac\nexec {PYTHON} "$@"',
    }
    programs.mkdir()
    for name, body in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    env = environment() | {"XDG_CACHE_HOME": f"{tmp_path}/cache", "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [folder / "tools/setup-venv", programs / "python"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr.startswith(said.format(hashlib.sha256(deb.read_bytes()).hexdigest())), done.stderr
    assert (tmp_path / "ran").exists() == (version == "99.0")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["PIP_TARGET", "PIP_DRY_RUN", "PYTHONPATH"])
def test_settings_of_pip_by_which_it_would_install_nothing_are_not_heeded(tmp_path: Path, name: str) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    pinned, env = index(tmp_path)
    (folder / "requirements.txt").write_text(pinned)
    elsewhere = tmp_path / "elsewhere"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(elsewhere)
    env |= {name: "1" if name == "PIP_DRY_RUN" else str(elsewhere)}
    command = [folder / "tools/setup-venv", PYTHON]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "cache/gangplank/venv").glob("*/lib/python*/site-packages/ansible_core-9.9.dist-info"))


@pytest.mark.parametrize(("cache", "home"), [("relative", "/home"), ("", "relative")])
def test_a_cache_that_is_not_absolute_is_refused(tmp_path: Path, cache: str, home: str) -> None:
    folder = checkout(tmp_path / "clone", "1.0.1")
    env = environment() | {"XDG_CACHE_HOME": cache, "HOME": home}
    command = [folder / "tools/setup-venv"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "expected an absolute path. Fix: " in done.stderr
    assert not (folder / ".venv").exists()
