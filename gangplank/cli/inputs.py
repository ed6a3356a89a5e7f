"""Reads the arguments of commands: job files, raw manifests, and the scripts and teams that jobs name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.reading.files import JOB_FILE, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplank.errors import Problem
    from gangplank.jobs.site_gpus import Gpus
    from gangplank.spec import JobSpec, Json
    from gangplank.teams.spec import TeamSpec

ROOT = Path(__file__).resolve().parents[2]  # of a checkout; jobs name their scripts from there


def kinds() -> str:
    """What a file with a job can be, for a message."""
    from gangplank.backends import BACKENDS

    *others, last = (backend.title for backend in BACKENDS.values())
    return f"a job file, or the manifest of a {', '.join(others)} or {last}"


def jobless(source: str, other_kinds: Sequence[str] = ()) -> Problem:
    """What is wrong with files that hold no job, only objects of other kinds."""
    from gangplank.errors import Problem

    return Problem(source, f"no job, only {', '.join(other_kinds)}" if other_kinds else "no job", kinds(), JOB_FILE)


def read_scripts(job: object, root: Path | None = None) -> dict[str, str]:
    """The text of the script that a job names by a relative path, looked up in the current folder, then in `root`."""
    inner = job.get("training_job", job) if isinstance(job, Mapping) else None
    path = inner.get("script") if isinstance(inner, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) else None
    if isinstance(code, str) and code and "\x00" not in code and not code.startswith("/"):
        return next((files for folder in (Path(), root) if folder and (files := read_folder(folder, code))), {})
    if not isinstance(path, str) or not path or path.startswith("/") or "\x00" in path:
        return {}
    for folder in (Path(), root):
        if folder is None:
            continue
        try:
            return {path: (folder / path).read_bytes().decode("utf-8")}
        except (OSError, UnicodeDecodeError):
            continue
    return {}


def read_folder(start: Path, code: str) -> dict[str, str]:
    """The files of a folder that travels with its script, no more than it may have, as text with surrogate escapes.

    Left out is what an interpreter or a tool makes: __pycache__ and names with a leading dot.
    """
    from gangplank.errors import Problem, Unreadable
    from gangplank.jobs.parse import CODE_LIMIT, FILES_LIMIT

    top, files, size = start / code, dict[str, str](), 0
    for place in sorted(top.rglob("*")):
        parts = place.relative_to(top).parts
        if any(part.startswith(".") or part == "__pycache__" for part in parts):
            continue
        if place.is_symlink():
            fix = "replace it by what it leads to, or leave it out"
            raise Unreadable(str(Problem(str(place), "a link", "files and folders alone in `code`", fix)))
        if not place.is_file():
            continue
        try:
            octets = place.read_bytes() if place.stat().st_size <= CODE_LIMIT else bytes(CODE_LIMIT + 1)
        except OSError as error:
            expected, fix = "a file that can be read", "change its mode, or move it elsewhere"
            raise Unreadable(str(Problem(str(place), error.strerror or str(error), expected, fix))) from None
        files["/".join((code.rstrip("/"), *parts))] = octets.decode("utf-8", "surrogateescape")
        size += len(octets)
        if size > CODE_LIMIT or len(files) > FILES_LIMIT:
            break
    return files


def gather(
    names: Sequence[str], backend: str | None, site: str | None = None, namespace: str | None = None,
    *, grants: bool = True,
) -> tuple[list[Json], list[tuple[str, Json]], list[str]]:
    """What files hold: everything that would be submitted, the jobs in it by back-end, and the kinds of the rest.

    `site` is its inventory: a job with GPUs tolerates the taints of its nodes. A job that names its team starts from
    that team's values, and is refused what they do not grant; so is a raw manifest in a team's namespace. Without
    `grants` that is not checked: a job that exists was allowed once. `namespace` is of those without one.
    """
    from gangplank.backends import backend_of
    from gangplank.errors import Problem, SpecError, shown

    submitted = [item for name in names for item in read_objects(name, backend, site, namespace, grants=grants)]
    for number, item in enumerate(submitted, start=1):
        if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
            problem = Problem(f"document {number}", shown(item), "an object with apiVersion and kind")
            raise SpecError([problem], names[0])
    by_backend = [(backend_of(item), item) for item in submitted]
    jobs = [(name, item) for name, item in by_backend if name]
    if backend and any(name != backend for name, _ in jobs):
        raise SpecError([Problem("--backend", backend, "nothing, as a raw manifest has its back-end")], names[0])
    return submitted, jobs, [str(item["kind"]) for name, item in by_backend if not name]


def read_objects(
    name: str, backend: str | None, site: str | None, namespace: str | None = None, *, grants: bool = True
) -> list[Any]:
    """What one file submits: raw manifests as they are, or the manifests of its jobs."""
    from gangplank.backends import BACKENDS
    from gangplank.errors import Problem, SpecError
    from gangplank.jobs.parse import parse_job
    from gangplank.jobs.site_gpus import on_site
    from gangplank.reading.strict_yaml import documents

    text = read(name)
    raw = documents(text, name, strict=False)
    if not raw:
        raise SpecError([Problem("file", "nothing", kinds(), JOB_FILE)], name)
    objects: list[Any] = []
    if any(isinstance(item, dict) and "apiVersion" in item for item in raw):
        for item in raw:
            objects += item.get("items") or [] if is_list(item) else [item]
        if site and grants:
            from gangplank.teams.grants import check_manifests

            complete = [item for item in objects if isinstance(item, dict)]
            check_manifests(complete, site_teams(site), name, namespace or "")
        return objects
    jobs = documents(text, name, strict=True)
    specs = site_teams(site) if site else None
    gpus = site_gpus(site) if site and jobs else None
    for document in jobs:
        job = with_backend(document, backend) if backend and isinstance(document, dict) else document
        job = from_team(job, specs, name) if specs is not None else job
        spec = parse_job(job, name, read_scripts(job, ROOT))
        spec = on_site(spec, gpus, name) if gpus else spec
        if specs is not None and grants:
            granted(spec, specs, name)
        objects += BACKENDS[spec.backend].manifests(spec)
    return objects


def is_list(item: object) -> bool:
    """Whether a document is kubectl's List of objects."""
    return isinstance(item, dict) and item.get("kind") == "List" and isinstance(item.get("items"), list)


def with_backend(job: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The job on another back-end."""
    if isinstance(job.get("training_job"), dict):
        return {**job, "training_job": {**job["training_job"], "backend": backend}}
    return {**job, "backend": backend}


def site_teams(inventory: str) -> Sequence[TeamSpec]:
    """The teams of a site's inventory."""
    from gangplank.teams.load import load

    return load(inventory)[1]


def site_gpus(inventory: str) -> Gpus:
    """What an inventory says about the site's GPU nodes, as the role training_job reads it."""
    from gangplank.jobs.site_gpus import VARIABLES, read_gpus
    from gangplank.teams.inventory import load_variables

    return read_gpus(load_variables(inventory, VARIABLES), inventory)


def from_team(job: object, teams: Sequence[TeamSpec], source: str) -> Any:
    """The job with its team's defaults."""
    from gangplank.teams.job_defaults import with_team

    return with_team(job, teams, source)


def granted(spec: JobSpec, teams: Sequence[TeamSpec], source: str) -> None:
    """Refuse a job that asks for what its team's file does not grant."""
    from gangplank.teams.grants import check_job

    check_job(spec, teams, source)
