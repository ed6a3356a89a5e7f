"""Documentation of the action role_inputs, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: role_inputs
short_description: Refuse a variable with a role's prefix that the role does not know
description:
  - 'The first task of a role: a misspelt input would silently change nothing.'
  - Names the file and line of each, and the nearest input.
author:
  - The Gangplank authors (!UNKNOWN)
"""

EXAMPLES = r"""
---
- name: Refuse unknown variables of this role
  gangplank.gangplank.role_inputs:
"""

RETURN = ""
