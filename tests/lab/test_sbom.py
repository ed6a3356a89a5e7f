"""Bills of materials: complete, the same each time, and valid by CycloneDX's schema."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.build import sbom
from lab.build.cache import cache_home
from lab.build.lock import read_lock
from lab.build.versions import load_pins

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]


@pytest.fixture(scope="module")
def bills() -> dict[str, Json]:
    """What `make sbom` writes; it validates them too."""
    done = subprocess.run(["make", "sbom"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " files, 0 not valid" in done.stdout
    files = (ROOT / "sbom").glob("*.cdx.json")
    return {path.name.removesuffix(".cdx.json"): json.loads(path.read_text()) for path in files}


def names(bill: Json) -> set[str]:
    return {item["name"] for item in bill["components"]}


def test_c7_every_image_binary_and_root_has_a_bill(bills: dict[str, Json]) -> None:
    pins = load_pins()
    parts = [part for part in pins.parts.values() if part.name not in pins.on_demand]
    expected = {f"binary-{part.name}-{name}" for part in parts for name in part.commands}
    expected |= {f"root-{name}" for name in pins.roots_of_all} | {"python"}
    assert expected <= bills.keys()
    subjects = {item["metadata"]["component"]["name"] + ":" + item["metadata"]["component"]["version"]
                for name, item in bills.items() if name.startswith("image-")}  # fmt: skip
    assert {image.name for part in parts for image in part.images} <= subjects


def test_c7_a_bill_lists_what_is_inside(bills: dict[str, Json]) -> None:
    assert {"k8s.io/kubernetes", "k8s.io/api", "std"} <= names(bills["binary-kubernetes-kubelet"])
    webhook = bills["image-docker.io-volcanosh-vc-webhook-manager-v1.15.1"]
    assert {"openssl", "kubectl", "vc-webhook-manager", "volcano.sh/volcano", "k8s.io/kubectl"} <= names(webhook)
    trainer = bills["image-gangplank.dev-trainer-0.1.0"]
    locked = read_lock()["roots"]["trainer"]["packages"]
    assert locked.keys() <= names(trainer)
    assert {item["hashes"][0]["content"] for item in trainer["components"] if item["name"] == "python3-torch"} == {
        locked["python3-torch"][1]
    }
    assert "ansible-core" in names(bills["python"])


def test_c7_the_same_lock_gives_the_same_bytes(bills: dict[str, Json], tmp_path: Path) -> None:
    assert sbom.main(tmp_path) == 0
    written = {path.name: path.read_bytes() for path in tmp_path.glob("*.json")}
    assert written == {path.name: path.read_bytes() for path in (ROOT / "sbom").glob("*.json")}
    assert len({bill["serialNumber"] for bill in bills.values()}) == len(bills)


def test_c7_a_bill_that_is_not_valid_is_refused(bills: dict[str, Json], tmp_path: Path) -> None:
    bad = {**bills["python"], "serialNumber": "7"}
    (tmp_path / "bad.cdx.json").write_text(json.dumps(bad))
    stamps = cache_home().glob("venv/sbom-*/complete")
    python = max(stamps, key=lambda path: path.stat().st_mtime).parent / "bin/python"
    command = [str(python), "tools/validate_sbom.py", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "bad.cdx.json: got " in done.stdout
