"""Documentation of the action lab_build, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_build
short_description: Build parts of the lab on the controller
description:
  - Shows progress. What is finished is kept in the user's cache, also when it is interrupted.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  parts:
    description: Names from C(lab/versions.yml).
    type: list
    elements: str
    required: true
"""

RETURN = r"""
---
built:
  description: What was built, and not already in the cache.
  type: list
  returned: always
"""
