"""playbooks/mirror.yml: what it refuses before it sends anything, and what the roles take from the registry then."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[3]


IMAGE = {"path": "a", "tag": "1", "digest": "sha256:0", "layout": "images/a"}
CHART = {"name": "a", "version": "1", "sha256": "0", "file": "charts/a.tgz"}
# A registry that has other bytes than those that were sent: what this crane prints, it says that the registry has.
OTHER = """#!/bin/sh
[ "$1" = version ] && exit
[ -e "$0.asked" ] || { touch "$0.asked"; cat "$0.says" >&2; exit 1; } # at first it has nothing
case $1 in
  digest) echo sha256:1 ;;
  manifest) echo '{"layers": [{"digest": "sha256:1"}]}' ;;
esac
"""


def bundle(folder: Path, crane: str | None, mode: int, charts: tuple[dict[str, str], ...] = (), **about: Any) -> Path:
    """A bundle with one image, or with charts instead, a Helm that starts, and this crane."""
    about = {"components": ["volcano"], "charts": charts, "images": [] if charts else [IMAGE], **about}
    (folder / "bin").mkdir(parents=True)
    (folder / "bundle.json").write_text(json.dumps(about))
    (folder / "bin/helm").write_text("#!/bin/sh\n")
    (folder / "bin/crane.says").write_text("unexpected status code 404 Not Found (MANIFEST_UNKNOWN)\n")
    (folder / "bin/helm").chmod(0o755)
    if crane is not None:
        (folder / "bin/crane").write_text(crane)
        (folder / "bin/crane").chmod(mode)
    digest = hashlib.sha256((folder / "bundle.json").read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  bundle.json\n")
    return folder


def mirror(place: Path | str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the playbook with a bundle."""
    values = [f"mirror_bundle={place}", "mirror_registry=registry.invalid", f"mirror_values={folder}/sources.yml",
              f"ansible_python_interpreter={sys.executable}", *more]  # fmt: skip
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-c", "local",
               str(ROOT / "playbooks/mirror.yml"), *(word for value in values for word in ("-e", value))]  # fmt: skip
    own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "NO_COLOR": "1", "ANSIBLE_LOCAL_TEMP": str(folder / "tmp")}
    return subprocess.run(command, cwd=folder, env=os.environ | own, capture_output=True, text=True, check=False,
                          timeout=120)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("charts", [(), (CHART,)], ids=["image", "chart"])
def test_other_bytes_in_the_registry_than_those_that_were_sent_are_refused(
    tmp_path: Path, charts: tuple[dict[str, str], ...]
) -> None:
    done = mirror(bundle(tmp_path / "bundle", OTHER, 0o755, charts), tmp_path)
    assert done.returncode != 0, done.stdout
    assert done.stdout.count("TASK [mirror : Push | Ensure the") == 1
    assert "got sha256:1, expected sha256:0" in " ".join(done.stdout.split())
    assert "Fix: " in done.stdout
    assert not (tmp_path / "sources.yml").exists()


@pytest.mark.slow
@pytest.mark.parametrize("charts", [(), (CHART,)], ids=["image", "chart"])
def test_a_tag_that_the_registry_has_with_other_content_is_replaced_only_on_request(
    tmp_path: Path, charts: tuple[dict[str, str], ...]
) -> None:
    place = bundle(tmp_path / "bundle", OTHER, 0o755, charts)
    (place / "bin/crane.asked").touch()
    done = mirror(place, tmp_path)
    name = "charts/a:1" if charts else "a:1"
    said = " ".join(done.stdout.split())
    assert f"registry.invalid: got other content under {name}, expected that of the bundle" in said
    assert "TASK [mirror : Push |" not in done.stdout
    assert "TASK [mirror : Push |" in mirror(place, tmp_path, "mirror_replace=true").stdout


@pytest.mark.slow
@pytest.mark.parametrize("said", ["UNAUTHORIZED: access is denied", "i/o timeout", "503", "429 Too Many"])
def test_a_registry_that_does_not_say_what_it_has_is_sent_nothing(tmp_path: Path, said: str) -> None:
    place = bundle(tmp_path / "bundle", OTHER, 0o755)
    (place / "bin/crane.says").write_text(said)
    done = mirror(place, tmp_path)
    assert f"registry.invalid: got {said}, expected a digest" in " ".join(done.stdout.split())
    assert "TASK [mirror : Push |" not in done.stdout


@pytest.mark.parametrize(("says", "absent"), [
    ("GET https://registry.example.org:40443/v2/a/manifests/1: unexpected status code 404 Not Found", True),
    ("MANIFEST_UNKNOWN: manifest unknown", True),
    ("GET https://registry.example.org:40443/v2/: unexpected status code 500 Internal Server Error", False),
    ("GET https://registry.example.org:404/v2/: dial tcp 192.0.2.404: i/o timeout", False),
])
def test_only_a_registry_that_says_so_has_nothing(says: str, absent: bool) -> None:
    """A port with these digits made every failure an absence, and what was there was replaced."""
    pattern = DataLoader().load_from_file(str(ROOT / "roles/mirror/vars/main.yml"))["__mirror_absent"]
    assert bool(re.search(pattern, says)) == absent


@pytest.mark.slow
@pytest.mark.parametrize("place", ["bundle", ".", "~/bundle"])
def test_a_relative_path_is_refused(tmp_path: Path, place: str) -> None:
    """It would be below the folder of the playbook, and be written into the site's values."""
    bundle(tmp_path / "bundle", OTHER, 0o755)
    done = mirror(place, tmp_path)
    assert f'mirror_bundle: got "{place}", expected an absolute path' in " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(("crane", "mode"), [(None, 0), ("\x7fELF of another machine", 0o755)])
def test_programs_that_do_not_start_are_refused(tmp_path: Path, crane: str | None, mode: int) -> None:
    place = bundle(tmp_path / "bundle", crane, mode)
    done = mirror(place, tmp_path)
    assert done.returncode != 0, done.stdout
    assert f"{place}/bin/crane: got " in done.stdout
    assert "Fix: unpack the bundle where programs may run" in done.stdout.replace("\n", " ")
    assert "Push |" not in done.stdout
    assert not (tmp_path / "sources.yml").exists()


@pytest.mark.slow
def test_the_workers_of_a_pytorchjob_wait_with_an_image_of_the_sites_registry(tmp_path: Path) -> None:
    names = ("library/busybox", "kubeflow/training-v1/training-operator", "trainer")
    images = [{**IMAGE, "path": name, "digest": f"sha256:{'0' * 64}"} for name in names]
    crane = f"#!/bin/sh\necho sha256:{'0' * 64}\n"
    done = mirror(bundle(tmp_path / "bundle", crane, 0o755, components=["training_operator"], images=images), tmp_path)
    assert done.returncode == 0, done.stdout
    files = [ROOT / f"roles/training_operator/{name}/main.yml" for name in ("defaults", "vars")]
    variables: dict[str, Any] = {}
    for file in (*files, tmp_path / "sources.yml"):
        variables |= DataLoader().load_from_file(str(file), trusted_as_template=True)
    values = Templar(DataLoader(), variables).template(trust_as_template("{{ __training_operator_values }}"))
    expected = {"repository": "registry.invalid/library/busybox", "tag": f"1@sha256:{'0' * 64}"}
    assert values["initContainer"]["image"] == expected
