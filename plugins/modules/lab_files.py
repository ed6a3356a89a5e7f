"""Documentation of the action lab_files, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: lab_files
short_description: Ensure all files of one host of the lab in one call
description:
  - Writes a file beside its place and renames it, only where content or mode differ. Creates missing folders.
  - A file that others may not read is not in the diff.
author:
  - The Gangplank authors (!UNKNOWN)
options:
  files:
    description: The files.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Where it is.
        type: path
        required: true
      mode:
        description: Its mode, in octal digits.
        type: str
        default: '0644'
      content:
        description: Its content.
        type: str
      copy:
        description: A file to copy, instead of O(files[].content).
        type: path
"""

RETURN = r"""
---
written:
  description: Paths of the files that changed.
  type: list
  returned: always
"""
