"""What `make bundle` makes, installed without a network as docs/airgap.md prints it; images come from a registry."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.build.cache import cache_home
from lab.build.image_store import import_image
from tests.cluster.conftest import COMPONENTS, ROOT, SOME_COMPONENTS, STATE, Lab
from tests.cluster.test_dist import COPIES, EDITS, OURS
from tests.cluster.test_dist import site as dist_site
from tests.cluster.test_oci_charts import certificate
from tests.cluster.test_registry import HOST, ctr, forget, has
from tests.support.checkout import copy_checkout
from tests.support.registry import Registry, registry

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs/airgap.md"
SITE, TLS_HOST = "registry.example.org", "198.18.0.254:5043"
SOURCES = ("_source", "_chart")  # of a role's inputs that mirror.yml sets
SEALED = ("nsenter", "--net=/run/netns/gangplank-node-0", "--")  # a node's network: the lab, and no way out
NAMESPACES = {"volcano": "volcano-system", "storage": "local-path-storage", "training_operator": "kubeflow",
              "trainer_v2": "kubeflow-system"}  # fmt: skip
CHARTS = ("volcano", "local-path-provisioner", "training-operator-crds", "kubeflow-trainer", "trainer-v2-crds",
          "jobset")  # fmt: skip


def blocks(host: str = HOST) -> list[list[str]]:
    """The commands of the page for a registry by block, without that of the checkout."""
    texts = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [text.replace(SITE, host).splitlines() for text in texts[1:]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the bundle's archive and nothing else, and a home beside it."""
    folder = tmp_path_factory.mktemp("bundle")
    checkout = copy_checkout(folder / "checkout")
    values = folder / "inventory/group_vars/all/site.yml"
    values.parent.mkdir(parents=True)
    values.write_text(yaml.safe_dump({"site_components": COMPONENTS}))
    (folder / "inventory/hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"localhost": None}}}))
    command = [sys.executable, "-m", "tools.bundle", str(folder / "inventory/hosts.yml")]
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


@dataclass(frozen=True)
class Site:
    """A site without internet: how its registry is filled, and what it installs."""

    host: str
    """The registry by the name that the images get."""
    filled: Registry
    pulled: Registry
    """The same images, for the nodes, which know no certificate."""
    option: str
    components: list[str]

    def write(self, folder: Path, parts: dict[str, Any]) -> None:
        """Write what the user of the page writes: nothing about where charts and images come from."""
        values = {name: value for name, value in dist_site(parts).items() if not name.endswith(SOURCES)}
        gang = {"training_operator_gang_scheduler": "volcano"}
        (folder / "site.yml").write_text(yaml.safe_dump({**values, **gang, "site_components": self.components}))
        local = {"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"}
        (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"children": {"teams": {}}, "vars": local}}))

    def others(self, folder: Path) -> list[str]:
        """The commands that train on the back-ends of the components other than Volcano's."""
        backends = {"training_operator": "pytorchjob", "trainer_v2": "trainjob"}
        job = yaml.safe_load((ROOT / "jobs/digits-anywhere.yml").read_text())["training_job"]
        job["image"] = job["image"].replace("gangplank.dev", self.host)
        lines = []
        for backend in (backends[component] for component in self.components if component in backends):
            own = {**job, "name": f"digits-{backend}", "backend": backend}
            (folder / f"{backend}.yml").write_text(yaml.safe_dump({"training_job": own}))
            lines.append(f"ansible-playbook -i site gangplank.gangplank.train -e @../{backend}.yml")
        return lines


@pytest.fixture(params=["folder", "registry"])
def mirrored(
    request: pytest.FixtureRequest,
    kubeconfig: str,  # noqa: ARG001  the lab is up
    installed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Site]:
    """A registry with one wrong image; nodes that lack the images and pull from it. Afterwards all is as before."""
    lab = Lab()
    before = lab.installed()
    digests = {image["digest"] for image in images(installed)}
    archives = {image["name"]: Path(image["archive"]) for image in lab.parts["images"]}
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(registry(tmp_path / "plain", HOST))
        site = Site(HOST, plain, plain, "-e mirror_insecure=true", SOME_COMPONENTS)
        if request.param == "registry":
            tls = certificate(tmp_path, TLS_HOST.partition(":")[0])
            monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
            secure = registry(tmp_path / "tls", TLS_HOST, tls=tls, data=tmp_path / "plain/data")
            site = Site(TLS_HOST, stack.enter_context(secure), plain, "-e mirror_charts=registry", COMPONENTS)
        plain.push(archives["docker.io/library/busybox:1.37"], f"volcanosh/vc-scheduler:{tag(installed)}")
        lab.playbook("playbooks/uninstall.yml", "-e", json.dumps({"site_components": ["volcano"]}))
        try:
            lab.playbook("playbooks/lab.yml", "--tags=cluster", "-e", f"lab_cluster_registry=http://{HOST}")
            for node in lab.ready():
                forget(lab, node, digests)
            yield site
        finally:
            gone = [component for component in site.components if component not in SOME_COMPONENTS]
            if gone:
                lab.playbook("playbooks/uninstall.yml", "-e", json.dumps({"site_components": gone}))
            for node in lab.ready():
                forget(lab, node, digests)
                forget_pulls(lab, node)
                for image in lab.parts["images"]:
                    if image["name"] not in has(lab, node):
                        import_image(ctr(lab, node), Path(image["archive"]))
            lab.playbook("playbooks/lab.yml", "--tags=cluster")
            lab.install(before)


def forget_pulls(lab: Lab, node: str) -> None:
    """Let a node's kubelet forget what it pulled: it would pull an image again that is loaded under another name."""
    with lab.supervisor() as server:
        server.stopProcess(f"kubelet-{node}")
        for record in (STATE / "nodes" / node / "kubelet/image_manager/pulled").iterdir():
            record.unlink()
        server.startProcess(f"kubelet-{node}")


def tag(place: Path) -> str:
    """The tag of Volcano's images."""
    return next(image["tag"] for image in images(place) if image["path"] == "volcanosh/vc-scheduler")


def test_the_page_installs_a_site_from_its_registry_and_trains(mirrored: Site, installed: Path) -> None:
    lab = Lab()
    routes = subprocess.run([*SEALED, "ip", "route", "show", "default"], capture_output=True, text=True, check=True)
    assert routes.stdout == ""
    mirrored.write(installed.parent, lab.parts)
    shutil.copy(STATE / "admin.kubeconfig", installed.parent / "home")
    first, mirror, install = blocks(mirrored.host)
    mirror = [f"{line} {mirrored.option}" if "gangplank.mirror" in line else line for line in mirror]
    (push,) = (line for line in mirror if "gangplank.mirror" in line)
    (site,) = (line for line in install if "gangplank.site" in line)
    others = mirrored.others(installed.parent)
    copies = ["rm -rf site jobs", *(line for line in first if line.startswith(COPIES))]  # another test edited them
    setup = [". venv/bin/activate", *(line for line in (*mirror, *install) if line.startswith("export "))]
    try:
        steps = run(installed, [*setup, *copies, *EDITS, *mirror, *install, *others], *SEALED)
        again = run(installed, [*setup, push, site], *SEALED)
    finally:
        lab.kubectl("delete", "jobs.batch.volcano.sh", "digits", "--ignore-not-found")
        for component, kind in (("training_operator", "pytorchjobs"), ("trainer_v2", "trainjobs")):
            if component in mirrored.components:
                lab.kubectl("delete", kind, "--all", "--namespace=default", check=False)
    for line in (install[-1], *others):
        assert "PROVEN" in steps[line]
    for line in (push, site):
        assert not re.search("changed=0 ", steps[line])
        assert re.search("changed=0 ", again[line]), again[line]
    for component in mirrored.components:
        pods = lab.get("pods", f"--namespace={NAMESPACES[component]}", "--field-selector=status.phase=Running")
        assert pods, component
        assert all(part["image"].startswith(f"{mirrored.host}/") and "@sha256:" in part["image"]
                   for pod in pods for part in pod["spec"]["containers"])  # fmt: skip
    for repository in ("volcanosh/vc-scheduler", "rancher/local-path-provisioner", "trainer"):
        assert mirrored.pulled.clients(repository) >= {"containerd"}, repository
    assert mirrored.filled.clients("charts/volcano") >= {"crane"}  # mirror.yml compared its digest
    sources = (installed / "site/group_vars/all/sources.yml").read_text()
    assert (str(installed) in sources) == (mirrored.components == SOME_COMPONENTS)
    if mirrored.components == COMPONENTS:
        for chart in CHARTS:
            assert mirrored.filled.clients(f"charts/{chart}/blobs") >= {"Helm"}, chart


def test_charts_of_a_registry_without_tls_are_refused(installed: Path, tmp_path: Path) -> None:
    (push,) = (line for line in blocks()[1] if "gangplank.mirror" in line)
    push = push.replace('"$PWD/site/group_vars/all/sources.yml"', str(tmp_path / "sources.yml"))
    with pytest.raises(AssertionError, match='got "registry" for a registry without TLS'):
        run(installed, [". venv/bin/activate", f"{push} -e mirror_charts=registry -e mirror_insecure=true"])
    assert not (tmp_path / "sources.yml").exists()
