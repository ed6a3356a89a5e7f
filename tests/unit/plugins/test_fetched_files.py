"""Fault C4: what is fetched from an address is compared with its hash before anything is applied."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.support.loopback import served
from tests.unit.plugins.test_cluster_actions import KINDS, config_map, run, writes
from tests.unit.plugins.test_cluster_ready import play

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.unit.conftest import Api


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """A server on the loopback with two files, a.yaml and b.yaml."""
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(config_map(name)))
    with served(tmp_path) as address:
        yield address


@pytest.fixture
def hashes(site: str, tmp_path: Path) -> dict[str, str]:  # noqa: ARG001  the files are those of the site
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in tmp_path.glob("*.yaml")}


@pytest.fixture
def maps(api: Api) -> Api:
    api.groups["/api/v1"] = KINDS
    return api


def test_c4_files_with_their_hashes_are_applied(maps: Api, site: str, hashes: dict[str, str]) -> None:
    result = run("cluster_apply", files=[f"{site}/a.yaml", f"{site}/b.yaml"], sha256=hashes)
    assert result["changed"]
    assert len(writes(maps)) == 2


def test_c4_one_changed_byte_in_the_last_file_and_nothing_is_applied(
    maps: Api, site: str, hashes: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "b.yaml"
    path.write_bytes(path.read_bytes().replace(b"name: b", b"name: c"))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    result = run("cluster_apply", files=[f"{site}/a.yaml", f"{site}/b.yaml"], sha256=hashes)
    assert result["failed"]
    assert result["msg"].startswith(f"{site}/b.yaml: got sha256 {digest}, expected {hashes['b.yaml']}. Fix: ")
    assert writes(maps) == []


def test_c4_a_changed_file_in_a_folder_is_refused_too(maps: Api, hashes: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(path.read_bytes() + b"#")
    assert "a.yaml: got sha256 " in run("cluster_apply", files=[str(path)], sha256=hashes)["msg"]
    assert writes(maps) == []


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_c4_addresses_without_a_hash_are_refused_together_and_nothing_is_fetched(maps: Api, scheme: str) -> None:
    names = [f"{scheme}://127.0.0.1:9/{name}.yaml" for name in "ab"]
    result = run("cluster_apply", files=names, definition=[config_map("c")])
    assert [line.partition(": got ")[0] for line in result["msg"].splitlines()] == names
    assert "got an address without a sha256, expected the sha256 of its content. Fix: " in result["msg"]
    assert writes(maps) == []


@pytest.mark.slow
def test_the_proxy_of_a_plays_environment_is_used(maps: Api, site: str, hashes: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "http:/crds.invalid"  # the path that a proxy is asked for
    place.mkdir(parents=True)
    (tmp_path / "a.yaml").rename(place / "a.yaml")
    step = {"gangplank.gangplank.cluster_apply": {"files": ["http://crds.invalid/a.yaml"], "sha256": hashes}}
    environment = {"http_proxy": site, "no_proxy": "127.0.0.1"}
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"hosts": "localhost", "environment": environment, "tasks": [step]}]))
    done = play(tmp_path, book, K8S_AUTH_KUBECONFIG=maps.kubeconfig)
    assert done.returncode == 0, done.stdout
    assert len(writes(maps)) == 1
