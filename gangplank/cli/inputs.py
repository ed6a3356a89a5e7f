"""Reads the arguments of commands: job files, raw manifests, and the scripts and teams that jobs name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gangplank.reading.files import JOB_FILE, is_file, read

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gangplank.errors import GangplankError, Problem
    from gangplank.jobs.site_settings import Settings
    from gangplank.spec import JobSpec, Json
    from gangplank.teams.spec import TeamSpec

METADATA = "write it as Kubernetes has it, e.g. metadata: {name: digits, labels: {team: vision}}"
PATHS = (".yml", ".yaml", ".json")  # ends of a word that is more likely a path than the name of a job
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


def is_path(word: str) -> bool:
    """Whether a word means a file, not the name of a job. With a slash it can be no name, so the file is missing.

    >>> is_path("jobs/none.yml"), is_path("digits"), is_path("none.yml")
    (True, False, False)
    """
    return "/" in word or is_file(Path(word))


def refuse_site(args: argparse.Namespace) -> None:
    """Refuse a site's inventory without a job file: it decides nothing about a job that exists."""
    if args.site:
        from gangplank.cli.terminal import UsageError
        from gangplank.errors import Problem

        got = f"it with {args.job}, which is not a file" if args.job else "it without a job"
        raise UsageError(str(Problem("--site", got, "it with a job file", "leave out --site, or name the job's file")))


def nothing(word: str, namespace: str, otherwise: str) -> GangplankError:
    """The error about a word that is neither a file nor the name of a job; `otherwise` ends its fix."""
    from gangplank.errors import KubeError, Problem, Unreadable

    if word.endswith(PATHS):
        got = f"no such file, and no job of this name in namespace {namespace}"
        return Unreadable(str(Problem(word, got, "a job file, or the name of a job", JOB_FILE)))
    fix = f"name a job that `gangplank status -n {namespace}` lists, or another namespace with -n, or {otherwise}"
    return KubeError(Problem(f"job {word}", f"nothing in namespace {namespace}", "a job of this name", fix), 404)


def read_scripts(job: object, root: Path | None = None) -> dict[str, str]:
    """The text of the script that a job names by a relative path, looked up in the current folder, then in `root`."""
    inner = job.get("training_job", job) if isinstance(job, Mapping) else None
    path = inner.get("script") if isinstance(inner, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) else None
    if isinstance(code, str) and code and "\x00" not in code and not code.startswith("/"):
        return next((files for folder in (Path(), root) if folder and (files := read_folder(folder, code))), {})
    if not isinstance(path, str) or not path or path.startswith("/") or "\x00" in path:
        return {}
    places = [folder / path for folder in (Path(), root) if folder is not None and is_file(folder / path)]
    return {path: read_script(places[0])} if places else {}


def read_script(place: Path) -> str:
    """The text of a script, of no more bytes than it may have."""
    from gangplank.errors import Problem, Unreadable
    from gangplank.jobs.parse import SCRIPT_LIMIT, TOO_LONG

    if (size := place.stat().st_size) > SCRIPT_LIMIT:
        raise Unreadable(str(Problem(str(place), f"{size} bytes", *TOO_LONG)))
    return read(str(place), fix="change its mode, or name another script")


def read_folder(start: Path, code: str) -> dict[str, str]:
    """The files of a folder that travels with its script, as text with surrogate escapes; raises if it cannot travel.

    Left out is what an interpreter or a tool makes: __pycache__ and names with a leading dot.
    """
    from gangplank.backends.code_pieces import MOST_BYTES, MOST_FILES
    from gangplank.errors import Problem, Unreadable

    top, files, sizes = start / code, dict[str, str](), dict[str, int]()
    names = folder_names(top)
    try:
        for name in names[: MOST_FILES + 1]:
            sizes[name] = (top / name).stat().st_size
        if len(names) > MOST_FILES or sum(sizes.values()) > MOST_BYTES:
            largest = max(sizes, key=lambda name: sizes[name])
            least = "at least " if len(names) > MOST_FILES else ""
            got = f"{least}{len(names)} files with {sum(sizes.values())} bytes, of which {largest} has {sizes[largest]}"
            expected = f"at most {MOST_FILES} files with {MOST_BYTES} bytes, as they lie in the cluster's own store"
            fix = "leave out data, keep it on a volume or in a bucket; put large packages into an image"
            raise Unreadable(str(Problem(str(top), got, expected, fix)))
        for name in names:
            files[f"{code.rstrip('/')}/{name}"] = (top / name).read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise Unreadable(str(unreadable(error))) from None
    return files


def folder_names(top: Path) -> list[str]:
    """The files below a folder that would travel; raises with all that cannot."""
    from gangplank.backends.code_pieces import MOST_FILES
    from gangplank.errors import Problem, Unreadable

    names, problems = list[str](), list[Problem]()
    for folder, folders, files in os.walk(top, onerror=lambda error: problems.append(unreadable(error))):
        if len(names) > MOST_FILES:  # a home folder may have millions
            break
        folders[:] = filter(travels, folders)
        for name in [*folders, *filter(travels, files)]:
            place = Path(folder, name)
            if place.is_symlink():
                got, fix = "a link", "replace it by what it leads to, or leave it out"
            elif not (place.is_dir() or place.is_file()):
                got, fix = "neither a file nor a folder", "leave it out"
            elif not is_utf8(name):
                got, fix = "a name that is not UTF-8", "rename it"
            else:
                names += [str(place.relative_to(top))] if place.is_file() else []
                continue
            shown = str(place).encode("utf-8", "backslashreplace").decode()
            problems.append(Problem(shown, got, "files and folders alone in `code`", fix))
    if problems and top.is_dir():
        raise Unreadable("\n  ".join(map(str, problems)))
    return sorted(names)


def unreadable(error: OSError) -> Problem:
    """Why a file or a folder of `code` cannot travel."""
    from gangplank.errors import Problem

    got, expected = error.strerror or str(error), "what can be read"
    return Problem(str(error.filename), got, expected, "change its mode, or move it elsewhere")


def travels(name: str) -> bool:
    """Whether a file or folder of that name travels."""
    return name != "__pycache__" and not name.startswith(".")


def is_utf8(name: str) -> bool:
    """Whether a name can be written in a manifest."""
    return name == name.encode("utf-8", "replace").decode()


def gather(
    names: Sequence[str], backend: str | None, site: str | None = None, namespace: Callable[[], str] = str,
    *, named: str | None = None, grants: bool = True,
) -> tuple[list[Json], list[tuple[str, Json]], list[str]]:
    """What files hold: everything that would be submitted, the jobs in it by back-end, and the kinds of the rest.

    `site` is its inventory, whose settings the jobs get. A job that names its team starts from
    that team's values, and is refused what they do not grant; so is a raw manifest in a team's namespace. Without
    `grants` that is not checked: a job that exists was allowed once. `namespace` returns that of manifests that name
    none; "" where nobody knows it. `named` is that of job files that name neither namespace nor team.
    """
    from gangplank.backends import backend_of
    from gangplank.errors import GangplankError, Problem, SpecError

    submitted: list[Json] = []
    errors: list[GangplankError] = []
    for name in names:
        try:
            submitted += read_objects(name, backend, site, namespace, named=named, grants=grants)
        except GangplankError as error:  # the next file may have some too
            errors.append(error)
    refuse_all(errors)
    by_backend = [(backend_of(item), item) for item in submitted]
    jobs = [(name, item) for name, item in by_backend if name]
    if backend and any(name != backend for name, _ in jobs):
        raise SpecError([Problem("--backend", backend, "nothing, as a raw manifest has its back-end")], names[0])
    return submitted, jobs, [str(item["kind"]) for name, item in by_backend if not name]


def read_objects(
    name: str, backend: str | None, site: str | None, namespace: Callable[[], str] = str,
    *, named: str | None = None, grants: bool = True,
) -> list[Any]:
    """What one file submits: raw manifests as they are, or the manifests of its jobs."""
    from gangplank.backends import BACKENDS
    from gangplank.errors import GangplankError, Problem, SpecError
    from gangplank.jobs.parse import parse_job
    from gangplank.jobs.site_settings import on_site
    from gangplank.reading.strict_yaml import documents

    text = read(name)
    raw = documents(text, name, strict=False)
    if not raw:
        raise SpecError([Problem("file", "nothing", kinds(), JOB_FILE)], name)
    objects: list[Any] = []
    if any(isinstance(item, dict) and "apiVersion" in item for item in raw):
        for item in raw:
            objects += item.get("items") or [] if is_list(item) else [item]
        check_objects(objects, name, new=grants)
        if site and grants:
            from gangplank.teams.grants import check_manifests

            check_manifests(objects, site_teams(site), name, namespace)
        return objects
    problems, others = list[Problem](), list[GangplankError]()
    try:
        jobs = documents(text, name, strict=True)
    except SpecError as error:  # on words that YAML's readers take differently; the fields are looked at all the same
        problems, jobs = [*error.problems], raw
    specs = site_teams(site) if site else None
    settings = site_settings(site) if site and jobs else None
    for document in jobs:
        job = with_field(document, "backend", backend) if backend else document
        job = with_field(job, "namespace", named) if named and not places(job) else job
        try:
            job = from_team(job, specs, name) if specs is not None else job
            spec = parse_job(job, name, read_scripts(job, ROOT))
            spec = on_site(spec, settings, name) if settings else spec
            if specs is not None and grants:
                granted(spec, specs, name)
        except GangplankError as error:
            if isinstance(error, SpecError) and error.source == name:
                problems += error.problems
            else:  # of a script, or a file of the site
                others.append(error)
        else:
            objects += BACKENDS[spec.backend].manifests(spec)
    refuse_all([SpecError(dict.fromkeys(problems), name), *others] if problems else others)
    return objects


def refuse_all(errors: Sequence[GangplankError]) -> None:
    """Raise the first of some errors with the text of all, each once; nothing if there is none."""
    if errors:
        errors[0].args = ("\n".join(dict.fromkeys(map(str, errors))),)
        raise errors[0]


def check_objects(objects: Sequence[Any], source: str, *, new: bool = False) -> None:
    """Refuse documents that are not objects of Kubernetes, or have no name; all problems at once.

    Pods of `new` objects also must not ask for a fraction of a device, which the API server refuses.
    """
    from gangplank.errors import Problem, SpecError, shown
    from gangplank.k8s.manifest import META, Named, check, check_devices, without_nulls

    problems: list[Problem] = []
    for number, item in enumerate(objects, start=1):
        place, own = f"document {number}", list[Problem]()
        if isinstance(item, dict) and all(isinstance(item.get(key), str) for key in ("apiVersion", "kind")):
            check(without_nulls(item.get("metadata")), Named(META), f"{place}, {item['kind']}.metadata", own)
            problems += [replace(one, fix=METADATA) for one in own]
            if new:
                check_devices(without_nulls(item.get("spec")), f"{place}, {item['kind']}.spec", problems)
        else:
            problems.append(Problem(place, shown(item), "an object with apiVersion and kind", "write both, as text"))
    if problems:
        raise SpecError(problems, source)


def check_forms(jobs: Sequence[tuple[str, Json]], source: str) -> None:
    """Refuse jobs, each with its back-end, that have another form than their kind, which all that follows reads."""
    from gangplank.backends import BACKENDS
    from gangplank.errors import SpecError
    from gangplank.k8s.manifest import check, without_nulls

    problems: list[Problem] = []
    for backend, job in jobs:
        spec = without_nulls(job.get("spec"))
        form = BACKENDS[backend].form["spec"] if isinstance(spec, dict) else {}
        check(spec, form, f"{job['kind']} {job['metadata']['name']}.spec", problems)
    if problems:
        raise SpecError(problems, source)


def is_list(item: object) -> bool:
    """Whether a document is kubectl's List of objects."""
    return isinstance(item, dict) and item.get("kind") == "List" and isinstance(item.get("items"), list)


def with_field(job: Any, name: str, value: str) -> Any:
    """The job with another value of a field; what is not a job stays, to be refused."""
    if not isinstance(job, dict):
        return job
    inner = job.get("training_job")
    return {**job, "training_job": {**inner, name: value}} if isinstance(inner, dict) else {**job, name: value}


def places(job: Any) -> bool:
    """Whether a job names its namespace, or the team whose namespace it is."""
    inner = job.get("training_job", job) if isinstance(job, dict) else None
    return isinstance(inner, dict) and bool(inner.get("namespace") or inner.get("team"))


def site_teams(inventory: str) -> Sequence[TeamSpec]:
    """The teams of a site's inventory."""
    from gangplank.teams.load import load

    return load(inventory)[1]


def site_settings(inventory: str) -> Settings:
    """What an inventory decides about every job, as the role training_job reads it."""
    from gangplank.jobs.site_settings import VARIABLES, read_settings
    from gangplank.teams.inventory import load_variables

    return read_settings(load_variables(inventory, VARIABLES), inventory)


def from_team(job: object, teams: Sequence[TeamSpec], source: str) -> Any:
    """The job with its team's defaults."""
    from gangplank.teams.job_defaults import with_team

    return with_team(job, teams, source)


def granted(spec: JobSpec, teams: Sequence[TeamSpec], source: str) -> None:
    """Refuse a job that asks for what its team's file does not grant."""
    from gangplank.teams.grants import check_job

    check_job(spec, teams, source)
