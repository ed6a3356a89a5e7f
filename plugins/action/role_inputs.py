"""Refuse a variable with a role's prefix that is not an input of the role: misspelt, it would have no effect."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.gangplank.gangplank.plugins.plugin_utils.base import LibraryAction


def written_in(name: str, places: list[Path]) -> str:
    """The file and line of `name: …` in these files and folders, or where else it can come from."""
    for place in places:
        for path in [place] if place.is_file() else sorted(place.rglob("*.y*ml")):
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if re.match(rf"\s*{name}\s*:", line):
                    return f"{path}:{number}"
    return "command line or play"


class ActionModule(LibraryAction):
    """Documented in plugins/modules/role_inputs.py."""

    def act(self, _: dict[str, Any]) -> dict[str, Any]:
        """Compare the variables with every entry point of meta/argument_specs.yml."""
        role, variables = self._task._role, self.variables  # a task has no other way to its role
        text = (Path(role.get_role_path()) / "meta" / "argument_specs.yml").read_text()
        entries = yaml.safe_load(text)["argument_specs"].values()
        inputs = {name for entry in entries for name in entry.get("options", {})}
        inputs |= set(re.findall(r"C\((\w+)\)", text))  # variables that the role sets for others
        own = role.get_name(include_role_fqcn=False)  # without the collection, which a playbook of it adds
        prefix = f"{own}_"
        unknown = sorted(name for name in variables if name.startswith(prefix) and name not in inputs)
        if not unknown:
            return {"changed": False}
        places = []
        for source in map(Path, variables.get("ansible_inventory_sources") or ()):  # a site's folder, or a file in it
            beside = [source.parent / name for name in ("group_vars", "host_vars")]
            places += [source] if source.is_dir() else [source, *beside]
        places.append(Path(variables["playbook_dir"]))
        short, lines = [name.removeprefix(prefix) for name in inputs], []
        for name in unknown:
            near = difflib.get_close_matches(name.removeprefix(prefix), short, 1)
            fix = f"write {prefix}{near[0]}" if near else f"remove it, or see roles/{own}/README.md"
            where = written_in(name, places)
            lines.append(f"{where}: {name}: role {own} has no such input. Fix: {fix}.")
        return {"failed": True, "msg": "\n".join(lines)}
