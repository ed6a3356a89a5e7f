"""The lab's own etcd, with a small quota: its space alarm ends where `make lab` looks for it, and only then."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import yaml

from lab.build.parts import build
from lab.errors import LabError
from lab.host import pki
from lab.host.etcd import Etcd, heal, wait
from tests.support.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUOTA_MIB = 8
DISK_MIB = 256
LEAVES = [
    pki.Leaf("etcd", "etcd", sans=("127.0.0.1",), ca="etcd-ca"),
    pki.Leaf("etcd-client", "kube-apiserver", ca="etcd-ca"),
]


def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    """One that answers, and takes 8 MiB."""
    one, command = prepared(tmp_path, QUOTA_MIB)
    with running(command, tmp_path):
        assert wait(one, 60) == []
        yield one


def prepared(tmp_path: Path, quota_mib: int) -> tuple[Etcd, list[str]]:
    """One that does not run yet, and its command."""
    folder = tmp_path / "pki"
    pki.ensure(folder, ["etcd-ca"], LEAVES)
    address, peer = f"https://127.0.0.1:{port()}", f"https://127.0.0.1:{port()}"
    sides = {"": address, "peer-": peer}
    files = {"cert-file": "etcd.crt", "key-file": "etcd.key", "trusted-ca-file": "etcd-ca.crt"}
    command = [f"{build(['etcd'], print)['bin']['etcd']}/etcd", f"--data-dir={tmp_path}/data", "--log-level=error"]
    command += [f"--{side}{name}={folder}/{file}" for side in sides for name, file in files.items()]
    command += [f"--listen-client-urls={address}", f"--advertise-client-urls={address}", "--client-cert-auth"]
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", "--peer-client-cert-auth"]
    command += [f"--initial-cluster=default={peer}", f"--quota-backend-bytes={quota_mib << 20}"]
    return Etcd(folder, address), command


@contextlib.contextmanager
def running(command: list[str], tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process; killed at the end."""
    with (tmp_path / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def put(etcd: Etcd, key: str) -> None:
    """Write 256 KiB that cannot be compressed."""
    texts = (key.encode(), os.urandom(256 << 10))
    name, value = (base64.b64encode(text).decode() for text in texts)
    etcd.call("kv/put", key=name, value=value)


def fill(etcd: Etcd, keys: int, prefix: str = "") -> None:
    """Write so many keys again and again until etcd refuses."""

    def put_all() -> None:
        for turn in range(200):
            put(etcd, f"{prefix}{turn % keys}")

    with pytest.raises(urllib.error.HTTPError) as refused:
        put_all()
    with refused.value as error:
        assert "database space exceeded" in json.loads(error.read())["message"]


def test_d11_what_was_overwritten_makes_space_and_the_alarm_ends(etcd: Etcd) -> None:
    fill(etcd, 3)
    with pytest.raises(urllib.error.HTTPError) as refused:
        put(etcd, "0")
    refused.value.close()
    text = heal(etcd, 60)
    assert text.startswith("etcd: it refused writes, with ")
    assert "a quota of 8.0 MiB; compacted and defragmented to " in text
    assert etcd.alarms() == []
    put(etcd, "0")
    assert heal(etcd, 60) == ""


def test_d11_an_alarm_of_a_run_that_was_killed_halfway_ends_too(etcd: Etcd) -> None:
    fill(etcd, 3)
    etcd.compact()
    etcd.call("maintenance/defragment")
    assert heal(etcd, 60)
    put(etcd, "0")


def test_d11_objects_that_fill_the_quota_are_named_with_the_way_out(etcd: Etcd) -> None:
    problem = r"etcd: got \d+\.\d MiB of objects, expected at most 90% of its quota of 8\.0 MiB\. "
    fix = "Fix: raise lab_cluster_etcd_quota_mib, then run it again and remove objects"

    def fill_and_heal() -> None:
        for turn in range(9):
            fill(etcd, 200, f"{turn}-")
            assert heal(etcd, 60)

    with pytest.raises(LabError, match=problem + fix):
        fill_and_heal()
    assert [alarm["alarm"] for alarm in etcd.alarms()] == ["NOSPACE"]


def test_d11_an_etcd_that_does_not_answer_is_named(etcd: Etcd) -> None:
    etcd.address = f"https://127.0.0.1:{port()}"
    with pytest.raises(LabError, match=r"etcd: got no answer \(.*refused.*\), expected an answer within 0 s. Fix: "):
        heal(etcd, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own in a loop device, for etcd's data."""
    image, folder = tmp_path / "disk", tmp_path / "data"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_MIB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    try:
        (folder / "lost+found").rmdir()  # etcd takes no folder with other files in it
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_d11_a_full_disk_ends_etcd_and_what_it_confirmed_is_there_once_space_is_free(
    tmp_path: Path, disk: Path
) -> None:
    etcd, command = prepared(tmp_path, 8 * DISK_MIB)
    confirmed = 0
    with running(command, tmp_path) as process:
        assert wait(etcd, 60) == []
        filler = disk / "member" / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write((1 << 20) * b"x")
        with contextlib.suppress(OSError):  # also of urllib and http.client
            for confirmed in range(8 * DISK_MIB):
                put(etcd, str(confirmed))
        assert process.wait(60) != 0
    assert "no space left on device" in (tmp_path / "log").read_text()
    assert 0 < confirmed < 8 * DISK_MIB - 1
    with running(command, tmp_path) as process:
        assert process.wait(60) != 0, "the disk is still full"
    filler.unlink()
    with running(command, tmp_path):
        assert wait(etcd, 60) == []
        assert heal(etcd, 60) == ""
        name = base64.b64encode(b"\0").decode()
        kept = int(etcd.call("kv/range", key=name, range_end=name, count_only=True)["count"])
        assert kept in {confirmed, confirmed + 1}, "each confirmed write, and perhaps the last one, which was not"
        put(etcd, "after")


def test_a_write_that_the_disk_takes_ten_seconds_for_is_late_and_not_refused(tmp_path: Path, disk: Path) -> None:
    """With the times that the lab's etcd has; with etcd's own, it is refused after seven seconds."""
    variables = yaml.safe_load((ROOT / "roles/lab_cluster/vars/main.yml").read_text())
    words = variables["__lab_cluster_control_plane_programs"]["etcd"].split()
    times = [word for word in words if word.startswith(("--heartbeat-interval", "--election-timeout"))]
    assert len(times) == 2
    etcd, command = prepared(tmp_path, DISK_MIB)
    with running([*command, *times], tmp_path), ThreadPoolExecutor() as pool:
        assert wait(etcd, 60) == []
        subprocess.run(["fsfreeze", "--freeze", disk], check=True)
        try:
            late = pool.submit(put, etcd, "late")
            with pytest.raises(TimeoutError):
                late.result(10)
        finally:
            subprocess.run(["fsfreeze", "--unfreeze", disk], check=True)
        late.result(60)
