"""The answers of `gangplank why` that docs/troubleshooting.md shows."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from tests.support.teams_live import ROOT

if TYPE_CHECKING:
    from gangplank.scheduling.why import Diagnosis

PAGE = ROOT / "docs/troubleshooting.md"
BLOCK = re.compile(r"<!-- why: (?P<name>\S+) -->\n```\n(?P<text>.*?)```\n", re.DOTALL)
# What is other each time or on each machine: seconds, a node, what is free; words of kubelet, webhook and scheduler.
# A random name, the UID in that of a PodGroup, how often a pod has started, which queues there are, whether placed pods
# run by now, and which of several pods failed first.
VARIES = re.compile(
    r"\d+\.\d+|\b\d+ s\b|\bnode-\d|(?<=they have )\S+|(?<=pods hold )\S+|(?<=wait until )\S+"
    r"|(?:ErrImagePull|ImagePullBackOff): .*|waited \d+ s; the cluster says: |(?<=failed calling webhook ).*"
    r"|(?<=scheduler says: ).*|(?<=  the cluster has ).*|(?<=FailedCreatePodSandBox: ).*"
    r"|(?<=FailedPrepareDynamicResources: ).*"
    r"|(?<=PodGroup )\S+|(?<=-)\d-[a-z0-9]{5}\b|(?<=has started )\d+|\S+(?= failed first)"
    r"|\b(?:runs with|has nodes for)(?= \d)"
)


def shown() -> dict[str, str]:
    """The blocks of the page, by the names of their stories."""
    return {match["name"]: match["text"] for match in BLOCK.finditer(PAGE.read_text())}


def alike(text: str) -> str:
    """A text without what is other each time.

    >>> alike("after 16 s on node-1: ErrImagePull: no host"), alike("after 9 s on node-0: ImagePullBackOff: Back-off")
    ('after  on : ', 'after  on : ')
    """
    return VARIES.sub("", text)


def is_shown(name: str, diagnosis: Diagnosis) -> None:
    """Fail if the page shows another text under this name; GANGPLANK_GOLDEN=write rewrites the page."""
    text = f"{diagnosis.text()}\n"
    if os.environ.get("GANGPLANK_GOLDEN") == "write":
        page = PAGE.read_text()
        block = next(match for match in BLOCK.finditer(page) if match["name"] == name)
        PAGE.write_text(page.replace(block[0], f"<!-- why: {name} -->\n```\n{text}```\n"))
    else:
        assert alike(text) == alike(shown()[name]), text
