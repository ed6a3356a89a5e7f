"""Ensure or remove a node of the lab, or the whole lab."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_node
short_description: Ensure a lab node's network namespace, mount namespace and cgroup
description:
  - I(state=present) makes what is missing and starts nothing.
  - I(state=absent) ends every process of the node and removes its namespaces and cgroup; its files stay.
  - I(state=no_lab) does so for all nodes, then removes the switch, the host's link and I(folder).
options:
  name: {description: The node's name., type: str}
  state: {description: What to ensure., type: str, choices: [present, absent, no_lab], default: present}
  folder: {description: The lab's folder, or for I(state=present) the node's own., type: path, required: true}
  tree: {description: The root file system that the node shows, read-only., type: path}
  address: {description: The node's address with prefix length., type: str}
  host_address: {description: The host's address on the same network., type: str}
  routes:
    description: 'Ranges and how they are reached, as in 198.18.65.0/24: via 198.18.0.2.'
    type: dict
    default: {}
  binds:
    description: Folders of the host shown in the node, with I(source), I(target) and I(writable).
    type: list
    elements: dict
    default: []
author: Gangplank
"""

from pathlib import Path
from typing import Any

from ansible.module_utils import lab_node as lab
from ansible.module_utils.basic import AnsibleModule


def present(given: dict[str, Any]) -> bool:
    """Make the node, anew where the root file system that it stands on is another one."""
    folder = Path(given["folder"])
    stamp = folder / "tree.path"
    binds = [lab.Bind(**bind) for bind in given["binds"]]
    stood_on = f"{given['tree']} {binds}"
    if lab.mntns(given["name"]).exists() and (not stamp.exists() or stamp.read_text() != stood_on):
        lab.remove_node(given["name"])
    changed: bool = lab.ensure_switch(given["host_address"])
    changed |= lab.ensure_network(given["name"], given["address"], given["routes"])
    changed |= lab.ensure_cgroup(given["name"])
    folder.mkdir(parents=True, exist_ok=True)
    if lab.ensure_mounts(given["name"], given["tree"], str(folder / "root"), binds):
        stamp.write_text(stood_on)
        changed = True
    return changed


def main() -> None:
    """Convert, call, report."""
    bind = {
        "source": {"type": "path", "required": True},
        "target": {"type": "path", "required": True},
        "writable": {"type": "bool", "default": False},
    }
    spec = {
        "name": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent", "no_lab"], "default": "present"},
        "folder": {"type": "path", "required": True},
        "tree": {"type": "path"},
        "address": {"type": "str"},
        "host_address": {"type": "str"},
        "routes": {"type": "dict", "default": {}},
        "binds": {"type": "list", "elements": "dict", "default": [], "options": bind},
    }
    needed = [("state", "present", ["name", "tree", "address", "host_address"]), ("state", "absent", ["name"])]
    module = AnsibleModule(argument_spec=spec, required_if=needed, supports_check_mode=True)
    given = module.params
    if module.check_mode:
        there = given["name"] in lab.lab_nodes() if given["name"] else bool(lab.lab_nodes())
        module.exit_json(changed=there != (given["state"] == "present"))
    try:
        if given["state"] == "present":
            changed = present(given)
        elif given["state"] == "absent":
            changed = lab.remove_node(given["name"])
        else:
            changed = lab.remove_lab(Path(given["folder"]))
    except (lab.LabError, OSError) as error:
        module.fail_json(msg=f"lab node {given['name'] or '(all)'}: {error}")
    module.exit_json(changed=changed)


if __name__ == "__main__":
    main()
