"""Volumes of CSI drivers on the live lab: provisioned, enlarged and copied while a job trains, restored for another.

The driver is the lab's own (kind `loop`), beside upstream's provisioner, resizer and snapshotter. The claims are of a
class of kind `csi`, as those of any driver that a cluster has.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.site.storage import LOOP
from tests.cluster.conftest import ROOT, Lab
from tests.cluster.jobs import DESCRIPTION, NAMESPACE, Job

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
INVENTORY: Json = yaml.safe_load((ROOT / "inventories/lab/group_vars/all/site.yml").read_text())
LOOPED = {"name": "loop", "kind": "loop", "expansion": True}
DRIVEN = {"name": "driven", "kind": "csi", "provisioner": LOOP, "expansion": True,
          "binding_mode": "WaitForFirstConsumer"}
GIB = 2**30
SIZE, LARGER = "400Mi", "1Gi"
SNAPSHOTS = "snapshot.storage.k8s.io"
STEPS = 200  # of the second job, each compared with the same step of the first one
# They train until they are removed: whatever the machine's load, the first one works while its volume changes.
ARGS = ["--checkpoint-interval", "20", "--collective-timeout", "600", "--rendezvous-timeout", "600"]
HYPERPARAMETERS = {**DESCRIPTION["hyperparameters"], "epochs": 20000, "log_interval": 1}


def install(lab: Lab, *more: Json, claims: tuple[Json, ...] = ()) -> str:
    """What the inventory lists, and more; what Ansible says of it."""
    classes = [*INVENTORY["storage_classes"], *more]
    values = {"storage_classes": classes, "storage_claims": [*INVENTORY["storage_claims"], *claims]}
    first = () if claims else ("playbooks/lab.yml",)
    return lab.playbook(*first, "playbooks/site.yml", "-e", json.dumps(values))


def claim(name: str, size: str) -> Json:
    return {"name": name, "namespace": NAMESPACE, "size": size, "class": "driven"}


def job(lab: Lab, name: str, **change: Any) -> Job:
    return Job(lab, name, {"hyperparameters": HYPERPARAMETERS, "args": ARGS, **change})


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Iterator[Lab]:
    """The lab with the driver, its class, and a class of kind csi that names it; of all that, no object is left."""
    lab.playbook("playbooks/site.yml")
    lab.wait("those of earlier tests are gone", lambda: not ending(lab))
    before = listing(lab)
    install(lab, LOOPED)
    lab.kubectl("create", "namespace", NAMESPACE)
    yield lab
    lab.kubectl("delete", "namespace", NAMESPACE, "--timeout=600s")
    lab.wait("volumes and snapshots are removed", lambda: left(lab) == [], 300)
    lab.playbook("playbooks/uninstall.yml", "-e", json.dumps({"site_components": ["storage"]}))
    assert "NotFound" in lab.kubectl("get", "csidriver", LOOP, check=False)
    crds = [item["metadata"]["name"] for item in lab.get("customresourcedefinitions")]
    assert [name for name in crds if name.endswith(SNAPSHOTS)] == []
    lab.playbook("playbooks/site.yml")  # what the next tests share
    assert listing(lab) == before


def listing(lab: Lab) -> set[str]:
    """Every object but Helm's records: a release has as many as it had revisions."""
    return {one for one in lab.listing() if "sh.helm.release" not in one}


def ending(lab: Lab) -> list[Json]:
    """The namespaces that are being removed."""
    return [one for one in lab.get("namespaces") if "deletionTimestamp" in one["metadata"]]


def left(lab: Lab) -> list[str]:
    """What the driver keeps, in the folder that all nodes share."""
    folder = INVENTORY["storage_loop_folder"]
    return lab.inside("node-0", "sh", "-c", f"cd {folder} && find volumes snapshots drafts -mindepth 1").split()


def mounted_bytes(lab: Lab, name: str) -> int:
    """The size of the file system in the pod of rank 0."""
    program = "import os; s = os.statvfs('/data'); print(s.f_frsize * s.f_blocks)"
    return int(lab.kubectl("exec", "-n", NAMESPACE, f"{name}-master-0", "--", "python3", "-c", program))


def losses(log: str) -> dict[int, float]:
    """By step."""
    events = (json.loads(line) for line in log.splitlines() if line.startswith('{"event"'))
    return {event["step"]: event["loss"] for event in events if event["event"] == "step"}


def test_a_second_job_resumes_from_a_snapshot_of_a_volume_that_grew_while_the_first_one_trained(driver: Lab) -> None:
    lab, first = driver, job(driver, "first")
    changed = install(lab, LOOPED, DRIVEN, claims=(claim("first", SIZE),))
    assert re.search(r"changed=[1-9]", changed)
    first.submit()
    lab.wait("the first job trains", lambda: first.trains(40), 900)
    assert mounted_bytes(lab, "first") < GIB / 2
    volume = lab.get("persistentvolumeclaim", "first", "-n", NAMESPACE)["spec"]["volumeName"]
    assert lab.get("persistentvolume", volume)["spec"]["csi"]["driver"] == LOOP
    assert lab.get("volumeattachments") == [], "the driver asks for none"

    uid = first.pod("master")["metadata"]["uid"]
    install(lab, LOOPED, DRIVEN, claims=(claim("first", LARGER),))
    lab.wait("the volume is larger", lambda: mounted_bytes(lab, "first") > 0.9 * GIB, 900)
    lab.wait("the claim says so", lambda: lab.get(
        "persistentvolumeclaim", "first", "-n", NAMESPACE)["status"]["capacity"]["storage"] == LARGER)
    grown = max(losses(first.log()))
    lab.wait("the first job continues", lambda: first.trains(grown + 40), 900)
    again = install(lab, LOOPED, DRIVEN, claims=(claim("first", LARGER),))
    assert re.search(r"localhost .*changed=0 ", again)

    snapshot = {"apiVersion": f"{SNAPSHOTS}/v1", "kind": "VolumeSnapshot", "metadata": {"name": "while-it-writes"},
                "spec": {"volumeSnapshotClassName": "loop", "source": {"persistentVolumeClaimName": "first"}}}
    lab.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(snapshot))
    lab.wait("the snapshot is complete", lambda: lab.get(
        "volumesnapshot", "while-it-writes", "-n", NAMESPACE)["status"]["readyToUse"])
    copied = max(losses(first.log()))
    lab.wait("the first job continues", lambda: first.trains(copied + STEPS + 40), 900)
    assert first.pod("master")["metadata"]["uid"] == uid, "one pod has seen all of it"
    one = losses(first.log())  # now: the kubelet keeps the last 10 MiB

    second = job(lab, "second", args=[*ARGS, "--resume", "must"])
    source = {"apiGroup": SNAPSHOTS, "kind": "VolumeSnapshot", "name": "while-it-writes"}
    restored = second.claimed(storageClassName="driven", dataSource=source, resources={"requests": {"storage": LARGER}})
    second.submit(restored)
    (resumed,) = lab.wait("the second job resumes", lambda: second.events("resume"), 900)
    begin = resumed["step"]
    assert 40 < begin <= copied
    lab.wait("the second job trains", lambda: second.trains(begin + STEPS), 900)
    two = losses(second.log())
    compared = {step: one[step] for step in range(begin + 1, begin + STEPS + 1)}
    assert compared == {step: two[step] for step in compared}
    assert len(set(compared.values())) > STEPS / 2, "a loss that never changes shows nothing"
    for item in (first, second):
        assert item.command("delete").returncode == 0
    lab.kubectl("delete", "-n", NAMESPACE, "volumesnapshot", "while-it-writes")


def test_a_claim_of_kind_loop_waits_for_its_pod_and_its_bytes_are_reserved(driver: Lab) -> None:
    lab = driver
    first = job(lab, "small", hyperparameters={**HYPERPARAMETERS, "epochs": 1})
    first.submit(first.claimed(storageClassName="loop"))
    assert first.end(240) == "Completed"
    volume = lab.get("persistentvolumeclaim", "small", "-n", NAMESPACE)["spec"]["volumeName"]
    about = lab.inside("node-0", "stat", "-c", "%b %B", f"{INVENTORY['storage_loop_folder']}/volumes/{volume}")
    blocks, size = map(int, about.split())
    assert blocks * size >= GIB
    assert first.command("delete").returncode == 0
