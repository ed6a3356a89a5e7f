"""Documentation of the action lab_lock, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_lock
short_description: Hold the lab for this run of ansible-playbook
description:
  - A second run names the process that holds the lab, its playbooks and since when, and waits for it.
  - A process that has ended holds nothing, unless a task that it started still runs.
  - A folder with other files in it is refused.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  folder:
    description: The lab's folder.
    type: path
    required: true
  state:
    description: Whether the lab is to be held or freed.
    type: str
    choices: [held, free]
    default: held
  create:
    description: Whether the folder is created if it is missing. Without a folder there is nothing to hold.
    type: bool
    default: true
  timeout_s:
    description: Seconds to wait for another run.
    type: int
    default: 900
"""

RETURN = ""
