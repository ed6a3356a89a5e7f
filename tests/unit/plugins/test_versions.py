"""A version that a role cannot compare, and an image without a tag, are refused with the name of the variable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[3]
ROLES = {
    "volcano": "volcano_version", "storage": "storage_local_path_version",
    "gpu_device_plugin": "gpu_device_plugin_version", "gpu_dra_driver": "gpu_dra_driver_version",
}  # fmt: skip


def condition(role: str, variable: str) -> str:
    """What the role demands of the version first: of an assert, or of an item of its loop."""
    for task in yaml.safe_load((ROOT / f"roles/{role}/tasks/main.yml").read_text()):
        that: Any = task.get("ansible.builtin.assert", {}).get("that")
        if isinstance(that, str) and f"{variable} is" in that:
            return f"{{{{ {that} }}}}"
        for item in task.get("loop") or ():
            if item["name"] == variable:
                return str(item["holds"])
    return ""


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("version", ["", "v1.15.1", "latest", None])
def test_what_is_no_version_is_refused_and_not_compared(role: str, version: str | None) -> None:
    """A version without a leading v is what upstream's charts have; their tags have one."""
    variable = ROLES[role]
    default = yaml.safe_load((ROOT / f"roles/{role}/defaults/main.yml").read_text())[variable]
    values = {variable: default if version is None else version}
    templar = Templar(loader=DataLoader(), variables=values)
    assert templar.template(trust_as_template(condition(role, variable))) == (version is None)


@pytest.mark.parametrize("image", ["busybox", "mirror.example:5000/busybox", "busybox@sha256:0a", "", None])
def test_an_image_without_a_tag_is_refused(image: str | None) -> None:
    """The chart takes repository and tag by themselves; of the second, the tag would be 5000/busybox."""
    tagged = "mirror.example:5000/library/busybox:1.37@sha256:0a"
    values = {"training_operator_init_image": tagged if image is None else image}
    templar = Templar(loader=DataLoader(), variables=values)
    wanted = condition("training_operator", "training_operator_init_image")
    assert templar.template(trust_as_template(wanted)) == (image is None)
