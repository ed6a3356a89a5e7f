"""The Ansible filters convert, call, and translate the error."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def filters() -> dict[str, Any]:
    place = ROOT / "plugins/filter/gangplank.py"
    found = importlib.util.spec_from_file_location("gangplank_filter", place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    result: dict[str, Any] = module.FilterModule().filters()
    return result


def digits() -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    return job


def test_adds_the_checkout_to_the_path(filters: dict[str, Any]) -> None:
    assert filters
    assert str(ROOT) in sys.path


def test_makes_manifests(filters: dict[str, Any]) -> None:
    made = filters["gangplank_manifests"](digits()["training_job"], "jobs/digits.yml")
    assert [manifest["kind"] for manifest in made] == ["Job"]


def test_describes_the_job_with_its_pods_in_the_order_of_their_ranks(filters: dict[str, Any]) -> None:
    told = filters["gangplank_job"](digits())
    assert told["pods"] == ["digits-master-0", "digits-worker-0", "digits-worker-1"]
    assert (told["namespace"], told["backend"], told["world_size"]) == ("default", "volcano", 3)
    assert told["ranks"][2] == {"role": "worker", "index": 1, "rank": 2, "pod": "digits-worker-1"}


def test_translates_the_error_with_all_its_lines(filters: dict[str, Any]) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        filters["gangplank_manifests"]({"name": False, "workers": "x"}, "jobs/mine.yml")
    text = str(caught.value)
    assert "jobs/mine.yml: 3 problems\n" in text
    assert caught.value.__cause__ is None
