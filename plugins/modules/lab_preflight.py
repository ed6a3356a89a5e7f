"""Say all that keeps the lab from this machine, before anything is changed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_preflight
short_description: Check that the lab can live on this machine
description:
  - Reads what the machine is and has, changes nothing, and fails with every problem at once, a line each with its cure.
options:
  cache: {description: The folder of the lab's cache., type: path, required: true}
  state: {description: The folder where the running lab lives., type: path, required: true}
  networks: {description: 'The networks of the lab, as in 198.18.0.0/24.', type: list, elements: str, required: true}
  disk_cold_gib: {description: Free disk that building everything needs., type: float, required: true}
  disk_warm_gib: {description: Free disk that a lab with a filled cache needs., type: float, required: true}
  memory_gib: {description: Memory that the machine must have., type: float, required: true}
author: Gangplank
"""

from ansible.module_utils import lab_preflight as preflight
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.lab_host import gather


def main() -> None:
    """Gather, judge, report."""
    sizes = ("disk_cold_gib", "disk_warm_gib", "memory_gib")
    spec: dict[str, object] = {name: {"type": "float", "required": True} for name in sizes}
    spec |= {name: {"type": "path", "required": True} for name in ("cache", "state")}
    spec["networks"] = {"type": "list", "elements": "str", "required": True}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    given = module.params
    needs = preflight.Needs(tuple(given["networks"]), *(given[name] for name in sizes))
    host = gather(given["cache"], given["state"])
    found, notes = preflight.problems(host, needs), preflight.notes(host)
    if found:
        count = f"{len(found)} problems" if len(found) > 1 else "one problem"
        text = "\n".join(f"- {line}" for line in found)
        module.fail_json(msg=f"the lab cannot live on this machine yet, {count}:\n{text}")
    module.exit_json(changed=False, notes=notes)


if __name__ == "__main__":
    main()
