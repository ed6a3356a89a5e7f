"""The lab's own etcd, with a small quota: its space alarm ends where `make lab` looks for it, and only then."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import urllib.error
from typing import TYPE_CHECKING

import pytest

from lab.build.parts import build
from lab.errors import LabError
from lab.host import pki
from lab.host.etcd import Etcd, heal, wait

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUOTA_MIB = 8
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
    folder = tmp_path / "pki"
    pki.ensure(folder, ["etcd-ca"], LEAVES)
    address, peer = f"https://127.0.0.1:{port()}", f"https://127.0.0.1:{port()}"
    sides = {"": address, "peer-": peer}
    files = {"cert-file": "etcd.crt", "key-file": "etcd.key", "trusted-ca-file": "etcd-ca.crt"}
    command = [f"{build(['etcd'], print)['bin']['etcd']}/etcd", f"--data-dir={tmp_path}/data", "--log-level=error"]
    command += [f"--{side}{name}={folder}/{file}" for side in sides for name, file in files.items()]
    command += [f"--listen-client-urls={address}", f"--advertise-client-urls={address}", "--client-cert-auth"]
    command += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", "--peer-client-cert-auth"]
    command += [f"--initial-cluster=default={peer}", f"--quota-backend-bytes={QUOTA_MIB << 20}"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            one = Etcd(folder, address)
            assert wait(one, 60) == []
            yield one
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
