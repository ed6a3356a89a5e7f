"""What the five source documents print, taken out of them while a test runs: no copy of it is kept here.

GANGPLANK_DOCUMENTS names the folder with the documents; without it, shared/seeds beside the checkout.
"""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gangplank.reading.strict_yaml import documents as read

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```(?P<head>[^\n]*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)  # Markdown
DIRECTIVE = re.compile(r"^\.\. code-block::(?P<head>.*)\n(?P<text>(?:[ \t]+\S.*\n|[ \t]*\n)+)", re.MULTILINE)  # reST
# Names of the documents' own clusters, and what the lab has.
SUBSTITUTIONS = {
    "gcr.io/kubeflow-ci/pytorch-dist-sendrecv-test:1.0": "gangplank.dev/trainer:0.1.0",
    "projects.registry.vmware.com/models/kubeflow-docs/model-training-pytorch:1.11.0-cpu-py3.8-v0.1":
        "gangplank.dev/trainer:0.1.0",
    "projects.registry.vmware.com/models/kubeflow-docs/model-training-pytorch:1.11.0-gpu-cu11.6-py3.8-v0.1":
        "gangplank.dev/trainer:0.1.0",
    "harbor-repo.vmware.com/kubeflow_learning/lab3-pytorch-training:dlc-0.0.1": "gangplank.dev/trainer:0.1.0",
    "<训练镜像>": "gangplank.dev/trainer:0.1.0",
    "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime": "gangplank.dev/trainer:0.1.0",
    "storageClassName=k8s-storage-policy": "storageClassName=local-path",
}  # fmt: skip


def folder() -> Path:
    """Where the documents are; the test is skipped where they are not."""
    place = Path(os.environ.get("GANGPLANK_DOCUMENTS") or ROOT.parent / "shared" / "seeds")
    if not list(place.glob("*.txt")):
        pytest.skip(f"document not at hand: no *.txt in {place}. GANGPLANK_DOCUMENTS names another folder")
    return place


def printed(words: str) -> str:
    """The one block of code that has these words in it or in its title, to the letter."""
    blocks = [textwrap.dedent(match["text"]).strip("\n") + "\n"
              for file in sorted(folder().glob("*.txt")) for pattern in (FENCED, DIRECTIVE)
              for match in pattern.finditer(file.read_text()) if words in match["head"] + "\n" + match["text"]]
    assert len(blocks) == 1, f"{len(blocks)} blocks have {words!r}"
    return blocks[0]


def adapted(words: str) -> str:
    """The same with the lab's images and storage class."""
    text = printed(words)
    for name, ours in SUBSTITUTIONS.items():
        text = text.replace(name, ours)
    return text


def job(words: str) -> dict[str, Any]:
    """The job in it, which may stand in a command."""
    text = adapted(words).replace("yamlapiVersion:", "apiVersion:")
    text = re.sub(r"\A.*?<<EOF[^\n]*\n(.*?)^ *EOF\n", r"\1", text, flags=re.DOTALL | re.MULTILINE)
    return dict(read(text, words, strict=False)[0])
