"""Set the version and build the changelog: `python -m tools.release 0.2.0`, or `make release VERSION=0.2.0`.

`gangplank/__init__.py` owns the version. The other files that name it are rewritten here, and compared with it by
tests/repository/test_release.py.
"""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
from pathlib import Path

from gangplank import __version__
from gangplank.errors import Problem

ROOT = Path(__file__).resolve().parents[1]
NUMBER = r"(?P<number>[0-9]+\.[0-9]+\.[0-9]+)(?![0-9]|\.[0-9])"
OWNER = "gangplank/__init__.py"
# Tracked files, and what stands before the version there.
PLACES = (
    (OWNER, r'^__version__ = "'),
    ("galaxy.yml", r"^version: "),
    ("charts/*/Chart.yaml", r"^version: "),
    ("charts/simulated-gpu/Chart.yaml", r"^appVersion: "),  # the other charts' appVersion is upstream's
    ("charts/training-job/Chart.yaml", r"^appVersion: "),
    ("charts/training-operator/tests/**", r"helm\.sh/chart: [a-z-]+-"),
    ("lab/versions.yml", r"module: gangplank/lab/(?!pause)\S+.*\n +version: v"),  # pause has the version of upstream
    ("lab/versions.yml", r"^  trainer:\n +version: "),
    ("**", r"gangplank\.dev/(?:trainer|simulated-gpu):"),
    ("README.md", r"registry\.example\.org/trainer:"),
    ("docs/images.md", r"registry\.example\.org/trainer:"),
)
FRAGMENTS = "changes"
HISTORY = ("CHANGELOG.md", f"{FRAGMENTS}/")  # not rewritten
NEXT_STEPS = """\
1. make relock    # the images have new names; commit lab/lock.json too
2. make docs
3. make test-full
4. git add -A && git commit -m "chore(release): {version}"
5. git tag v{version}
6. make dist      # the wheel, the collection and the charts of that commit"""


def files(root: Path, pattern: str) -> list[Path]:
    """The tracked files of a pattern."""
    command = ["git", "ls-files", "-z", f":(glob){pattern}"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [root / name for name in names if name and not name.startswith(HISTORY)]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def matches(root: Path) -> dict[Path, list[re.Match[str]]]:
    """Where the version is named, by file."""
    places: dict[Path, list[re.Match[str]]] = {}
    for pattern, before in PLACES:
        expression = re.compile(f"(?:{before}){NUMBER}", re.MULTILINE)
        for path in files(root, pattern):
            text = path.read_bytes().decode(errors="replace")
            places.setdefault(path, []).extend(expression.finditer(text))
    return {path: sorted(hits, key=lambda hit: hit.start()) for path, hits in places.items() if hits}


def stale(root: Path, version: str) -> list[str]:
    """The places that name another version, one message each."""
    problems = []
    for path, hits in matches(root).items():
        for hit in hits:
            if hit["number"] != version:
                line = hit.string.count("\n", 0, hit.start("number")) + 1
                where, expected = f"{path.relative_to(root)}:{line}", f"the version in {OWNER}"
                problems.append(str(Problem(where, hit["number"], expected, f"write {version}")))
    return problems


def rewrite(root: Path, version: str) -> list[Path]:
    """Name this version everywhere; returns the files that changed."""
    changed = []
    for path, hits in matches(root).items():
        text = hits[0].string
        for hit in reversed(hits):
            text = text[: hit.start("number")] + version + text[hit.end("number") :]
        if text != hits[0].string:
            path.write_text(text)
            changed.append(path)
    return changed


def key(version: str) -> tuple[int, ...]:
    """A version as numbers that can be compared.

    >>> key("0.10.0") > key("0.9.1")
    True
    """
    return tuple(map(int, version.split(".")))


def problem(root: Path, version: str) -> Problem | None:
    """Why this version cannot be released from this checkout."""
    if not re.fullmatch(NUMBER, version):
        return Problem("VERSION", version, "three numbers, such as 0.2.0", "make release VERSION=0.2.0")
    if key(version) <= key(__version__):
        return Problem("VERSION", version, f"a version after {__version__}", "choose a higher number")
    command = ["git", "status", "--porcelain"]
    if status := subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout:
        return Problem("git status", status.split()[-1], "no uncommitted change", "commit or remove it")
    if not [path for path in (root / FRAGMENTS).glob("*.md") if path.name != "README.md"]:
        return Problem(FRAGMENTS, "no fragment", "one for each visible change", "add them; changes/README.md says how")
    return None


def main(arguments: list[str]) -> int:
    """Rewrite the files and the changelog, and print what remains to be done."""
    version = arguments[0] if len(arguments) == 1 else ""
    if refusal := problem(ROOT, version):
        print(refusal, file=sys.stderr)
        return 1
    for path in rewrite(ROOT, version):
        print(f"written: {path.relative_to(ROOT)}")
    today = dt.datetime.now(dt.UTC).date().isoformat()
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, "--date", today]
    subprocess.run(command, cwd=ROOT, check=True)
    print(f"\nNext:\n{NEXT_STEPS.format(version=version)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
