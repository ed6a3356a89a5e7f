"""Every back-end has a golden case, a molecule scenario and an admission path; no other room of gangplank names one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gangplank.backends import BACKENDS, DEFAULT
from tools.count_house import BACKENDS as NAMES
from tools.count_house import code

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

ROOT = Path(__file__).resolve().parents[2]


def backend_of_job(path: Path) -> str:
    """The back-end of a job file."""
    return str(yaml.safe_load(path.read_text())["training_job"].get("backend", DEFAULT))


def values(item: Any, key: str) -> Iterator[str]:
    """All values of a key, however deep."""
    if isinstance(item, dict):
        yield from (str(value) for name, value in item.items() if name == key)
    for part in item.values() if isinstance(item, dict) else item if isinstance(item, list) else []:
        yield from values(part, key)


def golden() -> set[str]:
    """The back-ends that have a golden case."""
    cases = [yaml.safe_load(path.read_text()) for path in (ROOT / "tests/golden").glob("*/case.yml")]
    return {(case.get("change") or {}).get("backend") or backend_of_job(ROOT / case["job"]) for case in cases}


def scenarios() -> set[str]:
    """The back-ends on which a molecule scenario trains: those that it names, and those of the shipped jobs it runs."""
    trained = set()
    for path in (ROOT / "molecule").glob("*/converge.yml"):
        text = path.read_text()
        trained |= set(values(yaml.safe_load(text), "scenario_backend"))
        trained |= {backend_of_job(job) for job in (ROOT / "jobs").glob("*.yml") if f"/jobs/{job.name}" in text}
    return trained


def admitted() -> set[str]:
    """The back-ends whose own kind a team's admission judges."""
    return {
        name
        for name, backend in BACKENDS.items()
        for path in backend.admission
        if path.group == backend.api_version.rpartition("/")[0] and backend.plural in path.resources
    }


def lacking() -> list[str]:
    """What back-ends lack."""
    owners = {
        "golden case (tests/golden)": golden(),
        "molecule scenario (molecule/NAME/converge.yml)": scenarios(),
        "admission path (Backend.admission)": admitted(),
    }
    return [f"{name}: no {what}" for name in BACKENDS for what, names in owners.items() if name not in names]


def test_every_back_end_has_a_golden_case_a_scenario_and_an_admission_path() -> None:
    assert lacking() == []


def test_a_back_end_without_them_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "toy", replace(BACKENDS["indexed"], name="toy", api_version="toys.example.com/v1"))
    assert lacking() == [
        "toy: no golden case (tests/golden)",
        "toy: no molecule scenario (molecule/NAME/converge.yml)",
        "toy: no admission path (Backend.admission)",
    ]


def test_no_module_outside_backends_names_one() -> None:
    components = ROOT / "gangplank/site/components.py"  # Volcano is a component, too: what site.yml installs
    modules = (path for path in (ROOT / "gangplank").rglob("*.py") if "backends" not in path.parts)
    assert [str(path.relative_to(ROOT)) for path in modules if path != components and NAMES.search(code(path))] == []
