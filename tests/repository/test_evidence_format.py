"""Trainer, library and docs agree on the format of evidence; the number of claims is written down nowhere else."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from gangplank.proof.claims import CLAIMS
from gangplank.proof.records import FORMAT

ROOT = Path(__file__).resolve().parents[2]
COUNT = re.compile(r"\b(\d+) of (\d+) claims\b")


def test_the_trainer_writes_the_newest_format_that_the_library_knows() -> None:
    (number,) = re.findall(r"^FORMAT = (\d+)$", (ROOT / "trainer/evidence.py").read_text(), re.MULTILINE)
    assert int(number) == FORMAT


def test_no_claim_needs_a_format_that_does_not_exist() -> None:
    assert {name: claim.since for name, claim in CLAIMS.items() if not 1 <= claim.since <= FORMAT} == {}


def test_the_docs_explain_every_format() -> None:
    section = (ROOT / "docs/proof.md").read_text().partition("\n## Formats\n")[2]
    assert re.findall(r"^\| (\d+) \|", section, re.MULTILINE) == [str(number) for number in range(1, FORMAT + 1)]


def test_pages_show_verdicts_with_all_claims() -> None:
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    counts = {(page.name, *map(int, numbers)) for page in pages for numbers in COUNT.findall(page.read_text())}
    proven = {(name, len(CLAIMS), len(CLAIMS)) for name in ("README.md", "proof.md")}
    assert counts == proven | {("troubleshooting.md", len(CLAIMS) - 2, len(CLAIMS))}  # tests/unit/proof/test_claims.py


def test_tests_and_roles_read_the_number_of_claims() -> None:
    files = subprocess.run(["git", "ls-files", "tests", "molecule", "roles", "playbooks", "plugins"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    texts = {name: (ROOT / name).read_text(errors="replace") for name in files if (ROOT / name).is_file()}
    assert [name for name, text in texts.items() if COUNT.search(text)] == []
