"""What an air-gapped site needs, in one archive: `python -m tools.bundle [INVENTORY]`, or `make bundle`.

It holds all of `make dist`, and for the components of the inventory: images, upstream's charts and CRDs. Besides: the
Python packages, for this Python and this kind of machine, and the programs helm, kubectl and crane. SHA256SUMS has the
hash of every file, bundle.json the digest of every image and chart; the role mirror reads both.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gangplank import __version__
from gangplank.disk import rename
from gangplank.errors import Problem
from lab.build.parts import build
from lab.build.unpack import unpack
from lab.build.versions import load_pins
from tools import dist
from tools.dist import ROOT, DistError

OUT = ROOT / "bundle"
NAME = f"gangplank-bundle-{__version__}"
PROGRAMS = {"helm": "helm", "kubectl": "kubernetes", "crane": "registry"}  # and the part that has each
PARTS: dict[str, list[str]] = {  # whose images and charts each component takes
    "volcano": ["volcano"],
    "storage": ["local-path-provisioner", "busybox"],
    "training_operator": ["training-operator", "busybox"],
    "trainer_v2": ["trainer-v2"],
    "gpu_device_plugin": ["nvidia-device-plugin", "nvidia-programs"],
    "gpu_dra_driver": ["dra-example-driver"],
}
BUILT = ("trainer", "lab", "charts")  # folders whose files are built as they are
ONLY_TESTS = ("gangplank.dev/simulated-driver",)  # images of these parts that no site needs


def components(inventory: str) -> list[str]:
    """The components of an inventory's site."""
    program = Path(sys.executable).with_name("ansible-inventory")
    command = [str(program), "-i", inventory, "--host", "localhost"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    listed = json.loads(done.stdout).get("site_components") if done.returncode == 0 else done.stderr.strip()
    if not isinstance(listed, list) or not set(listed) <= set(PARTS):
        fix = "make bundle INVENTORY=FILE, with an inventory whose group_vars/all lists them"
        raise DistError(str(Problem(f"{inventory}: site_components", str(listed), f"a list of {sorted(PARTS)}", fix)))
    return listed


def packages(out: Path) -> None:
    """The Python packages of requirements-site.txt, each with its hash."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    more = ["--require-hashes", "--no-deps", "--only-binary=:all:", "--requirement", dist.PACKAGES, "--dest", str(out)]
    done = subprocess.run([*pip, *more], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        raise DistError(str(Problem(dist.PACKAGES, last, "every package", "see that pip reaches the package index")))


def images(built: list[dict[str, str]], out: Path) -> list[dict[str, str]]:
    """The images as OCI layouts, which crane pushes: what bundle.json says of them."""
    listed = []
    for image in built:
        name, _, tag = image["name"].rpartition(":")
        if name in ONLY_TESTS:
            continue
        path = name.partition("/")[2]  # a site's registry takes the place of the first word
        layout = f"images/{path.replace('/', '-')}"
        with tarfile.open(image["archive"]) as content:
            unpack(content, out / layout)
        listed.append({"path": path, "tag": tag, "digest": image["digest"], "layout": layout, "name": image["name"]})
    return listed


def chart_of_crds(folder: Path, name: str, version: str, scratch: Path) -> Path:
    """A chart that holds the CRDs of a folder and nothing else: a registry takes charts."""
    about = {"apiVersion": "v2", "name": name, "version": version.removeprefix("v"), "description": "upstream's CRDs"}
    (scratch / name).mkdir()
    (scratch / name / "Chart.yaml").write_text(yaml.safe_dump(about))
    shutil.copytree(folder, scratch / name / "crds")
    return scratch / name


def release(chart: Path, version: str) -> list[str]:
    """The option that gives an archive the version of the release, if its source has none: upstream does the same."""
    own = str(yaml.safe_load((chart / "Chart.yaml").read_text())["version"])
    return ["--version", version.removeprefix("v")] if own.startswith("0.0.0-") else []


def charts(
    built: dict[str, str], versions: dict[str, str], commit: dist.Commit, helm: Path, out: Path
) -> list[dict[str, str]]:
    """Upstream's charts and CRDs as folders, and as archives of charts: what bundle.json says of the archives."""
    for name, source in built.items():
        chart = Path(source)
        if "/" not in name:  # else it is there, inside another
            chart = shutil.copytree(source, out / "upstream" / name)
        with tempfile.TemporaryDirectory(prefix="gangplank-bundle-") as scratch:
            if not (chart / "Chart.yaml").exists():
                chart = chart_of_crds(chart, name, versions[name], Path(scratch))
            commit.run(helm, "package", chart, "--destination", out / "charts", *release(chart, versions.get(name, "")))
    dist.index(commit, helm, out / "charts")
    entries: dict[str, list[dict[str, Any]]] = yaml.safe_load((out / "charts/index.yaml").read_text())["entries"]
    return [
        {"name": name, "version": entry["version"], "file": f"charts/{entry['urls'][0]}", "sha256": entry["digest"]}
        for name in sorted(entries) for entry in entries[name]
    ]  # fmt: skip


def write(wanted: list[str], out: Path) -> None:
    """Write everything into an empty folder."""
    names = dict.fromkeys([*(name for item in wanted for name in PARTS[item]), "trainer"])
    say = partial(print, file=sys.stderr, flush=True)
    built = build([*names], say, roots=())
    versions = {chart: part.version for part in load_pins().parts.values() for chart in part.charts}
    programs = build([*PROGRAMS.values()], say, roots=())["bin"]
    helm = Path(programs["helm"], "helm")
    dist.write(ROOT, out, helm)
    with tempfile.TemporaryDirectory(prefix="gangplank-bundle-") as scratch:
        commit = dist.exported(ROOT, Path(scratch))
        listed = charts(built["charts"], versions, commit, helm, out)
    packages(out / "packages")
    (out / "bin").mkdir()
    for program, part in PROGRAMS.items():
        shutil.copy2(Path(programs[part], program), out / "bin")
    about = {"version": __version__, "components": wanted, "images": images(built["images"], out), "charts": listed}
    (out / "bundle.json").write_text(json.dumps(about, indent=1) + "\n")
    dist.sum_up(out)


def main(words: list[str]) -> int:
    """Write the archive completely, or leave the one of an earlier run."""
    try:
        wanted = components(words[0] if words else "inventories/example/hosts.yml")
        dist.refuse_changes(ROOT, *BUILT)  # before anything is built
        OUT.mkdir(exist_ok=True)
        with dist.draft_in(OUT, ".draft-") as draft:
            folder = draft / NAME
            folder.mkdir()
            write(wanted, folder)
            with tarfile.open(draft / "bundle.tar", "w", format=tarfile.PAX_FORMAT) as archive:
                archive.add(folder, NAME)
            rename(draft / "bundle.tar", OUT / f"{NAME}.tar")
    except dist.ERRORS as error:
        return dist.failed(error, OUT)
    with (OUT / f"{NAME}.tar").open("rb") as content:
        print(f"{hashlib.file_digest(content, 'sha256').hexdigest()}  bundle/{NAME}.tar")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
