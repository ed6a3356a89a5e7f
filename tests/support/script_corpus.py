"""The scripts of tests/scripts/corpus.yml: where each lies, unedited, and the image that Kubeflow's mnist.py needs."""

from __future__ import annotations

import importlib.util
import random
import struct
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.build import go_commands
from lab.build.cache import cache_home
from lab.build.go_toolchain import find_go
from lab.build.oci_archive import read_image, write_image, write_layer
from lab.build.parts import build
from lab.build.versions import MODULES, load_pins
from lab.errors import PartError
from tests.support import documents

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests/scripts"
NEVER_CLAIMED = {"all epochs", "samples are disjoint and complete", "global batch"}  # docs/proof.md
TRAINER = "gangplank.dev/trainer:0.1.0"
MNIST = "gangplank.dev/mnist:test"  # made by `mnist_image`
IMAGES = {"": TRAINER, "mnist": MNIST}
PLACE = "/opt/mnist/src"  # where upstream's Dockerfile puts mnist.py; its data are in ../data
SIZES = {"train": 192, "t10k": 64}  # images; a real set has 60000 and 10000


@dataclass(frozen=True)
class UserScript:
    """A row of the corpus."""

    name: str
    whose: str
    does: str
    file: str
    verdict: str
    document: str = ""
    module: str = ""
    image: str = ""
    rendezvous: str = ""
    why: str = ""
    args: Sequence[str] = ()
    not_claimed: Sequence[str] = field(default=())

    def text(self) -> str:
        """The script, to the letter."""
        if self.document:
            return documents.printed(self.document)
        return (module_folder() / self.module if self.module else SCRIPTS / self.file).read_text()


def corpus() -> dict[str, UserScript]:
    """All rows, by name."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load((SCRIPTS / "corpus.yml").read_text())
    return {name: UserScript(name, **row) for name, row in rows.items()}


@cache
def module_folder() -> Path:
    """The training operator's Go module, verified against go.sum, in Go's own cache."""
    part, pins = load_pins().parts["training-operator"], load_pins()
    go = find_go(pins, cache_home(), print)
    try:
        return go_commands.module_folder(part, part.module, go, MODULES / part.name)
    except PartError as error:
        return pytest.skip(f"{part.module} is not in Go's module cache, and cannot be fetched: {error}")


def idx(values: bytes, *shape: int) -> bytes:
    """Bytes in MNIST's own format: http://yann.lecun.com/exdb/mnist/."""
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + values


def image_sets(folder: Path) -> dict[str, Path]:
    """Files as torchvision looks for them, made by a rule from a seed: the row of the bright bar is the label."""
    chance, files = random.Random(5), {}
    for name, size in SIZES.items():
        labels = bytes(chance.randrange(10) for _ in range(size))
        pixels = b"".join(bytes(200 + chance.randrange(56) if row // 2 - 4 == label else chance.randrange(60)
                                for row in range(28) for _ in range(28)) for label in labels)
        for kind, content in (("images-idx3", idx(pixels, size, 28, 28)), ("labels-idx1", idx(labels, size))):
            files[f"/opt/mnist/data/FashionMNIST/raw/{name}-{kind}-ubyte"] = folder / f"{name}-{kind}"
            (folder / f"{name}-{kind}").write_bytes(content)
    return files


def mnist_image(folder: Path) -> Path:
    """The archive of the image MNIST, as upstream's Dockerfile makes it: torchvision, tensorboardX, the script.

    tensorboardX is the wheel that requirements.txt pins by its hash and that .venv has.
    """
    base = Path(build(["torchvision"], print)["images"][0]["archive"])
    wheel = Path(str(importlib.util.find_spec("tensorboardX").origin)).parent  # type: ignore[union-attr]  # is installed
    files = {f"/usr/lib/python3/dist-packages/tensorboardX/{path.relative_to(wheel)}": path
             for path in sorted(wheel.rglob("*.py"))}
    (folder / "data").mkdir()
    files |= image_sets(folder / "data")
    for script in corpus().values():
        if script.image == "mnist":
            source = folder / script.file
            source.write_text(script.text())
            files[f"{PLACE}/{script.file}"] = source
    layers, config, _ = read_image(base)
    layers.append(write_layer(folder / "layer.tar", files))
    write_image(folder / "mnist.tar", MNIST, layers, {**config, "WorkingDir": PLACE})
    (folder / "layer.tar").unlink()
    return folder / "mnist.tar"
