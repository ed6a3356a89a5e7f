"""Documentation of the action training_job_submit, for `ansible-doc`."""

DOCUMENTATION = r"""
---
module: training_job_submit
short_description: Ensure that a training job runs as its manifests say
description:
  - A job of that name that differs is refused, or with O(replace) replaced. Check mode asks the server and changes
    nothing.
extends_documentation_fragment:
  - gangplank.gangplank.kubeconfig
author:
  - The Gangplank authors (!UNKNOWN)
options:
  manifests:
    description: The objects, the job last.
    type: list
    elements: dict
    required: true
  volumes:
    description: The job's volumes, as M(gangplank.gangplank.training_job_expand) returns them.
    type: list
    elements: dict
    default: []
  replace:
    description: Delete a job that differs or has failed, and submit this one. Its claims stay.
    type: bool
    default: false
"""

EXAMPLES = r"""
---
- name: Submit a job
  gangplank.gangplank.training_job_submit:
    manifests: "{{ expanded.manifests }}"
"""

RETURN = ""
