"""`why`, `fit` and `when` as an administrator, a team's viewer and a stranger: what may not be read is said."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.k8s import quantity
from tests.support.teams_live import gangplank, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gangplank.cluster.client import Kube

Json = dict[str, Any]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces"
UNREAD = "pods of all namespaces (you may not list them)"
SELECTS = {"node_selector": {"topology.kubernetes.io/zone": "nowhere"}}


@pytest.fixture
def selecting(kube: Kube, tmp_path: Path) -> Iterator[str]:
    """A job of team vision whose node does not exist."""
    job: Json = {"name": "selecting", "namespace": "vision", "queue": "vision", "command": ["sleep", "60"]}
    job |= {"image": "gangplank.dev/trainer:0.1.0", "workers": 1, "resources": RESOURCES, "priority": "normal"}
    file = tmp_path / "selecting.yml"
    file.write_text(yaml.safe_dump({"training_job": job | SELECTS}))
    done = gangplank("submit", str(file))
    assert done.returncode == 0, done.stderr
    yield "selecting"
    kube.call("DELETE", f"{JOBS}/vision/jobs/selecting")


RESOURCES = {"cpu": {"request": "50m", "limit": "50m"}, "memory": {"request": "64Mi", "limit": "64Mi"}}


def answered(job: str, kubeconfig: str | None = None, command: str = "why") -> Json:
    """What `why` says, or another command."""
    done = gangplank(command, job, "-n", "vision", "-o", "json", kubeconfig=kubeconfig)
    return json.loads(done.stdout) | {"exit": done.returncode} if done.stdout.startswith("{") else {"text": done.stdout}


def test_administrator_viewer_and_stranger(
    selecting: str, kubeconfigs: Callable[[str, str], str], tmp_path: Path
) -> None:
    until(lambda: answered(selecting).get("cause") == "selector", "an administrator is given the cause")
    assert answered(selecting)["proven"]

    viewer = answered(selecting, kubeconfigs("vision", "eve"))
    assert viewer["cause"] == "selector"
    assert not viewer["proven"]
    assert "cannot tell for certain; probably because too few nodes have the label" in viewer["summary"]
    assert viewer["cannot_tell"][0] == UNREAD
    assert "nodes" not in " ".join(viewer["cannot_tell"]).replace("nodes that", "")
    assert viewer["exit"] == 6
    fit, when = (answered(selecting, kubeconfigs("vision", "eve"), command) for command in ("fit", "when"))
    assert (fit["exit"], fit["fits"], fit["causes"][0]["cause"]) == (5, "no", "selector")
    assert UNREAD in fit["cannot_tell"]
    assert (when["exit"], when["state"], when["start"]) == (6, "waiting", None)
    assert UNREAD in when["why"]
    others = "jobs of other namespaces than vision: you may not list them; name yours with -n"
    assert others in when["cannot_tell"]

    stranger = kubeconfigs("speech", "zoe")  # a member of another team: as good as none here
    done = gangplank("why", selecting, "-n", "vision", kubeconfig=stranger)
    assert (done.returncode, done.stdout) == (
        6,
        "selecting: cannot tell: you may not read jobs in namespace vision\n",
    )
    nobody = tmp_path / "nobody"
    nobody.write_text((tmp_path / "selecting.yml").read_text().replace("vision", "speech"))
    assert gangplank("fit", str(nobody), kubeconfig=kubeconfigs("vision", "eve")).returncode == 6


CORE = {"request": "1", "limit": "1"}
HELD = re.compile(r"other pods hold (\d+m?) cpu")


@pytest.fixture
def crowded(kube: Kube, kubeconfigs: Callable[[str, str], str], tmp_path: Path) -> Iterator[str]:
    """A job of team vision that waits for the core of a job of team speech, which vision's queue does not reclaim."""
    queue = "/apis/scheduling.volcano.sh/v1beta1/queues/speech"
    reclaims = kube.call("GET", queue)["spec"].get("reclaimable")
    job: Json = {"command": ["sleep", "600"], "image": "gangplank.dev/trainer:0.1.0"}
    job["resources"] = {**RESOURCES, "cpu": CORE}
    holder = job | {"name": "quiet-whale", "namespace": "speech", "queue": "speech", "workers": 0}
    waiter = job | {"name": "crowded", "namespace": "vision", "queue": "vision", "workers": 1, "priority": "normal"}
    submitted: list[Json] = []

    def submit(one: Json, kubeconfig: str | None = None) -> None:
        file = tmp_path / f"{one['name']}.yml"
        file.write_text(yaml.safe_dump({"training_job": one}))
        done = gangplank("submit", str(file), kubeconfig=kubeconfig)
        assert done.returncode == 0, done.stderr
        submitted.append(one)

    def runs() -> bool:
        pods = kube.call("GET", "/api/v1/namespaces/speech/pods")["items"]
        return [pod["status"]["phase"] for pod in pods if "quiet-whale" in pod["metadata"]["name"]] == ["Running"]

    kube.call("PATCH", queue, {"spec": {"reclaimable": False}})
    try:
        submit(holder, kubeconfigs("speech", "zoe"))
        until(runs, "the job of speech runs")
        submit(waiter)
        yield "crowded"
    finally:
        for one in submitted:
            kube.call("DELETE", f"{JOBS}/{one['namespace']}/jobs/{one['name']}")
        kube.call("PATCH", queue, {"spec": {"reclaimable": reclaims}})


def test_other_teams_are_sums(crowded: str, kubeconfigs: Callable[[str, str], str]) -> None:
    until(lambda: answered(crowded).get("cause") == "short", "an administrator is given the cause")
    administrator, viewer = answered(crowded), answered(crowded, kubeconfigs("vision", "eve"))
    assert administrator["proven"]
    assert administrator["waits_for_others"]
    (held,) = HELD.findall(json.dumps(administrator["evidence"]))
    assert quantity.parse(held) >= 1, "what speech's job holds is in the sum"
    rows = [(config, command) for command in ("fit", "when") for config in (None, kubeconfigs("vision", "eve"))]
    with ThreadPoolExecutor() as pool:
        fit, own_fit, when, own_when = pool.map(lambda row: answered(crowded, *row), rows)
    for answer in (administrator, viewer, fit, own_fit, when, own_when):
        text = json.dumps(answer)
        assert not [name for name in ("speech", "quiet", "whale", "zoe") if name in text], text
    assert viewer["exit"] == 6
    assert UNREAD in viewer["cannot_tell"]
    assert (own_fit["exit"], own_fit["fits"]) == (6, "cannot tell")
    assert UNREAD in own_fit["cannot_tell"]
    assert (own_when["exit"], own_when["state"], own_when["start"]) == (6, "waiting", None)
    assert UNREAD in own_when["why"]
