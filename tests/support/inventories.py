"""Inventories that tests write: the lab's own, with other teams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

LAB = Path(__file__).resolve().parents[2] / "inventories/lab"


def variables(fields: Mapping[str, Any], prefix: str = "team_") -> str:
    """A file of variables from fields without their prefix."""
    return yaml.safe_dump({f"{prefix}{name}": value for name, value in fields.items()})


def write_inventory(
    folder: Path, teams: Mapping[str, Mapping[str, Any]], site: Mapping[str, Any] | None = None
) -> Path:
    """The lab's inventory in a folder, with these teams: their fields by name, and those of the site."""
    hosts = yaml.safe_load((LAB / "hosts.yml").read_text())
    hosts["all"]["children"]["teams"] = {"hosts": dict.fromkeys(teams)}
    for name in ("group_vars", "host_vars"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    shared = folder / "group_vars/all"
    if not shared.exists():
        shared.symlink_to(LAB / "group_vars/all")
    (folder / "hosts.yml").write_text(yaml.safe_dump(hosts))
    (folder / "group_vars/teams.yml").write_text(variables(site or {}, "team_site_"))
    for path in folder.glob("host_vars/*.yml"):
        path.unlink()
    for name, fields in teams.items():
        (folder / f"host_vars/{name}.yml").write_text(variables(fields))
    return folder


def fields_of(path: Path, prefix: str = "team_") -> dict[str, Any]:
    """The fields in a file of variables, without their prefix."""
    return {name.removeprefix(prefix): value for name, value in yaml.safe_load(path.read_text()).items()}
