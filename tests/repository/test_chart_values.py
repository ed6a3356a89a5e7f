"""values.yaml and values.schema.json of every chart say the same, and the schema refuses what is wrong."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from gangplank.k8s.names import RESOURCE
from gangplank.site.preflight import OLDEST

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
CHARTS = sorted(path.parent for path in ROOT.glob("charts/*/Chart.yaml"))
each_chart = pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
Keys = tuple[str, ...]


def values(chart: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((chart / "values.yaml").read_text()) or {})


def schema(chart: Path) -> dict[str, Any]:
    return dict(json.loads((chart / "values.schema.json").read_text()))


@each_chart
def test_its_oldest_kubernetes_is_that_of_preflight(chart: Path) -> None:
    """`-0` lets the versions of vendors pass, such as v1.30.5-gke.1, where Helm is older than ours."""
    oldest = ".".join(map(str, OLDEST))
    assert yaml.safe_load((chart / "Chart.yaml").read_text())["kubeVersion"] == f">={oldest}.0-0"


def resolved(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The node itself, or what its local $ref points to."""
    while "$ref" in node:
        target: Any = root
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target | {key: value for key, value in node.items() if key != "$ref"}
    return node


def leaves(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield every value that is not a mapping with keys, and where it is."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path, value


def stated(chart: Path, path: Keys) -> dict[str, Any] | None:
    """The schema of the value at this path: that of its property, or that of all further keys."""
    root = schema(chart)
    node = root
    for key in path:
        node = resolved(node, root)
        further = node.get("additionalProperties")
        inner = node.get("properties", {}).get(key, further if isinstance(further, dict) else None)
        if inner is None:
            return None
        node = inner
    return resolved(node, root)


def objects(node: dict[str, Any], root: dict[str, Any], path: Keys = ()) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """Yield every object of the schema and where it is; [] stands for the items of a list."""
    node = resolved(node, root)
    kinds = node.get("type", [])
    if "object" in ([kinds] if isinstance(kinds, str) else kinds):
        yield path, node
    for key, inner in node.get("properties", {}).items():
        yield from objects(inner, root, (*path, key))
    if isinstance(node.get("items"), dict):
        yield from objects(node["items"], root, (*path, "[]"))
    if isinstance(node.get("additionalProperties"), dict):
        yield from objects(node["additionalProperties"], root, (*path, "{}"))


def refuses(chart: Path, instance: dict[str, Any]) -> bool:
    return bool(list(jsonschema.Draft7Validator(schema(chart)).iter_errors(instance)))


def with_leaf(tree: dict[str, Any], path: Keys, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(tree)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def wrong(value: Any, said: dict[str, Any]) -> list[Any]:
    """Values of other types than this one has."""
    if isinstance(value, list):
        return ["text", {"a": 1}, 7]
    if isinstance(value, dict):
        return ["text", ["a"], 7]
    others: list[Any] = [["a"], {"a": 1}]
    if isinstance(value, bool):
        return [*others, "text", 7]
    if isinstance(value, int | float):
        return [*others, "text", True]
    return [*others, True] if "boolean" not in str(said.get("type")) else others


def test_there_are_charts() -> None:
    assert "lab-dns" in {chart.name for chart in CHARTS}


@each_chart
def test_the_values_satisfy_the_schema(chart: Path) -> None:
    jsonschema.Draft7Validator.check_schema(schema(chart))
    assert not refuses(chart, values(chart))


@each_chart
def test_every_value_is_in_the_schema(chart: Path) -> None:
    assert [".".join(path) for path, _ in leaves(values(chart)) if not stated(chart, path)] == []


@each_chart
def test_every_property_of_the_schema_is_a_value(chart: Path) -> None:
    """`global` is Helm's own; what the items of a list hold has no default."""
    known_paths = {path[:depth] for path, _ in leaves(values(chart)) for depth in range(len(path) + 1)}
    open_ones = {path for path, value in leaves(values(chart)) if value in ({}, [], None)}
    missing = []
    for path, node in objects(schema(chart), schema(chart)):
        for key in node.get("properties", {}):
            here = (*path, key)
            inside = any(here[: len(top)] == top and len(here) > len(top) for top in open_ones)
            if here != ("global",) and not inside and here not in known_paths and not {"[]", "{}"} & set(here):
                missing.append(".".join(here))
    # A form that Kubernetes owns (requests and limits, for one) may be filled in part.
    assert [path for path in missing if path.split(".")[-2:-1] not in (["requests"], ["limits"])] == []


@each_chart
def test_no_object_of_the_schema_lets_unknown_keys_through(chart: Path) -> None:
    """`global` is Helm's own, and a map has a form for whatever its keys are."""
    nodes = objects(schema(chart), schema(chart))
    holes = [path for path, node in nodes if node.get("additionalProperties", True) is True and path != ("global",)]
    assert [".".join(path) or "(top)" for path in holes] == []


@each_chart
def test_an_unknown_key_is_refused(chart: Path) -> None:
    tree = values(chart)
    tops = {path[:depth] for path, _ in leaves(tree) for depth in range(len(path))}
    closed = [path for path in tops if (said := stated(chart, path)) and said.get("additionalProperties") is False]
    assert () in closed
    assert [path for path in closed if not refuses(chart, with_leaf(tree, (*path, "noSuchKey"), 1))] == []


@each_chart
def test_a_value_of_the_wrong_type_is_refused(chart: Path) -> None:
    tree = values(chart)
    taken = []
    for path, value in leaves(tree):
        said = stated(chart, path) or {}
        taken += [(path, bad) for bad in wrong(value, said) if not refuses(chart, with_leaf(tree, path, bad))]
    assert taken == []


@each_chart
def test_every_value_has_a_comment_that_explains_it(chart: Path) -> None:
    """`# --` stands above each value, or above the mapping of Kubernetes' own that it is part of."""
    lines = (chart / "values.yaml").read_text().splitlines()
    bare: list[str] = []
    explained: list[int] = []
    for number, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith(("#", "-")):
            continue
        indent = len(line) - len(line.lstrip())
        explained = [level for level in explained if level < indent]
        above = number
        while above and lines[above - 1].strip().startswith("#"):
            above -= 1
        if any(text.strip().startswith("# --") for text in lines[above:number]):
            explained.append(indent)
        elif not explained and not line.rstrip().endswith(":"):
            bare.append(line.strip())
    assert bare == []


def test_the_simulated_gpus_accept_the_resource_names_of_the_library() -> None:
    assert schema(ROOT / "charts/simulated-gpu")["properties"]["resource"]["pattern"] == f"^({RESOURCE.pattern})$"


def test_a_refusal_of_a_template_has_the_shape_of_all_errors() -> None:
    calls = {
        call
        for path in ROOT.glob("charts/*/templates/**/*")
        if path.is_file()
        for call in re.findall(r'\bfail \(?(?:printf )?"([^"]*)"', path.read_text())
    }
    assert len(calls) >= 7
    assert [call for call in calls if not re.fullmatch(r"\S+: got .+, expected .+\. Fix: .+", call)] == []
