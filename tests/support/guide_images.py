"""Images under the names that vSphere's guide prints: the trainer's, which knows what the guide's images know.

Its manifests name an image and no flags, and none of their images can be had. So what those have inside is inside ours:
how long they train, that the single pod trains alone, and where on the mounted volume they leave logs and model.
"""

from __future__ import annotations

from pathlib import Path

from lab.build.oci_archive import read_image, write_image
from lab.build.parts import build

EPOCHS, BATCH = 6, 32  # 1536 digits: 48 steps alone, 16 on each of three ranks
VOLUME = "/opt/pytorch/output"  # where the guide mounts the claim
TRAINS = ["--epochs", str(EPOCHS), "--batch-size", str(BATCH)]
JOB = ["--output", f"{VOLUME}/job", "--dir", f"{VOLUME}/job/logs"]
ALONE = ["--output", f"{VOLUME}/single", "--dir", f"{VOLUME}/single/logs"]


def image(folder: Path, name: str, *, alone: bool) -> Path:
    """The archive of an image: the trainer's layers, and flags of its own behind the entry point."""
    layers, config, _ = read_image(Path(build(["trainer"], print)["images"][0]["archive"]))
    own = ["--standalone", *TRAINS, *ALONE] if alone else [*TRAINS, *JOB]
    archive = folder / f"{'alone' if alone else 'job'}.tar"
    write_image(archive, name, layers, {**config, "Entrypoint": [*config["Entrypoint"], *own]})
    return archive
