"""Files that a registry has inside a chart, fetched by helm."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gangplank.errors import KubeError, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTRY = "oci://"
PULL_S = 120


def file_in_chart(name: str, environment: Mapping[str, str]) -> bytes:
    """The content of oci://REGISTRY/CHART:VERSION/FILE: the file of that name in the chart's folder crds/."""
    address, file = name.rsplit("/", 1)
    chart, version = address.rsplit(":", 1)
    with tempfile.TemporaryDirectory(prefix="gangplank-chart-") as folder:
        command = ["helm", "pull", chart, "--version", version, "--destination", folder]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=PULL_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise missing(name, f"no chart ({error})") from None
        if done.returncode:
            raise missing(name, f"no chart ({' '.join(done.stderr.split()) or 'helm pull failed'})")
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as packed:
            for member in packed:
                if member.name.endswith(f"/crds/{file}") and (content := packed.extractfile(member)):
                    return content.read()
    raise missing(name, f"a chart without crds/{file}")


def missing(name: str, got: str) -> KubeError:
    """The error of a file that could not be read."""
    fix = "name a registry that playbooks/mirror.yml filled, or a folder that holds the files"
    return KubeError(str(Problem(name, got, "a file with objects in YAML", fix)))
