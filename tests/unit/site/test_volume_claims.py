"""Volume claims: how they are written, what of one may change, and what a job may mount."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import yaml

from gangplank.jobs.parse import parse_job
from gangplank.site.volume_claims import claim_problems, inventory_claim, mount_problems
from gangplank.teams.objects import claims as team_claims
from gangplank.teams.spec import Claim, TeamSpec
from tests.support.storage import CLASSES, LIVE_CLASSES, SHARED, claim, live_claim, live_class

# Both ways as they were written before one function wrote all claims.
ROLE = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: datasets
  namespace: default
  labels: {"app": "data"}
spec:
  accessModes: ["ReadWriteMany"]
  storageClassName: local-shared
  resources: {requests: {storage: 100Gi}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: a
  labels: {}
spec:
  accessModes: ["ReadWriteOnce"]
  resources: {requests: {storage: 2048Mi}}
"""
TEAM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
  namespace: vision
  labels:
    app: data
    app.kubernetes.io/managed-by: gangplank
    gangplank.dev/part: team
    gangplank.dev/team: vision
spec:
  accessModes: [ReadWriteMany]
  resources:
    requests:
      storage: 2Gi
  storageClassName: nfs
"""


def test_claims_of_an_inventory_are_written_as_the_roles_template_wrote_them() -> None:
    datasets = {"access_modes": ["ReadWriteMany"], "labels": {"app": "data"}, "class": "local-shared"}
    entries = [{"name": "datasets", "namespace": "default", "size": "100Gi", **datasets}, claim(size="2048Mi")]
    assert [inventory_claim(entry) for entry in entries] == list(yaml.safe_load_all(ROLE))


def test_claims_of_a_team_are_written_as_before() -> None:
    spec = Claim("data", "2048Mi", ("ReadWriteMany",), "nfs", {"app": "data"})
    team = TeamSpec("vision", "vision", members=(), queues=(), claims=(spec,))
    assert yaml.safe_dump_all(team_claims(team), sort_keys=False) == yaml.safe_dump_all(
        yaml.safe_load_all(TEAM), sort_keys=False
    )


def test_a_valid_inventory_has_no_problems() -> None:
    claims = [claim(), claim(name="b", **{"class": "local-shared"}, access_modes=["ReadWriteMany"])]
    assert claim_problems(claims, CLASSES) == []


@pytest.mark.parametrize(
    ("entry", "path", "text"),
    [
        (claim(size="big"), "size", "a quantity"),
        (claim(name="x", **{"class": "gold"}), "class", "one of fixed, local-path, local-shared, nfs"),
        (claim(name="x", access_modes=["ReadWriteMany"]), "access_modes", "use the class local-shared or nfs"),
        (claim(size="5Gi"), "size", "at least 10Gi: a claim cannot shrink"),
        (claim(size="20Gi"), "size", "the class local-path cannot enlarge volumes"),
        (claim(**{"class": "nfs"}), "class", "local-path, as the claim has it"),
        (claim(access_modes=["ReadWriteMany"]), "access_modes", "ReadWriteOnce, as the claim has it"),
    ],
)
def test_what_a_claim_cannot_be_is_refused_with_the_fix(entry: dict[str, Any], path: str, text: str) -> None:
    (problem,) = claim_problems([entry], CLASSES, [live_claim()], LIVE_CLASSES)
    assert problem.path == f"storage_claims[0].{path}"
    assert text in f"{problem.expected}; {problem.fix}"


def test_a_change_that_would_need_a_new_claim_says_that_none_is_deleted() -> None:
    entry = claim(size="5Gi", access_modes=["ReadWriteMany"], **{"class": "nfs"})
    problems = claim_problems([entry], CLASSES, [live_claim()], LIVE_CLASSES)
    assert [problem.path.split(".")[1] for problem in problems] == ["class", "access_modes", "size"]
    assert all("never deleted for you" in problem.fix for problem in problems)


def test_a_bound_claim_is_enlarged_where_its_class_can_do_it() -> None:
    entries = [claim(size="20Gi")]
    assert claim_problems(entries, CLASSES, [live_claim("nfs")], LIVE_CLASSES) == []
    (problem,) = claim_problems(entries, CLASSES, [live_claim("nfs", "Pending")], LIVE_CLASSES)
    assert "until the claim is bound" in problem.expected
    (problem,) = claim_problems(entries, CLASSES, [live_claim("fixed")], LIVE_CLASSES)
    assert "cannot enlarge volumes" in problem.expected


def test_the_same_size_in_other_words_is_no_change() -> None:
    assert claim_problems([claim(size="10240Mi")], CLASSES, [live_claim()], LIVE_CLASSES) == []


def test_a_claim_without_a_class_needs_a_default() -> None:
    assert claim_problems([claim()], [], [], [live_class("theirs", default=True)]) == []
    (problem,) = claim_problems([claim()], [SHARED])
    assert problem.got == "nothing"


def test_without_any_class_the_fix_is_to_add_one() -> None:
    (problem,) = claim_problems([claim()], [])
    assert problem.fix == "add a class to storage_classes"


def mounts(**volume: Any) -> list[dict[str, Any]]:
    job = {"name": "j", "image": "i", "script": "/a.py", "volumes": [{"claim": "data", "mount": "/d", **volume}]}
    return [asdict(item) for item in parse_job(job).volumes]


def test_a_job_may_mount_what_its_namespace_has() -> None:
    assert mount_problems(mounts(on="master"), [live_claim()]) == []
    assert mount_problems(mounts(access="ReadWriteMany"), [live_claim(modes=["ReadWriteMany"])]) == []


def test_a_job_that_expects_too_much_of_a_claim_gets_its_choices() -> None:
    (problem,) = mount_problems(mounts(access="ReadWriteMany"), [live_claim()])
    assert "ReadWriteOnce, as the claim data has it" in problem.expected
    assert "ReadWriteMany class" in problem.fix
    assert "on: master" in problem.fix


def test_a_missing_claim_is_reported_with_those_that_exist() -> None:
    (problem,) = mount_problems(mounts(on="master", claim="dta"), [live_claim()])
    assert "which has data" in problem.expected
