"""Bills of materials, CycloneDX 1.6: `make sbom`. One file per image, binary and root, and one for the Python packages.

They list what the lock, the binaries and requirements.txt say. The same lock gives the same bytes: there is no time in
them, and each serial number is a hash of the content.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lab.build.cache import cache_home, sha256_file
from lab.build.go_toolchain import go_environment
from lab.build.lock import read_lock
from lab.build.parts import Workshop
from lab.build.versions import LAB, load_pins
from lab.errors import PartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lab.build.versions import Image, Part

Json = dict[str, Any]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "gangplank.dev")


def component(kind: str, name: str, version: str, purl: str = "", sha256: str = "") -> Json:
    """A component; its purl, else its name and version, is how the others refer to it."""
    item: Json = {"type": kind, "bom-ref": purl or f"{name}@{version}", "name": name, "version": version}
    if purl:
        item["purl"] = purl
    if sha256:
        item["hashes"] = [{"alg": "SHA-256", "content": sha256}]
    return item


def debian(suite: str, packages: dict[str, list[str]]) -> Iterator[Json]:
    """The packages of a root.

    >>> next(debian("trixie", {"a": ["1:2+b1", "00"]}))["purl"].partition("?")[0]
    'pkg:deb/debian/a@1%3A2%2Bb1'
    """
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    for name, (version, sha256) in packages.items():
        purl = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='~')}?arch={architecture}&distro={suite}"
        yield component("library", name, version, purl, sha256)


def go_modules(text: str) -> Iterator[Json]:
    r"""The modules that `go version -m` lists; one that replaces another counts, and one from a folder is named local.

    >>> [item["purl"] for item in go_modules("b: go1.26\n\tdep\ta.b/C\tv1.0.0\th1:x\n\tdep\td\tv\n\t=>\te\tv2\th1:y\n")]
    ['pkg:golang/std@1.26', 'pkg:golang/a.b/C@v1.0.0', 'pkg:golang/e@v2']
    """
    rows: list[list[str]] = []
    for line in text.splitlines():
        fields = line.split("\t")[1:]
        if fields[:1] in (["dep"], ["mod"]):
            rows.append(fields[1:])
        elif fields[:1] == ["=>"]:
            rows[-1] = fields[1:]
    if match := re.search(r": go([0-9.]+)", text.partition("\n")[0]):
        rows.insert(0, ["std", match[1]])
    for name, version, *total in rows:
        item = component("library", name, version, f"pkg:golang/{quote(name)}@{quote(version, safe='+')}")
        if name.startswith("."):
            item = component("library", f"local/{name.removeprefix('./')}", version)
        if total and total[0]:
            item["properties"] = [{"name": "gangplank:go.sum", "value": total[0]}]
        yield item


def python_packages(text: str) -> Iterator[Json]:
    r"""The packages of a requirements.txt.

    >>> [item["purl"] for item in python_packages("Some_thing==1.0 ; x \\\n    --hash=sha256:0\n")]
    ['pkg:pypi/some-thing@1.0']
    """
    for name, version in REQUIREMENT.findall(text):
        canonical = re.sub(r"[-_.]+", "-", name).lower()
        yield component("library", canonical, version, f"pkg:pypi/{canonical}@{quote(version)}")


def document(subject: Json, parts: Iterable[Json]) -> Json:
    """The bill of one subject; the same content gives the same bytes."""
    components = sorted({item["bom-ref"]: item for item in parts}.values(), key=lambda item: str(item["bom-ref"]))
    refs = [item["bom-ref"] for item in components]
    content: Json = {
        "metadata": {"component": subject},
        "components": components,
        "dependencies": [
            {"ref": subject["bom-ref"], "dependsOn": [ref for ref in refs if ref != subject["bom-ref"]]},
        ],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1}
    return head | content


class Bills:
    """All bills of what is in the cache."""

    def __init__(self, shop: Workshop) -> None:
        """Nothing is read yet."""
        self.shop = shop

    def modules_in(self, binary: Path) -> list[Json]:
        """The modules of a binary; none of a script."""
        command = [str(self.shop.go), "version", "-m", str(binary)]
        env = go_environment(self.shop.go)
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        return list(go_modules(done.stdout))

    def root(self, name: str) -> list[Json]:
        """The packages of a root, as locked."""
        packages = self.shop.lock["roots"].get(name, {}).get("packages", {})
        return list(debian(self.shop.pins.roots[name].suite, packages))

    def binaries(self, part: Part) -> Iterator[tuple[str, Json]]:
        """A bill for each command of a part."""
        for name in part.commands:
            path = self.shop.place(part) / "bin" / name
            subject = component("application", name, part.version, sha256=sha256_file(path))
            yield f"binary-{part.name}-{name}", document(subject, self.modules_in(path))

    def image(self, part: Part, image: Image) -> tuple[str, Json]:
        """The bill of an image: its root's packages, its binaries and their modules, its folders of this project."""
        digest = self.shop.lock["images"].get(image.name, {}).get("digests", {}).get("manifest", "")
        repository, _, tag = image.name.rpartition(":")
        name = repository.rpartition("/")[2]
        where = f"repository_url={quote(repository, safe='')}&tag={quote(tag)}"
        purl = f"pkg:oci/{name}@{quote(digest)}?{where}" if digest else ""
        subject = component("container", repository, tag, purl, digest.removeprefix("sha256:"))
        parts = self.root(image.root) if image.root else []
        for origin in image.binaries:
            other, _, command = origin.rpartition("/")
            owner = self.shop.pins.parts[other] if other else part
            path = self.shop.place(owner) / "bin" / command
            parts.append(component("application", command, owner.version, sha256=sha256_file(path)))
            parts += self.modules_in(path)
        parts += [component("application", f"gangplank/{tree}", part.version) for tree in image.trees.values()]
        return f"image-{re.sub('[^A-Za-z0-9.-]+', '-', image.name)}", document(subject, parts)

    def all(self) -> Iterator[tuple[str, Json]]:
        """Name and content of every bill; parts on demand only if they are built."""
        pins = self.shop.pins
        for part in pins.parts.values():
            if part.name in pins.on_demand and not self.shop.place(part).exists():
                continue
            yield from self.binaries(part)
            for image in part.images:
                yield self.image(part, image)
        for root in (pins.roots[name] for name in pins.roots_of_all):
            digests = self.shop.lock["roots"].get(root.name, {}).get("digests", {})
            subject = component("platform", f"root-{root.name}", root.suite, sha256=digests.get("root.tar", ""))
            yield f"root-{root.name}", document(subject, self.root(root.name))
        text = (LAB.parent / "requirements.txt").read_text()
        yield "python", document(component("application", "gangplank-controller", "locked"), python_packages(text))


def main(folder: Path) -> int:
    """Write every bill into a folder; the exit status."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        shop = Workshop(cache_home(), load_pins(), say, dry=False)
        shop.lock = read_lock()
        bills = dict(Bills(shop).all())
    except PartError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"{error.filename}: got no such file, expected a part that is built. Fix: make parts", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.cdx.json"):
        old.unlink()
    for name, bill in bills.items():
        (folder / f"{name}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    print(f"{len(bills)} bills of materials in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
