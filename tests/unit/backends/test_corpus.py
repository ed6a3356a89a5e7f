"""Every shipped job, wrong in every place in every way: a message, never a traceback, never a hang."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gangplank.backends import BACKENDS
from gangplank.backends.base import Site
from gangplank.errors import SpecError
from gangplank.jobs.parse import parse_job

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
JOBS = sorted((ROOT / "jobs").glob("*.yml"))
GONE = object()
LONG = "a" * 70_000
BAD: tuple[Any, ...] = (
    GONE, None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.1, -0.0, 1e308, float("inf"), float("nan"),
    "", " ", "0", "-1", "two", "8", "1_000", "0x10", "١٢", "1e400", "1Gi", "-1Gi", "1 Gi", "1KiB", "9" * 40, LONG,
    "no", "null", "~", "NaN", "${HOME}", "$(RANK)", "{{ 1 }}", "{% raw %}", "../../etc/passwd", "/", "//", "/a\x00b",
    "a\nb", "a\r\nb", "\ufeffa", "\u202eabc", "ß" * 64, "😀", "\ud800", "a/b/c", "a..b", "-a", "a-", "A", ".", "*", "'",
    '"', "; rm -rf /", "<script>", "%s%n", "a:b", "a,b",
    [], [[]], [None], ["a"], {}, {"": ""}, {"a": None}, {1: 2}, {None: None}, {True: "x"}, b"bytes", (1,), {1, 2},
    object(),
)  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a job, the inner ones too."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in parts:
        yield from leaves(item, (*path, key))


def changed(job: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    copied = copy.deepcopy(job)
    at: Any = copied
    for key in path[:-1]:
        at = at[key]
    if value is GONE:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return copied


def attempt(job: dict[str, Any]) -> str:
    """The message, or nothing when the job is accepted and expands."""
    try:
        spec = parse_job(job, "job.yml", {"trainer/linear.py": "print()"})
    except SpecError as error:
        assert str(error).startswith("job.yml: ")
        assert len(str(error)) < 6000
        str(error).encode("utf-8", "replace")
        return str(error)
    BACKENDS[spec.backend].objects(BACKENDS[spec.backend].manifests(spec)[-1], Site()) if spec.workers < 100 else None
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("file", JOBS, ids=lambda path: path.stem)
def test_a_job_wrong_in_any_place_is_refused_with_a_message_or_runs(file: Path) -> None:
    job = yaml.safe_load(file.read_text())
    assert attempt(job) == ""
    refused = sum(bool(attempt(changed(job, path, value))) for path in leaves(job) for value in BAD)
    assert refused > 0.8 * len(BAD)  # of each place some values are right, but most are not


@pytest.mark.parametrize("file", JOBS, ids=lambda path: path.stem)
def test_a_misspelled_field_is_refused_by_name(file: Path) -> None:
    job = yaml.safe_load(file.read_text())
    for path in leaves(job):
        if isinstance(path[-1], str) and len(path) > 1 and path[1] not in {"env", "labels", "annotations"}:
            misspelled = changed(job, path, GONE)
            at: Any = misspelled
            for key in path[:-1]:
                at = at[key]
            at[f"{path[-1]}x"] = 1
            assert f"{path[-1]}x" in attempt(misspelled)


def test_the_message_names_the_place() -> None:
    job = yaml.safe_load((ROOT / "jobs/digits.yml").read_text())
    text = attempt(changed(job, ("training_job", "volumes", 0, "mount"), "data"))
    assert 'training_job.volumes[0].mount: got "data"' in text


RAW: tuple[Any, ...] = (GONE, None, True, -1, 10**9, 0.5, "", "two", LONG, [], [None], ["a"], {}, {"a": None}, {1: 2})


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_raw_manifest_wrong_in_any_place_is_refused_with_a_message_or_expands(backend: str) -> None:
    job = yaml.safe_load((ROOT / "jobs/digits-anywhere.yml").read_text())["training_job"]
    manifest = BACKENDS[backend].manifests(parse_job({**job, "backend": backend, "workers": 1}))[-1]
    refused = 0
    for path in leaves(manifest):
        for value in RAW:
            broken = changed(manifest, path, value)
            try:
                BACKENDS[backend].objects(broken, Site())
            except SpecError as error:
                refused += 1
                assert len(str(error)) < 6000
    assert refused > 100
