"""Documentation of the action lab_preflight, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_preflight
short_description: Refuse a machine that cannot run the lab
description:
  - Reports every problem in one message, each with its fix; changes nothing.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  disk_cold_gib:
    description: GiB that must be free where nothing is built yet.
    type: float
    required: true
  disk_warm_gib:
    description: GiB that must be free where everything is built.
    type: float
    required: true
  memory_gib:
    description: GiB of memory that the machine must have.
    type: float
    required: true
  cache:
    description: The folder of the built parts.
    type: path
    required: true
  state:
    description: The folder of the lab's data.
    type: path
    required: true
  networks:
    description: The lab's networks, in CIDR notation.
    type: list
    elements: str
    required: true
"""

RETURN = r"""
---
notes:
  description: What will work with a limit on this machine.
  type: list
  returned: always
"""
