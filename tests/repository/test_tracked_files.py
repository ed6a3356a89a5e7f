"""Nothing in the repository belongs to one machine: no private folder, no mirror, no secret."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve()

# A home folder. Volcano's default for its ssh plugin lies in one, inside a container; "me" and "ann" are in examples.
HOME = re.compile(r"/(?:root|home)/(?!\.ssh\b|me/|ann/)[\w.-]+")
# A host that only one network knows; the cluster's own names end in .local too.
INSIDE = re.compile(
    r"\b(?!kubernetes\b)[\w-]+(?:\.[\w-]+)*\.(?:internal|intranet|corp|lan|localdomain)\b"
    r"|https?://(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)[\d.]+"
    r"|https?://[^\s/@\"']+:[^\s/@\"']+@[^\s/\"']+",
)
# A package index other than the one that everybody has.
INDEX = re.compile(r"--(?:extra-)?index-url|--trusted-host|GOPROXY=http|index-url\s*=")
SECRET = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----|\bghp_[A-Za-z0-9]{30}|\bAKIA[0-9A-Z]{16}\b")
SETTINGS = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "GOPROXY")
CONFIGURATIONS = ("/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf", "~/.config/go/env", "~/.npmrc")
PUBLIC = re.compile(
    r"(?:.*\.)?(?:pypi\.org|pythonhosted\.org|golang\.org|npmjs\.org|debian\.org|github\.com|localhost|127\.0\.0\.1)"
)


def texts() -> dict[str, str]:
    """Every tracked file that is text, but for this one, which has to name what it looks for."""
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    files = [ROOT / name for name in names if name]
    texts_by_name = {}
    for file in files:
        if file.is_file() and not file.is_symlink() and file.resolve() != HERE:
            data = file.read_bytes()
            if b"\0" not in data:
                texts_by_name[str(file.relative_to(ROOT))] = data.decode(errors="replace")
    return texts_by_name


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:160]}"
        for name, text in texts().items()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def hosts_of_this_machine() -> set[str]:
    """Hosts of mirrors that this machine's own package tools are set to."""
    settings = [os.environ.get(name, "") for name in SETTINGS]
    settings += [path.read_text() for name in CONFIGURATIONS if (path := Path(name).expanduser()).is_file()]
    hosts = re.findall(r"https?://(?:[^\s/@]+@)?([\w.-]+)", "\n".join(settings))
    return {host for host in hosts if not PUBLIC.fullmatch(host)}


def test_no_file_names_a_home_folder() -> None:
    assert lines_with(HOME) == []


def test_no_file_names_a_host_that_only_one_network_knows() -> None:
    assert lines_with(INSIDE) == []


def test_no_file_names_a_mirror_of_this_machine() -> None:
    mirrors = hosts_of_this_machine()
    assert {name for name, text in texts().items() if any(host in text for host in mirrors)} == set()


def test_no_file_chooses_a_package_index() -> None:
    assert lines_with(INDEX) == []


def test_no_file_holds_a_secret() -> None:
    assert lines_with(SECRET) == []


def test_each_rule_finds_what_it_forbids() -> None:
    """The rules above find what they are for, and let through what only looks like it."""
    assert HOME.search("/" + "root/.cache/x")
    assert HOME.search("/" + "home/bob/src")
    assert not HOME.search("/root/.ssh")
    assert INSIDE.search("pip.mirror." + "corp")
    assert INSIDE.search("http://10." + "1.2.3:8080/simple")
    assert INSIDE.search("https://me:word" + "@example.org/")
    assert not INSIDE.search("https://kubernetes.default.svc.cluster.local")
    assert INDEX.search("--index-url x")
    assert PUBLIC.fullmatch("proxy.golang.org")
    assert not PUBLIC.fullmatch("golang.org.example")
