"""Ensure that the lab's supervisord runs and follows its files."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lab_supervisor
short_description: Ensure that the lab's programs run as their files say
description:
  - Starts supervisord where none answers (first ending what an earlier one left running), starts new and stopped
    programs, restarts those whose section changed, ends those whose section is gone.
options:
  config: {description: supervisord's configuration file., type: path, required: true}
  socket: {description: Its unix socket., type: path, required: true}
  logs: {description: Folder of the programs' logs., type: path, required: true}
author: Gangplank
"""

from pathlib import Path

from ansible.module_utils import lab_node, lab_supervisor
from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    """Convert, call, report."""
    spec = {name: {"type": "path", "required": True} for name in ("config", "socket", "logs")}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    config, socket = Path(module.params["config"]), Path(module.params["socket"])
    running = lab_supervisor.answers(socket)
    if module.check_mode:
        module.exit_json(changed=not running)
    try:
        Path(module.params["logs"]).mkdir(parents=True, exist_ok=True)
        if not running:
            # What a killed supervisord left behind still holds ports and databases; containers' shims may stay.
            lab_node.kill_members(lab_supervisor.SYSTEM)
            lab_supervisor.start(config, socket)
        done = lab_supervisor.apply(socket)
    except (lab_node.LabError, OSError) as error:
        module.fail_json(msg=f"supervisord of the lab: {error}")
    module.exit_json(changed=not running or any(done.values()), programs=done)


if __name__ == "__main__":
    main()
