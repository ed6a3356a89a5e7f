"""`gangplank why` on a live cluster: causes made real, each named by the first line and no other; nobody else blamed.

Jobs whose causes do not disturb one another are submitted together. The others, which change a node or a component,
come one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gangplank.cluster.pace import is_pace, window
from gangplank.errors import KubeError
from tests.cluster.conftest import INVENTORY
from tests.cluster.faults import program
from tests.support.raw_jobs import INDEXED_JOB, VOLCANO_JOB, by_hand
from tests.support.teams_live import ROOT, gangplank, until
from tests.support.why_causes import (
    ABSENT,
    DATA,
    FULL,
    HERE,
    MOUNT,
    MOUNTED,
    MOUNTING,
    ON_NODE_1,
    ONE_BY_ONE,
    ONE_POD,
    STORIES,
    TOGETHER,
    TRAINS,
    UNATTACHED,
    driverless,
)  # fmt: skip
from tests.support.why_page import is_shown, shown
from tests.support.why_stories import (
    LIMIT_S,
    NO_IMAGE,
    SMALL,
    Story,
    asked,
    changed,
    claim,
    described,
    healthy,
    holder,
    in_container,
    kubeconfig_of_nobody,
    manifests,
    named_cause,
    runs_by_hand,
    silent,
    story,
    submit,
    under_way,
    volume,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube
    from gangplank.scheduling.why import Diagnosis
    from tests.cluster.conftest import Lab

Json = dict[str, Any]
EQUAL = TRAINS.replace("LATE", "True").replace("STEPS", "200")
WAITS = Story("", {"node_selector": {"disk": "ssd"}}, submitted=False)
FAILED_FIRST = " failed first: Error, exit code 7"
LAST_WORDS = in_container(command=["sh", "-c", "echo last words; exit 7"])
UNPULLED = in_container(image=NO_IMAGE)


def failing_once(manifest: Json) -> None:
    """Both pods fail, and no other is made."""
    LAST_WORDS(manifest)
    manifest["spec"]["backoffLimit"] = 0


BY_HAND = {  # jobs that kubectl submits, whose pods have the labels of their controllers alone
    "volcano-image": Story("image", written=by_hand(VOLCANO_JOB, UNPULLED)),
    "indexed-image": Story("image", written=by_hand(INDEXED_JOB, UNPULLED)),
    "volcano-exit-code": Story("failed", written=by_hand(VOLCANO_JOB, LAST_WORDS), words=FAILED_FIRST),
    "indexed-exit-code": Story("failed", written=by_hand(INDEXED_JOB, failing_once), words=FAILED_FIRST),
}
WELL = {"volcano-runs": by_hand(VOLCANO_JOB), "indexed-runs": by_hand(INDEXED_JOB)}
EVERY = STORIES | BY_HAND
FAILS = replace(STORIES["exit-code"], submitted=False)
REASON = r"(?m)^ *(\d+) s  {0}: {0} does not start because too few nodes have the label disk=ssd"
FAILED = r"(?m)^ *why: {0} failed: (\S+) failed first: Error, exit code 7$"
PLAYED_S = {"played-waits": 120, "played-fails": 900}  # the play waits so long for a job; after 30 s it asks why
DIGITS = TOGETHER.replace(
    "/tmp/a.py", "/opt/gangplank/trainer/train.py --epochs 9999 --batch-size 128 --log-interval 0 --threads 1"
)


def throttled(manifest: Json) -> None:
    """The worker has a tenth of a CPU."""
    pod = manifest["spec"]["tasks"][1]["template"]["spec"]
    pod["containers"][0]["resources"] = {"requests": SMALL, "limits": {"cpu": "100m"}}


@pytest.fixture(scope="module")
def stories(lab: Lab, kubeconfig: str) -> Iterator[None]:  # noqa: ARG001  the site is installed before
    """All stories under way at once."""
    with under_way(lab, EVERY):
        yield


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", EVERY)
def test_the_first_line_names_the_cause_and_no_other(kube: Kube, name: str) -> None:
    story = EVERY[name]
    diagnosis = named_cause(kube, manifests(name, story)[-1], story.code, live=story.submitted)
    assert diagnosis.cause is not None
    assert diagnosis.cause.text in diagnosis.first_line
    assert story.words in diagnosis.first_line
    assert diagnosis.cause.fix


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", [name for name in shown() if name in STORIES])
def test_the_page_on_troubleshooting_shows_what_why_says(kube: Kube, name: str) -> None:
    """GANGPLANK_GOLDEN=write rewrites the page. The tests of causes that come alone compare theirs themselves."""
    story = STORIES[name]
    is_shown(name, named_cause(kube, manifests(name, story)[-1], story.code, live=story.submitted))


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("name", [name for name in ONE_BY_ONE if name != "waiter"])
def test_a_cause_that_changes_the_cluster_is_named(lab: Lab, kube: Kube, name: str) -> None:
    one = ONE_BY_ONE[name]
    with story(lab, name, one) as job:
        diagnosis = named_cause(kube, job, one.code, live=one.submitted)
        if name in shown():
            is_shown(name, diagnosis)


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("name", [name for name, one in BY_HAND.items() if one.code == "failed"])
def test_the_last_lines_of_a_job_by_hand_that_failed_are_shown(kube: Kube, name: str) -> None:
    diagnosis = named_cause(kube, manifests(name, BY_HAND[name])[-1], "failed")
    assert diagnosis.cause
    assert "last words" in diagnosis.cause.evidence


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("name", WELL)
def test_a_job_by_hand_that_runs_is_well_and_its_pods_are_counted(lab: Lab, kube: Kube, name: str) -> None:
    runs_by_hand(lab, kube, name, WELL[name])


def code_of(diagnosis: Diagnosis) -> str:
    """The code of its cause, "" if it has none."""
    return diagnosis.cause.code if diagnosis.cause else ""


@pytest.mark.usefixtures("kubeconfig")
def test_a_pod_that_its_node_refuses_is_named(lab: Lab, kube: Kube) -> None:
    """It skips the scheduler, and asks for more than its node has."""
    raw = in_container(resources={"requests": {"cpu": "9"}})

    def placed(manifest: Json) -> None:
        raw(manifest)
        changed(nodeName="node-1")(manifest)

    with story(lab, "refused-there", Story("device", {"max_retries": 0}, "indexed", raw=placed)) as job:
        lab.wait("its node has refused it", lambda: any(
            pod["status"].get("reason") == "OutOfcpu" for pod in lab.get("pods", "-n", "why-refused-there")
        ))  # fmt: skip
        assert "OutOfcpu" in named_cause(kube, job, "device").first_line


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_that_the_retries_of_a_job_are_used_up_is_said(lab: Lab, kube: Kube, backend: str) -> None:
    """An Indexed Job that fails removes its pods, and with them the exit code."""
    one = Story("failed", {"command": ["sh", "-c", "echo last words; exit 7"], "max_retries": 1}, backend)
    with story(lab, f"used-up-{backend}", one) as job:
        lab.wait("it has failed", lambda: code_of(asked(kube, job)) == "failed", LIMIT_S)
        diagnosis = asked(kube, job)
        assert diagnosis.first_line.endswith("; it failed 2 times, its `max_retries` are used up")
        if backend == "volcano":
            assert " failed first: Error, exit code 7; " in diagnosis.first_line
            is_shown("used-up-volcano", diagnosis)


@pytest.mark.usefixtures("kubeconfig")
def test_a_claim_of_one_pod_that_another_one_mounts_is_named(lab: Lab, kube: Kube) -> None:
    bound = claim(spec={**ONE_POD, "volumeName": "why-once"})
    beside = (volume("why-once", "ReadWriteOncePod", **HERE), bound, holder(MOUNTING, **DATA))
    one = Story("volume-in-use", {"workers": 0}, beside=beside, raw=MOUNTED, submitted=False)
    with story(lab, "in-use", one) as job:
        place = ("pod", "holder", "-n", "why-in-use")
        lab.wait("the holder runs", lambda: lab.get(*place)["status"]["phase"] == "Running")
        diagnosis = named_cause(kube, job, "volume-in-use", live=False)
        assert diagnosis.first_line.startswith("in-use waits because its volume claim data is ReadWriteOncePod")
        is_shown("in-use", diagnosis)


# Of a driver that nobody runs: the test says in its place that the volume is attached
DRIVER = "attached.gangplank.dev"
ATTACHED = volume("why-attached", "ReadWriteOnce", csi={"driver": DRIVER, "volumeHandle": "why-attached"})
BOUND_ONCE = claim(spec={"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "why-attached"})


def attachments(lab: Lab) -> dict[str, str]:
    """The names of the volume's attachments, by node. Kubernetes' controller makes and removes them."""
    every = [one for one in lab.get("volumeattachments")
             if one["spec"]["source"].get("persistentVolumeName") == "why-attached"]  # fmt: skip
    return {one["spec"]["nodeName"]: one["metadata"]["name"] for one in every}


def attach(lab: Lab, node: str) -> None:
    """Do as the attacher of a driver does."""
    name = lab.wait(f"the volume is to be attached to {node}", lambda: attachments(lab).get(node))
    words = ("--subresource=status", "--type=merge", "-p", '{"status":{"attached":true}}')
    lab.kubectl("patch", "volumeattachment", name, *words)


@pytest.fixture
def registered(request: pytest.FixtureRequest, lab: Lab) -> Iterator[None]:
    """The volume's driver on both nodes: without it Volcano counts no place for such a volume on any."""
    request.getfixturevalue("kubeconfig")  # the cluster has Volcano
    of_driver = {"topologyKeys": [], **getattr(request, "param", {})}
    others = {node: [one for one in lab.get("csinode", node)["spec"]["drivers"] or () if one["name"] != DRIVER]
              for node in ("node-0", "node-1")}  # fmt: skip

    def have(*drivers: str) -> None:
        for node, before in others.items():
            every = [*before, *({"name": name, "nodeID": node, **of_driver} for name in drivers)]
            lab.kubectl("patch", "csinode", node, "--type=merge", "-p", json.dumps({"spec": {"drivers": every}}))

    have(DRIVER)
    yield
    have()


@pytest.mark.usefixtures("registered")
def test_a_volume_of_one_node_that_another_one_has_is_named_until_it_is_detached(lab: Lab, kube: Kube) -> None:
    beside = (ATTACHED, BOUND_ONCE, holder(MOUNTING, **DATA, nodeName="node-0"))
    one = Story("volume-elsewhere", ON_NODE_1 | {"workers": 0}, beside=beside, raw=MOUNTED, submitted=False)
    with story(lab, "volume-elsewhere", one) as job:
        attach(lab, "node-0")
        submit(lab, "volume-elsewhere", one)
        diagnosis = named_cause(kube, job, one.code)
        assert "volume-elsewhere-master-0 is attached to another node" in diagnosis.first_line
        assert "wait until holder has ended" in diagnosis.text()
        is_shown("volume-elsewhere", diagnosis)
        lab.kubectl("delete", "pod", "holder", "-n", "why-volume-elsewhere")
        attach(lab, "node-1")
        # no node can mount it without its driver
        lab.wait("the driver is named", lambda: code_of(asked(kube, job)) == "volume-driver")
    lab.wait("the volume is detached", lambda: not attachments(lab))


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("registered", [{"allocatable": {"count": 0}}], indirect=True)
def test_a_driver_of_which_a_node_may_have_no_volume_is_named(lab: Lab, kube: Kube) -> None:
    one = Story("attach-limit", {"workers": 0}, "indexed", beside=(ATTACHED, BOUND_ONCE), raw=MOUNTED)
    with story(lab, "attach-limit", one) as job:
        lab.wait("the claim is bound", lambda: code_of(asked(kube, job)) == one.code)
        diagnosis = asked(kube, job)
        assert f"at the limit of volumes of the CSI driver {DRIVER}" in diagnosis.first_line
        is_shown("attach-limit", diagnosis)


@pytest.mark.usefixtures("kubeconfig")
def test_a_volume_on_a_node_without_room_for_all_pods_is_named(lab: Lab, kube: Kube) -> None:
    there = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}
    home = volume("why-home", "ReadWriteMany", **HERE, nodeAffinity={"required": {"nodeSelectorTerms": [there]}})
    bound = claim(spec={"storageClassName": "", "volumeName": "why-home"})
    one = Story("volume-node", {**MOUNT, **FULL}, beside=(home, bound), submitted=False)
    with story(lab, "volume-home", one) as job:
        lab.wait("the claim is bound", lambda: code_of(asked(kube, job, live=False)) == one.code)


@pytest.mark.usefixtures("kubeconfig")
def test_a_class_that_makes_no_volumes_for_any_node_is_named(lab: Lab, kube: Kube) -> None:
    zoned: Json = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "why-zoned"},
        "provisioner": "zoned.gangplank.dev/external", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "why-zone", "values": ["nowhere"]}]}],
    }  # fmt: skip
    one = Story("volume-topology", MOUNT, "indexed", beside=(zoned, claim(spec={"storageClassName": "why-zoned"})))
    with story(lab, "zoned", one) as job:
        assert named_cause(kube, job, one.code).proven


@pytest.mark.usefixtures("kubeconfig")
def test_a_driver_that_the_kubelet_lacks_is_named_once_kubernetes_scheduler_has_bound_the_pods(
    lab: Lab, kube: Kube
) -> None:
    one = Story("volume-driver", MOUNT, "indexed", beside=(UNATTACHED, *driverless("why-bound")))
    with story(lab, "driver-bound", one) as job:
        text = f"needs the CSI driver {ABSENT}, which does not run on its node node-"
        lab.wait("the kubelet says so", lambda: text in named_cause(kube, job, one.code).first_line)


@pytest.mark.usefixtures("kubeconfig")
def test_a_provisioner_that_volcano_does_not_know_for_one_without_csi_is_named(lab: Lab, kube: Kube) -> None:
    """The site's role has not run since its class exists."""
    late: Json = {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "why-late"},
        "provisioner": "nfs.gangplank.dev/external", "volumeBindingMode": "WaitForFirstConsumer",
    }  # fmt: skip
    one = Story("volume-driver", MOUNT, beside=(late, claim(spec={"storageClassName": "why-late"})))
    with story(lab, "provisioner", one) as job:
        diagnosis = named_cause(kube, job, one.code)
        assert diagnosis.proven
        assert "volcano_ignored_provisioners" in diagnosis.text()


@pytest.mark.usefixtures("kubeconfig")
def test_a_podgroup_that_is_gone_is_named_until_its_controller_makes_it_again(lab: Lab, kube: Kube) -> None:
    space = ("-n", "why-gang-lost")
    with story(lab, "gang-lost", Story("selector", {"node_selector": {"disk": "ssd"}})) as job:
        lab.wait("its pods wait", lambda: len(lab.get("pods", *space)) == 2)
        with silent(lab, "volcano-system", "volcano-controllers"):
            lab.kubectl("delete", "podgroups.scheduling.volcano.sh", "--all", *space)
            lab.wait("that is named", lambda: code_of(asked(kube, job)) == "gang-lost")
            is_shown("gang-lost", asked(kube, job))
        lab.wait("there is another", lambda: code_of(asked(kube, job)) == "selector")


@pytest.mark.usefixtures("kubeconfig")
def test_a_job_that_waits_for_others_waits_and_starts_when_they_end(lab: Lab, kube: Kube) -> None:
    with story(lab, "waiter", ONE_BY_ONE["waiter"]) as waiter:
        diagnosis = named_cause(kube, waiter, "short")
        assert diagnosis.first_line.startswith("waiter waits because 2 of its 2 pods have no place")
        assert "holder" not in diagnosis.text()
        is_shown("waiter", diagnosis)
        lab.kubectl("delete", "jobs.batch.volcano.sh", "holder", "-n", "why-holder")
        lab.wait("the waiter runs", lambda: "2 of 2 pods run" in asked(kube, waiter).first_line)


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize("backend", ["volcano", "indexed"])
def test_a_healthy_job_is_blamed_at_no_moment(lab: Lab, kube: Kube, backend: str) -> None:
    healthy(lab, kube, backend)


@pytest.mark.usefixtures("kubeconfig")
def test_a_rank_of_the_trainer_that_a_cpu_limit_slows_down_is_named(lab: Lab, kube: Kube) -> None:
    with story(lab, "limited", Story("slow", {"command": ["sh", "-c", DIGITS]}, raw=throttled)) as job:
        diagnosis = named_cause(kube, job, "slow", limit_s=2 * LIMIT_S)
        assert "rank 1 (limited-worker-0) is behind the others by" in diagnosis.first_line
        assert ": compute takes it " in diagnosis.first_line
        assert diagnosis.cause
        assert "CPU limit" in diagnosis.cause.fix


@pytest.mark.usefixtures("kubeconfig")
def test_where_all_ranks_take_long_none_is_behind(lab: Lab, kube: Kube) -> None:
    one = Story("", {"command": ["sh", "-c", EQUAL + TOGETHER]})
    with story(lab, "equal", one) as job:
        said: set[str] = set()
        until = time.monotonic() + 2 * LIMIT_S
        while "it is Complete" not in (diagnosis := asked(kube, job)).first_line and time.monotonic() < until:
            assert diagnosis.cause is None, diagnosis.text()
            for pod in kube.items("v1", "Pod", "why-equal") if "2 of 2 pods run" in diagnosis.first_line else ():
                said |= set(filter(is_pace, kube.log(pod)))
            time.sleep(1)
        assert "it is Complete" in diagnosis.first_line
        ranks = [one.rank for one in map(window, said) if one]
        assert min(ranks.count(0), ranks.count(1)) > 4, "too little was said to blame anybody"


@pytest.mark.usefixtures("stories")
def test_the_command_says_the_same_as_text_and_as_json(kubeconfig: str) -> None:
    words = ("why", "selector", "-n", "why-selector")
    text, data = gangplank(*words, kubeconfig=kubeconfig), gangplank(*words, "-o", "json", kubeconfig=kubeconfig)
    assert (text.returncode, data.returncode) == (0, 0), text.stderr + data.stderr
    fields = json.loads(data.stdout)
    assert text.stdout.splitlines()[0] == fields["summary"]
    assert (fields["cause"], fields["proven"]) == ("selector", True)
    assert fields["summary"] == f"selector does not start because {fields['because']}"
    assert gangplank("fit", *words[1:], kubeconfig=kubeconfig).returncode == 5


@pytest.mark.usefixtures("stories")
@pytest.mark.parametrize("command", ["why", "fit", "when"])
def test_an_account_without_any_rights_cannot_tell(
    lab: Lab, kubeconfig: str, tmp_path: Path, command: str
) -> None:
    nobody = kubeconfig_of_nobody(lab, kubeconfig, tmp_path, "why-selector")
    done = gangplank(command, "selector", "-n", "why-selector", kubeconfig=nobody)
    said = "selector: cannot tell: you may not read jobs in namespace why-selector\n"
    assert (done.returncode, done.stdout) == (6, said), done.stderr


def test_who_submits_a_job_and_waits_is_told_why(lab: Lab, kubeconfig: str, tmp_path: Path) -> None:
    """After 30 s if it does not start, and at its end if it fails; line by line, also behind a pipe or in a file."""
    told = tmp_path / "told"
    with story(lab, "waits", WAITS) as waiting, story(lab, "fails", FAILS) as failing:
        for job in (waiting, failing):
            (tmp_path / job["metadata"]["name"]).write_text(json.dumps(job))
        words = [sys.executable, "-m", "gangplank", "submit", str(tmp_path / "waits"), "--wait"]
        with told.open("w") as file:
            follower = subprocess.Popen([*words, f"--kubeconfig={kubeconfig}"], cwd=ROOT, stdout=file)
        try:
            done = gangplank("submit", str(tmp_path / "fails"), "--wait", kubeconfig=kubeconfig)
            until(lambda: re.search(REASON.format("waits"), told.read_text()), told.read_text, 300)
        finally:
            follower.terminate()
            follower.wait(90)
    assert done.returncode == 1
    answer = re.search(FAILED.format("fails"), done.stderr)
    assert answer, done.stderr
    assert f"{answer[1]} failed first (Error, exit code 7); its last lines:" in done.stderr
    assert "last words" in done.stderr
    after_s = re.search(REASON.format("waits"), told.read_text())
    assert after_s is not None
    assert int(after_s[1]) >= 30


def test_the_playbook_prints_why_a_job_waits_while_it_waits_and_why_one_failed(
    lab: Lab, kubeconfig: str, tmp_path: Path
) -> None:
    stories = {"played-waits": WAITS, "played-fails": FAILS}

    def played(name: str) -> str:
        """What playbooks/train.yml prints of a job that does not end well."""
        values: Json = {"training_job": described(name, stories[name]), "training_job_kubeconfig": kubeconfig}
        values |= {"training_job_report_folder": str(tmp_path), "training_job_timeout_s": PLAYED_S[name]}
        words = ["playbook", "-i", str(INVENTORY), "playbooks/train.yml", "-e", json.dumps(values)]
        environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        pipe: Json = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([sys.executable, "-m", "ansible", *words], cwd=ROOT, env=environment, check=False, **pipe)
        assert done.returncode == 2, done.stdout
        return str(done.stdout)

    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        for item in stories.items():
            stack.enter_context(story(lab, *item))
        waited, failed = pool.map(played, stories)
    said = re.search(REASON.format("played-waits"), waited)
    assert said, waited
    assert f"did not end within {PLAYED_S['played-waits']} s" in waited[said.end() :]
    answer = re.search(FAILED.format("played-fails"), failed)
    assert answer, failed
    assert f"{answer[1]} failed first (Error, exit code 7); its last lines:" in failed
    assert re.search(r"(?m)^ +last words$", failed)


@pytest.mark.usefixtures("stories")
def test_a_viewer_with_nothing_granted_is_told_so(kube: Kube) -> None:
    kube.api.set_default_header("Impersonate-User", "mallory")
    try:
        with pytest.raises(KubeError, match="forbidden"):
            asked(kube, manifests("selector", STORIES["selector"])[-1])
    finally:
        del kube.api.default_headers["Impersonate-User"]


@pytest.mark.usefixtures("kubeconfig")
def test_a_node_that_is_lost_under_a_job_is_named_until_it_is_back(lab: Lab, kube: Kube, kubeconfig: str) -> None:
    """Kubernetes waits for 50 s before it believes that. Its own tolerations leave the pods there for five minutes."""
    with story(lab, "node-lost", Story("node-lost", ON_NODE_1, raw=changed(tolerations=[]))) as job:
        lab.wait("the job runs", lambda: "2 of 2 pods run" in asked(kube, job).first_line)
        program(lab, "kubelet-node-1", runs=False)
        try:
            is_shown("node-lost", named_cause(kube, job, "node-lost"))
            for command in ("status", "metrics"):
                done = gangplank(command, kubeconfig=kubeconfig)
                assert done.returncode == 0, done.stderr
        finally:
            program(lab, "kubelet-node-1", runs=True)
        lab.wait("the job runs again", lambda: "2 of 2 pods run" in asked(kube, job).first_line)
    available = ("wait", "deployment", "--all", "-A", "--for=condition=Available", "--timeout=60s")
    lab.wait("all deployments are available", lambda: lab.kubectl(*available))
