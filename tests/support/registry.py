"""A registry of images on this machine (distribution), and crane, which pushes to it."""

from __future__ import annotations

import contextlib
import http
import json
import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gangplank.wait import polls
from lab.build.parts import build
from lab.build.push import push

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_S = 30.0
USER, PASSWORD = "puller", "let-me-in"  # of a registry that lives as long as a test
BCRYPT = "$2b$05$n8ldUAvindcuq3m0RkSVN.m7DTZcXDCizCDoQEe1.SzdjC5rpVawu"  # of the password


@dataclass(frozen=True)
class Registry:
    """A running registry."""

    host: str
    folder: Path
    crane: str

    @property
    def log(self) -> str:
        """What it was asked, one line of JSON each."""
        return (self.folder / "log").read_text()

    def push(self, archive: Path, name: str) -> str:
        """Push the one image of an OCI archive under a name without its registry's: the digest."""
        return push(archive, f"{self.host}/{name}", self.crane, "--insecure")

    def clients(self, name: str, method: str = "GET") -> set[str]:
        """Which programs were given something of a repository."""
        entries = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return {
            entry["http.request.useragent"].partition("/")[0]
            for entry in entries
            if entry.get("http.request.method") == method and f"/v2/{name}/" in entry.get("http.request.uri", "")
            and entry.get("http.response.status") == 200
        }  # fmt: skip


def answers(address: str) -> bool:
    """Whether a registry answers, be it with a refusal."""
    try:
        urllib.request.urlopen(f"{address}/v2/", timeout=2).close()  # noqa: S310  http or https, as `registry` says
    except urllib.error.HTTPError as refusal:
        return refusal.code == http.HTTPStatus.UNAUTHORIZED
    except OSError:
        return False
    return True


@contextlib.contextmanager
def registry(
    folder: Path, host: str, *, private: bool = False, tls: tuple[Path, Path] | None = None, data: Path | None = None
) -> Iterator[Registry]:
    """A registry at an address of this machine, such as 127.0.0.1:5000; a private one wants USER and PASSWORD.

    `tls` is its certificate and key, which SSL_CERT_FILE makes trusted. `data` is its store, if another has it too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    bin_folder = build(["registry"], print, roots=())["bin"]["registry"]
    config = {
        "version": "0.1",
        "log": {"level": "info", "formatter": "json", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(data or folder / "data")}},
        "http": {"addr": host, **({"tls": {"certificate": str(tls[0]), "key": str(tls[1])}} if tls else {})},
    }
    if private:
        (folder / "htpasswd").write_text(f"{USER}:{BCRYPT}\n")
        config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
    (folder / "config.json").write_text(json.dumps(config))
    env = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    command = [f"{bin_folder}/registry", "serve", str(folder / "config.json")]
    with (folder / "log").open("w") as log, subprocess.Popen(command, env=env, stdout=log, stderr=log) as process:
        try:
            for _ in polls(START_S, 0.1):
                assert process.poll() is None, (folder / "log").read_text()
                if answers(f"{'https' if tls else 'http'}://{host}"):
                    break
            yield Registry(host, folder, f"{bin_folder}/crane")
        finally:
            process.terminate()
