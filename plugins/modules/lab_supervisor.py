"""Documentation of the action lab_supervisor, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_supervisor
short_description: Ensure that the lab's supervisord runs and follows its files
description:
  - Starts supervisord where none answers, after it has ended what an earlier one left.
  - Starts new and stopped programs, restarts those whose section changed, and ends those whose section is gone.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  config:
    description: The supervisord configuration.
    type: path
    required: true
  socket:
    description: Its socket.
    type: path
    required: true
  logs:
    description: Folder of the programs' logs.
    type: path
    required: true
"""

RETURN = r"""
---
programs:
  description: What was done, by program.
  type: dict
  returned: not in check mode
healed:
  description: What did not run and was started again, a line each.
  type: list
  returned: not in check mode
"""
