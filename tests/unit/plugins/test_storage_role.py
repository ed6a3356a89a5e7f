"""What the role `storage` does with classes that the inventory no longer has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gangplank.site.storage import DEFAULT
from tests.support.storage import installed, live_class
from tests.unit.plugins.test_cluster_ready import play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.conftest import Api

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


@pytest.mark.slow
def test_a_class_that_is_left_out_is_no_second_default(api: Api, tmp_path: Path) -> None:
    api.groups["/apis/storage.k8s.io/v1"] = [{"kind": "StorageClass", "name": "storageclasses", "namespaced": False}]
    for item in (installed(live_class("local-path", default=True)), live_class("theirs", "x.csi", default=True)):
        api.objects[f"{CLASSES}/{item['metadata']['name']}"] = item
    inputs: dict[str, list[str]] = {"storage_classes": [], "storage_claims": []}
    tasks = [{"name": "Run it", "ansible.builtin.include_role": {"name": "storage"}, "vars": inputs}]
    book = tmp_path / "play.yml"
    book.write_text(json.dumps([{"name": "Play", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]))

    def run(*words: str) -> str:
        done = play(tmp_path, book, *words, K8S_AUTH_KUBECONFIG=api.kubeconfig)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "changed=1 " in run("--check")
    assert DEFAULT in api.objects[f"{CLASSES}/local-path"]["metadata"]["annotations"], "check mode changed it"
    assert "changed=1 " in run()
    assert DEFAULT not in api.objects[f"{CLASSES}/local-path"]["metadata"]["annotations"]
    assert DEFAULT in api.objects[f"{CLASSES}/theirs"]["metadata"]["annotations"]
    again = run()
    assert "changed=0 " in again
    assert "warning: storage class local-path: got a class of release" in again
