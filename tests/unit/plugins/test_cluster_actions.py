"""The actions over objects of a cluster: what they send, what they return, and what they refuse."""

from __future__ import annotations

import importlib
import json
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.backends import BACKENDS
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from tests.unit.conftest import Api

MAPS = "/api/v1/namespaces/default/configmaps"
NODE = "/api/v1/nodes/node-0"
KINDS = [
    {"kind": "ConfigMap", "name": "configmaps", "namespaced": True},
    {"kind": "Namespace", "name": "namespaces", "namespaced": False},
]


def config_map(name: str, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": f"uid-of-{name}", **more}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


def run(action: str, *, check: bool = False, **arguments: Any) -> dict[str, Any]:
    """What an action returns in a run, or in check mode."""
    task = SimpleNamespace(args=arguments, action=action, check_mode=check, async_val=0, environment=None)
    connection = SimpleNamespace(_shell=SimpleNamespace(tmpdir=""))
    module = importlib.import_module(f"plugins.action.{action}").ActionModule(task, connection, None, None, None, None)
    module.environment = dict(os.environ)
    return dict(module.run(task_vars={}))


def writes(api: Api) -> list[str]:
    return [line for line in api.seen if not line.startswith("GET")]


@pytest.mark.parametrize("name", ["K8S_AUTH_HOST", "K8S_AUTH_API_KEY"])
def test_a_variable_that_takes_helm_alone_to_another_cluster_is_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "secret")
    message = run("cluster_ready")["msg"]
    assert f"{name}: got a value in the environment, expected none, because Helm would change another" in message
    assert "secret" not in message
    assert api.seen == []


@pytest.fixture
def maps(api: Api) -> Api:
    """A cluster with three ConfigMaps."""
    api.groups["/api/v1"] = KINDS
    api.objects = {f"{MAPS}/{name}": config_map(name) for name in "abc"}
    return api


def test_remove_deletes_what_is_named_and_nothing_else(maps: Api) -> None:
    named: dict[str, Any] = {"definition": [config_map("a"), config_map("missing")], "paths": [f"{MAPS}/b"]}
    dry = run("cluster_remove", check=True, timeout_s=5, **named)
    assert (dry["changed"], dry["removed"]) == (True, ["ConfigMap default/a", "ConfigMap default/b"])
    assert dry["diff"] == {"before": "ConfigMap default/a\nConfigMap default/b\n", "after": ""}
    assert sorted(maps.objects) == [f"{MAPS}/{name}" for name in "abc"], "check mode removed one"
    assert run("cluster_remove", timeout_s=5, **named)["removed"] == dry["removed"]
    assert list(maps.objects) == [f"{MAPS}/c"]
    body = next(body for line, body in zip(maps.seen, maps.bodies, strict=True) if line == f"DELETE {MAPS}/b")
    assert body["preconditions"] == {"uid": "uid-of-b"}, "another object of this name could be deleted"
    again = run("cluster_remove", timeout_s=5, **named)
    assert (again["changed"], again["removed"]) == (False, [])


def test_remove_takes_a_kind_that_the_cluster_does_not_know_as_removed(maps: Api) -> None:
    unknown = [{"apiVersion": "v1", "kind": "Gadget", "metadata": {"name": "a"}},
               {"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}}]  # fmt: skip
    assert not run("cluster_remove", definition=unknown)["changed"]
    assert writes(maps) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"paths": [MAPS]}, f"{MAPS}: got all objects of a kind, expected one object, or a selection. Fix: add a "),
        ({"paths": [f"{MAPS}?labelSelector="]}, "got all objects of a kind"),
        ({"paths": [f"{MAPS}/"]}, "got all objects of a kind"),
        ({"definition": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default"}}]},
         "expected apiVersion, kind and metadata.name. Fix: name the object to remove"),
        ({"definition": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}]},
         "ConfigMap a: got no namespace, expected a namespace. Fix: "),
    ],
)  # fmt: skip
def test_remove_refuses_what_names_no_object_before_it_deletes_another(
    maps: Api, arguments: dict[str, list[Any]], message: str
) -> None:
    maps.objects[f"{MAPS}//"] = {}  # so that a path with a slash at its end is answered too
    merged: dict[str, Any] = {"definition": [config_map("a")], **arguments}
    merged["definition"] = [config_map("a"), *arguments.get("definition", [])]
    result = run("cluster_remove", **merged)
    assert result["failed"]
    assert message in result["msg"]
    assert writes(maps) == []


def test_remove_names_what_holds_an_object(maps: Api) -> None:
    held = config_map("held", finalizers=["example.com/hold"], deletionTimestamp="2026-01-01T00:00:00Z")
    maps.objects[f"{MAPS}/held"] = held
    result = run("cluster_remove", paths=[f"{MAPS}/held"], timeout_s=0.1)
    assert result["failed"]
    assert result["msg"].startswith(
        "ConfigMap default/held: got an object with the finalizers example.com/hold, expected it removed within 0 s. "
    )
    assert writes(maps) == [], "its removal was requested already"


def test_merge_replaces_lists_and_removes_nulls(maps: Api) -> None:
    maps.objects[f"{MAPS}/a"]["data"] = {"keep": "1", "drop": "2", "change": "3"}
    patch = {**config_map("a"), "data": {"drop": None, "change": "4"}}
    dry = run("cluster_apply", check=True, definition=[patch], merge=True)
    assert dry["changed"]
    assert "drop" in dry["diff"][0]["before"]
    assert "drop" not in dry["diff"][0]["after"]
    assert maps.objects[f"{MAPS}/a"]["data"]["change"] == "3", "check mode changed it"
    assert [run("cluster_apply", definition=[patch], merge=True)["changed"] for _ in "12"] == [True, False]
    assert maps.objects[f"{MAPS}/a"]["data"] == {"keep": "1", "change": "4"}
    assert run("cluster_apply", definition=[config_map("new")], merge=True)["changed"]
    assert f"{MAPS}/new" in maps.objects


def test_merge_that_creates_nothing_leaves_an_object_that_is_gone(maps: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    unchanged = {"changed": False, "diff": []}
    for check in (True, False):
        assert run("cluster_apply", check=check, definition=[config_map("new")], merge=True, create=False) == unchanged
    monkeypatch.setattr(maps, "merged", lambda *_, **__: (404, b'{"message": "not found"}'))  # since it was read
    patch = {**config_map("a"), "data": {"new": "1"}}
    assert run("cluster_apply", definition=[patch], merge=True, create=False) == unchanged
    assert f"{MAPS}/new" not in maps.objects


def test_nodes_get_and_lose_labels_and_taints_and_keep_all_others(api: Api) -> None:
    other = {"key": "other", "effect": "NoSchedule"}
    api.objects[NODE] = {
        "metadata": {"name": "node-0", "resourceVersion": "7", "labels": {"other": "1"}}, "spec": {"taints": [other]},
    }  # fmt: skip
    taint = {"key": "gpu", "effect": "NoSchedule", "value": "x"}
    arguments: dict[str, Any] = {"names": ["node-0"], "labels": {"gpu": "true"}, "taints": [taint]}
    assert run("cluster_nodes", check=True, **arguments)["changed"]
    assert api.objects[NODE]["spec"] == {"taints": [other]}, "check mode changed it"
    api.conflicts = 1
    assert [run("cluster_nodes", **arguments)["changed"] for _ in "12"] == [True, False]
    assert api.objects[NODE]["metadata"]["labels"] == {"other": "1", "gpu": "true"}
    assert api.objects[NODE]["spec"]["taints"] == [other, taint]
    absent = {**arguments, "state": "absent", "names": ["node-0", "node-that-is-gone"]}
    assert [run("cluster_nodes", **absent)["changed"] for _ in "12"] == [True, False]
    assert api.objects[NODE]["metadata"]["labels"] == {"other": "1"}
    assert api.objects[NODE]["spec"]["taints"] == [other]


def test_nodes_lose_what_an_owner_has_set_once_it_is_no_longer_asked_for(api: Api) -> None:
    """What others have set stays, also if it is the same; and a second run changes nothing."""
    other, taint = ({"key": key, "effect": "NoSchedule", "value": "x"} for key in ("other", "gpu"))
    paths = [f"/api/v1/nodes/node-{at}" for at in range(3)]
    for path in paths:
        meta = {"name": path[-6:], "resourceVersion": "7", "labels": {"other": "1", "old": "1"}}
        api.objects[path] = {"metadata": meta, "spec": {"taints": [other]}}
    asked = {"labels": {"other": "1", "gpu": "true"}, "taints": [other, taint], "owner": "plugin"}

    def nodes(**arguments: Any) -> list[bool]:
        """Whether check mode, a run and a second run change something."""
        before = json.dumps(api.objects)
        dry = run("cluster_nodes", check=True, **asked | arguments)["changed"]
        assert json.dumps(api.objects) == before, "check mode changed it"
        return [dry, *(run("cluster_nodes", **asked | arguments)["changed"] for _ in "12")]

    def state(path: str) -> tuple[dict[str, str], list[Any]]:
        assert ("gangplank.dev/set-by-plugin" in api.objects[path]["metadata"].get("annotations", {})) == (
            "gpu" in api.objects[path]["metadata"]["labels"]
        )
        return api.objects[path]["metadata"]["labels"], api.objects[path]["spec"]["taints"]

    bare, dressed = ({"other": "1", "old": "1"}, [other]), ({"other": "1", "old": "1", "gpu": "true"}, [other, taint])
    assert nodes(names=["node-0", "node-1"]) == [True, True, False]
    assert [state(path) for path in paths] == [dressed, dressed, bare]
    assert nodes(names=["node-1"]) == [True, True, False]
    assert [state(path) for path in paths] == [bare, dressed, bare]
    assert nodes(names=["node-1"], taints=[]) == [True, True, False]
    assert state(paths[1]) == (dressed[0], [other])
    api.objects[paths[1]]["metadata"]["labels"]["gpu"] = "of-a-user"
    assert nodes(names=[], state="absent")[1:] == [True, False]
    assert api.objects[paths[1]]["metadata"]["labels"] == {**bare[0], "gpu": "of-a-user"}


def test_nodes_of_another_owner_stay(api: Api) -> None:
    api.objects[NODE] = {"metadata": {"name": "node-0", "resourceVersion": "7"}}
    run("cluster_nodes", names=["node-0"], labels={"gpu": "true"}, owner="plugin")
    assert not run("cluster_nodes", names=[], labels={"gpu": "true"}, owner="driver", state="absent")["changed"]
    assert api.objects[NODE]["metadata"]["labels"] == {"gpu": "true"}


def test_a_note_on_a_node_removes_no_label_of_others_and_no_taint_of_kubernetes(api: Api) -> None:
    """The kubelet of a node may write the annotation: root there would open a node that was closed."""
    keys = [f"{prefix}.kubernetes.io/a" for prefix in ("node-role", "node", "node-restriction")]
    reserved = [{"key": key, "effect": "NoSchedule"} for key in keys]
    texts = ["gpu:NoSchedule", *(f"{key}:NoSchedule" for key in keys)]
    forged = json.dumps({"labels": {"zone": "a", "gpu": "true", "old": "1"}, "taints": texts})
    meta = {"name": "node-0", "resourceVersion": "7", "labels": {"zone": "a", "gpu": "true", "old": "1"}}
    taints = [{"key": "gpu", "effect": "NoSchedule"}, *reserved]
    asked: dict[str, Any] = {"names": [], "labels": {"gpu": "true"}, "owner_labels": ["old"], "owner": "plugin"}
    for state in ("present", "absent"):
        annotations = {"gangplank.dev/set-by-plugin": forged}
        api.objects[NODE] = {"metadata": {**meta, "annotations": annotations}, "spec": {"taints": taints}}
        assert [run("cluster_nodes", state=state, **asked)["changed"] for _ in "12"] == [True, False]
        assert api.objects[NODE]["metadata"]["labels"] == {"zone": "a"}
        assert api.objects[NODE]["spec"]["taints"] == reserved


def test_a_taint_of_kubernetes_that_the_owner_asks_for_leaves_with_its_node(api: Api) -> None:
    api.objects[NODE] = {"metadata": {"name": "node-0", "resourceVersion": "7"}, "spec": {}}
    taints = [{"key": "node-role.kubernetes.io/gpu", "effect": "NoSchedule"}]
    for names, number in ((["node-0"], 1), ([], 0)):
        assert run("cluster_nodes", names=names, taints=taints, owner="plugin")["changed"]
        assert len(api.objects[NODE]["spec"]["taints"]) == number


def test_absent_nodes_lose_what_their_note_has_and_keep_what_was_there_before(api: Api) -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    meta = {"name": "node-0", "resourceVersion": "7", "labels": {"before": "1", "others": "1"}}
    api.objects[NODE] = {"metadata": meta, "spec": {"taints": [taint]}}
    asked: dict[str, Any] = {"names": ["node-0"], "labels": {"before": "1", "new": "1"}, "owner": "plugin"}
    run("cluster_nodes", taints=[taint], **asked)
    fewer = {**asked, "labels": {"before": "1"}, "owner_labels": ["new"], "state": "absent"}
    assert run("cluster_nodes", taints=[taint], **fewer)["changed"]
    node = api.objects[NODE]
    assert (node["metadata"]["labels"], node["spec"]["taints"]) == ({"before": "1", "others": "1"}, [taint])
    assert not run("cluster_nodes", taints=[taint], **fewer)["changed"]


def test_a_node_that_is_removed_between_read_and_change_loses_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.objects[NODE] = {"metadata": {"name": "node-0", "resourceVersion": "7", "labels": {"gpu": "true"}}}
    monkeypatch.setattr(api, "merged", lambda *_, **__: (404, b'{"message": "not found"}'))
    result = run("cluster_nodes", names=["node-0"], labels={"gpu": "true"}, state="absent")
    assert result == {"changed": False, "diff": []}


def test_nodes_refuses_an_unknown_node_before_it_changes_another(api: Api) -> None:
    api.objects[NODE] = {"metadata": {"name": "node-0", "resourceVersion": "7"}}
    result = run("cluster_nodes", names=["node-0", "node-9"], labels={"gpu": "true"})
    assert result["msg"] == (
        "names: got node-9, expected the name of a node of this cluster. Fix: kubectl get nodes lists their names"
    )
    assert writes(api) == []


def test_read_waits_for_a_condition_and_reports_the_ones_there_are(api: Api) -> None:
    conditions = [{"type": "Ready", "status": "False", "reason": "NoPods"}, {"type": "Old", "status": "True"}]
    api.objects[NODE] = {"metadata": {"name": "node-0", "uid": "n"}, "status": {"conditions": conditions}}
    assert run("cluster_read", paths=[NODE], conditions=["Old"])["found"] == [[api.objects[NODE]]]
    late = run("cluster_read", paths=[NODE], conditions=["Ready", "New"], timeout_s=0.1)
    assert late["msg"].startswith(
        f"{NODE} (node-0): got Ready is False (NoPods), Old is True, expected the condition Ready or New within 0 s. "
    )
    missing = run("cluster_read", paths=["/api/v1/nodes/b"], conditions=["Ready"], timeout_s=0.1)
    assert missing["msg"] == "/api/v1/nodes/b: got no object, expected one with the condition Ready within 0 s"


def test_logs_are_by_pod_and_a_pod_without_one_is_left_out(api: Api) -> None:
    spec = {"containers": [{"name": "first"}, {"name": "c"}]}
    pods = [{"metadata": {"namespace": "default", "name": name}, "spec": spec} for name in "ab"]
    api.logs["/api/v1/namespaces/default/pods/a/log"] = b"one\ntwo\n"
    assert run("cluster_logs", pods=pods, lines=2)["logs"] == {"a": "one\ntwo"}
    assert api.seen[0] == "GET /api/v1/namespaces/default/pods/a/log?container=c&tailLines=2"


def test_f3_escapes_in_a_log_and_in_a_message_are_shown(api: Api) -> None:
    pod = {"metadata": {"namespace": "default", "name": "a"}, "spec": {"containers": [{"name": "c"}]}}
    api.logs["/api/v1/namespaces/default/pods/a/log"] = "\x1b[2J\r\x9b31m\x1b]0;x\x07\ntwo\n".encode()
    logs = run("cluster_logs", pods=[pod])["logs"]
    assert logs == {"a": "\\x1b[2J\\r\\x9b31m\\x1b]0;x\\x07\ntwo"}
    failed = run("cluster_read", paths=["/api/v1/nodes/\x1b[2J"], conditions=["Ready"], timeout_s=0.1)
    assert "\\x1b[2J: got no object" in failed["msg"]


def test_the_playbook_warns_of_a_gang_that_the_cluster_does_not_have_when_it_submits_the_job(api: Api) -> None:
    api.objects = {"/apis/kubeflow.org/v1": {"kind": "there"}}
    job = {"name": "a", "image": "i", "script": "/a.py", "backend": "pytorchjob", "pytorchjob": {"gang": False}}
    described = BACKENDS["pytorchjob"].manifests(parse_job(job))
    first, again = (run("training_job_submit", manifests=described) for _ in range(2))
    assert (first["changed"], again["changed"], again.get("warnings")) == (True, False, None)
    (warning,) = first["warnings"]
    assert warning.startswith("PyTorchJob default/a trains without a gang, as this cluster has no Volcano: its pods ")
