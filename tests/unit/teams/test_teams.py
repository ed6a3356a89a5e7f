"""A team's file: what is refused, which objects it becomes, and that nothing is promised twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangplank.cluster.lease import HOLDER
from gangplank.errors import SpecError
from gangplank.site.rights import LOCK
from gangplank.teams.conditions import KEYS
from gangplank.teams.drift import drift
from gangplank.teams.job_defaults import with_team
from gangplank.teams.objects import team_objects
from gangplank.teams.parse import parse_site, parse_team, parse_teams
from gangplank.teams.spec import SiteSpec

Json = dict[str, Any]
CAP: Json = {"cpu": 4, "memory": "16Gi", "ephemeral_storage": "50Gi"}


def team(name: str = "vision", **fields: object) -> Json:
    return {"team": {"name": name, "members": [{"user": "ada"}], "cap": CAP} | fields}


def problems(value: object, site: object = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parse_team(value, "vision.yml", parse_site(site))
    return [f"{item.path}: {item.expected}" for item in caught.value.problems]


def refused(files: Json, site: object = None) -> str:
    with pytest.raises(SpecError) as caught:
        parse_teams(files, site)
    return str(caught.value)


def objects(kind: str, files: list[Json], site: object = None) -> list[Json]:
    site_spec, teams = parse_teams({f"{index}.yml": item for index, item in enumerate(files)}, site)
    return [item for item in team_objects(teams, site_spec) if item["kind"] == kind]


def test_needs_no_more_than_a_name_a_member_and_a_cap() -> None:
    spec = parse_team(team())
    assert (spec.namespace, spec.pod_security, spec.leaves) == ("vision", "restricted", ("vision",))
    assert problems({"team": {}}) == [
        "team.name: a-z, 0-9 and -, at most 40",
        "team.members: at least one member",
        "team.cap: an amount or unlimited of cpu, memory, ephemeral_storage",
    ]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": "Vision"}, "team.name"),
        ({"name": "v" * 41}, "team.name"),
        ({"name": "default"}, "team.name"),
        ({"name": "root"}, "team.name"),
        ({"namespace": "kube-system"}, "team.namespace"),
        ({"namespace": ""}, "team.namespace"),
        ({"namespace": "default"}, "team.namespace"),
        ({"namespace": "kubeflow"}, "team.namespace"),
        ({"members": [{"user": "system:kube-scheduler"}]}, "team.members[0].user"),
        ({"members": [{"group": "system:masters"}]}, "team.members[0].group"),
        ({"members": [{"user": "ada", "group": "x"}]}, "team.members[0]"),
        ({"members": [{"user": "ada", "role": "admin"}]}, "team.members[0].role"),
        ({"members": [{"user": "ada"}, {"user": "ada", "role": "lead"}]}, "team.members[1]"),
        ({"members": [{"service_account": "runner"}]}, "team.members[0].service_account"),
        ({"members": [{"user": True}]}, "team.members[0].user"),
        ({"cap": CAP | {"cpu": -1}}, "team.cap.cpu"),
        ({"cap": CAP | {"gpu": 1}}, "team.cap.gpu"),
        ({"cap": CAP | {"gpus": "two"}}, "team.cap.gpus"),
        ({"parent": "research"}, "team.parent"),
        ({"priorities": ["urgent"]}, "team.priorities[0]"),
        ({"pod_security": "none"}, "team.pod_security"),
        ({"images": ["a b"]}, "team.images[0]"),
        ({"claims": [{"name": "data"}]}, "team.claims[0].size"),
        ({"claims": [{"name": "d", "size": "1Gi"}, {"name": "d", "size": "1Gi"}]}, "team.claims[1].name"),
        ({"claims": [{"name": "d", "size": "1Gi", "access": ["RWX"]}]}, "team.claims[0].access[0]"),
        (
            {"claims": [{"name": "d", "size": "1Gi", "labels": {"gangplank.dev/team": "b"}}]},
            "team.claims[0].labels.gangplank.dev/team",
        ),
        ({"network": {"to": [{"cidr": "10.0.0.1/8"}]}}, "team.network.to[0].cidr"),
        ({"network": {"to": [{"cidr": "10.0.0.0/8", "ports": [0]}]}}, "team.network.to[0].ports[0]"),
        ({"network": {"to": [{"cidr": "10.0.0.0/8", "ports": [True]}]}}, "team.network.to[0].ports[0]"),
        ({"network": {"to": [{"cidr": "10.0.0.0/8", "ports": 443}]}}, "team.network.to[0].ports"),
        ({"network": {"to": [{"cidr": "10.0.0.0/8", "ports": True}]}}, "team.network.to[0].ports"),
        ({"network": {"to": [{"cidr": "10.0.0.0/8", "ports": []}]}}, "team.network.to[0].ports"),
        ({"network": {"to": [{"cidr": "10.0.0.0/8", "ports": None}]}}, "team.network.to[0].ports"),
        ({"network": {"to": [{"cidr": "fe80::1%eth0"}]}}, "team.network.to[0].cidr"),
        ({"images": []}, "team.images"),
        ({"images": None}, "team.images"),
        ({"cap": CAP | {"nvidia.com/gpu": 2}}, "team.cap.nvidia.com/gpu"),
        ({"cap": CAP | {"deviceclass/Foo_Bar": 1}}, "team.cap.deviceclass/Foo_Bar"),
        ({"cap": CAP | {"cpu": None}}, "team.cap.cpu"),
        ({"network": {"form": ["x"]}}, "team.network.form"),
        ({"job_defaults": {"workers": "two"}}, "team.job_defaults.workers"),
        ({"job_defaults": {"name": "x"}}, "team.job_defaults.name"),
        ({"queues": [{"name": "q" * 60}]}, "team.queues[0].name"),
        ({"queues": [{"name": "q", "parent": "x"}]}, "team.queues[0].parent"),
        ({"weight": 0}, "team.weight"),
        ({"max_jobs": 0}, "team.max_jobs"),
        ({"quota": 1}, "team.quota"),
    ],
)
def test_refuses(fields: Json, path: str) -> None:
    assert path in [problem.split(": ")[0] for problem in problems(team(**fields))]


@pytest.mark.parametrize(
    ("text", "cidr"),
    [
        ("192.0.2.7", "192.0.2.7/32"),
        ("2001:DB8::7", "2001:db8::7/128"),
        ("192.0.2.0/255.255.255.0", "192.0.2.0/24"),
        ("10.0.0.0/8", "10.0.0.0/8"),
    ],
)
def test_addresses_outside_are_written_as_the_api_server_takes_them(text: str, cidr: str) -> None:
    (outside,) = parse_team(team(network={"to": [{"cidr": text}]})).talk_out
    assert outside.cidr == cidr


def test_what_a_cap_or_a_claim_needs_is_not_to_be_left_out() -> None:
    with pytest.raises(SpecError) as caught:
        parse_team(team(cap=CAP | {"cpu": None}, claims=[{"name": "a", "size": None}]))
    assert {problem.fix for problem in caught.value.problems} == {"give it a value"}


def test_reports_every_problem_of_every_file() -> None:
    text = refused({"a.yml": team(name="A"), "b.yml": team(weight=0, max_jobs=0)}, {"site": {"queue": []}})
    heads = [line for line in text.splitlines() if not line.startswith(" ")]
    assert heads == ["_site.yml: 1 problem", "a.yml: 1 problem", "b.yml: 2 problems"]


def test_reports_a_file_without_its_key() -> None:
    assert "team: the key team with the fields below it" in problems({"training_job": {}})


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ({"a.yml": team("vision"), "b.yml": team("vision")}, "team.name"),
        ({"a.yml": team("a", namespace="x"), "b.yml": team("b", namespace="x")}, "team.namespace"),
        ({"a.yml": team("a", queues=[{"name": "b"}]), "b.yml": team("a-b")}, "team.name"),
    ],
)
def test_refuses_names_that_collide(files: Json, path: str) -> None:
    text = refused(files)
    assert "b.yml: 1 problem" in text
    assert f"  {path}: " in text


def test_a9_refuses_a_member_that_pods_of_a_team_can_run_as() -> None:
    """A trainer of the account's namespace could create a pod that runs as the account, and so has its role."""
    runner: Json = {"members": [{"user": "ada"}, {"service_account": "lab/ci", "role": "lead"}]}
    text = refused({"a.yml": team("a", namespace="lab", **runner), "b.yml": team("b", **runner)})
    assert text.count('team.members[1].service_account: got "lab/ci", expected an account of a namespace') == 2
    assert "every trainer of team a can run a pod as this one" in text
    assert parse_teams({"b.yml": team("b", **runner)})


def test_refuses_a_queue_of_the_site_with_a_team_s_name() -> None:
    assert "_site.yml has this one" in refused({"a.yml": team()}, {"site": {"queues": [{"name": "vision"}]}})


def test_refuses_a_circle_of_queues_and_a_tree_that_is_too_deep() -> None:
    ring = [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]
    assert refused({}, {"site": {"queues": ring}}).count("no circle of parents") == 2
    deep = [{"name": "q0"}] + [{"name": f"q{at}", "parent": f"q{at - 1}"} for at in range(1, 6)]
    assert refused({}, {"site": {"queues": deep}}).count("at most 5 queues") == 1


def test_guaranteed_is_at_most_deserved_and_deserved_at_most_the_cap() -> None:
    text = refused({"a.yml": team(guaranteed={"cpu": 3}, deserved={"cpu": 2}, cap=CAP | {"cpu": 1})})
    assert "team.guaranteed.cpu: got 3, expected at most 2, its team_deserved" in text
    assert "team.deserved.cpu: got 2, expected at most 1, its team_cap" in text


def test_the_sum_of_guarantees_is_at_most_what_the_cluster_has() -> None:
    half = {"guaranteed": {"cpu": 3, "memory": "1Gi"}}
    files = {"a.yml": team("a", **half), "b.yml": team("b", **half)}
    assert "team.guaranteed of a, b together.cpu: got 6, expected at most 5, what the cluster has" in refused(
        files, {"site": {"capacity": {"cpu": 5, "memory": "2Gi"}}}
    )
    assert parse_teams(files, {"site": {"capacity": {"cpu": 6, "memory": "2Gi"}}})
    with pytest.raises(SpecError, match="what the cluster has"):
        parse_teams(files, capacity={})


def test_children_together_get_no_more_than_their_parent() -> None:
    site = {"site": {"queues": [{"name": "research", "guaranteed": {"cpu": 4}, "cap": CAP | {"cpu": 8}}]}}
    fields: Json = {"parent": "research", "guaranteed": {"cpu": 3}}
    text = refused({"a.yml": team("a", **fields), "b.yml": team("b", **fields, cap=CAP | {"cpu": 9})}, site)
    assert "of a, b together.cpu: got 6, expected at most 4, team_site_queues[0].guaranteed of research" in text
    assert "team.cap.cpu: got 9, expected at most 8, team_site_queues[0].cap of research above it" in text


def test_a_sum_that_is_too_large_names_the_queues_that_have_a_part_of_it_under_the_file_of_the_first() -> None:
    queue = {"name": "research", "guaranteed": {"cpu": 4, "memory": "4Gi"}, "deserved": {"cpu": 9, "memory": "9Gi"}}
    shares: list[Json] = [{}, {"memory": "3Gi"}, {"cpu": 5, "memory": "3Gi"}]
    of_research = "team_site_queues[0].guaranteed of research"

    def files(**fields: str) -> Json:
        return {f"{name}.yml": team(name, guaranteed=own, cap=CAP | {"cpu": 9}, **fields)
                for name, own in zip("abc", shares, strict=True)}  # fmt: skip

    assert set(refused(files(parent="research"), {"site": {"queues": [queue]}}).splitlines()) == {
        "b.yml: 1 problem",
        f"  team.guaranteed of b, c together.memory: got 6Gi, expected at most 4Gi, {of_research}",
        "c.yml: 1 problem",
        f"  team.guaranteed of c.cpu: got 5, expected at most 4, {of_research}",
    }
    assert refused(files(), {"site": {"capacity": {"cpu": 9, "memory": "4Gi"}}}).splitlines() == [
        "b.yml: 1 problem",
        "  team.guaranteed of b, c together.memory: got 6Gi, expected at most 4Gi, what the cluster has",
    ]


def test_a_cap_is_at_most_that_of_the_nearest_queue_above_that_sets_the_resource() -> None:
    """As in Volcano's webhook: a parent whose memory is unlimited leaves it to its own parent."""
    queues: list[Json] = [
        {"name": "all", "cap": CAP | {"cpu": 8, "memory": "8Gi"}},
        {"name": "research", "parent": "all", "cap": CAP | {"memory": "unlimited"}},
    ]
    files = {"a.yml": team("a", parent="research", cap=CAP | {"cpu": 9, "memory": "9Gi"}, queues=[{"name": "x"}])}
    assert refused(files, {"site": {"queues": queues}}).splitlines()[1:] == [
        "  team.cap.cpu: got 9, expected at most 4, team_site_queues[1].cap of research above it",
        "  team.cap.memory: got 9Gi, expected at most 8Gi, team_site_queues[0].cap of all above it",
    ]
    child: Json = {"name": "x", "cap": CAP | {"memory": "9Gi"}}
    files = {"a.yml": team("a", parent="research", cap=CAP | {"memory": "unlimited"}, queues=[child])}
    text = refused(files, {"site": {"queues": queues}})
    assert "team.queues[0].cap.memory: got 9Gi, expected at most 8Gi, team_site_queues[0].cap of all above it" in text
    assert parse_teams({"a.yml": team("a", parent="research", cap=CAP | {"memory": "8Gi"})}, {
        "site": {"queues": queues}})  # fmt: skip


def test_what_is_guaranteed_is_deserved_too() -> None:
    (queue,) = objects("Queue", [team(guaranteed={"cpu": 2})])
    assert queue["spec"]["deserved"] == {"cpu": "2"} == queue["spec"]["guarantee"]["resource"]


def test_a_team_with_child_queues_may_use_only_these() -> None:
    (space,) = objects("Namespace", [team(queues=[{"name": "batch"}, {"name": "live"}])])
    assert space["metadata"]["annotations"]["gangplank.dev/queues"] == "vision-batch,vision-live"


def test_a_parent_comes_before_its_children() -> None:
    site = {"site": {"queues": [{"name": "b", "parent": "z"}, {"name": "z"}]}}
    queues = [item["metadata"]["name"] for item in objects("Queue", [team("a", parent="b")], site)]
    assert queues == ["z", "b", "a"]


def test_every_role_has_a_binding_so_that_the_last_member_can_leave_it() -> None:
    bindings = objects("RoleBinding", [team()])
    assert {item["metadata"]["name"]: len(item["subjects"]) for item in bindings} == {
        "gangplank-team-viewer": 0,
        "gangplank-team-trainer": 1,
        "gangplank-team-lead": 0,
    }


def test_the_quota_is_the_cap_and_the_claims_of_the_file() -> None:
    fields: Json = {"cap": CAP | {"gpus": 8}, "claims": [{"name": "a", "size": "1Gi"}, {"name": "b", "size": "512Mi"}]}
    (quota,) = objects("ResourceQuota", [team(**fields)], {"site": {"gpu_resource": "amd.com/gpu"}})
    hard = quota["spec"]["hard"]
    assert (hard["requests.amd.com/gpu"], hard["requests.storage"], hard["persistentvolumeclaims"]) == (
        "8",
        "1536Mi",
        "2",
    )


def test_what_a_team_is_granted_is_recorded_in_its_namespace() -> None:
    grants: dict[str, Any] = {
        "secrets": ["bucket"],
        "tolerations": ["dedicated=vision", "spot"],
        "node_labels": ["nvidia.com/gpu.product"],
        "runtime_classes": ["gvisor"],
        "annotation_domains": ["example.com", "example.org"],
    }
    (namespace,) = objects("Namespace", [team(**grants)])
    annotations = namespace["metadata"]["annotations"]
    assert annotations["gangplank.dev/tolerations"] == "dedicated=vision,spot"
    assert annotations["gangplank.dev/domains"] == "example.com,example.org"
    assert annotations["gangplank.dev/resources"] == ""
    (namespace,) = objects("Namespace", [team()])
    assert namespace["metadata"]["annotations"]["gangplank.dev/secrets"] == ""


@pytest.mark.parametrize("name", ["secrets", "tolerations", "node_labels", "runtime_classes", "annotation_domains"])
def test_a_grant_that_names_nothing_or_hides_a_second_one_is_refused(name: str) -> None:
    for text in ("", "a,b", "*", "=a", "a b"):
        grant: dict[str, Any] = {name: [text]}
        assert [item.partition(":")[0] for item in problems(team(**grant))] == [f"team.{name}[0]"]


def test_a_claim_has_the_labels_of_its_file_and_ours() -> None:
    labelled: Json = {"name": "a", "size": "1Gi", "labels": {"app": "data"}}
    (claim,) = objects("PersistentVolumeClaim", [team(claims=[labelled])])
    (other,) = objects("PersistentVolumeClaim", [team(claims=[{"name": "a", "size": "1Gi"}])])
    assert claim["metadata"]["labels"] == {"app": "data", **other["metadata"]["labels"]}


def test_every_member_and_nobody_else_may_list_what_decides_where_jobs_fit() -> None:
    """What `gangplank why` asks for; nothing that names the jobs or users of other teams."""
    members, zoe = [{"user": "ada", "role": "viewer"}, {"group": "sso:vision"}], [{"user": "zoe"}, {"user": "ada"}]
    items = team_objects([parse_team(team("a", members=members)), parse_team(team("b", members=zoe))], SiteSpec())
    bindings = {item["metadata"]["name"]: item for item in items if item["kind"] == "ClusterRoleBinding"}
    names = {name: [subject["name"] for subject in item["subjects"]] for name, item in bindings.items()}
    assert names == {"gangplank-team-cluster-a": ["sso:vision", "ada"], "gangplank-team-cluster-b": ["ada", "zoe"]}
    binding = bindings["gangplank-team-cluster-a"]
    roles = {item["metadata"]["name"]: item for item in items if item["kind"] == "ClusterRole"}
    role = roles[binding["roleRef"]["name"]]
    rights = {(*rule["apiGroups"], *rule["resources"], *rule["verbs"]) for rule in role["rules"]}
    assert rights == {
        ("", "nodes", "get", "list"),
        ("scheduling.volcano.sh", "queues", "get", "list"),
        ("resource.k8s.io", "deviceclasses", "resourceslices", "devicetaintrules", "get", "list"),
        ("scheduling.k8s.io", "priorityclasses", "get", "list"),
        ("storage.k8s.io", "csinodes", "csidrivers", "get", "list"),
    }


def test_who_may_create_jobs_may_lock_them_and_nobody_else() -> None:
    """As cluster/lease.py does it: its annotation is one of those that the admission lets members write."""
    items = team_objects([parse_team(team())], SiteSpec())
    rights = {
        item["metadata"]["name"]: [
            f"{verb} {resource}.{group}"
            for rule in item["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            if group == "coordination.k8s.io"
        ]
        for item in items
        if item["kind"] == "ClusterRole"
    }
    granted = {"viewer": [], "trainer": [*LOCK], "lead": [*LOCK], "cluster": []}
    assert rights == {f"gangplank-team-{role}": verbs for role, verbs in granted.items()}
    assert HOLDER in KEYS


def test_no_member_can_grant_rights_or_change_what_the_admission_reads() -> None:
    items = team_objects([parse_team(team())], SiteSpec())
    rules = [rule for item in items if item["kind"] == "ClusterRole" for rule in item["rules"]]
    writes = {
        (group, resource)
        for rule in rules
        if set(rule["verbs"]) - {"get", "list", "watch"}
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    own = {"namespaces", "queues", "podgroups", "resourcequotas", "limitranges", "serviceaccounts", "priorityclasses"}
    assert {resource for _, resource in writes} & (own | {"*", "persistentvolumeclaims"}) == set()
    assert {group for group, _ in writes} & {"*", "rbac.authorization.k8s.io", "networking.k8s.io"} == set()


@pytest.mark.slow
@given(st.permutations(["ada", "bob", "eve"]), st.permutations(["a", "b", "c"]))
def test_the_same_teams_in_any_order_are_the_same_objects(people: list[str], files: list[str]) -> None:
    def render(users: list[str], order: list[str]) -> str:
        files = {name: team(name, members=[{"user": user} for user in users]) for name in order}
        site, teams = parse_teams(files)
        return json.dumps(team_objects(teams, site))

    assert render(people, files) == render(["ada", "bob", "eve"], ["a", "b", "c"])


def test_objects_share_no_parts_and_have_not_drifted_from_themselves() -> None:
    site, teams = parse_teams({"a.yml": team("a"), "b.yml": team("b")})
    first, second = team_objects(teams, site), team_objects(teams, site)
    assert drift(first, second) == []
    for item in first:
        item["metadata"]["labels"]["x"] = "y"
    assert drift(second, first) == []  # labels of others are not ours
    first[0]["metadata"]["labels"]["gangplank.dev/x"] = "y"
    assert [str(item) for item in drift(second, first)] == [
        (f'{first[0]["kind"]} {first[0]["metadata"]["name"]}: '
        'metadata.labels["gangplank.dev/x"]: wanted nothing, live "y"')
    ]


def test_a_job_starts_from_its_team_s_defaults_and_its_own_values_win() -> None:
    spec = parse_team(
        team(namespace="lab", job_defaults={"image": "i:1", "hyperparameters": {"epochs": 3, "batch_size": 8}})
    )
    job = {"training_job": {"name": "j", "team": "vision", "hyperparameters": {"epochs": 9}}}
    assert with_team(job, [spec])["training_job"] == {
        "namespace": "lab",
        "image": "i:1",
        "hyperparameters": {"epochs": 9, "batch_size": 8},
        "queue": "vision",
        "name": "j",
        "team": "vision",
        "resources": {
            "cpu": {"request": "500m", "limit": "500m"},
            "memory": {"request": "1Gi", "limit": "1Gi"},
        },
    }
    assert with_team({"name": "j"}, [spec]) == {"name": "j"}
    with pytest.raises(SpecError, match=r"team: got .*speech.*, expected a team of the inventory \(vision\)"):
        with_team({"team": "speech"}, [spec])


@pytest.mark.parametrize(
    ("defaults", "job", "absent"),
    [
        ({"max_retries": 9, "ttl_s": 60}, {"backend": "trainjob"}, {"max_retries", "ttl_s", "queue"}),
        ({"hyperparameters": {"epochs": 3}, "output": "/o"}, {"command": ["a"]}, {"hyperparameters", "output"}),
        ({"command": ["a"]}, {"script": "/a.py"}, {"command"}),
        ({"volcano": {"plugins": {"ssh": []}}}, {"backend": "indexed"}, {"volcano", "queue"}),
        ({}, {"backend": "pytorchjob", "pytorchjob": {"gang": False}}, {"queue"}),
        ({"max_retries": 9}, {"backend": "volcano", "script": "/a.py"}, set()),
    ],
)
def test_a_default_that_cannot_be_meant_for_a_job_is_left_out(defaults: Json, job: Json, absent: set[str]) -> None:
    spec = parse_team(team(queues=[{"name": "train"}], job_defaults=defaults))
    whole = with_team({"name": "j", "team": "vision", **job}, [spec])
    assert absent == ({*defaults, "queue"} - {*whole})


def test_a_job_has_to_choose_among_a_team_s_queues() -> None:
    spec = parse_team(team(queues=[{"name": "a"}, {"name": "b"}]))
    assert "queue" not in with_team({"team": "vision"}, [spec])


def test_a_priority_whose_name_belongs_to_kubernetes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"system-mine.*choose a name without system-"):
        parse_site({"site": {"priorities": {"system-mine": 5}}})


@pytest.mark.parametrize(("size", "spelled"), [("1G", "1G"), ("1500M", "1500M"), ("1Gi", "1Gi"), ("1.5Gi", "1536Mi")])
def test_a_quota_of_storage_is_spelled_as_the_api_server_spells_it(size: str, spelled: str) -> None:
    (quota,) = objects("ResourceQuota", [team(claims=[{"name": "d", "size": size}])])
    assert quota["spec"]["hard"]["requests.storage"] == spelled
