"""A version that a role cannot compare is refused in a sentence that names its variable."""

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
