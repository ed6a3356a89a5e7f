"""What Volcano makes of a Job, against what its sources say."""

from __future__ import annotations

import base64
import copy
from typing import Any

import pytest

from gangplank.backends.base import Site
from gangplank.backends.volcano.objects import objects
from gangplank.errors import SpecError

Json = dict[str, Any]
SITE = Site(uid="U")


def task(name: str, replicas: int, **pod: Any) -> Json:
    spec = {"containers": [{"name": name, "image": "img"}], "restartPolicy": "OnFailure", **pod}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job(*tasks: Json, plugins: Json | None = None, name: str = "demo", **spec: Any) -> Json:
    chosen = {"pytorch": []} if plugins is None else plugins
    body = {"schedulerName": "volcano", "plugins": chosen, "tasks": list(tasks), **spec}
    meta = {"name": name, "namespace": "ns"}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": meta, "spec": body}


def demo(**spec: Any) -> Json:
    return job(task("master", 1), task("worker", 2), **spec)


def by_name(manifest: Json, kind: str = "Pod", site: Site = SITE) -> dict[str, Json]:
    return {item["metadata"]["name"]: item for item in objects(manifest, site) if item["kind"] == kind}


def env(pod: Json) -> Json:
    return {item["name"]: item.get("value") for item in pod["spec"]["containers"][0].get("env", [])}


def test_wires_the_worked_example() -> None:
    pods = by_name(demo())
    assert list(pods) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]
    for rank, (name, pod) in enumerate(pods.items()):
        assert pod["spec"]["hostname"] == name
        assert pod["spec"]["subdomain"] == "demo"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "demo-U"
        wired = {key: env(pod)[key] for key in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")}
        expected = {"MASTER_ADDR": "demo-master-0.demo", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": str(rank)}
        assert wired == expected
        assert pod["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_tells_every_pod_the_hosts_of_every_task() -> None:
    data = by_name(demo(), "ConfigMap")["demo-svc"]["data"]
    assert data == {
        "master.host": "demo-master-0.demo",
        "VC_MASTER_HOSTS": "demo-master-0.demo",
        "VC_MASTER_NUM": "1",
        "worker.host": "demo-worker-0.demo\ndemo-worker-1.demo",
        "VC_WORKER_HOSTS": "demo-worker-0.demo,demo-worker-1.demo",
        "VC_WORKER_NUM": "2",
    }


def test_a_dash_in_a_tasks_name_is_an_underscore_in_its_variables() -> None:
    manifest = job(task("master", 1), task("eval-uator", 1))
    assert {"VC_EVAL_UATOR_HOSTS", "VC_EVAL_UATOR_NUM"} <= env(by_name(manifest)["demo-master-0"]).keys()
    assert "eval_uator.host" in by_name(manifest, "ConfigMap")["demo-svc"]["data"]


def test_adds_svc_by_itself_with_a_network_policy() -> None:
    assert list(by_name(demo(), "Service")) == ["demo"]
    policy = by_name(demo(), "NetworkPolicy")["demo"]["spec"]
    assert policy["podSelector"] == policy["ingress"][0]["from"][0]["podSelector"]
    quiet = {"pytorch": [], "svc": ["--disable-network-policy", "--publish-not-ready-addresses=true"]}
    assert by_name(demo(plugins=quiet), "NetworkPolicy") == {}
    assert by_name(demo(plugins=quiet), "Service")["demo"]["spec"]["publishNotReadyAddresses"] is True


def test_wires_nothing_without_a_master_task() -> None:
    pods = by_name(job(task("leader", 1), task("worker", 1)))
    assert all("RANK" not in env(pod) for pod in pods.values())
    assert all("ports" not in pod["spec"]["containers"][0] for pod in pods.values())


def test_gives_other_tasks_an_address_but_no_rank_and_does_not_count_them() -> None:
    pods = by_name(job(task("master", 1), task("worker", 1), task("eval", 1)))
    assert env(pods["demo-eval-0"])["WORLD_SIZE"] == "2"
    assert "RANK" not in env(pods["demo-eval-0"])


def test_gives_two_masters_the_same_rank() -> None:
    pods = by_name(job(task("master", 2), task("worker", 1)))
    assert [env(pod)["RANK"] for pod in pods.values()] == ["0", "0", "1"]


def test_a_bad_port_becomes_zero_and_flags_after_it_are_lost() -> None:
    pods = by_name(demo(plugins={"pytorch": ["--port=abc", "--worker=x"]}))
    assert env(pods["demo-worker-0"])["MASTER_PORT"] == "0"
    assert env(pods["demo-worker-0"])["RANK"] == "1"


def test_does_not_open_a_port_twice() -> None:
    manifest = demo()
    manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 23456}]
    assert by_name(manifest)["demo-master-0"]["spec"]["containers"][0]["ports"] == [{"containerPort": 23456}]


def test_a_hostname_of_the_template_is_the_masters_address_and_counts_once() -> None:
    manifest = job(task("master", 1, hostname="boss", subdomain="hq"), task("worker", 2, hostname="w"))
    assert env(by_name(manifest)["demo-worker-0"])["MASTER_ADDR"] == "boss.hq"
    assert by_name(manifest, "ConfigMap")["demo-svc"]["data"]["VC_WORKER_NUM"] == "1"


def test_waits_for_the_master_only_when_asked() -> None:
    assert "initContainers" not in by_name(demo())["demo-worker-0"]["spec"]
    pods = by_name(demo(plugins={"pytorch": ["--wait-master-enabled", "--wait-master-timeout=60"]}))
    assert "initContainers" not in pods["demo-master-0"]["spec"]
    waiting = pods["demo-worker-0"]["spec"]["initContainers"][0]
    assert waiting["image"] == "busybox:1.36.1"
    assert "TIMEOUT=60\nELAPSED=0\nuntil { nc -z demo-master-0.demo 23456 ||" in waiting["command"][2]
    assert "(elapsed: ${ELAPSED}s)" in waiting["command"][2]


def test_an_omitted_count_is_no_pod() -> None:
    manifest = demo()
    del manifest["spec"]["tasks"][1]["replicas"]
    assert list(by_name(manifest)) == ["demo-master-0"]


def test_ssh_mounts_keys_and_lists_all_hosts() -> None:
    manifest = demo(plugins={"ssh": ["--ssh-key-file-path=/home/me/.ssh", "--ssh-port=99999"], "env": []})
    pod = by_name(manifest)["demo-worker-1"]
    assert pod["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o644
    mount = {"name": "demo-ssh", "mountPath": "/home/me/.ssh", "subPath": ".ssh"}
    assert pod["spec"]["containers"][0]["volumeMounts"] == [mount]
    assert env(pod) == {"VK_TASK_INDEX": "1", "VC_TASK_INDEX": "1"}
    assert "hostname" not in pod["spec"]
    secret = by_name(manifest, "Secret")["demo-ssh"]["data"]
    assert set(secret) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
    config = base64.b64decode(secret["config"]).decode()
    assert "Host demo-worker-1\n  HostName demo-worker-1.demo\n  Port 22\n" in config  # 99999 is not a port
    usual = by_name(demo(plugins={"ssh": []}))["demo-master-0"]["spec"]["volumes"][0]["secret"]
    assert usual["defaultMode"] == 0o600


def test_the_gang_is_all_pods_and_counts_what_they_request() -> None:
    manifest = demo(queue="research", priorityClassName="high")
    for item in manifest["spec"]["tasks"]:
        item["template"]["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"},
            "limits": {"nvidia.com/gpu": "1", "memory": "2Gi"},
        }
    group = by_name(manifest, "PodGroup")["demo-U"]["spec"]
    assert group["minMember"] == 3
    assert group["minTaskMember"] == {"master": 1, "worker": 2}
    assert (group["queue"], group["priorityClassName"]) == ("research", "high")
    assert group["minResources"] == {
        "count/pods": "3",
        "cpu": "1500m",
        "limits.memory": "6Gi",
        "memory": "3Gi",
        "nvidia.com/gpu": "3",
        "pods": "3",
        "requests.cpu": "1500m",
        "requests.memory": "3Gi",
        "requests.nvidia.com/gpu": "3",
    }


def test_limits_alone_are_not_counted_in_the_gang() -> None:
    manifest = demo()
    for item in manifest["spec"]["tasks"]:
        item["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    assert by_name(manifest, "PodGroup")["demo-U"]["spec"]["minResources"] == {"count/pods": "3", "pods": "3"}


def test_a_smaller_gang_takes_the_tasks_of_higher_priority_first() -> None:
    manifest = job(task("master", 1), task("worker", 2, priorityClassName="high"), minAvailable=2)
    manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "8"}}
    by_order = by_name(manifest, "PodGroup")["demo-U"]["spec"]["minResources"]
    assert by_order["cpu"] == "8"
    site = Site(uid="U", priorities={"high": 10})
    by_priority = by_name(manifest, "PodGroup", site)["demo-U"]["spec"]["minResources"]
    assert "cpu" not in by_priority


def test_a_gang_below_the_task_minima_takes_whole_tasks_in_order() -> None:
    manifest = job({**task("master", 3), "minAvailable": 1}, task("worker", 2), minAvailable=2)
    manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    assert by_name(manifest, "PodGroup")["demo-U"]["spec"]["minResources"]["cpu"] == "2"
    manifest["spec"]["minAvailable"] = 3  # now the minima fit, and count first
    assert by_name(manifest, "PodGroup")["demo-U"]["spec"]["minResources"]["cpu"] == "1"


def test_task_minima_make_the_gang_when_the_job_names_none() -> None:
    manifest = demo()
    manifest["spec"]["tasks"][1]["minAvailable"] = 1
    group = by_name(manifest, "PodGroup")["demo-U"]["spec"]
    assert (group["minMember"], group["minTaskMember"]) == (2, {"master": 1, "worker": 1})
    assert group["minResources"]["pods"] == "2"


def test_partitions_become_sub_groups() -> None:
    manifest = demo()
    worker = manifest["spec"]["tasks"][1]
    worker["replicas"] = 4
    worker["partitionPolicy"] = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    pods = by_name(manifest)
    assert [pods[f"demo-worker-{i}"]["metadata"]["labels"]["volcano.sh/partition-id"] for i in range(4)] == list("0011")
    group = by_name(manifest, "PodGroup")["demo-U"]["spec"]
    assert group["minTaskMember"]["worker"] == 2
    assert group["subGroupPolicy"][0]["matchLabelKeys"] == ["volcano.sh/partition-id"]


def test_of_the_jobs_own_metadata_only_volcanos_reaches_the_pods() -> None:
    manifest = demo()
    manifest["metadata"]["labels"] = {"team": "vision", "volcano.sh/preemptable": "true"}
    manifest["metadata"]["annotations"] = {"note": "x", "volcano.sh/jdb-max-unavailable": "1"}
    both = copy.deepcopy(manifest)
    both["metadata"]["annotations"]["volcano.sh/jdb-min-available"] = "2"
    assert "volcano.sh/jdb-max-unavailable" not in by_name(both)["demo-worker-0"]["metadata"]["annotations"]
    meta = by_name(manifest)["demo-worker-0"]["metadata"]
    assert "team" not in meta["labels"]
    assert meta["labels"]["volcano.sh/preemptable"] == "true"
    assert "note" not in meta["annotations"]
    assert meta["annotations"]["volcano.sh/jdb-max-unavailable"] == "1"
    assert by_name(manifest, "PodGroup")["demo-U"]["metadata"]["labels"]["team"] == "vision"


def test_job_volumes_are_mounted_once_per_claim_and_made_where_asked() -> None:
    volumes = [{"mountPath": "/a", "volumeClaimName": "c"}, {"mountPath": "/b", "volumeClaim": {"accessModes": ["x"]}}]
    manifest = demo(volumes=[*volumes, {"mountPath": "/c", "volumeClaimName": "c"}])
    mounts = by_name(manifest)["demo-master-0"]["spec"]["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts] == ["/a", "/b", "/etc/volcano"]
    assert len(by_name(manifest, "PersistentVolumeClaim")) == 1


def test_the_jobs_priority_and_scheduler_reach_pods_that_have_none() -> None:
    manifest = job(task("master", 1, priorityClassName="own"), task("worker", 1), priorityClassName="high")
    pods = by_name(manifest)
    assert pods["demo-master-0"]["spec"]["priorityClassName"] == "own"
    assert pods["demo-worker-0"]["spec"]["priorityClassName"] == "high"
    assert pods["demo-worker-0"]["spec"]["schedulerName"] == "volcano"


def test_host_network_brings_its_dns_policy() -> None:
    pod = by_name(job(task("master", 1, hostNetwork=True)))["demo-master-0"]
    assert pod["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def policy(**fields: object) -> Json:
    return {"action": "RestartJob", **fields}


def test_one_event_in_a_job_s_and_in_a_task_s_policies_is_no_contradiction() -> None:
    manifest = demo(policies=[policy(event="PodFailed"), policy(exitCode=3)])
    manifest["spec"]["tasks"][0]["policies"] = [policy(events=["PodFailed", "PodFailed"])]
    assert "demo-master-0" in by_name(manifest)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tasks": []}, "at least one task"),
        ({"tasks": [task("master", 1), task("master", 1)]}, "a name of its own"),
        ({"tasks": [{**task("master", 1), "minAvailable": 2}]}, "at most 1 replicas"),
        ({"minAvailable": 9}, "at most 3 replicas"),
        ({"plugins": {"mpi": []}}, "not supported yet"),
        ({"plugins": {"nope": []}}, "one of"),
        ({"plugins": {"svc": "--x"}}, "a list"),
        ({"tasks": [task("Master", 1)]}, "a-z, 0-9"),
        ({"tasks": [task("m" * 60, 1)]}, "at most 63"),
        ({"tasks": [{"name": "master", "replicas": 1}]}, "a container"),
        ({"tasks": [{**task("master", 1), "replicas": "1"}]}, "a whole number"),
        ({"policies": [policy(event="PodFailed"), policy(events=["PodEvicted", "PodFailed"])]}, "no other policy has"),
        ({"policies": [policy(event="*"), policy(event="PodFailed")]}, "no other event beside *"),
        ({"policies": [policy(exitCode=3), policy(exitCode=3)]}, "a code above 0 that no other policy has"),
        ({"policies": [policy(exitCode=0)]}, "a code above 0"),
        ({"policies": [policy(event="PodFailed", exitCode=3)]}, "either event (or events) or exitCode"),
        ({"policies": [policy()]}, "either event (or events) or exitCode"),
        ({"policies": [policy(event="PodRunning")]}, "one of "),
        ({"policies": [{"event": "PodFailed", "action": "SyncJob"}]}, "one of AbortJob"),
        ({"tasks": [{**task("master", 1), "policies": [policy(event="*")] * 2}]}, "tasks[0].policies[1].event"),
        ({"tasks": [{**task("master", 1), "replicas": 10**9}]}, "a whole number from 0"),
    ],
)
def test_refuses_what_volcano_would_refuse_or_choke_on(change: Json, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        objects(demo(**change) if "tasks" not in change else {**demo(), "spec": {"plugins": {"svc": []}, **change}})
    assert said in str(caught.value)


def test_drops_what_the_api_server_would_not_store() -> None:
    manifest = job(task("master", 1, priorityClass="slip of the pen"))
    manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["cmd"] = ["x"]
    pod = by_name(manifest)["demo-master-0"]["spec"]
    assert "priorityClass" not in pod
    assert "cmd" not in pod["containers"][0]


def test_leaves_its_input_alone() -> None:
    manifest = demo()
    before = copy.deepcopy(manifest)
    objects(manifest)
    assert manifest == before
