"""What holds for every job."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gangplank.backends import BACKENDS, backend_of, wiring
from gangplank.backends.base import RANDOM, Site
from gangplank.cli import tables
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job
from gangplank.k8s import names, quantity
from gangplank.k8s.dump import as_yaml
from gangplank.k8s.manifest import without_nulls
from tests.support.strategies import jobs
from tests.support.sweeps import examples

Json = dict[str, Any]
SOME = settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])


def everything(job: Json) -> tuple[Any, list[Json], list[Json]]:
    spec = parse_job(job)
    manifests = BACKENDS[spec.backend].manifests(spec)
    return spec, manifests, BACKENDS[spec.backend].objects(manifests[-1], Site())


def pods(objects: list[Json]) -> list[Json]:
    return [item for item in objects if item["kind"] == "Pod"]


@SOME
@given(jobs())
def test_gpus_asked_for_are_gpus_given(job: Json) -> None:
    spec, _, objects = everything(job)
    given_gpus = sum(
        (
            quantity.parse(c["resources"]["limits"].get("nvidia.com/gpu", "0"))
            if "limits" in c["resources"]
            else Fraction(0)
        )
        for pod in pods(objects)
        for c in pod["spec"]["containers"]
    )
    assert given_gpus == spec.resources.gpus * spec.replicas
    for pod in pods(objects):
        resources = pod["spec"]["containers"][0]["resources"]
        assert resources["requests"].get("nvidia.com/gpu") == resources.get("limits", {}).get("nvidia.com/gpu")


@pytest.mark.slow
@SOME
@given(jobs())
def test_every_name_is_one_that_kubernetes_allows(job: Json) -> None:
    _, manifests, objects = everything(job)
    for item in [*manifests, *objects]:
        name = item["metadata"]["name"].replace(RANDOM, "abcde").replace("<uid>", "0" * 8)
        assert names.SUBDOMAIN.fullmatch(name), name
        if item["kind"] in {"Pod", "Service"}:
            assert names.DNS1123.fullmatch(name), name
        for part in ("hostname", "subdomain"):
            if part in item.get("spec", {}):
                assert names.DNS1123.fullmatch(item["spec"][part])
        for key, text in item["metadata"].get("labels", {}).items():
            assert names.is_key(key)
            assert names.is_value(text.replace("<uid>", "0")), (key, text)


@SOME
@given(jobs())
def test_ranks_run_from_zero_without_a_gap_and_all_meet_at_one_place(job: Json) -> None:
    spec, _, objects = everything(job)
    facts = [wiring.pod_wiring(pod) for pod in pods(objects)]
    assert sorted(int(fact["rank"]) for fact in facts) == list(range(spec.replicas))
    assert len({fact["master"] for fact in facts}) == 1
    address = wiring.master_addr(spec)
    assert facts[0]["master"].startswith(f"{address}:")
    first = next(pod for pod, fact in zip(pods(objects), facts, strict=True) if fact["rank"] == "0")
    host = first["spec"].get("hostname") or first["metadata"]["name"]
    assert address.split(".")[0] == host


@SOME
@given(jobs())
def test_pods_are_those_that_the_wiring_foretells(job: Json) -> None:
    spec, _, objects = everything(job)
    foretold = [replica.pod for replica in wiring.replicas(spec)]
    assert [pod["metadata"]["name"].removesuffix(f"-{RANDOM}") for pod in pods(objects)] == foretold


@SOME
@given(jobs())
def test_the_gang_is_whole_unless_a_smaller_one_is_asked_for(job: Json) -> None:
    spec, _, objects = everything(job)
    groups = [item["spec"]["minMember"] for item in objects if item["kind"] == "PodGroup"]
    if spec.backend in {"volcano", "pytorchjob"}:
        assert groups == [spec.min_available or spec.replicas]
    else:
        assert groups == []


@pytest.mark.slow
@SOME
@given(jobs())
def test_expanding_twice_is_equal_leaves_the_input_alone_and_is_json(job: Json) -> None:
    before = copy.deepcopy(job)
    _, manifests, objects = everything(job)
    assert job == before
    kept = copy.deepcopy(manifests)
    assert everything(job)[1:] == (manifests, objects)
    assert manifests == kept
    assert json.loads(json.dumps([manifests, objects])) == [manifests, objects]


@SOME
@given(jobs())
def test_objects_share_nothing_with_the_manifest_or_each_other(job: Json) -> None:
    _, manifests, objects = everything(job)
    again = everything(job)
    ids: set[int] = set()

    def walk(value: Any) -> None:
        if isinstance(value, dict | list) and value:
            assert id(value) not in ids
            ids.add(id(value))
            for item in value.values() if isinstance(value, dict) else value:
                walk(item)

    walk(objects)
    walk(manifests)
    walk(again[1])
    walk(again[2])


@pytest.mark.slow
@SOME
@given(jobs())
def test_yaml_of_a_manifest_is_read_back_and_expands_alike(job: Json) -> None:
    from gangplank.reading.strict_yaml import documents

    spec, manifests, objects = everything(job)
    again = documents(as_yaml(manifests), "a.yml", strict=False)
    assert again == manifests
    assert BACKENDS[spec.backend].objects(again[-1], Site()) == objects
    assert backend_of(again[-1]) == spec.backend
    assert tables.pods_table(objects)


scalars = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=5))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@settings(max_examples=examples(300))
@given(anything)
def test_any_value_is_a_job_or_is_refused(value: Any) -> None:
    try:
        parse_job(value)
    except SpecError as error:
        assert error.problems


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, Json]:
    """A manifest of ours with one leaf or branch replaced by anything."""
    backend = draw(st.sampled_from(tuple(BACKENDS)))
    spec = parse_job(draw(jobs(backend, most=2)))
    manifest = BACKENDS[backend].manifests(spec)[-1]
    at: Any = manifest
    for _ in range(draw(st.integers(1, 12))):
        inner = list(at) if isinstance(at, dict) else list(range(len(at)))
        assume(inner)
        key = draw(st.sampled_from(inner))
        if not isinstance(at[key], dict | list) or not at[key] or draw(st.integers(0, 5)) == 0:
            at[key] = draw(anything)
            break
        at = at[key]
    return backend, manifest


@pytest.mark.slow
@settings(max_examples=examples(400),
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])  # fmt: skip
@given(broken())
def test_a_broken_manifest_is_expanded_or_refused(case: tuple[str, Json]) -> None:
    backend, manifest = case
    before = repr(manifest)
    try:
        objects = BACKENDS[backend].objects(manifest, Site())
    except SpecError as error:
        assert error.problems
    else:
        tables.pods_table(objects)
        tables.others_table(objects)
    assert repr(manifest) == before
    without_nulls(manifest)


@pytest.mark.parametrize("source", [[], {"fieldRef": []}, {"fieldRef": {"fieldPath": []}}])
def test_a_variable_whose_source_has_another_form_is_refused(source: object) -> None:
    env = [{"name": "A", "valueFrom": source}]
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "img", "env": env}},
    }
    with pytest.raises(SpecError, match=r"TrainJob\.spec\.trainer\.env\[0\]\.valueFrom.*: got \[\], expected"):
        BACKENDS["trainjob"].objects(manifest, Site())
