"""What `make bundle` makes, installed without a network as docs/airgap.md prints it; images come from a registry."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.build.cache import cache_home
from lab.build.image_store import import_image
from tests.cluster.conftest import ROOT, STATE, Lab
from tests.cluster.test_dist import EDITS, OURS
from tests.cluster.test_dist import site as dist_site
from tests.cluster.test_oci_charts import HOST as TLS_HOST
from tests.cluster.test_oci_charts import certificate
from tests.cluster.test_registry import HOST, ctr, forget, has
from tests.support.checkout import copy_checkout
from tests.support.registry import Registry, registry

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs/airgap.md"
SITE = "registry.example.org"
SOURCES = ("_source", "_chart")  # of a role's inputs that mirror.yml sets


def blocks() -> list[list[str]]:
    """The commands of the page by block, without that of the checkout."""
    texts = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [text.replace(SITE, HOST).splitlines() for text in texts[1:]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundle's archive and nothing else, and a home beside it."""
    folder = tmp_path_factory.mktemp("bundle")
    checkout = copy_checkout(folder / "checkout")
    command = [sys.executable, "-m", "tools.bundle", "inventories/lab/hosts.yml"]
    subprocess.run(command, cwd=checkout, check=True, timeout=1200)
    (archive,) = (checkout / "bundle").iterdir()
    (folder / "place").mkdir()
    shutil.move(archive, folder / "place")
    shutil.rmtree(checkout)
    (folder / "home").mkdir()
    return folder / "place"


def run(place: Path, lines: list[str], *before: str) -> dict[str, str]:
    """Run commands in one shell, as a user's: what each printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith((*OURS, "PIP_"))}
    path = [word for word in kept["PATH"].split(":") if not word.startswith(str(ROOT))]
    env = {**kept, "HOME": str(place.parent / "home"), "XDG_CACHE_HOME": str(cache_home().parent), "PWD": str(place),
           "PATH": ":".join(path)}  # fmt: skip
    text = "\n".join(["set -eu", *(f"echo {shlex.quote(f'+ {line}')}\n{line}" for line in lines)])
    command = [*before, "bash", "-c", text]
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return dict(re.findall(r"^\+ (.*)\n((?:(?!\+ ).*\n)*)", done.stdout, re.MULTILINE))


@pytest.fixture(scope="module")
def installed(place: Path) -> Path:
    """The bundle, installed where there is no network at all."""
    run(place, blocks()[0], "unshare", "--net")
    return place


def images(place: Path) -> list[dict[str, str]]:
    listed: list[dict[str, str]] = json.loads((place / "bundle.json").read_text())["images"]
    return listed


def test_a_damaged_bundle_is_refused_before_anything_is_sent(installed: Path) -> None:
    (blob, *_) = sorted((installed / images(installed)[0]["layout"]).rglob("blobs/sha256/*"))
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    mirror = next(line for line in blocks()[1] if "gangplank.mirror" in line).replace(HOST, "127.0.0.1:1")
    try:
        with pytest.raises(AssertionError) as refusal:
            run(installed, [". venv/bin/activate", mirror], "unshare", "--net")
    finally:
        blob.write_bytes(content)
    text = " ".join(str(refusal.value).split())
    assert f"{blob.relative_to(installed)}: FAILED" in text
    assert "nothing was sent" in text
    assert not (installed / "site/group_vars/all/sources.yml").exists()


@pytest.fixture
def empty(kubeconfig: str, installed: Path, tmp_path: Path) -> Iterator[Registry]:  # noqa: ARG001  the lab is up
    """A registry with one wrong image; nodes that lack the images and pull from it. Afterwards all is as before."""
    lab = Lab()
    digests = {image["digest"] for image in images(installed)}
    archives = {image["name"]: Path(image["archive"]) for image in lab.parts["images"]}
    with registry(tmp_path, HOST) as running:
        running.push(archives["docker.io/library/busybox:1.37"], f"volcanosh/vc-scheduler:{tag(installed)}")
        lab.playbook("playbooks/uninstall.yml", "-e", json.dumps({"site_components": ["volcano"]}))
        try:
            lab.playbook("playbooks/lab.yml", "--tags=cluster", "-e", f"lab_cluster_registry=http://{HOST}")
            for node in lab.ready():
                forget(lab, node, digests)
            yield running
        finally:
            for node in lab.ready():
                forget(lab, node, digests)  # else the kubelet knows them by the registry's name only
                for image in lab.parts["images"]:
                    if image["name"] not in has(lab, node):
                        import_image(ctr(lab, node), Path(image["archive"]))
            lab.playbook("playbooks/lab.yml", "--tags=cluster")
            lab.playbook("playbooks/site.yml")


def tag(place: Path) -> str:
    """The tag of Volcano's images."""
    return next(image["tag"] for image in images(place) if image["path"] == "volcanosh/vc-scheduler")


def values(parts: dict[str, Any]) -> dict[str, Any]:
    """What the user of the page writes into site.yml: nothing about where charts and images come from."""
    return {name: value for name, value in dist_site(parts).items() if not name.endswith(SOURCES)}


def test_the_page_installs_a_site_from_its_registry_and_trains(empty: Registry, installed: Path) -> None:
    lab = Lab()
    (installed.parent / "site.yml").write_text(yaml.safe_dump(values(lab.parts)))
    (installed.parent / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"teams": {}}, "vars": {
        "ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}}}))  # fmt: skip
    shutil.copy(STATE / "admin.kubeconfig", installed.parent / "home")
    _, mirror, install = blocks()
    mirror = [f"{line} -e mirror_insecure=true" if "gangplank.mirror" in line else line for line in mirror]
    (push,) = (line for line in mirror if "gangplank.mirror" in line)
    try:
        steps = run(installed, [". venv/bin/activate", *EDITS, *mirror, *install])
        assert "PROVEN" in steps[install[-1]]
        again = run(installed, [". venv/bin/activate", push])
    finally:
        lab.kubectl("delete", "jobs.batch.volcano.sh", "digits", "--ignore-not-found")
    assert not re.search("changed=0 ", steps[push])
    assert re.search("changed=0 ", again[push])
    for namespace in ("volcano-system", "local-path-storage"):
        pods = lab.get("pods", f"--namespace={namespace}", "--field-selector=status.phase=Running")
        assert pods
        assert all(part["image"].startswith(f"{HOST}/") and "@sha256:" in part["image"]
                   for pod in pods for part in pod["spec"]["containers"])  # fmt: skip
    for repository in ("volcanosh/vc-scheduler", "rancher/local-path-provisioner", "trainer"):
        assert empty.clients(repository) >= {"containerd"}, repository
    assert empty.clients("charts/volcano") >= {"crane"}  # mirror.yml compared its digest


def test_the_roles_take_charts_from_a_registry_with_tls(
    kubeconfig: str,  # noqa: ARG001  the lab is up, with Volcano and storage
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In check mode, which fetches and compares the charts: no node could pull the images from this registry."""
    tls, sources = certificate(tmp_path), tmp_path / "sources.yml"
    monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
    (push,) = (line for line in blocks()[1] if "gangplank.mirror" in line)
    push = push.replace(HOST, TLS_HOST).replace('"$PWD/site/group_vars/all/sources.yml"', str(sources))
    with registry(tmp_path / "registry", TLS_HOST, tls=tls) as running:
        run(installed, [". venv/bin/activate", 'export PATH="$PWD/bin:$PATH"', f"{push} -e mirror_charts=registry"])
        values = yaml.safe_load(sources.read_text())
        assert str(installed) not in sources.read_text()
        assert values["volcano_chart_repository"] == f"oci://{TLS_HOST}/charts"
        said = Lab().playbook("playbooks/site.yml", "--check", "-e", f"@{sources}")
    assert "changed=0" not in said  # the images have other names
    for chart in ("volcano", "local-path-provisioner"):
        assert f"/v2/charts/{chart}/blobs/" in running.log, chart


def test_charts_of_a_registry_without_tls_are_refused(installed: Path, tmp_path: Path) -> None:
    (push,) = (line for line in blocks()[1] if "gangplank.mirror" in line)
    push = push.replace('"$PWD/site/group_vars/all/sources.yml"', str(tmp_path / "sources.yml"))
    with pytest.raises(AssertionError, match='got "registry" for a registry without TLS'):
        run(installed, [". venv/bin/activate", f"{push} -e mirror_charts=registry -e mirror_insecure=true"])
    assert not (tmp_path / "sources.yml").exists()
